#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program starts while the agent is about to end, and does not answer it any more: the next agent does. And one ends by the handler of a
signal that comes at any moment: it ends soon, whatever it is at."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job


def waits_for_agent(place):
    """Whether somebody has connected to the agent's socket, beside the agent that listens."""
    path = os.path.join(place.shm, "j", "agent.sock")
    with open("/proc/net/unix", encoding="ascii", errors="replace") as f:
        return sum(line.rstrip().endswith(path) for line in f) > 1


def by_handlers(checks):
    """The signal may come while the program stands in the driver, with what others need there."""
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "7", "--steps", "100000")
        environment = {**this.environment, "LD_PRELOAD": job.built(place, "gives_up.so", "gives_up.c")}
        argv = [os.path.join(place.build, "transpckpt"), "run", "--", *this.runner, *this.arguments]
        ended = []
        for i in range(20):
            start = job.Start(place, argv, this.work, environment, f"start{i}")
            before = this.progress()
            start.until(lambda: this.progress() > before + 10)  # pylint: disable=cell-var-from-loop
            time.sleep(i * 0.0007)
            job.signal_if_there(start.process.pid, signal.SIGUSR2)
            ended.append(start.wait(60))
            if ended[-1] != 3:
                break
        checks.ok(ended == [3] * 20, "a program that the handler of a signal ends is gone soon, each time", ended)


def main():
    checks = job.Checks()
    by_handlers(checks)
    with job.Place(TRANSPCKPT_LOG="debug") as place:
        subprocess.run([place.environment["TRANSPCKPT_AGENT"], "--job", "j"], env=place.environment, check=True)
        with open(os.path.join(place.shm, "j", "agent.lock"), encoding="ascii") as f:
            agent = int(f.read())
        job.stand_still(agent)
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "60")
        start = this.start()
        met = start.until(lambda: waits_for_agent(place))
        # What it says goes with the agent, whether that has come or comes yet.
        time.sleep(0.05)
        os.kill(agent, signal.SIGKILL)

        def log():
            """Of the agents; it moves to the store when one ends."""
            return job.read(os.path.join(place.shm, "j", "agent.log")) + job.read(os.path.join(place.store, "j", "agent.log"))

        # The next agent is there in time, however fast the trainer is.
        start.slowly_until(lambda: "committed step" in log())
        start.go_on()
        status = start.wait()
        checks.ok(met and status == 0, "the program starts at an agent that does not answer", status, start.said())
        checks.ok("no checkpoints in this run" not in start.said(), "and has checkpoints by the next one", start.said())
        checks.ok("committed step" in log(), "which commits its snapshots", log())
    checks.end()


if __name__ == "__main__":
    main()
