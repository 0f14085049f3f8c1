#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs whose ranks are on several nodes: all ranks have their snapshots of one step, whatever dies, and all go on at one step and
end with the same bytes. CASE=NAME runs one case; BY_NAME only so, for the time they take."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Spread

import job

node.enter()
if "#define HAVE_UCX 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without UCX")
checks = job.Checks()


def committed(where):
    return max((int(n) for n in re.findall(r"committed step (\d+) ", where.agent_log())), default=-1)


def settled(where):
    """The newest step of which all nodes have their copies, as the leader says."""
    return max((int(n) for n in re.findall(r"step (\d+) of \d+ ranks has [1-9]\d* copies on other nodes", where.agent_log())), default=-1)


def begin(run, where, per_node, step, ready=committed):
    """A start that has come so far, by its leader."""
    start = run.start(where, per_node)
    checks.ok(node.until(lambda: ready(where[0]) >= step, 60), f"{run.what}: snapshots of all ranks", run.story(), run.cluster.logs())
    return start


def finish(run, start, floor, what):
    status = start.wait(120)
    checks.ok(status == 0, f"{run.what}: {what}: it ends well", status, start.said(), run.story(), run.cluster.logs())
    at = run.resumed()
    checks.ok(at is not None and at >= floor, f"{run.what}: {what}: all ranks go on at step {at}, at least {floor}", run.story(), run.cluster.logs())
    checks.ok(not run.same(), f"{run.what}: {what}: with the same bytes", "\n".join(run.same()), run.story())


def case_killed():
    """All processes die, the nodes stay."""
    with node.Cluster(2) as cluster:
        run = Spread(cluster, 4, steps=300)
        run.what = "killed"
        start = begin(run, cluster.nodes, 2, 20)
        start.kill()
        node.until(lambda: all(len(re.findall("was killed", n.agent_log())) >= 2 for n in cluster.nodes), 10)
        has = min(committed(n) for n in cluster.nodes)
        finish(run, run.start(cluster.nodes, 2), has, "on the same nodes")


def case_layouts():
    """Four nodes of one rank each; what goes between the nodes differs."""
    for number, layout in enumerate((("--zero",), ("--tp", "2"), ("--tp", "2", "--pp", "2"))):
        with node.Cluster(4) as cluster:
            run = Spread(cluster, 4, *layout, steps=300)
            run.what = " ".join(layout)
            start = begin(run, cluster.nodes, 1, 10)
            start.starts[number].kill()
            node.until(lambda: not start.starts[number].running(), 10)
            start.wait(20)
            node.until(lambda: all("was killed" in n.agent_log() for n in cluster.nodes), 10)
            finish(run, run.start(cluster.nodes), 10, "a rank is killed")


def lose(name, ranks, per_node, before, lost, after, spares=(), layout=(), peers="1", memory="700m"):
    """The ranks run on nodes `before`; nodes `lost` are destroyed once all have copies; they go on on nodes `after`."""
    every = max(*before, *after, *spares) + 1
    with node.Cluster(every, TRANSPCKPT_PEERS=peers, memory=memory) as cluster:
        nodes = cluster.nodes
        run = Spread(cluster, ranks, *layout, steps=400)
        run.what = name
        for n in range(every):
            nodes[n].agent()
        checks.ok(node.until(lambda: all(len(re.findall("is a peer", n.agent_log())) >= every - 1 for n in nodes), 60),
                  f"{name}: the agents meet", cluster.logs())
        start = begin(run, [nodes[n] for n in before], per_node, 20, settled)
        has = settled(nodes[before[0]])
        for n in lost:
            nodes[n].destroy()
        start.wait(20)
        left = [nodes[n] for n in before if n not in lost]
        node.until(lambda: all(len(re.findall("was killed|failed; its snapshot", n.agent_log())) >= per_node for n in left), 10)
        finish(run, run.start([nodes[n] for n in after], per_node), has, "on other nodes")


def case_node():
    """A node goes that does not lead."""
    lose("a node", 4, 2, (0, 1), (1,), (0, 2))


def case_leader():
    """The node of rank 0 goes."""
    lose("the leader's node", 4, 2, (0, 1), (0,), (2, 1), layout=("--zero",))


def case_two():
    """Two of four nodes go, each with a rank, where each rank has two copies."""
    lose("two nodes", 4, 1, (0, 1, 2, 3), (1, 2), (0, 4, 5, 3), layout=("--tp", "2", "--pp", "2"), peers="2")


def durable(where):
    return max((int(n) for n in re.findall(r"step (\d+) of \d+ ranks is durable", where.agent_log())), default=-1)


def case_everything():
    """All nodes go, what is in the store stays: on others the ranks go on from that."""
    with node.Cluster(4, TRANSPCKPT_DURABLE_INTERVAL="20") as cluster:
        a, b, c, d = cluster.nodes
        run = Spread(cluster, 4, "--zero", steps=400)
        run.what = "everything"
        start = begin(run, (a, b), 2, 60, durable)
        has = durable(a)
        a.destroy()
        b.destroy()
        start.wait(20)
        finish(run, run.start((c, d), 2), has, "from the store")
        listed = c.run([os.path.join(cluster.build, "transpckpt"), "verify", "--job", "j"], cluster.environment)
        checks.ok(listed.returncode == 0, "everything: what is in the store is whole", listed.stdout, listed.stderr)


def case_dead():
    """All processes die: their newest step is made durable without them."""
    with node.Cluster(2) as cluster:
        run = Spread(cluster, 2, steps=300)
        run.what = "dead"
        start = begin(run, cluster.nodes, 1, 20)
        start.kill()
        newest = cluster.nodes[0]
        checks.ok(node.until(lambda: durable(newest) >= 20, 30), "dead: the newest step is durable", cluster.logs())
        has = durable(newest)
        checks.ok(has == committed(newest), f"dead: that is step {has}", cluster.logs())
        for n in cluster.nodes:
            n.signal_agent("TERM")
        node.until(lambda: not any(n.agent_log() for n in cluster.nodes), 10)
        finish(run, run.start(cluster.nodes), has, "by new agents")


BY_NAME = ()
wanted = os.environ.get("CASE")
for name, case in list(globals().items()):
    if name.startswith("case_") and (name[5:] == wanted or (wanted is None and name[5:] not in BY_NAME)):
        case()
checks.end()
