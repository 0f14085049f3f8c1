#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.1 memory=1G about=5s disk
"""A folder in which files are owed gets another name, by somebody who is not of the job: they come to it there. One that is
removed takes with it what was owed."""
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import Checks, Place, run_tests, stand_still, until
from view import STEPS, end, go, told

SAVES = STEPS + """
def save(name, byte, size=100000):
    with open(name, "wb") as f: f.write(byte * size)
os.makedirs("run/ckpt/sub")
save("run/ckpt/a.pt", b"a"); save("run/ckpt/old.pt", b"o"); save("run/ckpt/sub/a.pt", b"a"); save("run/ckpt/open.pt", b"p")
step("first")
# The sizes are known: these go to memory, but for the one that is new.
save("run/ckpt/a.pt", b"b"); save("run/ckpt/new.pt", b"n"); save("run/ckpt/sub/a.pt", b"c")
os.unlink("run/ckpt/old.pt")
f = open("run/ckpt/open.pt", "wb"); f.write(b"q" * 100000); f.flush()
step("owed")
os.makedirs("run/ckpt", exist_ok=True)
save("run/ckpt/b.pt", b"d")
try:
    os.fsync(f.fileno())
    synced = "synced"
except OSError:
    synced = "not synced"
step(synced)
try:
    f.close()
    closed = "closed"
except OSError:
    closed = "not closed"
step(closed)
"""


def one(name, byte, size=100000):
    return f"{name} {size} {byte}"


def lines(folder):
    found = []
    for above, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(above, name)
            with open(path, "rb") as f:
                data = f.read()
            found.append(f"{os.path.relpath(path, folder)} {len(data)} {''.join(map(chr, sorted(set(data))))}")
    return sorted(found)


def owed_and(checks, what, change, want, says, synced="synced"):
    """While the agent is stopped the folder is changed from outside."""
    with Place() as place:
        program = place.start(SAVES)
        told(program, "first")
        until(lambda: not place.listed())
        agent = place.agent_pid()
        stand_still(agent)
        go(program)
        told(program, "owed")
        change(place.path("run"))
        os.kill(agent, signal.SIGCONT)
        go(program)
        told(program, synced)
        go(program)
        # Where the sync has said it, closing need not say it again.
        closed = program.stdout.readline().strip()
        end(program)
        until(lambda: not place.listed())
        there, log = lines(place.work), place.log()
        checks.ok(there == sorted(want) and says(log) and closed in ["closed"] + ["not closed"] * (synced != "synced"), what, closed, there, sorted(want), log)


def renamed(checks):
    whole = [one("run/kept/a.pt", "b"), one("run/kept/new.pt", "n"), one("run/kept/sub/a.pt", "c"), one("run/kept/open.pt", "q"), one("run/ckpt/b.pt", "d")]
    owed_and(checks, "a folder that is renamed gets what is owed in it, and what lies below it, and loses what was removed in it",
             lambda run: os.rename(run + "/ckpt", run + "/kept"), whole,
             lambda log: "has been renamed: what is owed there goes to" in log and "given up" not in log)
    owed_and(checks, "so does one above whose old name is another folder's by then",
             lambda run: (os.rename(run, run + "-1"), os.makedirs(run + "/ckpt")), [w.replace("run/kept", "run-1/ckpt") for w in whole],
             lambda log: "has been renamed: what is owed there goes to" in log and "given up" not in log)


def another(run):
    """Removed, and made again: the new one is to be another one, which the file system may give the same number."""
    shutil.rmtree(run + "/ckpt")
    for number in range(20):
        os.makedirs(f"{run}/{number}")
    os.makedirs(run + "/ckpt")


def removed(checks):
    owed_and(checks, "what is owed in a folder that is removed goes with it, with a line",
             another, [one("run/ckpt/b.pt", "d")],
             lambda log: "a.pt is given up: its folder has been removed" in log and "renamed" not in log, "not synced")


def main():
    checks = Checks()
    run_tests(checks, [renamed, removed])


if __name__ == "__main__":
    main()
