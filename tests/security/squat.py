#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 memory=512M minutes=6 about=12s
"""Another user has put something where a user's memory tier is by default. Nothing of the user's is overwritten, nothing is
believed that lies there, and another place is taken. As root, since it takes two users."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from others import Checks, Others, ended, look_until, ready, saves

# Folders as the library would make them, open to everybody, and at each name that it may write to a link to the user's file.
SQUAT = """
import os, sys
tier, precious, pids = sys.argv[1], sys.argv[2], [int(p) for p in sys.argv[3:]]
os.umask(0)
os.makedirs(tier + "/j/files", 0o777)
for pid in pids:
    for name in (f"table.{pid}", f"table.{pid}.0"):
        os.symlink(precious, f"{tier}/j/files/{name}")
for name in ("agent.lock", "agent.log"):
    os.symlink(precious, f"{tier}/j/{name}")
"""


def left_there(folder):
    """What is in another user's folder."""
    return sorted(os.path.join(base, name)[len(folder):] for base, _, names in os.walk(folder) for name in names)


def before(checks):
    """It is there before the first program starts."""
    with Others() as here:
        here.precious()
        here.attack(SQUAT, here.tier, os.path.join(here.home, "thesis.tex"), *range(os.getpid(), os.getpid() + 500))
        planted = left_there(here.tier)
        process = here.start()
        good = ready(process) and saves(process, "a.pt") and saves(process, "b.pt")
        own = look_until(here.own_tiers, 10, 0.01) or []
        agent = here.agents()
        listed = here.command("ls", "--files")
        # Another program of the job, as a shell starts it, finds what the first one has there.
        other = here.start("print(open('a.pt', 'rb').read() == b'saved' * 1000)")
        seen = other.stdout.readline().strip()
        ended(other)
        code = ended(process)
        checks.ok(here.precious() == "years of work\n", "no file of the user's is overwritten")
        checks.ok(good and code == 0 and seen == "True", "the program saves as ever", here.said())
        checks.ok(left_there(here.tier) == planted, "nothing of ours is put into another user's folder", sorted(set(left_there(here.tier)) ^ set(planted)))
        checks.ok(len(own) == 1 and agent and os.path.exists(os.path.join(own[0], "j/files/table")),
                  "the memory tier is in another place, of a name that nobody could know", own, here.said())
        checks.ok(listed.returncode == 0 and "j" in listed.stdout, "and the command finds it", listed.stdout, listed.stderr)
        checks.ok("cannot" not in here.said(), "and nothing is given up", here.said())
        # He takes it away, and what is there stays where it is.
        here.attack("import shutil, sys; shutil.rmtree(sys.argv[1])", here.tier)
        process = here.start()
        good = ready(process) and saves(process, "c.pt")
        ended(process)
        checks.ok(good and here.own_tiers() == own, "which stays the place when the folder is gone", here.own_tiers(), own, here.said())


def between(checks):
    """It is put there between a program's start and the first file that it saves."""
    with Others() as here:
        here.precious()
        process = here.start()
        good = ready(process)
        here.attack(SQUAT, here.tier, os.path.join(here.home, "thesis.tex"), process.pid)
        planted = left_there(here.tier)
        good = good and saves(process, "a.pt")
        code = ended(process)
        checks.ok(here.precious() == "years of work\n", "no file of the user's is overwritten then either")
        checks.ok(good and code == 0, "and the program saves as ever", here.said())
        checks.ok(left_there(here.tier) == planted, "nothing of ours is put there", sorted(set(left_there(here.tier)) ^ set(planted)))
        lines = [line for line in here.said().splitlines() if here.tier in line]
        checks.ok(len(lines) == 1 and f"belongs to user {here.attacker}" in lines[0] and "TRANSPCKPT_SHM" in lines[0],
                  "one line says what it is, where, and what to do", here.said())


def kinds(checks):
    """A link, a file, and a folder of the user's own that others may write to, as the setting names it."""
    for what in ("link", "file", "open"):
        with Others() as here:
            at = os.path.join(here.root, "tier")
            if what == "link":
                os.symlink(here.folder("elsewhere", here.victim), at)
            elif what == "file":
                with open(at, "wb"):
                    pass
            else:
                here.folder("tier", here.victim, 0o770)
            here.environment["TRANSPCKPT_SHM"] = at
            process = here.start()
            good = ready(process) and saves(process, "a.pt")
            code = ended(process)
            inside = left_there(at) if what != "file" else []
            checks.ok(good and code == 0 and not inside, f"a memory tier that is {what} is not used", inside, here.said())
            lines = [line for line in here.said().splitlines() if at in line]
            checks.ok(len(lines) == 1 and "TRANSPCKPT_SHM" in lines[0], f"{what}: one line says so", here.said())
            agent = here.command("doctor")
            checks.ok(agent.returncode < 128, f"{what}: the command ends", agent.stderr)


def sticky(checks):
    """A tmpfs as it is when it has been mounted: others may make what they like in it, and rename nothing of the user's."""
    with Others() as here:
        here.precious()
        at = here.folder("tier", here.victim, 0o1777)
        here.environment["TRANSPCKPT_SHM"] = at
        process = here.start()
        good = ready(process)
        here.attack(SQUAT, at, os.path.join(here.home, "thesis.tex"), process.pid)
        planted = left_there(at)
        good = good and saves(process, "a.pt")
        code = ended(process)
        checks.ok(here.precious() == "years of work\n" and left_there(at) == planted and good and code == 0,
                  "another user's folder in it, of the job's name, is not used", here.said())
        checks.ok(f"{at}/j is not used, since it belongs to user {here.attacker}" in here.said(), "and a line says so", here.said())
    with Others() as here:
        at = here.folder("tier", here.victim, 0o1777)
        here.environment["TRANSPCKPT_SHM"] = at
        process = here.start()
        good = ready(process) and saves(process, "a.pt")
        checks.ok(good and os.path.exists(os.path.join(at, "j/files/table")) and "not used" not in here.said(), "without such a folder it is used", here.said())
        ended(process)


def main():
    checks = Checks()
    for test in (before, between, kinds, sticky):
        if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
            test(checks)
    checks.end()


if __name__ == "__main__":
    main()
