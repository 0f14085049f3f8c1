#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.15 memory=1500M minutes=25 about=150s
"""A node is lost before the store had the newest step, and then all others' memory goes: what they had of it, copies among it, is in the store
by then, and fresh nodes go on from that. CASE=NAME runs one case; BY_NAME only so, for the time they take."""
import fcntl
import glob
import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Ranks, Spread

import job

node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
checks = job.Checks()


def newest(where, what):
    return max((int(n) for n in re.findall(what, where.agent_log())), default=-1)


def settled(where):
    """The newest step of which all nodes have their copies, as the leader says."""
    return newest(where, r"step (\d+) of \d+ ranks has [1-9]\d* copies on other nodes")


def kept(where):
    return newest(where, r"a copy of step (\d+) of generation \d+ of \w+ is here")


def in_store(cluster):
    """Steps of checkpoints that are published."""
    folder = os.path.join(cluster.store, "j")
    return sorted(int(name.split("-")[1].split(".")[0]) for name in os.listdir(folder)
                  if name.startswith("step-") and os.path.exists(os.path.join(folder, name, "MANIFEST")))


def meet(cluster, nodes):
    for n in nodes:
        n.agent()
    checks.ok(node.until(lambda: all(n.agent_log().count("is a peer") >= len(nodes) - 1 for n in nodes), 60), "the agents meet", cluster.logs())


def told_to_end(cluster, nodes, together=True):
    """The agents of the nodes that are left end, as they do where the job's allocation is given back; then all of their memory goes."""
    for n in nodes:
        n.signal_agent("TERM")
        if not together:
            node.until(lambda one=n: not one.has_agent(), 60)
    checks.ok(node.until(lambda: not any(n.has_agent() for n in nodes), 90), "the agents that are left end", cluster.logs())
    logs = cluster.logs()
    for n in nodes:
        n.destroy()
    return logs


def finish(run, start, floor, logs):
    status = start.wait()
    checks.ok(status == 0, f"{run.what}: it ends well", status, start.said(), run.story(), logs, run.cluster.logs())
    at = run.resumed()
    checks.ok(at is not None and at >= floor, f"{run.what}: it goes on at step {at}, at least {floor}", run.story(), logs, run.cluster.logs())
    checks.ok(not run.same(), f"{run.what}: with the same bytes", "\n".join(run.same()), run.story())
    verified = next(n for n in run.cluster.nodes if n.alive).run([os.path.join(run.cluster.build, "transpckpt"), "verify", "--job", "j"], run.cluster.environment)
    checks.ok(verified.returncode == 0, f"{run.what}: what is in the store is whole", verified.stdout, verified.stderr)


def one_node(what, ranks, told=True, **settings):
    """The ranks are all on one node, which is lost; who has their copy is told to end, or lets go of it."""
    with node.Cluster(3, **settings) as cluster:
        a, b, c = cluster.nodes
        run = Ranks(cluster, ranks, steps=120)
        run.what = what
        b.agent()
        start = run.start(a)
        checks.ok(node.until(lambda: kept(b) >= 10, 60), f"{what}: the peer gets copies", run.story(), cluster.logs())
        a.destroy()
        start.wait(20)
        has = kept(b)
        checks.ok(not in_store(cluster), f"{what}: nothing is in the store", in_store(cluster))
        if told:
            logs = told_to_end(cluster, [b])
        else:
            checks.ok(node.until(lambda: not b.copies(), 60), f"{what}: the copy goes after a while", cluster.logs())
            logs = cluster.logs()
            b.destroy()
        checks.ok(in_store(cluster) == [has], f"{what}: step {has} is in the store", in_store(cluster), logs)
        finish(run, run.start(c), has, logs)


def case_holder():
    one_node("holder", 1)


def case_equal():
    """Chunks of several ranks that are equal are in the copy once."""
    one_node("equal", 2)


def case_linger():
    """Nobody is told to end, and nobody comes: it is in the store before the copy goes."""
    one_node("linger", 1, told=False, TRANSPCKPT_LINGER_SEC="5")


class Held:
    """The store's lock, which nobody else gets meanwhile: a tier that does not get on. A with statement."""

    def __init__(self, cluster):
        folder = os.path.join(cluster.store, "j")
        os.makedirs(folder, exist_ok=True)
        self.lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)

    def __enter__(self):
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def __exit__(self, *_):
        os.close(self.lock)


