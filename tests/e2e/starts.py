#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 about=20s
"""A trainer starts other programs by each way that libc has, is killed, and is started again. Programs that it had started before the step that it
goes on from are not started again, and what it heard from them is what it heard the first time; those behind that step are started again, and
a line says which."""
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

BEHIND = re.compile(r"what comes behind step \d+ is done again, with what it starts; the first run started (\d+) programs there: (.*)")
AGAIN = "were started again on the way"


def lines(*path):
    return job.read(os.path.join(*path)).splitlines()


def life(checks, kills, **settings):
    with job.Place(**settings) as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "160")
        plain = os.path.dirname(this.plain)
        for folder in (plain, this.work):
            os.mkfifo(os.path.join(folder, "ready"))
        this.environment.update(LD_PRELOAD=job.built(place, "starts.so", "starts.c"), STARTS="1")
        this.run_plain()
        once = lines(plain, "calls")
        checks.ok(len(once) >= 50 and len(set(once)) == len(once), f"plain: it starts {len(once)} programs")
        for kill in range(kills):
            this.killed_at(40 * (kill + 1))
            before = lines(this.work, "calls")
            if settings:
                shutil.rmtree(place.shm, ignore_errors=True)
        last = this.start()
        status = last.wait()
        after = lines(this.work, "calls")
        at = job.Job.resumed_at(last) or 0
        again = [call for call in before if after.count(call) > before.count(call)]
        said = BEHIND.search(last.said())
        checks.ok(status == 0 and at > 0, f"killed {kills} times, it goes on at step {at}", status, this.story())
        checks.ok(set(after) == set(once), "everything has been started", *(set(once) ^ set(after)))
        checks.ok(len(again) < len(before) / 2 and again == before[len(before) - len(again):] and
                  # One may have said that it was started before its parent knew.
                  len(again) <= int(said[1] if said else 0) + 1,
                  f"what it had started is not started again, but for {len(again)} behind that step, which a line names", again, before, last.said())
        # What another program has made behind that step is there when it is done again.
        numbers = {call.split()[1] for call in again}
        # The one that makes a file says nothing of itself, and begins each round: it may have been killed behind that.
        numbers.add(str(max(int(call.split()[1]) for call in before) + 1))
        for name in ("told", "mixed"):
            told = [[line for line in lines(folder, name) if not (line.startswith("files ") and line.split()[1].rstrip(":") in numbers)]
                    for folder in (this.work, plain)]
            checks.ok(told[0] == told[1], f"{name}: as without the library", *(set(told[0]) ^ set(told[1])))
        made = [sorted(name for name in os.listdir(folder) if name.startswith("made.")) for folder in (plain, this.work)]
        checks.ok(made[0] == made[1], "what others have made is there, and what the trainer removed of it is not", *made)
        checks.ok(AGAIN not in last.said(), "of all it is known what they said", last.said())
        checks.ok(not this.differences(), "and the trainer wrote the same bytes", *this.differences())


def found_later(checks):
    """What a start that had gone on found behind its step, no further program having ended, was not there at the program's beginning."""
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "160")
        this.environment.update(LD_PRELOAD=job.built(place, "starts.so", "starts.c"), STARTS="one")
        this.run_plain()
        plain = lines(os.path.dirname(this.plain), "told")
        checks.ok(len(plain) >= 30 and "made, no stamp" in plain[0] and "found, no stamp" in plain[1], "plain: a file is made once", *plain[:3])
        first = this.killed_at(40)
        with open(os.path.join(this.work, "stamp"), "wb"):
            pass
        second = this.killed_at(80, lambda: any(row["generation"] == 2 and row["offered"] for row in place.listed()))
        before = lines(this.work, "told")
        last = this.start()
        status = last.wait()
        after, at = lines(this.work, "told"), [job.Job.resumed_at(start) or 0 for start in (second, last)]
        checks.ok(status == 0 and 0 < at[0] < at[1], f"two resumes in a row, at steps {at}", status, first.said(), this.story())
        checks.ok(after[:len(before) - 2] == before[:len(before) - 2] and "made, no stamp" in after[0] and "a stamp" in after[-1] and len(after) == len(plain) and
                  not any("made" in line for line in after[1:]), "each look finds what it found the first time", before, after)
        checks.ok(not this.differences(), "and the trainer wrote the same bytes", *this.differences())


def main():
    checks = job.Checks()
    life(checks, 1)
    life(checks, 2)
    found_later(checks)
    checks.end()


if __name__ == "__main__":
    main()
