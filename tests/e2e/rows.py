#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 about=20s
"""A trainer has a forked process append to a file (rows.c), and is killed again and again as soon as it is live, before it has a snapshot of its own: what such a
start has appended is taken back by the next one, which goes on from where that one had."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

KILLS = 10  # every other one as soon as it is live


def main():
    checks = job.Checks()
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "900", "--save-every", "100")
        this.environment["LD_PRELOAD"] = job.built(place, "rows.so", "rows.c")
        plain = os.path.join(os.path.dirname(this.plain), "rows")
        this.run_plain()
        argv = [os.path.join(place.build, "transpckpt"), "run", "--", *this.runner, *this.arguments]
        said = ""
        for i in range(KILLS + 1):
            start = job.Start(place, argv, this.work, this.environment, f"start{i}")
            if i == KILLS:
                break
            if i % 2 == 0:
                before = this.progress()
                start.until(lambda: this.progress() > max(before, 100) + 30)  # pylint: disable=cell-var-from-loop
            else:
                start.until(lambda: job.LIVE.search(start.said()))  # pylint: disable=cell-var-from-loop
            start.kill()
            said += start.said()
        status = start.wait()
        said += start.said()
        left = len(re.findall("is gone and left no snapshot", place.agent_log()))
        checks.ok(left > 0, f"of {KILLS} starts that are killed, {left} had no snapshot", place.agent_log()[-1500:])
        rows = job.read(os.path.join(this.work, "rows"))
        checks.ok(status == 0 and rows and rows == job.read(plain), "each row is there once", status, len(rows), len(job.read(plain)), rows[:200], said[-1500:])
        checks.ok("may have it twice" not in said, "and nothing is said to be there twice", said[-1500:])
    checks.end()


if __name__ == "__main__":
    main()