def in_own_tier(where):
    """The newest step of the node's own tier."""
    names = glob.glob(f"/proc/{where.init}/root/dev/shm/own/j/step-*/MANIFEST")
    return max((int(os.path.basename(os.path.dirname(name)).split("-")[1].split(".")[0]) for name in names), default=-1)


def behind(what, leaves):
    """The newest step is in the tier of its node, which is no use once that is lost, and has not come to the one that all see: what is in the
    node's memory goes after a while, but not the copy of the peer. leaves: its agent does, before the node is lost."""
    with node.Cluster(3, TRANSPCKPT_LINGER_SEC="3") as cluster:
        cluster.environment["TRANSPCKPT_DIR"] = f"node:/dev/shm/own,site:{cluster.store}"
        a, b, c = cluster.nodes
        run = Ranks(cluster, 1, steps=120)
        run.what = what
        # Who comes for it needs time on a busy machine; where nobody comes it is what the test waits for.
        b.agent(TRANSPCKPT_LINGER_SEC="15" if leaves else "60")
        with Held(cluster):
            start = run.start(a)
            checks.ok(node.until(lambda: kept(b) >= 10, 60), f"{what}: the peer gets copies", run.story(), cluster.logs())
            start.kill()
            checks.ok(node.until(lambda: newest(a, r"step (\d+) is durable") == newest(a, r"committed step (\d+) "), 30),
                      f"{what}: its node's tier has the newest step", cluster.logs())
            has = newest(a, r"committed step (\d+) ")
            checks.ok(node.until(lambda: kept(b) == has, 20), f"{what}: the peer has step {has}, too", cluster.logs())
            shown = a.run([os.path.join(cluster.build, "transpckpt"), "show", "--json"], cluster.environment).stdout
            checks.ok(json.loads(shown)[0].get("behind") == "site" and in_own_tier(a) == has, f"{what}: show says which tier is behind", shown)
            checks.ok(node.until(lambda: not sessions(a), 30), f"{what}: it goes from its node's memory after a while", cluster.logs())
            checks.ok(not in_store(cluster), f"{what}: the tier that all see has nothing", in_store(cluster))
            checks.ok(node.never(lambda: not b.copies(), 3), f"{what}: the peer keeps its copy", cluster.logs())
            if leaves:
                a.signal_agent("KILL")
            else:
                a.destroy()
        if leaves:
            checks.ok(node.until(lambda: in_store(cluster) == [has], 60), f"{what}: step {has} comes to the store from the peer", cluster.logs())
            a.destroy()
            b.destroy()
        finish(run, run.start(c), has, cluster.logs())


def case_behind():
    behind("behind", False)


def case_behind_left():
    behind("behind_left", True)


def case_third():
    """Ranks of several nodes are written to the first tier that all see; the one behind it has it from there, and is all that is left."""
    with node.Cluster(4, TRANSPCKPT_DURABLE_INTERVAL="1s", memory="700m") as cluster:
        third = cluster.store + ".third"
        cluster.environment["TRANSPCKPT_DIR"] = f"node:/dev/shm/own,site:{cluster.store},site:{third}"
        nodes = cluster.nodes
        run = Spread(cluster, 4, steps=160)
        run.what = "third"
        meet(cluster, nodes[:2])
        start = run.start(nodes[:2], 2)
        leader = nodes[0]
        checks.ok(run.slowly_until(lambda: newest(leader, r"step (\d+) is in tier 'site") > 0, 60), "third: a step comes to the third tier", run.story(), cluster.logs())
        has = newest(leader, r"step (\d+) is in tier 'site")
        for n in nodes[:2]:
            n.destroy()
        start.wait(20)
        for folder in os.listdir(cluster.store):
            shutil.rmtree(os.path.join(cluster.store, folder))
        finish(run, run.start(nodes[2:], 2), has, cluster.logs())


def sessions(where):
    """Folders of what processes have left on a node."""
    return glob.glob(where.path("j", "g*.r*"))


