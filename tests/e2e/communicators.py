#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 about=20s
"""Communicators of a job of several ranks that is killed and goes on: while it runs forward none is made, whatever the program asks for; once all ranks
are ready those that it has at that step are made anew, once each and no others, and the bytes at the end are those of a run that was never killed.

Arguments: cases, or none for all."""
import os
import re
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job
import ranks

STEPS = 240
# Of all ranks, twice, the parts, and those in the other order.
ALIVE = 4


class Job(ranks.Ranks):
    """The program of communicators.cu, and beside each rank's output what came to NCCL."""

    def __init__(self, place, count, program, steps=STEPS):
        super().__init__(place, count, steps=steps, together=True)
        self.command = f'mkdir -p out; exec %s "{program}" {steps}'

    def calls(self):
        """What has come to NCCL since this was asked last, by rank."""
        found = []
        for rank in range(self.ranks):
            path = f"{self.place.environment['NCCL_CALLS']}.{rank}"
            found.append(job.read(path))
            if os.path.exists(path):
                os.unlink(path)
        return found


def written(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def compiled(place):
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "communicators.cu")
    program = os.path.join(place.root, "communicators")
    sim = os.path.join(place.build, "tests/sim")
    subprocess.run([os.path.join(sim, "simnvcc"), "-std=c++17", "-O2", "-I" + os.path.join(os.environ.get("srcdir", "."), "tests/sim/standin"),
                    "-c", "-o", program + ".o", source], check=True)
    subprocess.run([*os.environ.get("CXX", "c++").split(), "-L" + os.path.join(sim, "lib"), "-o", program, program + ".o", "-lcudart", "-lnccl",
                    "-lpthread"], check=True)
    return program


def goes_on(checks, count, kind, rng):
    """A machine that is busy may come to the end before there is anything to kill: then with more steps."""
    for times in (1, 3, 9):
        if goes_on_within(checks, count, kind, rng, STEPS * times, times == 9):
            break


def goes_on_within(checks, count, kind, rng, steps, last):
    what = f"{count} ranks, death of {kind}"
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="0.3s", SIMGPU_KERNEL_US="60") as place:
        tool = job.built(place, "nccl_calls.so", "nccl_calls.c", "-DALL", "-I" + os.path.join(os.environ.get("srcdir", "."), "tests/sim"))
        place.environment.update(LD_PRELOAD=tool, NCCL_CALLS=os.path.join(place.root, "calls"))
        this = Job(place, count, compiled(place), steps)
        this.run_plain()
        plain = this.calls()
        killed = ranks.begin_killing(this, rng, kind)
        if not killed and not last:
            return False
        checks.ok(all(calls.count("I") == 2 and calls.count("C") == 1 and calls.count("S") == 4 for calls in plain), f"{what}: plain, all are made", plain)
        if not checks.ok(killed, f"{what}: it is killed", this.story()):
            return True
        this.calls()
        second = this.start()
        status = second.wait()
        calls = this.calls()
        ranks.one_step(checks, this, what)
        checks.ok(status == 0 and not this.differences(), f"{what}: the same bytes", status, *this.differences(), this.story())
        at = ranks.WHERE.search(this.said()[0])
        if not at or int(at[1]) >= steps * 3 // 4 - 2:
            return True
        # Behind those that it has come a late one by its id, a late part, the end of the one before, and the end of all; not the one that was gone.
        ends = "".join(["I" * ALIVE, "ISD", "D" * 5])
        checks.ok([re.sub("[^ICSD]", "", c) for c in calls] == [ends] * count, f"{what}: {ALIVE} are made anew, none by a split, and what begins later",
                  *calls)
        checks.ok(all(not set(c[:c.index("I")]) - {"U"} for c in calls), f"{what}: before that nothing comes to NCCL", *calls)
        checks.ok(all(c.count("B") == 1 and c.count("b") == 1 and c.count("o") == 1 and {"B", "o"} <= set(c[:c.index("a")]) for c in calls),
                  f"{what}: what is registered still, and the sum, are made with them", *calls)
        # As many ids as there are communicators whose first rank it is: rank 0 of all, twice, of its part, and the late one's.
        checks.ok(calls[0].count("U") == 4, f"{what}: rank 0 asks for an id where it is the first", calls[0])
        return True


