#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 about=25s
"""An agent that ends right after it was started, whenever it is: the trainer is not busy with starting others, and goes on to the same bytes."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

LINE = "the agent ends right after it was started, again and again"


def main():
    checks = job.Checks()
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "3000")
        this.run_plain()
        begun = time.monotonic()
        start = this.start()
        killed = []
        while start.process.poll() is None:
            for pid in place.agents():
                time.sleep(0.1)
                if job.signal_if_there(pid, signal.SIGKILL):
                    killed.append(time.monotonic())
            time.sleep(0.01)
        status = start.wait()
        seconds = time.monotonic() - begun
        # Five at once, and then after a half, one, two, four ... seconds.
        most = 7 + next(n for n in range(20) if 0.5 * (2 ** n - 1) > seconds)
        checks.ok(status == 0 and len(killed) >= 4, f"{len(killed)} agents were killed in {seconds:.0f} s", status, start.said())
        checks.ok(len(killed) <= most, f"which is no more than {most}", start.said())
        checks.ok(len(killed) <= 5 or start.said().count(LINE) == 1, "a line says so, once", start.said())
        checks.ok(not this.differences(), "and the trainer wrote the same bytes", *this.differences())
    checks.end()


if __name__ == "__main__":
    main()