def several(what, lost, before=(0, 1), after=(3, 4), spares=(2,), layout=(), peers="1", memory="700m", told=True, **settings):
    every = max(*before, *after, *spares) + 1
    with node.Cluster(every, TRANSPCKPT_PEERS=peers, memory=memory, **settings) as cluster:
        nodes = cluster.nodes
        run = Spread(cluster, 4, *layout, steps=160)
        run.what = what
        there = [nodes[n] for n in sorted({*before, *spares})]
        meet(cluster, there)
        leader = nodes[before[0]]
        start = run.start([nodes[n] for n in before], 2)
        checks.ok(node.until(lambda: settled(leader) >= 20, 60), f"{what}: all ranks have copies", run.story(), cluster.logs())
        for n in lost:
            has = settled(leader) if leader.alive else has
            nodes[n].destroy()
        start.wait(20)
        left = [n for n in there if n.alive]
        checks.ok(not in_store(cluster), f"{what}: nothing is in the store", in_store(cluster))
        if told:
            logs = told_to_end(cluster, left)
        else:
            checks.ok(node.until(lambda: in_store(cluster) and not any(n.copies() or sessions(n) for n in left), 90),
                      f"{what}: it is durable, and then all goes from memory", cluster.logs())
            logs = cluster.logs()
            for n in left:
                n.destroy()
        stored = in_store(cluster)
        checks.ok(len(stored) == 1 and stored[0] >= has, f"{what}: step {stored} is in the store, at least {has}", logs)
        finish(run, run.start([nodes[n] for n in after], 2), has, logs)


def case_node():
    """A node goes that does not lead."""
    several("node", (1,))


def case_leader():
    """The node of rank 0 goes."""
    several("leader", (0,), layout=("--zero",))


def case_later():
    """Nobody is told to end, and nobody comes."""
    several("later", (1,), told=False, TRANSPCKPT_LINGER_SEC="12")


def case_too_many():
    """With the node of a rank the only copy of its part is lost, too: nothing is published, what is left goes after a while, with a line, and nobody waits
    for anything."""
    with node.Cluster(3, TRANSPCKPT_LINGER_SEC="5") as cluster:
        run = Spread(cluster, 3, steps=160)
        run.what = "too many"
        meet(cluster, cluster.nodes)
        start = run.start(cluster.nodes, 1)
        checks.ok(node.until(lambda: settled(cluster.nodes[0]) >= 20, 60), "too many: all ranks have copies", run.story(), cluster.logs())
        owner = cluster.nodes[1]
        holder = next(n for n in cluster.nodes if any(".r1." in folder for folder in n.copies()))
        last = next(n for n in cluster.nodes if n not in (owner, holder))
        owner.destroy()
        holder.destroy()
        start.wait(20)
        checks.ok(node.until(lambda: not sessions(last) and not last.copies(), 60), "too many: what is left goes", cluster.logs())
        checks.ok("did not come back" in last.agent_log() and "no step of all 3 ranks is left" in last.agent_log(), "too many: with lines", cluster.logs())
        checks.ok(not in_store(cluster), "too many: nothing is in the store", in_store(cluster))
        told_to_end(cluster, [last])


def case_fragments():
    """Each node's part is on three others as fragments of 2+1, and both nodes of the job are lost: two nodes put it together again."""
    several("fragments", (0, 1), spares=(2, 3, 4), after=(5, 6), layout=("--zero",), peers="2+1", memory="1g")


def case_fragments_one():
    """The same of a program of one rank: of three nodes that have fragments one writes it."""
    with node.Cluster(5, TRANSPCKPT_PEERS="2+1") as cluster:
        a, *holders, fresh = cluster.nodes
        run = Ranks(cluster, 1, steps=120)
        run.what = "fragments of one rank"
        meet(cluster, holders)
        start = run.start(a)
        here = r"fragment \d of 2\+1 of step (\d+) of generation \d+ of \w+ is here"
        checks.ok(node.until(lambda: all(newest(n, here) >= 10 for n in holders), 60), f"{run.what}: the peers get them", run.story(), cluster.logs())
        a.destroy()
        start.wait(20)
        has = sorted(newest(n, here) for n in holders)[-2]
        logs = told_to_end(cluster, holders)
        checks.ok(in_store(cluster) == [has], f"{run.what}: step {has} is in the store", in_store(cluster), logs)
        checks.ok(logs.count("whose node is lost, is durable") == 1, f"{run.what}: it is written once", logs)
        finish(run, run.start(fresh), has, logs)


