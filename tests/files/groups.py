#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.3 memory=1G about=34s disk
"""A memory control group with a limit, as containers and Slurm's steps are in: what is kept in memory of a program's files counts there,
and cannot be taken back. A program that fits into its group without the library fits with it."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import SKIP, Checks, Place, signal_if_there, until

MIB = 1 << 20
LIMIT = 480
SAVED = 3


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def read(path):
    with open(path, encoding="ascii") as f:
        return f.read()


class Group:
    """One of version 1 or 2, below this process's. A with statement."""

    def __enter__(self):
        self.path = None
        for line in read("/proc/self/cgroup").splitlines():
            number, controllers, below = line.split(":", 2)
            if number == "0" and "memory" in (read("/sys/fs/cgroup/cgroup.subtree_control") if os.path.exists("/sys/fs/cgroup/cgroup.subtree_control") else ""):
                mount, self.limit, self.kills = "/sys/fs/cgroup", "memory.max", "memory.events"
            elif "memory" in controllers.split(","):
                mount, self.limit, self.kills = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"
            else:
                continue
            for above in (mount + below, mount):
                path = os.path.join(above, f"tpck-groups.{os.getpid()}")
                try:
                    os.mkdir(path)
                    write(os.path.join(path, self.limit), str(LIMIT * MIB))
                    self.path = path
                    return self
                except OSError as error:
                    why = error
                    if os.path.isdir(path):
                        os.rmdir(path)
            print(f"1..0 # SKIP no control group of memory can be made: {why}")
            sys.exit(SKIP)
        print("1..0 # SKIP no control groups of memory")
        sys.exit(SKIP)

    def __exit__(self, *_):
        for pid in read(os.path.join(self.path, "cgroup.procs")).split():
            signal_if_there(int(pid))
        until(lambda: not read(os.path.join(self.path, "cgroup.procs")).strip())
        os.rmdir(self.path)

    def enter(self):
        write(os.path.join(self.path, "cgroup.procs"), str(os.getpid()))

    def killed(self):
        """How many processes the kernel has ended in it."""
        return sum(int(line.split()[1]) for line in read(os.path.join(self.path, self.kills)).splitlines() if line.startswith("oom_kill "))


# The program holds so many MiB of its own, and saves files of so many, one after the other; it says how many of them were in memory.
SAVES = """
import os, sys, time
own, each, count = map(int, sys.argv[1:])
held = [os.urandom(1 << 20) for _ in range(own)]
piece = os.urandom(1 << 20)
memory = 0
for i in range(count):
    with open(f"model-{i}.pt", "wb") as f:
        memory += "TRANSPCKPT_SHM" in os.environ and os.fstat(f.fileno()).st_dev == os.stat(os.environ["TRANSPCKPT_SHM"]).st_dev
        for _ in range(each): f.write(piece)
    time.sleep(0.3)
print(memory, flush=True)
"""

# Afterwards it needs memory that was free before: a GiB takes it some seconds.
GROWS = SAVES + """
for i in range(int(os.environ["MORE"])):
    held.append(os.urandom(1 << 20))
    time.sleep(0.005)
print("grown", flush=True)
"""


def started(place, group, program, *arguments, preload=True, **more):
    return place.run(program, *arguments, preload=preload, check=False, preexec_fn=group.enter, **more)


def cases(checks, group, outside):
    """`outside`: the agent is none of the group's, as one that Slurm's plugin starts."""
    where = "an agent outside of the group" if outside else "its agent in its group"
    for what, own, each, program, some in (("that has room for its files", 32, 24, SAVES, True),
                                           ("that is nearly full", 300, 120, SAVES, False),
                                           ("whose program grows", 64, 48, GROWS, True)):
        with Place(MORE="230") as place:
            agent, before = None, group.killed()
            place.plain["MORE"] = "230"
            plain = started(place, group, program, own, each, SAVED, preload=False)
            for name in place.listing():
                os.unlink(place.path(name))
            if outside:
                environment = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD"}
                agent = subprocess.Popen([place.agent, "--job", "j", "--foreground"], env=environment, stderr=subprocess.DEVNULL)
                until(lambda: os.path.exists(os.path.join(place.job_folder, "agent.sock")))
            done = started(place, group, program, own, each, SAVED)
            until(lambda: not place.listed())
            sizes = {os.path.getsize(place.path(name)) for name in place.listing()}
            in_memory = int((done.stdout.split() or ["0"])[0])
            checks.ok(plain.returncode == 0 and done.returncode == 0 and group.killed() == before and sizes == {each * MIB} and
                      (in_memory > 1 or not some), f"a group {what}, {where}: nobody is ended in it", plain.returncode, done.returncode,
                      done.stdout, done.stderr, group.killed() - before, sizes, place.log())
            if agent:
                # One that has had nothing to do for a while ends by itself, with 0.
                checks.ok(agent.poll() in (None, 0), "the agent was not ended", agent.poll())
                place.kill_agent(signal.SIGTERM)
                agent.wait(20)


def main():
    checks = Checks()
    for outside in (False, True):
        begun = time.monotonic()
        with Group() as group:
            cases(checks, group, outside)
        print(f"# {'outside' if outside else 'inside'}: {time.monotonic() - begun:.1f} s", flush=True)
    checks.end()


if __name__ == "__main__":
    main()
