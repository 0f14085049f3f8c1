#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1 memory=1G minutes=5 about=8s
"""What a job leaves, in memory and in the store, and what is said: no value of its environment, nothing that others may read, whatever the
umask, and nothing in memory once nobody waits for it any more."""
import os
import stat
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import job

# By no usual name of a secret: all values are kept from others.
NAME, FIRST, SECOND = "FAVOURITE_COLOUR", "a-value-that-nobody-else-has", "another-value-of-its-own"


def files(*folders):
    return [os.path.join(base, name) for folder in folders for base, _, names in os.walk(folder) for name in names]


def having(word, paths):
    """Which files have it in them."""
    found = []
    for path in paths:
        try:
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as f:
                    if word.encode() in f.read():
                        found.append(path)
        except OSError:
            pass
    return found


def open_to_others(*folders):
    """Folders, and files but those of the program's own, which have the modes that it gave them."""
    found = []
    for base, names, inside in (entry for folder in folders for entry in os.walk(folder)):
        for path in [base, *(os.path.join(base, name) for name in names + inside)]:
            try:
                mode = os.lstat(path).st_mode
            except OSError:
                continue
            own = os.path.basename(base) == "files" or "/keep/" in path
            if mode & 0o077 and not stat.S_ISLNK(mode) and (stat.S_ISDIR(mode) or not own):
                found.append((path, oct(mode)))
    return found


def main():
    checks = job.Checks()
    os.umask(0)
    with job.Place(TRANSPCKPT_LINGER_SEC="2", TRANSPCKPT_LOG="debug") as place:
        work = os.path.join(place.root, "work")
        os.mkdir(work)
        memory, store = os.path.join(place.shm, "j"), os.path.join(place.store, "j")
        command = [*place.runner, place.trainer("gpt"), "--seed", "5", "--steps", "100000", "--save-every", "7", "--out", "out"]
        preload = os.path.join(place.build, ".libs/libtranspckpt.so")
        said = ""
        for value in (FIRST, SECOND):
            start = job.Start(place, command, work, {**place.environment, "LD_PRELOAD": preload, NAME: value}, "run" + value)
            try:
                # The record has come to the store with a step.
                durable = job.look_until(lambda: place.agent_log().count("is durable") > (value == SECOND), job.WAIT_SEC, 0.05, start.running)
                checks.ok(durable, "a step is durable", start.said(), place.agent_log())
                for word in (FIRST, SECOND):
                    found = having(word, files(memory, store))
                    checks.ok(not found, f"'{word}' is in none of {len(files(memory, store))} files", *found)
                found = open_to_others(memory, store)
                checks.ok(not found, "no folder of theirs is anybody else's, nor is one of them", *found)
            finally:
                start.kill()
            said += start.said() + place.agent_log()
        checks.ok(f"environment variable {NAME} has another value" in said, "a line names the variable that is another", said)
        checks.ok(FIRST not in said and SECOND not in said, "and not its values", said)
        checks.ok(job.look_until(lambda: not place.agents() and not os.path.exists(memory), 60, 0.05), "what was in memory goes after TRANSPCKPT_LINGER_SEC",
                  place.agent_log(), os.listdir(place.shm))
        checks.ok(not os.listdir(place.shm), "all of it", os.listdir(place.shm))
    checks.end()


main()
