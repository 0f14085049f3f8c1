#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.25 memory=1500M minutes=27 about=150s
"""A node is lost with all its memory: the same command goes on elsewhere from a peer's copy, and ends with the same bytes.
CASE=NAME runs one case; BY_NAME only so, for the time they take."""
import glob
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Ranks, SLOW

import baseline
import job

node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
HAS_UCX = "#define HAVE_UCX 1" in job.read(os.path.join(job.build_folder(), "config.h"))
checks = job.Checks()
# Whoever looks for a copy may be late on a busy machine: the program is not to end before its node does.
STEPS = "120"


class Run:
    """The trainer, plain and on nodes of a cluster that see one folder."""

    def __init__(self, cluster, steps=STEPS):
        self.cluster = cluster
        self.work = os.path.join(cluster.root, "work")
        self.plain = os.path.join(cluster.root, "plain")
        for folder in (self.work, self.plain):
            os.makedirs(folder)
        self.argv = [*cluster.runner, os.path.join(cluster.build, "transpckpt"), "run", "--", os.path.join(cluster.build, "tests/trainers/gpt"),
                     "--steps", steps, "--seed", "7", "--out", "out"]
        environment = {k: v for k, v in cluster.environment.items() if not k.startswith("TRANSPCKPT_")}
        def run_plain(folder):
            plain = job.Start(cluster, [*cluster.runner, *self.argv[4:]], folder, environment, "plain")
            if plain.wait() != 0:
                raise RuntimeError(plain.said())

        baseline.copy(cluster.build, [self.argv[4]], self.argv[5:], environment, run_plain, self.plain)
        self.starts = 0

    def start(self, where, **settings):
        self.starts += 1
        return where.start(self.argv, {**self.cluster.environment, **SLOW, **settings}, f"start{self.starts}", self.work)

    def same(self):
        return job.differences(os.path.join(self.plain, "out"), os.path.join(self.work, "out"))


def steps(text, what):
    return [int(n) for n in re.findall(what, text)]


def committed(where):
    return max(steps(where.agent_log(), r"committed step (\d+) "), default=-1)


def kept(where):
    return max(steps(where.agent_log(), r"a copy of step (\d+) of generation \d+ of \w+ is here"), default=-1)


def resumed(start):
    found = job.LIVE.search(start.said())
    return int(found[1]) if found else 0


def finish(run, start, what, floor):
    status = start.wait()
    checks.ok(status == 0, f"{what}: it ends well", status, start.said(), run.cluster.logs())
    checks.ok(resumed(start) >= floor, f"{what}: it goes on at step {resumed(start)}, at least {floor}", start.said(), run.cluster.logs())
    checks.ok(not run.same(), f"{what}: with the same bytes", "\n".join(run.same()))


def case_lost():
    with node.Cluster(2) as cluster:
        a, b = cluster.nodes
        run = Run(cluster)
        b.agent()
        first = run.start(a)
        checks.ok(node.until(lambda: kept(b) >= 10, 60), "the peer gets copies", first.said(), cluster.logs())
        shown = a.run([os.path.join(cluster.build, "transpckpt"), "show", "--json"], cluster.environment).stdout
        copies = json.loads(shown)[0]["copies"]
        checks.ok(len(copies) == 1 and copies[0]["host"] == "nodeb" and copies[0]["step"] >= 10, "show says where", shown)
        shown = b.run([os.path.join(cluster.build, "transpckpt"), "show"], cluster.environment).stdout
        checks.ok(re.search(r"holds a copy of step \d+ \(generation 1, rank 0\) for nodea", shown), "and for whom", shown)
        # The newest that was committed a moment before, and what the peer has when the node is gone.
        newest = steps(a.agent_log(), r"committed step (\d+) ")
        a.destroy()
        first.wait(10)
        has = kept(b)
        newer = [step for step in newest if step > has]
        checks.ok(len(newer) <= 2, f"the peer has step {has}; snapshots that were newer: {newer}", cluster.logs())
        begun = time.monotonic()
        second = run.start(b)
        finish(run, second, "on the peer", has)
        print(f"# {time.monotonic() - begun:.1f} s")


def case_ucx():
    """Over UCX, which is asked for: a line says what that means, and all else is as ever."""
    if not HAS_UCX:
        return
    with node.Cluster(2, TRANSPCKPT_TRANSPORT="ucx") as cluster:
        a, b = cluster.nodes
        run = Run(cluster)
        b.agent()
        first = run.start(a)
        checks.ok(node.until(lambda: kept(b) >= 10, 60), "over UCX: the peer gets copies", first.said(), cluster.logs())
        checks.ok(all(lines(n, r"TRANSPCKPT_TRANSPORT is ucx: whoever reaches UCX's ports can end this agent") == 1 for n in (a, b)),
                  "over UCX: the agents say what that means", cluster.logs())
        a.destroy()
        first.wait(10)
        has = kept(b)
        finish(run, run.start(b), "over UCX: on the peer", has)


def case_mixed():
    """One agent speaks TCP, and the other one UCX: they do not meet, which a line says, and neither is harmed."""
    if not HAS_UCX:
        return
    with node.Cluster(2) as cluster:
        a, b = cluster.nodes
        ways = ["tcp", "ucx"]
        job.drawn_from().shuffle(ways)
        for n, way in zip((a, b), ways):
            n.agent(TRANSPCKPT_TRANSPORT=way)
        over_tcp = (a, b)[ways.index("tcp")]
        checks.ok(node.until(lambda: lines(over_tcp, "no message of an agent's.*TRANSPCKPT_TRANSPORT has to be the same on all nodes"), 30),
                  f"mixed, {ways}: it is said", cluster.logs())
        checks.ok(a.has_agent() and b.has_agent() and lines(a, "is a peer") == 0, f"mixed, {ways}: they leave each other alone", cluster.logs())


