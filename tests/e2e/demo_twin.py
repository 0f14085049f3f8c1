#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""For people: a GPT that has a twin is killed six times, and never started again; and so are the ranks of one of two. Prints how long its
progress stood still each time, and whether it ended with the bytes of a run that was left alone. ./bootstrap.sh demo-twin calls it. Environment: builddir."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job
import twins
from twin_ranks import Twins

STEPS, RANKS_STEPS, KILLS = 3000, 3000, 6


def line(killed, at, milliseconds, instead):
    print(f"  {killed:>22} {at:>10} {milliseconds:>9.0f} ms {instead:>22}", flush=True)


def head():
    print(f"  {'killed':>22} {'iteration':>10} {'stood still':>12} {'its place is taken by':>22}", flush=True)


def one_process():
    print("A small GPT is trained, first left alone, then by one `transpckpt run --twin`, below which the training\n"
          "process is killed with SIGKILL six times. Nobody starts anything again.\n")
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "7", "--steps", str(STEPS), "--save-every", "100")
        this.run_plain()
        print(f"plain run: {STEPS} iterations in {this.plain_sec:.1f} s, {this.plain_sec / STEPS * 1e3:.1f} ms each\n")
        argv = [*this.runner, os.path.join(place.build, "transpckpt"), "run", "--twin", "--", *this.arguments]
        start = job.Start(place, argv, this.work, this.environment, "start0")
        head()
        for number in range(KILLS):
            if not start.until(lambda: twins.covered(start) and this.progress() > STEPS * number / (KILLS + 1)):
                break
            (living, twin), at, begun = twins.processes(start), this.progress(), time.monotonic()
            job.signal_if_there(living)
            start.until(lambda: this.progress() > at)
            line(f"process {living}", at, (time.monotonic() - begun) * 1e3, f"process {twin}")
        status = start.wait()
        lines = this.differences(printed_too=False)
        for difference in lines:
            print(f"  {difference}")
        same = status == 0 and not lines and twins.taken_over(start) == KILLS
        print(f"\n{'Every file of both runs is equal, byte for byte.' if same else 'The runs differ.'} The process that was started, {start.process.pid}, "
              f"ended with status {status}.")
    return same


def two_ranks():
    print("\nThe same of two ranks, data parallel by NCCL: each time one of them is killed, by turns, and both change over.\n")
    with job.Place() as place:
        this = Twins(place, 2, steps=RANKS_STEPS, together=True)
        this.run_plain()
        start, killed = this.start(), 0
        launched = start.until(lambda: this.covered(start)) and this.supervisors(start)
        head()
        for number in range(KILLS):
            if not start.until(lambda: this.covered(start) and this.progress() > RANKS_STEPS * number / (KILLS + 1)):
                break
            rank, living, at, begun = number % 2, this.covered(start), this.progress(), time.monotonic()
            twin = twins.processes(this.supervisors(start)[rank])[1]
            killed += job.signal_if_there(living[rank])
            start.until(lambda: this.progress() > at)
            line(f"rank {rank}, process {living[rank]}", at, (time.monotonic() - begun) * 1e3, f"process {twin}")
        there = start.running() and this.supervisors(start)
        status = start.wait()
        lines = this.differences()
        for difference in lines:
            print(f"  {difference}")
        same = status == 0 and not lines and killed == KILLS and this.takeovers() == [KILLS] * 2 and there in (False, launched)
        print(f"\n{'Every file of both runs is equal, byte for byte.' if same else 'The runs differ.'} The launcher has seen neither of its processes end "
              f"before the last iteration; its status is {status}.")
    return same


def main():
    good = one_process()
    sys.exit(0 if two_ranks() and good else 1)


if __name__ == "__main__":
    main()
