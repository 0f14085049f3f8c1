#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""For people: a GPT that has a twin is killed six times, and never started again. Prints how long its progress stood still each time, and
whether it ended with the bytes of a run that was left alone. ./bootstrap.sh demo-twin calls it. Environment: builddir."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job
import twins

STEPS, KILLS = 3000, 6


def main():
    print("A small GPT is trained, first left alone, then by one `transpckpt run --twin`, below which the training\n"
          "process is killed with SIGKILL six times. Nobody starts anything again.\n")
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "7", "--steps", str(STEPS), "--save-every", "100")
        this.run_plain()
        print(f"plain run: {STEPS} iterations in {this.plain_sec:.1f} s, {this.plain_sec / STEPS * 1e3:.1f} ms each\n")
        argv = [*this.runner, os.path.join(place.build, "transpckpt"), "run", "--twin", "--", *this.arguments]
        start = job.Start(place, argv, this.work, this.environment, "start0")
        print(f"  {'killed':>12} {'iteration':>10} {'stood still':>12} {'its place is taken by':>22}", flush=True)
        for number in range(KILLS):
            if not start.until(lambda: twins.covered(start) and this.progress() > STEPS * number / (KILLS + 1)):
                break
            (living, twin), at, begun = twins.processes(start), this.progress(), time.monotonic()
            job.signal_if_there(living)
            start.until(lambda: this.progress() > at)
            print(f"  {'process ' + str(living):>12} {at:>10} {(time.monotonic() - begun) * 1e3:>9.0f} ms {'process ' + str(twin):>22}", flush=True)
        status = start.wait()
        lines = this.differences(printed_too=False)
        for line in lines:
            print(f"  {line}")
        same = status == 0 and not lines and twins.taken_over(start) == KILLS
        print(f"\n{'Every file of both runs is equal, byte for byte.' if same else 'The runs differ.'} The process that was started, {start.process.pid}, "
              f"ended with status {status}.")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
