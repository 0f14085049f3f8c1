#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 minutes=15 about=40s
"""A trainer has a forked process append to a file (rows.c), and is killed again and again as soon as it is live, before it has a snapshot of its own: what such a
start has appended is taken back by the next one, which goes on from where that one had. It is appended by one way each time.

  rows.py [WAY...]   WAY: of rows.c, by a stream of libc's but for `write`; others, others-closing: as `flush` or `closing`, and somebody else
                     appends to the file, too: some rows are there twice, with a line

`all` is all of them; without names two, drawn, and `write`.
"""
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

WAYS = ["flush", "line", "raw", "full", "threads", "shared", "given", "output", "descriptor", "closing", "each", "crowd", "others", "others-closing", "wide", "widefull", "moved"]
KILLS = 6  # every other one as soon as it is live; and more where none of these came in time
# Iterations before the first kill. Behind that many `each` has had more processes than there is room to note.
EARLY = {"each": 600}
LEFT = re.compile(r"processes of the first run that are started again wrote to files that cannot be put back, and will write to them once more: rows$", re.M)


def goes(checks, way):
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "900", "--save-every", "100")
        this.environment.update(LD_PRELOAD=job.built(place, "rows.so", "rows.c"), ROWS={"others": "flush", "others-closing": "closing"}.get(way, way))
        plain = os.path.join(os.path.dirname(this.plain), "rows")
        rows = os.path.join(this.work, "rows")
        if way != "each":
            # What the file had before stays: it cannot just go.
            for path in (plain, rows):
                with open(path, "w", encoding="ascii") as to:
                    to.write("of an earlier run\n")
        for folder in (os.path.dirname(path) for path in (plain, rows) if way == "crowd"):
            os.mkdir(os.path.join(folder, "many"))
        this.run_plain()
        written = -1
        while written != os.path.getsize(plain):
            written = os.path.getsize(plain)
            time.sleep(0.3)
        argv = [os.path.join(place.build, "transpckpt"), "run", "--", *this.runner, *this.arguments]
        said, others, left, early = "", [], 0, EARLY.get(way, 100)
        for i in range(3 * KILLS + 1):
            start = job.Start(place, argv, this.work, this.environment, f"start{i}")
            left = len(re.findall("is gone and left no snapshot", place.agent_log()))
            if i >= KILLS and left > 0:
                break
            if i % 2 == 0:
                before = this.progress()
                start.until(lambda: this.progress() > max(before, early) + 15)  # pylint: disable=cell-var-from-loop
                if way.startswith("others"):
                    others.append(f"of somebody else {i}")
                    with open(rows, "a", encoding="ascii") as to:
                        to.write(others[-1] + "\n")
                start.until(lambda: this.progress() > max(before, early) + 30)  # pylint: disable=cell-var-from-loop
            else:
                start.until(lambda: job.LIVE.search(start.said()))  # pylint: disable=cell-var-from-loop
            start.kill()
            said += start.said()
        status = start.wait()
        said += start.said()
        checks.ok(left > 0, f"{way}: of {i} starts that are killed, {left} had no snapshot", place.agent_log()[-1500:])
        # The process may be behind, and is not waited for.
        job.look_until(lambda: {*job.read(plain).splitlines(), *others} <= set(job.read(rows).splitlines()), 30, 0.05)
        wanted, found = (job.read(path).splitlines() for path in (plain, rows))
        if way in ("others", "others-closing"):
            checks.ok(status == 0 and LEFT.search(said) and set(wanted) | set(others) == set(found) and len(found) > len(wanted),
                      f"{way}: no row is lost, and a line says that some are there twice", status, len(wanted), len(found), sorted((set(wanted) | set(others)) ^ set(found))[:20], said[-1500:])
        else:
            checks.ok(status == 0 and found == wanted, f"{way}: each row is there once", status, len(found), len(wanted), found[:10], said[-1500:])
            many = {job.read(os.path.join(os.path.dirname(rows), "many", str(i))) for i in range(1200)} if way == "crowd" else None
            if many:
                checks.ok(many == {"once\n"}, f"{way}: and so it is in what other processes wrote", many)
            checks.ok("may have it twice" not in said and not LEFT.search(said), f"{way}: and nothing is said to be there twice", said[-1500:])


def main():
    checks = job.Checks()
    for way in ["write", *WAYS] if sys.argv[1:] == ["all"] else sys.argv[1:] or ["write", *job.drawn_from().sample(WAYS, 2)]:
        goes(checks, way)
    checks.end()


if __name__ == "__main__":
    main()