def case_third():
    """A copy that is on another node than the one where the program starts."""
    with node.Cluster(3) as cluster:
        a, b, c = cluster.nodes
        run = Run(cluster)
        b.agent()
        first = run.start(a)
        checks.ok(node.until(lambda: kept(b) >= 10, 60), "a third node: the peer gets copies", first.said(), cluster.logs())
        a.destroy()
        first.wait(10)
        has = kept(b)
        second = run.start(c)
        finish(run, second, "on a third node", has)
        checks.ok(f"got a copy of step {has} of generation 1 from nodeb" in c.agent_log(), "it came from the peer", cluster.logs())
        checks.ok(node.until(lambda: not b.copies(), 20), "what the program that ended had there is dropped", cluster.logs())


def case_moved():
    """The process dies, not its node, and goes on elsewhere: what was in the memory of its own node is newer than any copy."""
    with node.Cluster(3) as cluster:
        a, b, c = cluster.nodes
        run = Run(cluster)
        first = run.start(a)
        checks.ok(node.until(lambda: committed(a) >= 10, 60), "moved: snapshots are taken", first.said(), cluster.logs())
        first.kill()
        node.until(lambda: "was killed" in a.agent_log(), 10)
        has = committed(a)
        second = run.start(c)
        checks.ok(node.until(lambda: committed(c) >= has + 15, 60), "it goes on elsewhere", second.said(), cluster.logs())
        checks.ok(resumed(second) == has, f"at step {resumed(second)}, the newest of its node: {has}", second.said(), cluster.logs())
        second.kill()
        node.until(lambda: "was killed" in c.agent_log(), 10)
        has = committed(c)
        finish(run, run.start(a), "and comes back", has)


def case_nodes():
    """No folder is shared but the program's own: hosts by name, a secret that was given, a store on each node. The process dies,
    then its node."""
    with node.Cluster(3, **node.UNSHARED) as cluster:
        cluster.give_secret()
        a, b, c = cluster.nodes
        run = Run(cluster)
        b.agent()
        first = run.start(a)
        checks.ok(node.until(lambda: kept(b) >= 5, 60), "hosts by name: a peer gets copies", first.said(), cluster.logs())
        # Whoever comes later, and may have none, hears of the program as well.
        c.agent()
        node.until(lambda: "is a peer" in c.agent_log(), 30)
        then = committed(a)
        checks.ok(node.until(lambda: max(kept(b), kept(c)) >= then + 5, 60), "and goes on getting them", first.said(), cluster.logs())
        holder, other = (b, c) if kept(b) >= kept(c) else (c, b)
        holder.end()
        first.kill()
        node.until(lambda: "was killed" in a.agent_log(), 10)
        has = committed(a)
        second = run.start(other)
        checks.ok(node.until(lambda: committed(other) >= has + 10 and kept(a) >= has + 5, 60), "it goes on elsewhere", second.said(),
                  cluster.logs())
        checks.ok(resumed(second) == has, f"at step {resumed(second)}, what its node still had: {has}", second.said(), cluster.logs())
        other.destroy()
        second.wait(10)
        finish(run, run.start(a), "and back from its copy there", kept(a))


def case_families():
    """One node has IPv6 only, one IPv4 only and one both, by addresses of either and by name: what the first one's program had comes to the second by the third."""
    if node.lacks_six():
        checks.ok(True, f"families # SKIP {node.lacks_six()}")
        return
    with node.Cluster(3, families=["6", "4", "46"], TRANSPCKPT_DIR="/dev/shm/d",
                      TRANSPCKPT_NODES="[fd77::1]:4801,10.77.0.2,nodec:4803,[fd77::4,fe80::1%eth0") as cluster:
        cluster.give_secret()
        six, four, both = cluster.nodes
        run = Run(cluster)
        both.agent()
        first = run.start(six)
        checks.ok(node.until(lambda: kept(both) >= 10, 60), "families: a copy goes over IPv6", first.said(), cluster.logs())
        # The fourth node hears of the program when it comes.
        four.agent()
        checks.ok(node.until(lambda: both.agent_log().count("is a peer") == 2, 30), "families: who has both meets either", cluster.logs())
        checks.ok("of nodea" not in four.agent_log() and "of nodeb" not in six.agent_log(), "families: and those not each other", cluster.logs())
        # Not that it only goes to them itself.
        knock = "import socket, sys; socket.create_connection((sys.argv[1], 4803), 5)"
        for n, address in ((six, node.address_six(2)), (four, both.address)):
            done = n.run([sys.executable, "-c", knock, address], cluster.environment)
            checks.ok(done.returncode == 0, f"families: and listens for {n.name}", done.stderr)
        said = re.findall("of TRANSPCKPT_NODES (.*)", both.agent_log())
        checks.ok(len(said) == 2 and "'[fd77::4' has no ]" in said[0] and "'fe80::1%eth0' is a link-local address" in said[1],
                  "families: what is no entry is said once", *said)
        six.destroy()
        first.wait(10)
        has = kept(both)
        finish(run, run.start(four), "from there over IPv4", has)
        checks.ok(f"got a copy of step {has} of generation 1 from nodec" in four.agent_log(), "families: it came from the one that has both", cluster.logs())


