#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 about=40s
"""Right behind an iteration, before anything comes on the device again, a trainer has another program do something and waits for it, by one way each
time. It is killed while it waits and started again: it goes on at that iteration, and what it waits for begins then.

  gap.py [WAY...]
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

WAYS = ["wait", "system", "read", "poll", "spin", "ahead", "thread"]
# The copy that reads the loss right behind this step, whose end is known by its last launch by then.
COPY, STEP = 201, 95


def goes(checks, way):
    with job.Place(TRANSPCKPT_INTERVAL="1") as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "120")
        this.environment.update(LD_PRELOAD=job.built(place, "gap.so", "gap.c"), GAP=way, GAP_AT=str(COPY))
        plain = os.path.dirname(this.plain)
        for folder in (plain, this.work):
            os.makedirs(folder, exist_ok=True)
        with open(os.path.join(plain, "go"), "w", encoding="utf-8"):
            pass
        this.run_plain()
        calls = os.path.join(this.work, "calls")
        # The newest step is that of the iteration behind which it waits.
        killed = this.killed_at(STEP - 15, ready=lambda: os.path.exists(calls) and max(row["step"] for row in place.listed()) >= STEP)
        with open(os.path.join(this.work, "go"), "w", encoding="utf-8"):
            pass
        last = this.start()
        status = last.wait(60)
        at = job.Job.resumed_at(last) or 0
        checks.ok(status == 0 and at >= STEP, f"{way}: killed while it waits, it goes on at step {at}", status, this.story(), killed.said(), last.said())
        told = [job.read(os.path.join(folder, "told")) for folder in (plain, this.work)]
        checks.ok(told[0] == told[1] != "", f"{way}: what it waited for is started, and ends as without the library", *told)
        checks.ok(not this.differences(), f"{way}: and the trainer wrote the same bytes", *this.differences())


def main():
    checks = job.Checks()
    for way in sys.argv[1:] or WAYS:
        goes(checks, way)
    checks.end()


if __name__ == "__main__":
    main()
