#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.25 memory=2500M minutes=12 about=40s
"""Somebody between two nodes, who reads what their agents send each other and changes it: as packets (badlink.c), or since one agent takes him
for the other, as messages (relay.c). With TRANSPCKPT_PEER_SECURITY=encrypt nothing of the program's state or arguments can be read; with `auth`
and `encrypt` a byte that is changed, or a message that comes again or back, costs the connection, with one line, and copies go on; with `off`
all can be read, which is how the test knows that it looks at the right place. CASE=NAME runs one case."""
import glob
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
import node

import job

node.enter()
node.need_bad_links()
config = job.read(os.path.join(job.build_folder(), "config.h"))
if "#define HAVE_SODIUM 1" not in config:
    job.skip("the agent was built without libsodium")
checks = job.Checks()
WORD = "a-word-that-only-this-job-has"
ENDED = r"the connection to the agent of \w+ is ended, since it brought what that agent has not sent"
SAMPLES, SAMPLE = 200, 24


def lines(where, what):
    return len(re.findall(what, where.agent_log()))


def samples(where):
    """Parts of the state that are in the copies of this node."""
    found = []
    for path in glob.glob(where.path("j", "copy.*", "image.*")):
        with open(path, "rb") as image:
            size = os.fstat(image.fileno()).st_size
            for _ in range(200 * SAMPLES):
                image.seek(random.randrange(size))
                part = image.read(SAMPLE)
                if len(set(part)) > SAMPLE / 2 and len(found) < SAMPLES:
                    found.append(part)
    return found