def differs(checks, count, kind, rng):
    """A rank does something else than in its first run, while the others wait for it: all start over, and end as a plain run."""
    for times in (1, 3, 9):
        if differs_within(checks, count, kind, rng, STEPS * times, times == 9):
            break


def differs_within(checks, count, kind, rng, steps, last):
    what = f"{count} ranks, one differs"
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="0.3s", SIMGPU_KERNEL_US="60") as place:
        place.environment.update(LD_PRELOAD="", NCCL_CALLS="")
        this = Job(place, count, compiled(place), steps)
        this.took = 1
        for folder in (this.plain, this.work):
            written(os.path.join(folder, "begin.1"), "a")
        killed = ranks.begin_killing(this, rng, kind)
        if not killed and not last:
            return False
        if not checks.ok(killed, f"{what}: it is killed", this.story()):
            return True
        found = os.stat(os.path.join(this.work, "begin.1"))
        for folder in (this.plain, this.work):
            path = os.path.join(folder, "begin.1")
            written(path, "b")
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        this.run_plain()
        status = this.start().wait()
        refused = [[line for line in text.splitlines() if "cannot resume" in line] for text in this.said()]
        checks.ok(all(len(lines) == 2 for lines in refused) and all("other bytes" in line for line in refused[1]), f"{what}: all say why, twice",
                  *refused, this.story())
        checks.ok(status == 0 and not this.differences(), f"{what}: and begin anew, to a plain run's bytes", status, *this.differences(), this.story())
        return True


def outside(checks):
    """Two processes that are one job to nobody: each goes on by itself, and what they made together it cannot make alone. It says so and begins anew."""
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="0.3s", SIMGPU_KERNEL_US="60") as place, socket.socket() as free:
        program = compiled(place)
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", 0))
        own = {"OWN_WORLD": "2", "MASTER_PORT": str(free.getsockname()[1])}
        free.close()
        command = f'mkdir -p out; for r in 0 1; do OWN_RANK=$r %s "{program}" {STEPS} >said.$r 2>err.$r & done; wait'
        plain, work = (os.path.join(place.root, name) for name in ("plain", "work"))
        os.makedirs(plain)
        os.makedirs(work)

        def start(folder, environment, how, name):
            return job.Start(place, [*place.runner, "sh", "-c", command % how], folder, {**environment, **own}, name)

        start(plain, {k: v for k, v in place.environment.items() if not k.startswith("TRANSPCKPT_")}, "", "plain").wait()
        preloaded = os.path.join(place.build, "transpckpt") + " run --"
        first = start(work, place.environment, preloaded, "first")
        killed = first.slowly_until(lambda: len({row["program"] for row in place.listed() if row["offered"]}) == 2, rest=0.05)
        first.kill()
        checks.ok(killed, "both are killed behind a snapshot of each", [row for row in place.listed()])
        second = start(work, place.environment, preloaded, "second")
        second.wait()
        said = [job.read(os.path.join(work, f"err.{rank}")) for rank in range(2)]
        checks.ok(all("its other ranks are none of this job's" in text for text in said), "ranks that are no job: each says it", *said)
        found = job.differences(os.path.join(plain, "out"), os.path.join(work, "out"))
        checks.ok(not found, "and begins anew, to the same bytes", *found, *said)


def main():
    checks, rng = job.Checks(), job.drawn_from()
    cases = {"two": (2, "job"), "rank": (2, "rank"), "four": (4, "job"), "agent": (2, "agent"), "node": (2, "node")}
    for name in sys.argv[1:] or [*cases, "differs", "outside"]:
        if name == "differs":
            differs(checks, 2, "job", rng)
        elif name == "outside":
            outside(checks)
        else:
            goes_on(checks, *cases[name], rng)
    checks.end()


if __name__ == "__main__":
    main()