def case_bad():
    """One of two copies is damaged, which its holder does not know."""
    with node.Cluster(4, TRANSPCKPT_PEERS="2") as cluster:
        a, b, c, d = cluster.nodes
        run = Run(cluster)
        b.agent()
        d.agent()
        first = run.start(a)
        checks.ok(node.until(lambda: min(kept(b), kept(d)) >= 10, 60), "two peers get copies", first.said(), cluster.logs())
        a.destroy()
        first.wait(10)
        has = min(kept(b), kept(d))
        for folder in b.copies():
            # There is one where the first copy was of a late step.
            for image in glob.glob(os.path.join(folder, "image.*")):
                with open(image, "r+b") as f:
                    f.seek((256 << 20) + 100)
                    byte = f.read(1)
                    f.seek((256 << 20) + 100)
                    f.write(bytes([byte[0] ^ 1]))
        newest = kept(b) >= kept(d)
        second = run.start(c)
        finish(run, second, "with a bad copy", has)
        if newest:
            checks.ok(re.search(r"that nodeb has cannot be had: chunk 0 of image.data is not what its digest says", c.agent_log()),
                      "the bad one is noticed, and the other one is taken", cluster.logs())
        checks.ok(re.search(r"got a copy of step \d+ of generation 1 from noded", c.agent_log()), "which the good one gave", cluster.logs())


def case_restart():
    """The agent that has a copy dies too, and another one hangs."""
    with node.Cluster(3, TRANSPCKPT_PEERS="2") as cluster:
        a, b, c = cluster.nodes
        run = Run(cluster)
        b.agent()
        c.agent()
        first = run.start(a)
        checks.ok(node.until(lambda: min(kept(b), kept(c)) >= 10, 60), "restart: two peers get copies", first.said(), cluster.logs())
        c.signal_agent("STOP")
        b.signal_agent("KILL")
        a.destroy()
        first.wait(10)
        has = kept(b)
        second = run.start(b)
        finish(run, second, "an agent's copies after its death", has)
        checks.ok(f"holding a copy of step {has} of generation 1 since before" in b.agent_log(), "the next agent finds them",
                  cluster.logs())


def hold(where):
    """The processes of the trainer stay as they are, and with them the newest snapshot."""
    where.run(["sh", "-c", 'for p in /proc/[0-9]*; do case "$(cat $p/comm)" in gpt|gpt_ranks) kill -STOP ${p#/proc/};; esac; done 2>/dev/null'],
              where.cluster.environment)


# Of 37 MiB in images of two ranks, none of whose chunks are the same, and of 100.
SOME, MORE = (("--width", "32", "--context", "16", "--bigrams", bigrams) for bigrams in ("32768", "98304"))


def lose_with_same(cluster, size, holders, same):
    """A job of two ranks whose node is lost when that many other nodes have the same of its newest step: run, that step, and who has it."""
    # Nobody else is there yet who could get one.
    a, *others = cluster.nodes[:holders + 1]
    run = Ranks(cluster, 2, "--zero", steps=120, size=size)
    first = start_with_peers(run, a, others)
    node.until(lambda: sum(same(n) >= 5 for n in others) >= holders, 90)
    hold(a)
    ready = node.until(lambda: sum(same(n) == committed(a) for n in others) >= holders, 60)
    checks.ok(ready, f"{holders} others have the newest step", run.story(), cluster.logs())
    has = committed(a)
    a.destroy()
    first.wait(10)
    return run, has, [n for n in others if same(n) == has]


def come_from(where, lost):
    """MiB that had come from this node when it was lost."""
    found = re.search(rf"that {lost.name} has cannot be had: .*; ([\d.]+) MiB of it have come", where.agent_log())
    return float(found[1]) if found else 0


def case_broken():
    """Who gives a copy is lost in the middle of it, by a slow link that has one: only the rest is asked of the next one."""
    with node.Cluster(4, TRANSPCKPT_PEERS="2", memory="1g") as cluster:
        run, has, (early, late) = lose_with_same(cluster, SOME, 2, kept)
        spare = cluster.nodes[3]
        # Of equals the first by name is asked.
        early.slow("60mbit")
        sent = early.bytes_out(), late.bytes_out()
        second = run.start(spare)
        checks.ok(node.until(lambda: early.bytes_out() - sent[0] > 16 << 20, 60), "broken: a part of it has come", run.story(), cluster.logs())
        early.destroy()
        finish_ranks(run, second, "broken: from the other one", has)
        came = re.search(r"is here: ([\d.]+) MiB came in", spare.agent_log())
        came, before = float(came[1]) if came else 0, come_from(spare, early)
        # Chunks that have not all come are sent again.
        again = (late.bytes_out() - sent[1]) / 2**20
        checks.ok(before >= 8 and came - before <= again < came - 7, f"broken: {before} MiB had come of {came}, and the other one sent {again:.1f}",
                  cluster.logs())


def case_staging():
    """The agent dies while a start of ranks that are all on its node gets their copies: they ask its next one, and go on from them."""
    with node.Cluster(3, memory="1g") as cluster:
        run, has, (early,) = lose_with_same(cluster, SOME, 1, kept)
        spare = next(n for n in cluster.nodes[1:] if n is not early)
        early.slow("20mbit")
        sent = early.bytes_out()
        second = run.start(spare)
        checks.ok(node.until(lambda: early.bytes_out() - sent > 4 << 20, 60), "staging: a part of it has come", run.story(), cluster.logs())
        spare.signal_agent("KILL")
        early.slow(None)
        finish_ranks(run, second, "staging: the agent is killed", has)
        checks.ok("not resuming" not in run.story(), "staging: nobody begins anew", run.story(), cluster.logs())


