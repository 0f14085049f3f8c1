#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 about=15s
"""A trainer that goes by clocks is killed and started again: it does what it did, no clock goes back, nothing believes that hours have
passed, and waits until a point in time end then. With rights, also where the machine's clocks begin elsewhere, as on another machine or after a
reboot."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

CLOCKS = ("monotonic", "raw", "boot", "process", "thread", "coarse", "calendar")
DAY = 86400


def lines(*path):
    return job.read(os.path.join(*path)).splitlines()


def clocks_of(days):
    """What runs a command where the machine has been up for so many days more."""
    return ["unshare", "--time", "--fork", "--kill-child", "--monotonic", str(days * DAY), "--boottime", str(days * DAY)]


def goes_by_clocks(checks, what, before, after):
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "160")
        this.environment.update(LD_PRELOAD=job.built(place, "times.so", "times.c", "-lpthread"), TIMES="1")
        this.run_plain()
        plain = lines(os.path.dirname(this.plain), "waits")
        checks.ok(len(plain) >= 30 and not any("early" in line for line in plain), f"{what}: plain", *plain[:3])
        killed = this.killed_at(60, under=before)
        looks = lines(this.work, "looks")
        last = this.start(under=after)
        status = last.wait()
        at = job.Job.resumed_at(last) or 0
        checks.ok(status == 0 and at > 0, f"{what}: killed, it goes on at step {at}", status, this.story(), killed.said())
        kept = lines(this.work, "looks")
        same = sum(a == b for a, b in zip(looks, kept))
        checks.ok(at > 0 and same >= len(looks) - 3, f"{what}: what clocks said before step {at} is what they said in the first run ({same} of {len(looks)} looks)",
                  *[f"{a} | {b}" for a, b in zip(looks, kept) if a != b][:3])
        rows = [[int(word) for word in line.replace(":", "").split()] for line in kept]
        checks.ok([row[0] for row in rows] == list(range(1, len(plain) + 1)), f"{what}: each once", [row[0] for row in rows])
        for i, clock in enumerate(CLOCKS):
            said = [row[i + 2] for row in rows]
            back = [n for n, (a, b) in enumerate(zip(said, said[1:])) if b < a]
            far = [n for n, (a, b) in enumerate(zip(said, said[1:])) if b - a > (1e6 if clock == "calendar" else 1e9) * 3600]
            checks.ok(not back and not far, f"{what}: the {clock} clock goes on", said, back, far)
        checks.ok(lines(this.work, "waits") == plain, f"{what}: waits end when they should", *[line for line in lines(this.work, "waits") if line not in plain][:5])
        checks.ok(not os.path.exists(os.path.join(this.work, "alarm")), f"{what}: no other thread finds that hours have passed")
        checks.ok(not this.differences(), f"{what}: and the trainer wrote the same bytes", *this.differences())


def main():
    checks = job.Checks()
    goes_by_clocks(checks, "here", [], [])
    if not subprocess.run([*clocks_of(1), "true"], capture_output=True, check=False).returncode:
        goes_by_clocks(checks, "clocks far ahead", [], clocks_of(30))
        goes_by_clocks(checks, "clocks that begin again", clocks_of(30), [])
    else:
        print("# clocks that begin elsewhere take rights: not tried")
    checks.end()


if __name__ == "__main__":
    main()
