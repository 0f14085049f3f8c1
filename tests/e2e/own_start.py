#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A start has two ways to go on: from a snapshot, or from a checkpoint that the trainer saved itself. Which it takes, what it says of it, and that
nothing of the other way is lost."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

TRAINER = ["gpt", "--seed", "5", "--steps", "60", "--save-every", "7", "--resume"]
FROM = "gpt: .*, from step "


def trainer(place, *more, settings=None):
    this = job.Job(place, *TRAINER, *more, environment=settings)
    this.run_plain()
    return this


def begins_at(start):
    """The step of the trainer's own that it says it begins with; None: it does not say."""
    found = re.search(FROM + r"(\d+)", start.printed())
    return int(found[1]) if found else None


def said(start, what):
    return [line for line in start.said().splitlines() if re.search(what, line)]


def ends_alike(checks, this, start, what):
    status = start.wait()
    lines = this.differences(printed_too=False)
    checks.ok(status == 0 and not lines, what, f"status {status}", *lines, this.story())


def told_own(checks):
    """TRANSPCKPT_RESUME=own."""
    # What it reads back to save is more than the record holds: going forward needs what lies beside it.
    with job.Place(TRANSPCKPT_LOG_BYTES="16M") as place:
        this = trainer(place, "--save-every", "2")
        this.killed_at(30)
        # Without a snapshot of its own.
        own = this.start(environment={"TRANSPCKPT_RESUME": "own", "TRANSPCKPT_INTERVAL": "1000"})
        own.slowly_until(lambda: own.printed().count("\nstep ") >= 9)
        own.kill()
        checks.ok(begins_at(own) in range(28, 36) and not this.resumed_at(own), "told so, a start begins with the trainer's own checkpoint", this.story())
        lines = said(own, "not resuming at step")
        checks.ok(len(lines) == 1 and "TRANSPCKPT_RESUME=own" in lines[0] and "of generation 1" in lines[0], f"and one line says what is there: {lines}")
        # What the own start saved and wrote is taken back.
        forward = this.start(environment={"TRANSPCKPT_RESUME": "forward", "TRANSPCKPT_FORWARD_MAX_SEC": "0.001"})
        ends_alike(checks, this, forward, "what was there is there: the next start goes forward, and ends with the same bytes")
        checks.ok(this.resumed_at(forward) and said(forward, "resuming at step .* of generation 1"), "from the first run's snapshot, however long that is",
                  this.story())
    with job.Place() as place:
        this = trainer(place)
        this.killed_at(30)
        own = this.start(environment={"TRANSPCKPT_RESUME": "own"})
        ends_alike(checks, this, own, "a start with its own checkpoint that is not killed ends with the same bytes")
        checks.ok(begins_at(own), "which it began with", this.story())


def told_badly(checks):
    with job.Place() as place:
        this = job.Job(place, *TRAINER, environment={"TRANSPCKPT_RESUME": "onwards", "TRANSPCKPT_FORWARD_MAX_SEC": "never"})
        start = this.start()
        checks.ok(start.wait() == 0 and said(start, "onwards is not auto, forward, own, never, must or a step; using auto") and
                  said(start, "FORWARD_MAX_SEC"), "settings that are none are said", start.said())


CASES = {"told_own": told_own, "told_badly": told_badly}


def main():
    checks = job.Checks()
    for case in sys.argv[1:] or CASES:
        CASES[case](checks)
    checks.end()


if __name__ == "__main__":
    main()
