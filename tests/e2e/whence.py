#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 about=8s
"""A start says what it goes on from, or why from nothing: behind one that was killed before its first snapshot, whose snapshot is gone,
or with which all went that knew of its end. Of the first start, and of one behind a run that ended well, there is nothing to say."""
import glob
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job
import ranks

LINES = re.compile(r"^transpckpt: (not resuming: .*)$", re.M)
NEVER = {"TRANSPCKPT_INTERVAL": "100000"}


def lines(start):
    return LINES.findall(start.said())


def killed(this):
    """A start that is killed behind some iterations."""
    start = this.start()
    start.until(lambda: start.printed().count("\n") > 60)
    start.kill()
    return start


def early(checks):
    with job.Place(**NEVER) as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "5000")
        start = killed(this)
        checks.ok(not lines(start), "the first start has nothing to say", start.said())
        again = killed(this)
        said = lines(again)
        found = re.fullmatch(r"not resuming: the last start ended after (\d+) iterations, and left no snapshot: its first had not been taken yet", said[0]) if said else None
        checks.ok(len(said) == 1 and found and 40 < int(found[1]) < 5000, "killed before its first snapshot: the next start says so", *said, again.said())


def lost(checks, agent_too):
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="3600s") as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "5000")
        start = this.start()
        kept = []

        def there():
            kept[:] = [row["step"] for row in place.listed() if row["offered"]]
            return kept
        if not agent_too:
            start.until(there)
        else:
            # The program is stopped meanwhile: it begins an agent anew that may see its end.
            start.slowly_until(there)
            place.signal_agents()
            job.look_until(lambda: not place.agents(), 10, 0.05)
        start.kill()
        if not agent_too:
            job.look_until(lambda: any("kept_step" in job.read(state) for state in glob.glob(place.store + "/j/programs/*.state")), 30, 0.05)
            place.signal_agents()
        job.look_until(lambda: not place.agents(), 10, 0.05)
        # As by a start of the machine, and by whoever makes room in the store.
        for step in glob.glob(place.store + "/j/step-*"):
            shutil.rmtree(step)
        for name in os.listdir(place.shm):
            shutil.rmtree(os.path.join(place.shm, name))
        again = killed(this)
        said = lines(again)
        if agent_too:
            checks.ok(said == ["not resuming: the last start left nothing here, and nobody saw it end"], "the machine is lost with all that was in memory: so it is said", *said, again.said())
        else:
            found = re.fullmatch(r"not resuming: the last start's snapshot of step (\d+) is not there any more", said[0]) if said else None
            checks.ok(len(said) == 1 and found and int(found[1]) >= kept[-1], "what was kept is lost: so it is said", *said, again.said())


def ended(checks):
    with job.Place(**NEVER) as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "60")
        status = this.start().wait()
        again = this.start()
        checks.ok(status == 0 and again.wait() == 0 and not lines(again), "a run that ended well has no word to its next start", again.said())


def of_ranks(checks):
    with job.Place(**NEVER) as place:
        this = ranks.Ranks(place, 2, steps=5000)
        start = this.start()
        start.until(lambda: this.progress() > 30)
        start.kill()
        again = this.start()
        again.until(lambda: this.progress() > 30)
        said = this.said()
        again.kill()
        checks.ok(sorted(len(LINES.findall(text)) for text in said) == [0, 1] and "left no snapshot" in said[0], "of two ranks one says it", *said)


def main():
    checks = job.Checks()
    early(checks)
    lost(checks, False)
    lost(checks, True)
    ended(checks)
    of_ranks(checks)
    checks.end()


if __name__ == "__main__":
    main()