class Wire:
    """A program on the first node, whose copies go to the second one by links that somebody reads, or by a relay. A with statement."""

    def __init__(self, first, second, relayed=False):
        self.cluster = node.Cluster(2 + relayed, memory="1g", links=None if relayed else {"alter": 0}, TRANSPCKPT_INTERVAL="8",  # the agent keeps the end of its log only
                                    TRANSPCKPT_PEER_PACING="off", SIMGPU_KERNEL_US="2000")
        self.settings = ({"TRANSPCKPT_PEER_SECURITY": first}, {"TRANSPCKPT_PEER_SECURITY": second})
        self.record, self.relay = os.path.join(self.cluster.root, "record"), None
        if relayed:
            self.cluster.give_secret()

    def __enter__(self):
        self.cluster.__enter__()
        self.a, self.b = self.cluster.nodes[:2]
        if self.cluster.links:
            for n in (self.a, self.b):
                n.link.tell(record=self.record)
        else:
            self.begin_relay(self.cluster.nodes[2])
        self.b.agent(**self.settings[1])
        work = os.path.join(self.cluster.root, "work")
        os.mkdir(work)
        self.start = self.a.start([*self.cluster.runner, os.path.join(self.cluster.build, "transpckpt"), "run", "--",
                                   os.path.join(self.cluster.build, "tests/trainers/gpt"), "--steps", "1000000", "--seed", "7", "--out", WORD],
                                  {**self.cluster.environment, **self.settings[0]}, "start", work)
        return self

    def __exit__(self, *problem):
        self.start.kill()
        if self.relay:
            self.relay.stdin.close()
            self.relay.wait()
            self.relay.stdout.close()
        self.cluster.__exit__(*problem)

    def begin_relay(self, c):
        """Between both, who do not know where the other one is."""
        for settings, nodes in zip(self.settings, (f"{c.address}:7000", f"{self.b.address}:4800")):
            settings["TRANSPCKPT_NODES"] = nodes
        self.relay = subprocess.Popen(c.command([os.path.join(self.cluster.build, "tests/security/relay"), "7000", f"{self.b.address}:4800", self.record],
                                                self.cluster.environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.relay.stdout.readline()

    def has_done(self, what):
        """What the relay is told to do to the next message, once that is done."""
        self.relay.stdin.write(what + "\n")
        self.relay.stdin.flush()
        return self.relay.stdout.readline() == "done\n"

    def copies(self, more):
        """Waits for so many more copies."""
        had = lines(self.b, "is here: ")
        return bool(node.until(lambda: lines(self.b, "is here: ") >= had + more or not self.start.running(), 60)) and self.start.running()

    def seen(self):
        """How many of some parts of the state have crossed in clear, of how many, and whether the word has."""
        parts = samples(self.b)
        with open(self.record, "rb") as f:
            crossed = f.read()
        return sum(part in crossed for part in parts), len(parts), WORD.encode() in crossed, len(crossed)


def read_along(first, second, how, relayed=False):
    with Wire(first, second, relayed) as wire:
        checks.ok(wire.copies(3), f"{first}, {second}: copies arrive", wire.start.said(), wire.cluster.logs())
        for n in (wire.a, wire.b):
            checks.ok(re.search(f"is a peer; what is sent is {how}", n.agent_log()), f"{first}, {second}: {n.name} says that it is {how}", n.agent_log())
        seen, count, word, size = wire.seen()
        clear = "encrypted with" not in how
        checks.ok(count >= SAMPLES // 2 and size > 1 << 20, f"{first}, {second}: there is something to look for: {count} parts, in {size} bytes")
        checks.ok(seen > count / 2 if clear else seen == 0, f"{first}, {second}: {seen} of {count} parts of the state have crossed in clear")
        checks.ok(word == clear, f"{first}, {second}: so has the program's argument: {word}")
        said = lines(wire.b, "TRANSPCKPT_PEER_SECURITY is off: ")
        checks.ok(said == (second == "off"), f"{first}, {second}: one that is off says so, once: {said}", wire.b.agent_log())


def case_read():
    read_along("encrypt", "encrypt", "encrypted with")


def case_off():
    read_along("off", "off", "neither encrypted nor authenticated")


def case_auth():
    read_along("auth", "off", "authenticated with")


def case_stricter():
    """The stricter one of two holds, whichever side it is on."""
    read_along(*random.choice((("off", "encrypt"), ("encrypt", "off"), ("auth", "encrypt"), ("encrypt", "auth"))), "encrypted with")


def altered(level):
    with Wire(level, level) as wire:
        checks.ok(wire.copies(2), f"{level}: copies arrive", wire.start.said(), wire.cluster.logs())
        for turn in (1, 2):
            met = lines(wire.b, "is a peer")
            wire.a.link.tell(alter=1)
            checks.ok(node.until(lambda: lines(wire.b, ENDED) >= turn, 60), f"{level}: a changed byte ends the connection", wire.cluster.logs())
            checks.ok(node.until(lambda: lines(wire.b, "is a peer") > met, 60), f"{level}: they meet again", wire.cluster.logs())
            checks.ok(wire.copies(2), f"{level}: copies arrive again, and the program trains on", wire.start.said(), wire.cluster.logs())
        counts = wire.a.link.tell()
        checks.ok(counts[3] == 2 and lines(wire.b, ENDED) == 2 and lines(wire.a, ENDED) == 0, f"{level}: each with one line", counts, wire.cluster.logs())
        checks.ok(lines(wire.b, "a copy from .* is not taken") == 0, f"{level}: nothing of it has been looked at", wire.b.agent_log())


def case_altered():
    altered("encrypt")


def case_altered_auth():
    altered("auth")


def case_relay_off():
    read_along("off", "off", "neither encrypted nor authenticated", True)


def case_relay():
    """Who passes greetings on is no part of what comes behind them."""
    with Wire("encrypt", "encrypt", True) as wire:
        checks.ok(wire.copies(2), "relay: copies arrive, since it passes all on", wire.start.said(), wire.cluster.logs())
        seen, count, word, size = wire.seen()
        checks.ok(count and size > 1 << 20 and not seen and not word, f"relay: it reads nothing: {seen} of {count} parts, {word}")
        for what, who in random.sample((("alter", wire.b), ("head", wire.b), ("replay", wire.b), ("reflect", wire.a)), 2):
            met, had = lines(wire.b, "is a peer"), {n: lines(n, ENDED) for n in (wire.a, wire.b)}
            checks.ok(wire.has_done(what), f"relay, {what}: it does so")
            checks.ok(node.until(lambda who=who, had=had: lines(who, ENDED) > had[who], 60), f"relay, {what}: the connection ends", wire.cluster.logs())
            checks.ok(node.until(lambda met=met: lines(wire.b, "is a peer") > met, 60), f"relay, {what}: they meet again", wire.cluster.logs())
            checks.ok(wire.copies(2), f"relay, {what}: copies arrive again", wire.start.said(), wire.cluster.logs())
            counts = {n: lines(n, ENDED) - had[n] for n in had}
            checks.ok(sum(counts.values()) == 1, f"relay, {what}: with one line", wire.cluster.logs())


node.run_cases(globals(), ())
checks.end()