def case_both():
    """A copy that is large comes from both nodes that have it at once; the one has a slow link, and gives less. It is lost on the way."""
    with node.Cluster(4, TRANSPCKPT_PEERS="2", memory="2g") as cluster:
        run, has, (slow, fast) = lose_with_same(cluster, MORE, 2, kept)
        spare = cluster.nodes[3]
        slow.slow("40mbit")
        fast.slow("100mbit")
        sent = slow.bytes_out(), fast.bytes_out()
        second = run.start(spare)
        checks.ok(node.until(lambda: slow.bytes_out() - sent[0] > 12 << 20, 60), "both: a part of it has come", run.story(), cluster.logs())
        shares = [(n.bytes_out() - begun) / 2**20 for n, begun in zip((slow, fast), sent)]
        checks.ok(1.2 * shares[0] < shares[1], f"both: meanwhile {shares[0]:.1f} MiB of one, {shares[1]:.1f} of the other", cluster.logs())
        slow.destroy()
        finish_ranks(run, second, "both: from one in the end", has)
        came = re.search(r"is here: ([\d.]+) MiB came in", spare.agent_log())
        came, before, other = float(came[1]) if came else 0, come_from(spare, slow), (fast.bytes_out() - sent[1]) / 2**20
        checks.ok(before >= 4 and came - before <= other < came - 3, f"both: {before} MiB had come of {came}, and the other one sent {other:.1f}",
                  cluster.logs())


def case_erasure_broken():
    """Fragments of 2+1 come from two nodes at the same time, and one of these is lost on the way: of the third one only what lacks is asked."""
    if not node.makes_fragments():
        return
    with node.Cluster(5, TRANSPCKPT_PEERS="2+1", memory="2g") as cluster:
        run, has, held = lose_with_same(cluster, SOME, 3, lambda n: fragments(n, "2+1"))
        # By index of what they have, as they are asked.
        early, other, third = sorted(held, key=lambda n: [os.path.basename(folder) for folder in n.fragments()])
        spare = cluster.nodes[4]
        for n in held:
            n.slow("30mbit")
        sent = {n: n.bytes_out() for n in held}

        def shares(*nodes):
            return [(n.bytes_out() - sent[n]) / 2**20 for n in nodes]

        second = run.start(spare)
        checks.ok(node.until(lambda: shares(early)[0] > 8, 60), "erasure, broken: a part of it has come", run.story(), cluster.logs())
        so_far = shares(early, other, third)
        checks.ok(so_far[1] > 4 and so_far[2] < 1, f"erasure, broken: of two at the same time, {so_far} MiB", cluster.logs())
        early.destroy()
        finish_ranks(run, second, "erasure, broken: with another one", has)
        checks.ok(re.search(rf"step {has} of generation 1 is put together of 3 fragments of 2\+1, 0 ", spare.agent_log()), "erasure, broken: of three",
                  cluster.logs())
        before, (whole, rest) = come_from(spare, early), shares(other, third)
        checks.ok(before >= 4 and whole - before - 1 < rest < whole - before + 9,
                  f"erasure, broken: {before} MiB had come of {whole:.1f}, and the third one sent {rest:.1f}", cluster.logs())
        # What is put together is all that it takes memory for.
        checks.ok(not spare.fragments(), "erasure, broken: no fragment is kept there", spare.fragments())


def lines(where, what):
    return len(re.findall(what, where.agent_log()))


