#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 about=50s
"""A trainer has other programs do things for it, by one way each time: popen(), programs known by a descriptor, posix_spawn() into files, output that is read by
streams, lists and calls for sockets, a line at a time with iterations in between, forked children that go on in the same program and have others do things for them. It is killed and started again: what was done before the step that it goes on from is not done again, and
what the trainer heard is what it heard the first time.

  tools.py [WAY...]
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

WAYS = ["popen", "stream", "readv", "recv", "recvmsg", "descriptor", "spawn", "worker", "server", "pool", "product", "asking", "daemon", "opening", "ledger", "others", "unnoted", "crowd", "any", "half", "closing"]
BEHIND = re.compile(r"what comes behind step \d+ is done again, with what it starts; the first run started (\d+) programs there: (.*)")
UNKNOWN = re.compile(r"of some files to which processes wrote that are started again on the way to step \d+ or behind it, it is not known what they got: they may have it twice$", re.M)
UNNOTED = re.compile(r"a forked child writes to a path of that length, which cannot be noted: File name too long; ")
# What tools.c has such a path of.
DEEP = os.path.join("0" * 200, "0" * 220, "ledger")
TWICE = re.compile(r"1 programs that were started anew say once more what they had said, as there was no process or descriptor for what drops it: sh$", re.M)
NO_END = re.compile(r"a program is waited for whose end is not in the record: sh\b")
UNHEARD = re.compile(r"what a program says is waited for, and neither that nor its end is in the record: sh\b")
REFUSED = {"ignoring": NO_END, "unheard": UNHEARD}
LOST = re.compile(r"what some programs said or wrote the first time is not known, and they were started again on the way to step \d+: (.*)")


def files_of(folder):
    files = {name: job.read(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if os.path.isfile(os.path.join(folder, name))}
    if os.path.exists(os.path.join(folder, DEEP)):
        files["ledger"] = job.read(os.path.join(folder, DEEP))
    return files


def goes(checks, way):
    # A snapshot of long ago, so that children have written behind it.
    with job.Place(**{"TRANSPCKPT_INTERVAL": "40"} if way in ("ledger", "others", "unnoted", "crowd") else {}) as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "120")
        this.environment.update(LD_PRELOAD=job.built(place, "tools.so", "tools.c"), TOOLS=way)
        this.run_plain()
        plain = files_of(os.path.dirname(this.plain))
        once = plain.pop("calls", "").splitlines()
        killed = this.killed_at(50)
        before = job.read(os.path.join(this.work, "calls")).splitlines() if once else []
        if way == "others":
            with open(os.path.join(this.work, "ledger"), "a", encoding="utf-8") as ledger:
                print("somebody else's", file=ledger)
        last = this.start()
        status = last.wait()
        if way == "daemon":
            # The last ones may write when the trainer has ended.
            job.look_until(lambda: set(job.read(os.path.join(this.work, "calls")).splitlines()) == set(once), 10, 0.05)
        found = files_of(this.work)
        after = found.pop("calls", "").splitlines()
        at = job.Job.resumed_at(last) or 0
        again = [call for call in before if after.count(call) > before.count(call)]
        said = BEHIND.search(last.said())
        checks.ok(status == 0 and at > 0 and len(plain["told"].splitlines()) >= 20, f"{way}: killed, it goes on at step {at}", status, this.story(), killed.said())
        lost = LOST.search(last.said())
        if way == "spawn" and lost:
            # One that goes on when posix_spawn() has returned may write when its parent does: a line says so.
            kept = [call for call in again if call in before[len(before) - int(said[1] if said else 0) - 1:]]
            checks.ok(len(again) - len(kept) <= len(lost[1].split(", ")), f"{way}: {len(again) - len(kept)} that wrote on are started again, with a line", again, last.said())
            again = kept
        if way == "product":
            # What they made was taken away: a line says that they were started again, since there is no other way to have it.
            checks.ok(lost and set(after) == set(once), f"{way}: started again, with a line", again, last.said())
            again = before[len(before):]
        if way == "ledger":
            checks.ok(at < 50 and "cannot be put back" not in last.said(), f"{way}: what forked children wrote behind that step is taken back", last.said())
        if way == "others":
            # Somebody else has written to the file, too: nothing of it is taken away.
            lines = found["ledger"].splitlines()
            checks.ok("cannot be put back, and will write to them once more: ledger\n" in last.said() and "somebody else's" in lines and
                      set(plain["ledger"].splitlines()) <= set(lines), f"{way}: what somebody else wrote to is left, with a line", last.said(), lines)
            found["ledger"] = plain["ledger"]
        if way in ("unnoted", "crowd"):
            lines = found["ledger"].splitlines()
            checks.ok(at < 50 and UNKNOWN.search(last.said()) and set(lines) == set(plain["ledger"].splitlines()),
                      f"{way}: what is not noted, and stands there twice, has a line", at, last.said(), lines)
            checks.ok(way == "crowd" or UNNOTED.search(last.said()), f"{way}: and one when it is written", last.said())
            found["ledger"] = plain["ledger"]
        # One may have said that it was started before its parent knew.
        checks.ok(set(after) == set(once) and len(again) <= int(said[1] if said else 0) + 1 and again == before[len(before) - len(again):],
                  f"{way}: {len(before) - len(again)} are not started again, {len(again)} behind that step are", again, before, last.said())
        checks.ok(found == plain, f"{way}: what it heard, and files, are as without the library", *[f"{name}: {plain.get(name, '')[:300]} | {found.get(name, '')[:300]}"
                                                                                                   for name in set(plain) | set(found) if plain.get(name) != found.get(name)])
        checks.ok(not this.differences(), f"{way}: and the trainer wrote the same bytes", *this.differences())


def left(checks, way):
    """The trainer is killed in the midst of an iteration, behind which a forked child has just had something done: a line names that, too."""
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "120")
        this.environment.update(LD_PRELOAD=job.built(place, "tools.so", "tools.c"), TOOLS=way)
        this.run_plain()
        hold, held, calls = (os.path.join(this.work, name) for name in ("hold", "held", "calls"))
        first = this.start()
        first.slowly_until(lambda: len(re.findall(r"^step ", first.printed(), re.M)) > 50 and any(row["offered"] for row in place.listed()))
        with open(hold, "w", encoding="ascii"):
            first.go_on()
        first.until(lambda: os.path.exists(held))
        first.kill()
        before = job.read(calls).splitlines()
        for name in (hold, held):
            os.unlink(name)
        last = this.start()
        status = last.wait()
        after = job.read(calls).splitlines()
        again = [call for call in before if after.count(call) > 1]
        said = BEHIND.search(last.said())
        checks.ok(status == 0 and len(before) > 4 and again and before[-1] in again and said and int(said[1]) == len(again),
                  f"left, {way}: {len(again)} that a forked child started behind the step are named", status, before, after, this.story())
        checks.ok(not this.differences(), f"left, {way}: and the trainer wrote the same bytes", *this.differences())


def refuses(checks, way, line):
    """The record has no end of the trainer's programs, as it ignores how they end, or not what they say, as it reads past the library: a wait for that ends the
    attempt with a line, and never lasts."""
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "120")
        this.environment.update(LD_PRELOAD=job.built(place, "tools.so", "tools.c"), TOOLS=way)
        this.run_plain()
        this.killed_at(50)
        last = this.start()
        status = last.wait(60)
        checks.ok(status == 0 and line.search(last.said()), f"{way}: a wait for what is not in the record has a line", status, last.said())
        checks.ok(not this.differences(), f"{way}: and the trainer wrote the same bytes", *this.differences())


def few(checks):
    """There is no descriptor for what drops that a program says once more: a line says that it does, and nothing else differs."""
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "120")
        this.environment.update(LD_PRELOAD=job.built(place, "tools.so", "tools.c"), TOOLS="few")
        this.run_plain()
        plain = job.read(os.path.join(os.path.dirname(this.plain), "told")).splitlines()
        this.killed_at(50)
        last = this.start()
        status = last.wait()
        told = job.read(os.path.join(this.work, "told")).splitlines()
        others = [(one, other) for one, other in zip(plain, told) if one != other]
        checks.ok(status == 0 and TWICE.search(last.said()), "few: a line says that a program says once more what it had said", status, others, last.said())
        checks.ok(len(plain) == len(told) and len(others) == 1 and re.search(r"first \d+ second", others[0][1]), "few: and that is all", others, last.said())


def main():
    checks = job.Checks()
    for way in sys.argv[1:] or [*WAYS, "left", "ignoring", "unheard", "few"]:
        if way == "left":
            left(checks, "server")
            left(checks, "early")
        elif way == "few":
            few(checks)
        elif way in REFUSED:
            refuses(checks, way, REFUSED[way])
        else:
            goes(checks, way)
    checks.end()


if __name__ == "__main__":
    main()