def case_holders():
    """Of two that have a copy one writes it, when it is time."""
    with node.Cluster(4, TRANSPCKPT_PEERS="2", TRANSPCKPT_LINGER_SEC="12") as cluster:
        a, b, c, d = cluster.nodes
        run = Ranks(cluster, 1, steps=120)
        run.what = "holders"
        meet(cluster, (b, c))
        start = run.start(a)
        checks.ok(node.until(lambda: kept(b) >= 10 and kept(c) >= 10, 60), "holders: two peers get copies", run.story(), cluster.logs())
        a.destroy()
        start.wait(20)
        has = max(kept(b), kept(c))
        checks.ok(node.until(lambda: not b.copies() and not c.copies(), 90), "holders: the copies go after a while", cluster.logs())
        logs = cluster.logs()
        checks.ok(in_store(cluster) == [has] and logs.count("whose node is lost, is durable") == 1, f"holders: step {has} is written, once",
                  in_store(cluster), logs)
        b.destroy()
        c.destroy()
        finish(run, run.start(d), has, logs)


def flip(where):
    """Damages each image that a node holds, which its agent does not know."""
    for image in (name for folder in where.copies() for name in glob.glob(os.path.join(folder, "image.*"))):
        with open(image, "r+b") as f:
            f.seek((256 << 20) + 100)
            byte = f.read(1)
            f.seek((256 << 20) + 100)
            f.write(bytes([byte[0] ^ 1]))


def case_bad():
    """Of two copies the one that would be written is damaged: the other one is."""
    with node.Cluster(4, TRANSPCKPT_PEERS="2") as cluster:
        a, b, c, d = cluster.nodes
        run = Ranks(cluster, 1, steps=120)
        run.what = "bad"
        meet(cluster, (b, c))
        start = run.start(a)
        checks.ok(node.until(lambda: kept(b) >= 10 and kept(c) >= 10, 60), "bad: two peers get copies", run.story(), cluster.logs())
        a.destroy()
        start.wait(20)
        flip(b)
        has = kept(c)
        # Who begins writes what he has himself, if he has it.
        logs = told_to_end(cluster, (b, c), together=False)
        checks.ok(in_store(cluster) == [has] and "is given up: " in logs, f"bad: step {has} is in the store, and the damage is noticed", in_store(cluster), logs)
        finish(run, run.start(d), has, logs)


def case_cut():
    """The owner is not lost, but cut off: what its holder publishes meanwhile is its own, and it goes on, publishes newer ones, and dies."""
    with node.Cluster(3) as cluster:
        a, b, c = cluster.nodes
        run = Ranks(cluster, 1, steps=300)
        run.what = "cut"
        b.agent()
        slower = {"SIMGPU_KERNEL_US": "800"}
        start = run.start(a, **slower)
        checks.ok(node.until(lambda: kept(b) >= 10, 60), "cut: the peer gets copies", run.story(), cluster.logs())
        a.cut()
        has = kept(b)
        logs = told_to_end(cluster, [b])
        checks.ok(in_store(cluster) == [has], f"cut: step {has} is in the store", in_store(cluster), logs)
        a.heal()
        then = newest(a, r"committed step (\d+) ")
        checks.ok(node.until(lambda: newest(a, r"committed step (\d+) ") >= then + 20, 60), "cut: the owner goes on", run.story(), cluster.logs())
        start.kill()
        checks.ok(node.until(lambda: "was killed" in a.agent_log() and in_store(cluster)[-1] > has, 60), "cut: what it leaves is durable",
                  in_store(cluster), cluster.logs())
        has = in_store(cluster)[-1]
        logs = told_to_end(cluster, [a])
        finish(run, run.start(c, **slower), has, logs)


def case_sides():
    """Two nodes do not reach each other, and the ranks die: either side has a whole step, by its own part and its copy, and both write it."""
    with node.Cluster(4) as cluster:
        a, b, c, d = cluster.nodes
        run = Spread(cluster, 4, "--zero", steps=160)
        run.what = "sides"
        meet(cluster, (a, b))
        start = run.start((a, b), 2)
        checks.ok(node.until(lambda: settled(a) >= 20, 60), "sides: all ranks have copies", run.story(), cluster.logs())
        b.cut()
        has = settled(a)
        start.kill()
        logs = told_to_end(cluster, [a, b])
        stored = in_store(cluster)
        checks.ok(stored and stored[-1] >= has, f"sides: steps {stored} are in the store, of at least {has}", logs)
        finish(run, run.start((c, d), 2), has, logs)


BY_NAME = ("bad", "equal", "fragments", "fragments_one", "holders", "later", "leader", "sides")
node.run_cases(globals(), BY_NAME)
checks.end()
