#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1 memory=1G minutes=5 about=8s
"""What a job leaves, in memory and in the store, and what is said: no value of its environment, nothing that others may read, whatever the
umask, and nothing in memory once nobody waits for it any more. Nor does what is kept of a value tell whether a guess of it is right."""
import os
import re
import shutil
import stat
import sys
import tempfile

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
                    if (word if isinstance(word, bytes) else word.encode()) in f.read():
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


def texts(store):
    """The identity texts that a reader of the store finds, by the names of their programs."""
    folder = os.path.join(store, "j", "programs")
    return {name: job.read(os.path.join(folder, name)) for name in os.listdir(folder) if re.fullmatch("[0-9a-f]{16}", name)}


def until(place, checks, command, work, value, name, what, holds, **environment):
    """One start that is killed once what it said holds: that."""
    start = job.Start(place, command, work, {**place.environment, "LD_PRELOAD": os.path.join(place.build, ".libs/libtranspckpt.so"), NAME: value, **environment},
                      name)
    try:
        checks.ok(job.look_until(lambda: holds(start.said()), job.WAIT_SEC, 0.05, start.running), what, start.said(), place.agent_log())
    finally:
        start.kill()
    return start.said()


def until_durable(place, checks, command, work, value, name, **environment):
    before = place.agent_log().count("is durable")
    return until(place, checks, command, work, value, name, f"{name}: a step is durable", lambda _: place.agent_log().count("is durable") > before, **environment)


def goes_on(said):
    return bool(job.LIVE.search(said))


def goes_on_for_long(place):
    """Until it has a step of its own: of one at which two starts have ended at once nobody goes on."""
    before = place.agent_log().count("is durable")
    return lambda said: goes_on(said) and place.agent_log().count("is durable") > before


class Elsewhere:
    """A place as another node has it that shares the store, and not this one's memory."""

    def __init__(self, place):
        self.place, self.shm = place, place.shm

    def __enter__(self):
        self.place.signal_agents()
        job.look_until(lambda: not self.place.agents(), 30, 0.05)
        self.place.shm = self.place.environment["TRANSPCKPT_SHM"] = tempfile.mkdtemp(prefix="tpck-e2e.", dir=os.path.dirname(self.shm))

    def __exit__(self, *_):
        self.place.signal_agents()
        job.look_until(lambda: not self.place.agents(), 30, 0.05)
        shutil.rmtree(self.place.shm, ignore_errors=True)
        self.place.shm = self.place.environment["TRANSPCKPT_SHM"] = self.shm


def guesses(checks, place, work, command):
    """A reader of the store who knows all but a value, and starts the same program with his guess, as another user or on a machine of his."""
    known = texts(place.store)
    key = os.path.join(place.root, "state/transpckpt/.key")
    checks.ok(os.stat(key).st_mode & 0o7777 == 0o600 and os.path.getsize(key) == 16, "the key is its user's alone")
    with open(key, "rb") as f:
        secret = f.read()
    paths = files(place.store)
    checks.ok(not having(secret, paths) and not having(secret.hex(), paths), "and is not in the store")
    with job.Place() as guesser:
        until_durable(guesser, checks, command, work, FIRST, "guess")
        his = texts(guesser.store)
        lines = {line for text in known.values() for line in text.splitlines() if line.startswith("environment")}
        same = sorted(lines & {line for text in his.values() for line in text.splitlines()})
        checks.ok(len(lines) > 3 and not same, f"of {len(lines)} lines none tells that a guess is right", *same)
        checks.ok(known and his and not known.keys() & his.keys(), "nor does a program's name", known.keys(), his.keys())


def elsewhere(checks, place, work, command):
    """Another node without this home: the same store, another key."""
    with Elsewhere(place):
        said = until(place, checks, command, work, SECOND, "elsewhere", "of two programs that it may be none is taken, with a line",
                     lambda said: "not resuming: there are 2 programs" in said and "digests are taken" in said, XDG_STATE_HOME=os.path.join(place.root, "elsewhere"))
        checks.ok(not goes_on(said), "and it begins anew", said)


def one_elsewhere(checks, command):
    with job.Place(TRANSPCKPT_LINGER_SEC="2") as place:
        work = os.path.join(place.root, "work")
        os.mkdir(work)
        until_durable(place, checks, command, work, FIRST, "here")
        with Elsewhere(place):
            said = until(place, checks, command, work, FIRST, "there", "on a node without this home the program goes on", goes_on_for_long(place),
                         XDG_STATE_HOME=os.path.join(place.root, "elsewhere"))
            checks.ok(said.count("values of environment variables cannot be compared") == 1, "and a line says once what was not compared", said)
            until_durable(place, checks, command, work, FIRST, "more", XDG_STATE_HOME=os.path.join(place.root, "elsewhere"))
        with Elsewhere(place):
            said = until(place, checks, command, work, FIRST, "back", "back at home it goes on", goes_on_for_long(place))
            checks.ok("cannot be compared" not in said, "without a word", said)
            said = until(place, checks, command, work, SECOND, "other", "where another value is noticed",
                         lambda said: f"environment variable {NAME} has another value" in said)


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
        again = until(place, checks, command, work, SECOND, "again", "with equal values it goes on", goes_on)
        checks.ok("cannot be compared" not in again, "without a word of them", again)
        guesses(checks, place, work, command)
        checks.ok(job.look_until(lambda: not place.agents() and not os.path.exists(memory), 60, 0.05), "what was in memory goes after TRANSPCKPT_LINGER_SEC",
                  place.agent_log(), os.listdir(place.shm))
        checks.ok(job.look_until(lambda: not os.listdir(place.shm), 10, 0.05), "all of it", os.listdir(place.shm))
        elsewhere(checks, place, work, command)
        one_elsewhere(checks, command)
    checks.end()


main()
