#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at the N-th call of a system call, in the trainer's process or in the agent's: at every edge of writing a
file, a snapshot or the store. Argument: trainer or agent. What is killed must end with the bytes of a plain run."""
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

# Most of a run has few of each; futex and write have thousands.
TRAINER_CALLS = {
    "openat": range(10, 180, 8), "write": range(1, 60, 3), "mmap": range(20, 200, 10), "futex": range(3, 1500, 75),
    "ftruncate": range(1, 9), "close": range(10, 100, 9), "unlink": (1, 2, 3), "unlinkat": (1, 2, 3),
    "rename,renameat,renameat2": (1, 2, 3, 4), "sendto,sendmsg": range(1, 24, 3), "recvmsg,recvfrom": (1, 2, 6),
    "dup2,dup3": (1, 2, 4), "mkdir,mkdirat": (1, 2), "newfstatat": range(10, 90, 9), "getrandom": (1, 2),
    "copy_file_range,utimensat": (1, 2, 3), "fcntl": (3, 6, 9), "munmap": (5, 15, 25), "clone3": (1, 4, 8), "pwrite64,pread64": (1, 3),
}
AGENT_CALLS = {
    "openat": (20, 30, 40, 60), "write": (1, 3, 6), "pwrite64": (1, 2, 3), "rename,renameat,renameat2,link,linkat": (1, 2, 3, 4, 6),
    "fsync,fdatasync": (1, 2, 3, 5), "fallocate": (1, 2, 5, 9), "ftruncate": (1, 2, 4), "mmap": (30, 40, 60),
    "unlink,unlinkat": (1, 2, 4, 8), "mkdir,mkdirat": (1, 2, 3), "sendmsg,sendto": (1, 2, 3), "recvfrom,recvmsg,recv": (1, 3, 9),
    "futex": (2, 20, 60), "io_uring_enter": (1, 2, 4), "epoll_wait": (2, 8, 20), "accept4": (1,), "getdents64": (1, 6),
}
# Within this time a sample of the table, another one each time; LIMIT_SEC= for more of it. On a slow machine it takes longer.
LIMIT_SEC = float(os.environ.get("LIMIT_SEC") or 30)
ENOUGH = 15


def strace(calls, when):
    # Not --seccomp-bpf: with it strace 6.1 misses the calls of threads.
    return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}", "-e",
            f"inject={calls}:signal=KILL:when={when}"]


def works():
    try:
        done = subprocess.run([*strace("write", 1), "true"], capture_output=True, timeout=20, check=False)
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def sweep(calls, rng):
    """One moment of every call, then another one of every call, and so on, in an order that is drawn."""
    left = {names: rng.sample(list(moments), len(moments)) for names, moments in calls.items()}
    while any(left.values()):
        for names in rng.sample(list(left), len(left)):
            if left[names]:
                yield names, left[names].pop()


def agent_by_hand(place):
    """One that is nobody's child and that strace does not follow."""
    subprocess.run([os.path.join(place.build, "transpckptd"), "--job", "j"], env=place.environment, check=False)


def kill_trainer(checks, place, this, rng):
    kills = lost = ended = 0
    begun = time.monotonic()
    for calls, when in sweep(TRAINER_CALLS, rng):
        if time.monotonic() - begun > LIMIT_SEC and kills >= ENOUGH:
            break
        agent_by_hand(place)
        start = this.start(under=strace(calls, when))
        status = start.wait()
        if status == -9:
            kills += 1
            continue
        # What was killed may have been the device's process: an error that the trainer reports and ends with.
        if status == 1 and "gpt: line" in start.said():
            lost += 1
            continue
        ended += 1
        lines = this.differences(printed_too=False)
        checks.ok(status == 0 and not lines, f"ended after {kills} kills in all", f"{calls} {when}: {status}", *lines,
                  this.story())
        shutil.rmtree(this.out, ignore_errors=True)
        this.starts.clear()
    status = this.start().wait()
    lines = this.differences(printed_too=False)
    checks.ok(status == 0 and not lines, f"{kills} kills, {lost} losses of the device, {ended + 1} runs to the end", f"{status}", *lines,
              this.story())
    checks.ok(kills >= ENOUGH, f"killed often enough to mean something ({kills} times)")


def kill_agent(checks, place, this, rng):
    kills = 0
    begun = time.monotonic()
    for calls, when in sweep(AGENT_CALLS, rng):
        if time.monotonic() - begun > LIMIT_SEC and kills >= ENOUGH:
            break
        place.signal_agents()
        shutil.rmtree(this.out, ignore_errors=True)
        this.starts.clear()
        agent = subprocess.Popen([*strace(calls, when), os.path.join(place.build, "transpckptd"), "--job", "j",
                                  "--foreground"], env=place.environment, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 5
        while not os.path.exists(os.path.join(place.shm, "j/agent.sock")) and time.monotonic() < until:
            if agent.poll() is not None:
                break
            time.sleep(0.005)
        first = this.start()
        first.until(lambda: this.progress() >= 12)
        first.kill()
        status = this.start().wait()
        place.signal_agents()
        agent.wait()
        kills += agent.returncode == -9
        lines = this.differences(printed_too=False)
        checks.ok(status == 0 and not lines, f"agent killed at {calls}, {when}", f"status {status}", *lines,
                  this.story())
        shown = place.command("verify")
        checks.ok(shown.returncode == 0, f"agent killed at {calls}, {when}: the store is whole",
                  shown.stdout, shown.stderr)
    checks.ok(kills >= ENOUGH, f"killed often enough to mean something ({kills} times)")


def main():
    if not works():
        job.skip("no strace, or it may not trace")
    checks = job.Checks()
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "24", "--save-every", "5", "--overwrite", "--rename",
                       "--log-append")
        this.run_plain()
        (kill_trainer if sys.argv[1:] == ["trainer"] else kill_agent)(checks, place, this, job.drawn_from())
    checks.end()


if __name__ == "__main__":
    main()