def case_strangers():
    """An agent with another secret, one of another version; and one that has no room."""
    with node.Cluster(4) as cluster:
        a, b, c, d = cluster.nodes
        run = Run(cluster)
        other = os.path.join(cluster.root, "secret")
        with open(os.open(other, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
            f.write("0123456789abcdef" * 4)
        b.agent(TRANSPCKPT_SECRET=other)
        c.agent(TRANSPCKPT_MEMORY="4M")
        first = run.start(a)
        port = node.until(lambda: re.search(r"listens for others at port (\d+)", a.agent_log()))[1]
        seen = d.run([os.path.join(cluster.build, "tests/cluster/stranger"), f"{a.address}:{port}"], cluster.environment)
        checks.ok("refused: it speaks version" in seen.stdout, "an agent of another version is refused", seen.stdout, seen.stderr)
        node.until(lambda: lines(a, "no copies from or to|takes no copies from here") >= 2 and lines(a, "takes no copy: no room"), 20)
        first.kill()
        secret = r"(?:no copies from or to|takes no copies from here).*does not have the job's secret"
        checks.ok(lines(a, secret) + lines(b, secret) >= 2 and lines(a, secret) <= 2, "so is one with another secret, with a line",
                  cluster.logs())
        checks.ok(lines(a, r"no copies from or to.*speaks version") == 1, "each with one line", cluster.logs())
        checks.ok(not b.copies() and lines(a, "nodeb .*is a peer") == 0, "it gets nothing", cluster.logs())
        checks.ok(lines(a, "nodec takes no copy: no room for a copy of a peer's snapshot: .*TRANSPCKPT_MEMORY allows") == 1,
                  "too little room is no copy, and a line", cluster.logs())
        checks.ok(kept(c) < 0, "and there is none", cluster.logs())


def case_alone():
    """UCX is asked for, and not to be had: the node works alone."""
    if not HAS_UCX:
        return
    with node.Cluster(1, TRANSPCKPT_TRANSPORT="ucx") as cluster:
        a, = cluster.nodes
        run = Run(cluster)
        for library in glob.glob("/usr/lib/*/libucp.so.0") + glob.glob("/usr/lib64/libucp.so.0"):
            a.run(["mount", "--bind", "/dev/null", os.path.realpath(library)], cluster.environment)
        first = run.start(a)
        node.until(lambda: committed(a) >= 10, 60)
        log = a.agent_log()
        checks.ok(len(re.findall(r"this node works alone, without copies on others: loading UCX", log)) == 1, "without UCX: one line",
                  log)
        checks.ok(first.wait(60) == 0 and not run.same(), "and the program runs as ever", first.said())


def case_off():
    with node.Cluster(2, TRANSPCKPT_PEERS="0") as cluster:
        a, b = cluster.nodes
        run = Run(cluster)
        first = run.start(a)
        node.until(lambda: committed(a) >= 30, 60)
        checks.ok(committed(a) >= 30, "without peers: snapshots are taken", first.said(), cluster.logs())
        left = a.agent_log()
        a.destroy()
        first.wait(10)
        second = run.start(b)
        status = second.wait()
        checks.ok(status == 0 and resumed(second) < 30 and not run.same(),
                  "without peers: it goes back to what is durable, which is nothing or little", status, second.said(), "\n".join(run.same()),
                  left, cluster.logs())


def finish_ranks(run, start, what, floor):
    status = start.wait()
    checks.ok(status == 0, f"{what}: it ends well", status, run.story(), run.cluster.logs())
    at = run.resumed()
    checks.ok(at is not None and at >= floor, f"{what}: all ranks go on at step {at}, at least {floor}", run.story(), run.cluster.logs())
    checks.ok(not run.same(), f"{what}: with the same bytes", "\n".join(run.same()))


def sent_bytes(where):
    """Of each copy that was sent: MiB that went, and of all ranks."""
    return [(float(a), float(b)) for a, b in re.findall(r"copies on other nodes: ([\d.]+) MiB of ([\d.]+) sent", where.agent_log())]


def case_ranks():
    """Several ranks on one node have one copy together: the node goes, all ranks go on from it on a third one."""
    with node.Cluster(3) as cluster:
        a, b, c = cluster.nodes
        # The job must not end while it is looked at.
        run = Ranks(cluster, 2, steps=200)
        first = start_with_peers(run, a, (b,))
        checks.ok(node.until(lambda: kept(b) >= 20, 60), "ranks: the peer gets copies", run.story(), cluster.logs())
        shown = a.run([os.path.join(cluster.build, "transpckpt"), "show", "--json"], cluster.environment).stdout
        copies = [row["copies"] for row in json.loads(shown)]
        checks.ok(len(copies) == 2 and all(len(c) == 1 and c[0]["host"] == "nodeb" and c[0]["ranks"] == 2 for c in copies),
                  "show says where, for each rank", shown)
        shown = b.run([os.path.join(cluster.build, "transpckpt"), "show"], cluster.environment).stdout
        checks.ok(re.search(r"holds a copy of step \d+ \(generation 1, 2 ranks\) for nodea", shown), "and for whom", shown)
        before = committed(a)
        a.destroy()
        first.wait(10)
        has = kept(b)
        print(f"# the peer has step {has}, the newest was {before} or one behind it")
        second = run.start(c)
        finish_ranks(run, second, "ranks on a third node", has)
        checks.ok(f"got a copy of step {has} of generation 1 from nodeb" in c.agent_log(), "it came from the peer", cluster.logs())
        checks.ok(node.until(lambda: not b.copies(), 20), "what the ranks that ended had there is dropped", cluster.logs())


def flip(where, rank):
    """Damages what a node holds of a rank, in both images, which its agent does not know."""
    for folder in where.copies():
        if f".r{rank}." in folder:
            for image in glob.glob(os.path.join(folder, "image.*")):
                with open(image, "r+b") as f:
                    f.seek((256 << 20) + 100)
                    byte = f.read(1)
                    f.seek((256 << 20) + 100)
                    f.write(bytes([byte[0] ^ 1]))


def start_with_peers(run, where, holders):
    """Starts the ranks where these nodes' agents are known: what is copied is not left to who comes first."""
    for holder in (*holders, where):
        holder.agent()
    checks.ok(node.until(lambda: lines(where, "is a peer") >= len(holders), 60), "ranks: the agents meet", run.cluster.logs())
    return run.start(where)


def lose_with_copies(cluster, run, lost, holders):
    """The ranks run until all of these nodes have a copy; then their node is gone."""
    first = start_with_peers(run, lost, holders)
    checks.ok(node.until(lambda: min(kept(holder) for holder in holders) >= 20, 60), "ranks: peers get copies", run.story(), cluster.logs())
    lost.destroy()
    first.wait(10)


def case_ranks_bad():
    """Of two copies of four ranks that share an optimizer the one is damaged, in one rank's part: on the node where the ranks start."""
    with node.Cluster(3, TRANSPCKPT_PEERS="2", memory="1g") as cluster:
        a, b, c = cluster.nodes
        run = Ranks(cluster, 4, "--zero", steps=200)
        lose_with_copies(cluster, run, a, (b, c))
        flip(b, 2)
        second = run.start(b)
        finish_ranks(run, second, "a bad copy of one rank", kept(c))
        checks.ok("rank 2" in b.agent_log() or "r2.o0" in b.agent_log(), "it is noticed", cluster.logs())
        checks.ok(re.search(r"got a copy of step \d+ of generation 1 from nodec", b.agent_log()), "the other node gave its own", cluster.logs())


def case_ranks_sent_bad():
    """The same, but neither is on the node where the ranks start: the next one is asked."""
    with node.Cluster(4, TRANSPCKPT_PEERS="2", memory="1g") as cluster:
        a, b, c, d = cluster.nodes
        run = Ranks(cluster, 2, "--zero", steps=200)
        lose_with_copies(cluster, run, a, (b, c))
        flip(b, 1)
        newest = kept(b) >= kept(c)
        finish_ranks(run, run.start(d), "a bad copy elsewhere", min(kept(b), kept(c)))
        if newest:
            checks.ok(re.search(r"that nodeb has cannot be had: chunk 0 of image.data of rank 1 is not what its digest says", d.agent_log()),
                      "the bad one is noticed as it comes", cluster.logs())
        checks.ok(re.search(r"got a copy of step \d+ of generation 1 from nodec", d.agent_log()), "which the good one gave", cluster.logs())


def case_ranks_none():
    """Where one rank's part is good nowhere, none of the ranks goes on."""
    with node.Cluster(3, memory="1g") as cluster:
        a, b, c = cluster.nodes
        run = Ranks(cluster, 2, "--zero", steps=120)
        lose_with_copies(cluster, run, a, (b,))
        flip(b, 1)
        start = run.start(c)
        status = start.wait()
        checks.ok(status == 0 and not any(job.LIVE.search(text) for text in run.said()) and not run.same(),
                  "no good part of one rank: all begin anew, and end with the same bytes", status, run.story(), "\n".join(run.same()), cluster.logs())
        found = [line for text in run.said() for line in text.splitlines() if "not resuming" in line]
        checks.ok(len(found) == 1 and "of rank 1 is not what its digest says" in found[0], f"one line: {found}", run.story())


def case_ranks_number():
    """A start with another number of ranks takes nothing of the others', says so in one line, and leaves the copy alone."""
    for launcher in ("torchrun", "pmi"):
        with node.Cluster(3, memory="1g") as cluster:
            a, b, c = cluster.nodes
            run = Ranks(cluster, 2, steps=200, launcher=launcher)
            lose_with_copies(cluster, run, a, (b,))
            has = kept(b)
            # A program that has begun does not wait for long for agents to meet.
            c.agent()
            checks.ok(node.until(lambda: lines(c, "is a peer") >= 1, 60), f"{launcher}: the agents meet", cluster.logs())
            other = run.start(c, ranks=3)
            node.until(lambda: "not resuming" in run.said()[0] or not other.running(), 60)
            if other.running():
                other.kill()
            found = [text for text in run.story().splitlines() if "not resuming" in text]
            checks.ok(len(found) == 1 and "the number of ranks is '3', was '2'" in found[0] and run.resumed() is None,
                      f"{launcher}: one line: {found}", run.story(), cluster.logs())
            if launcher == "torchrun":
                # The others of the three leave their files.
                start = run.start(b)
                checks.ok(start.wait() == 0 and (run.resumed() or 0) >= has, f"the ranks that it was go on at step {run.resumed()}",
                          run.story(), cluster.logs())
                checks.ok(all("_r02" in line for line in run.same()), "with the same bytes", *run.same())


def case_ranks_memory():
    """The node stays, but what it had in memory is gone."""
    with node.Cluster(2) as cluster:
        a, b = cluster.nodes
        run = Ranks(cluster, 2, steps=200)
        first = start_with_peers(run, a, (b,))
        checks.ok(node.until(lambda: kept(b) >= 20, 60), "memory: the peer gets copies", run.story(), cluster.logs())
        a.signal_agent("KILL")
        first.kill()
        a.run(["rm", "-rf", "/dev/shm/t"], cluster.environment)
        finish_ranks(run, run.start(a), "on the same node without its memory", kept(b))


def case_ranks_moved():
    """The processes die, not their node, and go on elsewhere from what is in its memory."""
    with node.Cluster(2) as cluster:
        a, b = cluster.nodes
        run = Ranks(cluster, 2, steps=200)
        first = run.start(a)
        checks.ok(node.until(lambda: committed(a) >= 20, 60), "moved ranks: snapshots are taken", run.story(), cluster.logs())
        first.kill()
        node.until(lambda: a.agent_log().count("was killed") == 2, 10)
        finish_ranks(run, run.start(b), "moved ranks", committed(a))


def stored_shares(where):
    """Of each checkpoint in the store: MiB that were written for it, and of all its ranks."""
    found = {}
    for row in json.loads(where.run([os.path.join(where.cluster.build, "transpckpt"), "ls", "--json"], where.cluster.environment).stdout or "[]"):
        if row["state"] == "durable":
            found[row["step"]] = row["stored_bytes"] / 2**20, row["bytes"] / 2**20
    return list(found.values())


def case_ranks_bytes():
    """What replicas hold alike is sent once and stored once, from the first copy on, whatever each rank has learnt by then. Of 66 and of 130 MiB
    each rank's own is little: what it computes with, a generator's state, the loss. The program saves nothing: what one rank reads from the device
    for that is in its log, and its own."""
    ranks = 4
    for mib, bigrams in ((66, 65536), (130, 131072)):
        with node.Cluster(2, memory="4g", TRANSPCKPT_INTERVAL="3", TRANSPCKPT_DURABLE_INTERVAL="3") as cluster:
            a, b = cluster.nodes
            run = Ranks(cluster, ranks, steps=24, size=("--width", "64", "--context", "16", "--bigrams", str(bigrams), "--save-every", "0"))
            b.agent()
            first = run.start(a)
            status = first.wait(300)
            for what, found in (("sent for a copy", sent_bytes(a)), ("stored for a checkpoint", stored_shares(a))):
                shares = [some / all_ranks for some, all_ranks in found]
                if not checks.ok(status == 0 and shares, f"{ranks} replicas of {mib} MiB: bytes are {what}", status, run.story(), cluster.logs()):
                    continue
                print(f"# MiB {what}, of MiB of all ranks: {[(round(some, 1), round(all_ranks, 1)) for some, all_ranks in found]}")
                checks.ok(max(shares) <= 0.3, f"{min(shares):.3f} to {max(shares):.3f} of {ranks} full ones", shares)


def fragments(where, code):
    """The newest step that a node has a fragment of."""
    return max(steps(where.agent_log(), rf"fragment \d+ of {re.escape(code)} of step (\d+) of generation \d+ of \w+ is here"), default=-1)


def holders(nodes, code, step):
    """Those that have a fragment of this step or a newer one; None: fewer than it takes for all of the code."""
    found = [n for n in nodes if n.alive and fragments(n, code) >= step]
    return found if len(found) == sum(int(n) for n in code.split("+")) else None


def memory_in(where, folders, which="*"):
    """Bytes in a node's memory, as its kernel counts them."""
    files = (f for folder in glob.glob(where.path("j", folders)) for f in glob.glob(os.path.join(folder, which)))
    return sum(os.stat(f).st_blocks * 512 for f in files)


def meet(run, nodes):
    for n in nodes:
        n.agent()
    checks.ok(node.until(lambda: all(lines(n, "is a peer") >= len(nodes) - 1 for n in nodes), 60), "the agents meet", run.cluster.logs())


def common(nodes, code):
    """The newest step that as many of these have a fragment of as it takes."""
    return sorted(fragments(n, code) for n in nodes)[-int(code.split("+")[0])]


def without_erasure():
    """Of an agent that was built without ISA-L: two whole copies survive as much as 2+1, with a line."""
    with node.Cluster(4, TRANSPCKPT_PEERS="2+1") as cluster:
        a, *others = cluster.nodes
        run = Run(cluster, "400")
        meet(run, others)
        first = run.start(a, SIMGPU_KERNEL_US="500")
        held = node.until(lambda: (lambda found: found if len(found) >= 2 else None)([n for n in others if kept(n) >= 5]), 60)
        checks.ok(held and len(held) == 2, "without ISA-L: two nodes get whole copies", first.said(), cluster.logs())
        line = r"TRANSPCKPT_PEERS is 2\+1, but this agent was built without ISA-L: 2 whole copies instead of fragments"
        checks.ok(node.until(lambda: lines(a, line), 30) and lines(a, line) == 1, "without ISA-L: with one line", cluster.logs())
        checks.ok(not any(n.fragments() for n in others), "without ISA-L: and no fragments", cluster.logs())
        a.destroy()
        held[0].destroy()
        first.wait(10)
        has = kept(held[1])
        spare = next(n for n in others if n not in held)
        finish(run, run.start(spare, SIMGPU_KERNEL_US="500"), "without ISA-L: without its node and one of the two", has)


def case_erasure():
    """A node is lost that had whole copies on two; it goes on with fragments of 2+1 on three, which take three quarters of that. Then its
    node is lost again, and one of the three."""
    if not node.makes_fragments():
        without_erasure()
        return
    with node.Cluster(5, memory="1g", TRANSPCKPT_PEERS="2") as cluster:
        a, b, c, d, e = cluster.nodes
        run = Ranks(cluster, 2, "--zero", steps=200, size=("--width", "32", "--context", "16", "--bigrams", "32768"))
        meet(run, (b, c, d))
        # The job is not to end while it is looked at, on a busy machine either.
        slow = {"SIMGPU_KERNEL_US": "80"}
        first = run.start(a, **slow)
        full = node.until(lambda: [n for n in (b, c, d) if len(steps(n.agent_log(), r"a copy of step (\d+) of .* is here")) >= 2 and kept(n) >= 20][1:2], 60)
        checks.ok(full, "erasure: whole copies of two steps", run.story(), cluster.logs())
        a.destroy()
        first.wait(10)
        # The log grows, and is left out.
        took = sum(memory_in(n, "copy.*", "image.*") for n in (b, c, d))
        has = sorted(kept(n) for n in (b, c, d))[-1]
        second = run.start(e, TRANSPCKPT_PEERS="2+1", **slow)
        # Of two steps, as of the copies.
        held = node.until(lambda: all(lines(n, r"fragment \d of 2\+1 of step \d+ of generation 2 of nodee is here") >= 2 for n in (b, c, d)) and
                          holders((b, c, d), "2+1", has + 15), 60)
        checks.ok(held and run.resumed() is not None and run.resumed() >= has, f"erasure: from them it goes on, with fragments on {held and len(held)} nodes",
                  run.story(), cluster.logs())
        shown = e.run([os.path.join(cluster.build, "transpckpt"), "show"], cluster.environment).stdout
        listed = re.findall(r"fragment (\d) of 2\+1 of step \d+ \(generation 2, 2 ranks\) on node([bcd])", shown)
        checks.ok(sorted(i for i, _ in listed) == ["0", "1", "2"] and len({host for _, host in listed}) == 3, "erasure: show says which is where", shown)
        shown = b.run([os.path.join(cluster.build, "transpckpt"), "show"], cluster.environment).stdout
        checks.ok(re.search(r"holds fragment \d of 2\+1 of step \d+ \(generation 2, 2 ranks\) for nodee", shown), "erasure: and for whom", shown)
        e.destroy()
        second.wait(10)
        takes = [memory_in(n, "fragment.*", "part.[01].[01]") for n in (b, c, d)]
        # One that was on its way when its node was lost goes with the connection, which is given up seconds later.
        node.until(lambda: not any(n.copies() for n in (b, c, d)), 60)
        left = sum(memory_in(n, "copy.*") for n in (b, c, d))
        checks.ok(took and 0.45 < sum(takes) / took < 0.8 and max(takes) < 1.1 * min(takes) and not left,
                  f"erasure: {sum(takes) / 2**20:.1f} MiB on three nodes, of whole copies on two {took / 2**20:.1f} MiB, which are gone", takes, left, cluster.logs())
        c.destroy()
        has = common((b, d), "2+1")
        finish_ranks(run, run.start(b, **slow), "erasure: without one of the three", has)
        checks.ok(re.search(rf"step {run.resumed()} of generation 2 is put together of 2 fragments of 2\+1, 0 ", b.agent_log()), "erasure: of two fragments",
                  cluster.logs())


def case_erasure_wide():
    """Fragments of 4+2 on six of seven nodes: the program's node goes, and two of the six."""
    with node.Cluster(8, TRANSPCKPT_PEERS="4+2") as cluster:
        a, *others = cluster.nodes
        run = Run(cluster)
        meet(run, others)
        first = run.start(a)
        held = node.until(lambda: holders(others, "4+2", 10), 90)
        checks.ok(held, "4+2: six nodes get fragments", first.said(), cluster.logs())
        a.destroy()
        for n in held[1:4:2]:
            n.destroy()
        first.wait(10)
        left = [n for n in held if n.alive]
        has = common(left, "4+2")
        spare = next(n for n in others if n not in held)
        second = run.start(spare)
        finish(run, second, "4+2: without two of the six", has)
        checks.ok(f"step {resumed(second)} of generation 1 is put together of 4 fragments of 4+2" in spare.agent_log(), "4+2: of four fragments", cluster.logs())


def case_erasure_few():
    """Where there are too few nodes there are whole copies, which survive as much, and a line; once there are enough, fragments instead. One agent that
    holds some is killed, and that of the program's node, which does not know any more who has which."""
    with node.Cluster(4, TRANSPCKPT_PEERS="2+1") as cluster:
        a, b, c, d = cluster.nodes
        run = Run(cluster, "300")
        meet(run, (b, c))
        # A start takes ten seconds until nobody else is waited for.
        first = run.start(a, SIMGPU_KERNEL_US="500")
        checks.ok(node.until(lambda: min(kept(b), kept(c)) >= 5, 60), "few: two nodes get whole copies", first.said(), cluster.logs())
        line = r"TRANSPCKPT_PEERS is 2\+1, but agents of 2 other nodes are there: 2 whole copies instead of fragments"
        checks.ok(node.until(lambda: lines(a, line), 30), "few: with a line", cluster.logs())
        checks.ok(lines(a, line) == 1 and not b.fragments() and not c.fragments(), "few: which is one", cluster.logs())
        d.agent()
        checks.ok(node.until(lambda: holders((b, c, d), "2+1", 5) and not any(n.copies() for n in (b, c, d)), 60), "few: with a third one fragments take their place",
                  first.said(), cluster.logs())
        b.signal_agent("KILL")
        b.agent()
        checks.ok("of 2+1 of step" in b.agent_log() and "since before" in b.agent_log(), "few: the next agent finds its fragments", cluster.logs())
        a.signal_agent("KILL")
        then = committed(a)
        checks.ok(node.until(lambda: holders((b, c, d), "2+1", then + 10), 60), "few: the program's own next agent goes on", first.said(), cluster.logs())
        checks.ok(node.until(lambda: all(len(n.fragments()) == 1 for n in (b, c, d)), 30), "few: and nobody keeps what has been replaced",
                  [n.fragments() for n in (b, c, d)], cluster.logs())
        a.destroy()
        d.destroy()
        first.wait(10)
        has = common((b, c), "2+1")
        finish(run, run.start(c, SIMGPU_KERNEL_US="500"), "few: without its node and one of the three", has)


def rot(where, byte):
    """Damages the fragments of image data that a node holds, in both steps, which its agent does not know."""
    found = glob.glob(os.path.join(where.path("j"), "fragment.*", "part.*.1"))
    for path in found:
        with open(path, "r+b") as f:
            f.seek(byte)
            changed = bytes([f.read(1)[0] ^ 1])
            f.seek(byte)
            f.write(changed)
    return found


def case_erasure_bad():
    """One of three fragments is damaged, and the two others are enough; then two are: nothing goes on from that, and nothing wrong is taken."""
    for lost in (1, 2):
        with node.Cluster(5, TRANSPCKPT_PEERS="2+1") as cluster:
            a, b, c, d, e = cluster.nodes
            run = Run(cluster)
            meet(run, (b, c, d))
            first = run.start(a)
            checks.ok(node.until(lambda: holders((b, c, d), "2+1", 10), 60), "bad: three nodes get fragments", first.said(), cluster.logs())
            a.destroy()
            first.wait(10)
            # Those with the first fragments are asked first.
            for n in sorted((b, c, d), key=lambda n: [os.path.basename(folder) for folder in n.fragments()])[:lost]:
                checks.ok(rot(n, 100), f"bad: what {n.name} has is damaged")
            second = run.start(e)
            if lost == 1:
                finish(run, second, "bad: one of three", common((b, c, d), "2+1"))
                checks.ok(re.search(r"put together of 3 fragments of 2\+1, [1-9]\d* of whose chunks were damaged", e.agent_log()), "bad: which is noticed",
                          cluster.logs())
                continue
            status = second.wait()
            checks.ok(status == 0 and not resumed(second) and not run.same(), "bad: with two of three it begins anew, and ends with the same bytes", second.said())
            checks.ok("has 1 good fragments of 2" in second.said(), "bad: and says why", second.said(), cluster.logs())


BY_NAME = ("both", "erasure_bad", "erasure_broken", "erasure_few", "erasure_wide", "ranks_sent_bad", "ranks_none", "ranks_memory", "ranks_moved", "ranks_bytes", "staging")
node.run_cases(globals(), BY_NAME)
checks.end()
