#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.9 memory=512M disk
"""What a program's own limits and descriptors earn a process that writes: signals of the kernel's, which end it. What is ours
never earns the program one, nor the agent, which has its environment from it."""
import os
import resource
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

FEW = 2 << 20  # more than the trainer writes, less than the log begins with
STEPS = "20"


def limited(size):
    """As after `ulimit -S -f`. Python itself ignores the signal, and would pass that on."""
    def before():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if size:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    return before


def start(place, preload, size=0, steps=STEPS, **more):
    """The trainer itself, in a folder of its own."""
    folder = os.path.join(place.root, "with" if preload else "without")
    os.makedirs(folder, exist_ok=True)
    environment = dict(place.environment)
    if preload:
        environment["LD_PRELOAD"] = os.path.join(place.build, ".libs/libtranspckpt.so")
    return subprocess.Popen([*place.runner, os.path.join(place.build, "tests/trainers/gpt"), "--seed", "3", "--steps", steps], cwd=folder,
                            env=environment, preexec_fn=limited(size), **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})


def run(*arguments, **more):
    """Status, output, what it said."""
    with start(*arguments, **more) as process:
        out, said = process.communicate(timeout=120)
    return process.returncode, out, said.decode() if said else ""


def until(condition):
    """Whether it came to be so within a minute."""
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def main():
    checks = job.Checks()
    if job.HARDWARE:
        job.skip("the driver's own files are limited, too")
    with job.Place() as place:
        want = run(place, False, FEW)
        checks.ok(want[0] == 0, "a trainer whose files are limited", *want)
        got = run(place, True, FEW)
        checks.ok(got[:2] == want[:2], "is not ended by a file of ours, and prints the same", *got)
        checks.ok(got[2].count("File too large") == 1, "and is told why there are no checkpoints", got[2])
    with job.Place() as place:
        # The agent has less than it needs, the trainer has not.
        agent = subprocess.Popen([os.path.join(place.build, "transpckptd"), "--job", "j", "--foreground"], env=place.environment,
                                 stderr=subprocess.PIPE, preexec_fn=limited(64 << 10))
        until(lambda: os.path.exists(os.path.join(place.shm, "j/agent.sock")))
        with start(place, True, steps="100000", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                durable = until(lambda: [r for r in place.listed() if set(r["where"]) - {"memory"} and r["bytes"] > 64 << 10])
                running = process.poll() is None and agent.poll() is None
            finally:
                process.kill()
        checks.ok(durable and running, "the soft limit of who started the agent is not the agent's", place.listed(), agent.poll())
        agent.terminate()
        agent.wait(20)
        agent.stderr.close()
    with job.Place(TRANSPCKPT_LOG="debug") as place:
        want = run(place, False)
        reads, writes = os.pipe()
        os.close(reads)
        got = run(place, True, stderr=writes)
        os.close(writes)
        checks.ok(got[:2] == want[:2], "a line of ours to who has gone does not end the trainer", got[0], got[1][-200:])
    checks.end()


if __name__ == "__main__":
    main()
