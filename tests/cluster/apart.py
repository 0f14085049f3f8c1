#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.4 memory=1500M minutes=27 about=150s
"""Jobs whose ranks are on several nodes: all ranks have their snapshots of one step, whatever dies, and all go on at one step and
end with the same bytes. CASE=NAME runs one case, all variants of it, CASE=every all; BY_NAME only so, for the time they take; CASE=starts some of STARTS."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Spread

import job

node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
checks = job.Checks()
# Then all variants of it are run.
BY_CASE = os.environ.get("CASE") not in (None, "", "starts")


def committed(where):
    return max((int(n) for n in re.findall(r"committed step (\d+) ", where.agent_log())), default=-1)


def settled(where):
    """The newest step of which all nodes have their copies, as the leader says."""
    return max((int(n) for n in re.findall(r"step (\d+) of \d+ ranks has [1-9]\d* copies on other nodes", where.agent_log())), default=-1)


def begin(run, where, per_node, step, ready=committed, **settings):
    """A start that has come so far, by its leader."""
    start = run.start(where, per_node, **settings)
    checks.ok(run.slowly_until(lambda: ready(where[0]) >= step, job.WAIT_SEC), f"{run.what}: snapshots of all ranks", run.story(), run.cluster.logs())
    return start


def finish(run, start, floor, what):
    status = start.wait()
    checks.ok(status == 0, f"{run.what}: {what}: it ends well", status, start.said(), run.story(), run.cluster.logs())
    at = run.resumed()
    checks.ok(at is not None and at >= floor, f"{run.what}: {what}: all ranks go on at step {at}, at least {floor}", run.story(), run.cluster.logs())
    checks.ok(not run.same(), f"{run.what}: {what}: with the same bytes", "\n".join(run.same()), run.story())


def case_killed():
    """All processes die, the nodes stay."""
    with node.Cluster(2) as cluster:
        run = Spread(cluster, 4, steps=120)
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
            run = Spread(cluster, 4, *layout, steps=120)
            run.what = " ".join(layout)
            start = begin(run, cluster.nodes, 1, 10)
            start.starts[number].kill()
            node.until(lambda: not start.starts[number].running(), 10)
            start.wait(20)
            node.until(lambda: all("was killed" in n.agent_log() for n in cluster.nodes), 10)
            finish(run, run.start(cluster.nodes), 10, "a rank is killed")


def lose(name, ranks, per_node, before, lost, after, spares=(), layout=(), peers="1", memory="700m", families=None):
    """The ranks run on nodes `before`; nodes `lost` are destroyed once all have copies; they go on on nodes `after`."""
    every = max(*before, *after, *spares) + 1
    with node.Cluster(every, TRANSPCKPT_PEERS=peers, memory=memory, families=families) as cluster:
        nodes = cluster.nodes
        run = Spread(cluster, ranks, *layout, steps=160)
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
        if "+" in peers:
            made = [n.name for n in nodes if n.alive and f"fragments of {peers}" in n.agent_log()]
            enough = node.makes_fragments() and every > sum(int(n) for n in peers.split("+"))
            checks.ok(bool(made) == enough, f"{name}: put together of fragments on {made}", cluster.logs())


def case_node():
    """A node goes that does not lead."""
    lose("a node", 4, 2, (0, 1), (1,), (0, 2))


def case_six():
    """The same where nodes have IPv6 only, a rank on each."""
    if node.lacks_six():
        checks.ok(True, f"IPv6 only # SKIP {node.lacks_six()}")
        return
    lose("IPv6 only", 2, 1, (0, 1), (1,), (0, 2), families=["6", "6", "6"])


def case_leader():
    """The node of rank 0 goes."""
    lose("the leader's node", 4, 2, (0, 1), (0,), (2, 1), layout=("--zero",))


def case_two():
    """Two of four nodes go, each with a rank, where each rank has two copies."""
    lose("two nodes", 4, 1, (0, 1, 2, 3), (1, 2), (0, 4, 5, 3), layout=("--tp", "2", "--pp", "2"), peers="2")


def case_eight():
    """Tensor, pipeline and data parallel two each: eight ranks on four nodes, one of which goes."""
    lose("eight", 8, 2, (0, 1, 2, 3), (1,), (0, 4, 2, 3), layout=("--tp", "2", "--pp", "2"))


def case_erasure():
    """Each node's part is on three others as fragments of 2+1. Both nodes of the job go, so that of each part its own node is lost and one that may hold a
    fragment."""
    lose("2+1", 4, 2, (0, 1), (0, 1), (2, 3), spares=(4,), layout=("--zero",), peers="2+1")


def case_erasure_wide():
    """Fragments of 4+2, of a rank on each of four nodes out of eight, of which two go, and one that holds fragments only."""
    lose("4+2", 4, 1, (0, 1, 2, 3), (1, 2), (0, 4, 5, 3), spares=(6, 7), layout=("--tp", "2"), peers="4+2")


def case_erasure_few():
    """With too few nodes for 4+2 there are three whole copies of each node's part, or as many as there are nodes."""
    lose("4+2 on three others", 4, 2, (0, 1), (0, 1), (2, 3), peers="4+2", memory="1g")


def durable(where):
    return max((int(n) for n in re.findall(r"step (\d+) of \d+ ranks is durable", where.agent_log())), default=-1)


def everything(what, damage):
    """All nodes go, what is in the store stays: on others the ranks go on from that."""
    with node.Cluster(4, TRANSPCKPT_DURABLE_INTERVAL="20") as cluster:
        a, b, c, d = cluster.nodes
        run = Spread(cluster, 4, "--zero", steps=160)
        run.what = what
        start = begin(run, (a, b), 2, 80, durable)
        has = durable(a)
        a.destroy()
        b.destroy()
        start.wait(20)
        has = damage(cluster, has)
        finish(run, run.start((c, d), 2), has, "from the store")
        listed = c.run([os.path.join(cluster.build, "transpckpt"), "verify", "--job", "j"], cluster.environment)
        checks.ok(listed.returncode == 0, f"{what}: what is in the store is whole", listed.stdout, listed.stderr)
        reasons = glob.glob(os.path.join(cluster.environment["TRANSPCKPT_DIR"], "j/quarantine/step-*/reason"))
        return run.resumed(), [job.read(path) for path in reasons]


def case_everything():
    everything("everything", lambda cluster, has: has)


def case_mark():
    """The mark of a node's part of the newest checkpoint is damaged: it is set aside, and all ranks go on from the one before."""
    newest = None

    def damage(cluster, _):
        nonlocal newest
        steps = sorted(glob.glob(os.path.join(cluster.environment["TRANSPCKPT_DIR"], "j/step-*/MANIFEST")))
        newest, before = (int(re.search(r"step-(\d+)", path).group(1)) for path in (steps[-1], steps[-2]))
        with open(os.path.join(os.path.dirname(steps[-1]), "mark.r2.o0"), "r+b") as f:
            f.seek(-200, os.SEEK_END)
            byte = f.read(1)
            f.seek(-200, os.SEEK_END)
            f.write(bytes([byte[0] ^ 1]))
        return before

    at, reasons = everything("a bad mark", damage)
    checks.ok(at is not None and at < newest, f"a bad mark: at step {at}, not {newest}")
    checks.ok(any("mark.r2.o0" in reason for reason in reasons), "a bad mark: it is set aside, and says why", reasons)


def case_dead():
    """All processes die: their newest step is made durable without them."""
    with node.Cluster(2) as cluster:
        run = Spread(cluster, 2, steps=120)
        run.what = "dead"
        start = begin(run, cluster.nodes, 1, 20)
        start.kill()
        newest = cluster.nodes[0]
        checks.ok(node.until(lambda: durable(newest) >= 20, 30), "dead: the newest step is durable", cluster.logs())
        has = durable(newest)
        checks.ok(has == committed(newest), f"dead: that is step {has}", cluster.logs())
        for n in cluster.nodes:
            n.signal_agent("TERM")
        node.until(lambda: not any(n.has_agent() for n in cluster.nodes))
        finish(run, run.start(cluster.nodes), has, "by new agents")


def destroy(run, start, cluster, lost, others):
    """The node is gone with its memory, and so are the other nodes' ranks, which wait for it. What has been settled."""
    has = max(settled(n) for n in cluster.nodes)
    lost.destroy()
    start.wait(20)
    node.until(lambda: all(len(re.findall("was killed", n.agent_log())) >= 2 for n in others), 10)
    return has


def meet(run, nodes):
    for n in nodes:
        n.agent()
    checks.ok(node.until(lambda: all(n.agent_log().count("is a peer") >= len(nodes) - 1 for n in nodes), 60), f"{run.what}: the agents meet",
              run.cluster.logs())


def flip(where, rank):
    """Damages what a node holds of a rank, in each image that there is, which its agent does not know."""
    found = 0
    for folder in where.copies():
        for image in glob.glob(os.path.join(folder, "image.*")) if f".r{rank}." in folder else ():
            with open(image, "r+b") as f:
                f.seek((256 << 20) + 100)
                byte = f.read(1)
                f.seek((256 << 20) + 100)
                f.write(bytes([byte[0] ^ 1]))
            found += 1
    return found


def case_copies_only():
    """Both nodes of the job are lost: all ranks go on from copies, each from its own part, some of which come from where they are."""
    with node.Cluster(5, memory="1g", TRANSPCKPT_PEERS="3") as cluster:
        a, b, c, d, e = cluster.nodes
        run = Spread(cluster, 4, "--zero", steps=160)
        run.what = "copies only"
        meet(run, cluster.nodes)
        start = begin(run, (a, b), 2, 20, settled)
        has = settled(a)
        a.destroy()
        b.destroy()
        start.wait(20)
        finish(run, run.start((d, e), 2), has, "elsewhere")


def case_moved():
    """All processes die, and the first two go on where the others were, and the others on a third node."""
    with node.Cluster(3, memory="1g") as cluster:
        a, b, c = cluster.nodes
        run = Spread(cluster, 4, "--zero", steps=160)
        run.what = "moved"
        meet(run, cluster.nodes)
        start = begin(run, (a, b), 2, 20, settled)
        start.kill()
        node.until(lambda: all(len(re.findall("was killed", n.agent_log())) >= 2 for n in (a, b)), 10)
        has = max(settled(n) for n in cluster.nodes)
        finish(run, run.start((b, c), 2), has, "other nodes")


def places(what, before, after, lost=(), peers="1", nodes=4, devices=2, then_sees=None):
    """Four ranks go on as other ones of their nodes, after some of those were lost: `before` and `after` are how many a node has. What they
    compute follows from their numbers on their nodes, too."""
    visible = ",".join(str(number) for number in range(devices))
    with node.Cluster(nodes, memory="1g", TRANSPCKPT_PEERS=peers, SIMGPU_DEVICES=str(devices), CUDA_VISIBLE_DEVICES=visible) as cluster:
        run = Spread(cluster, 4, "--by-place", steps=120)
        run.what = what
        first = cluster.nodes[:4 // before]
        run.reference(first, before)
        meet(run, cluster.nodes)
        start = reached = settled if len(first) > 1 else committed
        start = begin(run, first, before, 20, reached)
        has = reached(first[0])
        for n in lost:
            cluster.nodes[n].destroy()
        start.kill()
        left = [n for n in cluster.nodes if n.alive]
        node.until(lambda: all(len(re.findall("was killed", n.agent_log())) >= before for n in first if n.alive), 10)
        start = run.start(left[:4 // after], after, **({"CUDA_VISIBLE_DEVICES": then_sees} if then_sees else {}))
        if then_sees:
            # A rank that meets others while they begin anew may fail, as when they have died; then somebody starts the job again.
            status, said = start.wait(60), run.story()
            for _ in range(3):
                if status != 0:
                    start = run.start(left[:4 // after], after, CUDA_VISIBLE_DEVICES=then_sees)
                    status, said = start.wait(60), said + run.story()
            why = re.search(r"cannot resume at step \d+: the rank was on device 1 of 2, and here it sees 1", said)
            checks.ok(why and not job.LIVE.search(said), f"{what}: nobody goes on, and one says why", said, cluster.logs())
            checks.ok(status == 0, f"{what}: all begin anew", status, said, cluster.logs())
            return
        finish(run, start, has, f"{after} a node")
        devices = [re.findall(r"rank \d of its node on device \d of \d (\S+)", text) for text in run.said()]
        really = [sum(devices[i:i + after], []) for i in range(0, 4, after)]
        checks.ok(all(len(on) == len(set(on)) == after for on in really), f"{what}: each rank of a node has a device of its own: {really}", run.story())


def case_together():
    """One a node, and two nodes go: two a node on the others."""
    places("together", 1, 2, (1, 3), "2")


def case_gathered():
    """Two a node, and one of two nodes goes: all are on the other."""
    places("gathered", 2, 4, (1,), nodes=2, devices=4)
    places("gathered where a copy is", 2, 4, (0, 1), peers="2", nodes=4, devices=4)


def case_afresh():
    """Two a node, and one of two nodes goes: all are on a node that has come since."""
    with node.Cluster(4, memory="1g", TRANSPCKPT_PEERS="2", SIMGPU_DEVICES="4", CUDA_VISIBLE_DEVICES="0,1,2,3") as cluster:
        a, b, c, d = cluster.nodes
        run = Spread(cluster, 4, "--by-place", steps=200)
        run.what = "afresh"
        run.reference((a, b), 2)
        meet(run, (a, b, c))
        start = begin(run, (a, b), 2, 20, settled)
        has = settled(a)
        b.destroy()
        start.kill()
        node.until(lambda: len(re.findall("was killed", a.agent_log())) >= 2, 10)
        d.agent()
        checks.ok(node.until(lambda: d.agent_log().count("is a peer") >= 2, 60), "afresh: the agents meet", cluster.logs())
        finish(run, run.start((d,), 4), has, "4 a node")


def case_scattered():
    """All on one node, and then two a node on two others."""
    places("scattered", 4, 2, nodes=3, devices=4)


def case_singly():
    """Two a node on two nodes, and then one a node on four."""
    places("singly", 2, 1)


def case_fewer():
    """Two a node, and then one a node where each sees one device only, so that none has the number that the second one's had."""
    places("fewer", 2, 1, then_sees="0")


def case_twice():
    """One node after another is lost; the second time what goes on is what was gone on with before."""
    with node.Cluster(4, memory="1g") as cluster:
        a, b, c, d = cluster.nodes
        run = Spread(cluster, 4, "--zero", steps=200)
        run.what = "twice"
        meet(run, cluster.nodes)
        start = begin(run, (a, b), 2, 20, settled)
        has = destroy(run, start, cluster, b, (a,))
        start = run.start((a, c), 2)
        checks.ok(node.until(lambda: settled(a) >= has + 20, 60), "twice: it goes on and has copies again", run.story(), cluster.logs())
        # Another one may have been settled before the node was gone.
        checks.ok(run.resumed() is not None and run.resumed() >= has, f"twice: at step {run.resumed()}, which was settled: {has}", run.story(), cluster.logs())
        has = settled(a)
        a.destroy()
        start.wait(20)
        node.until(lambda: len(re.findall("was killed", c.agent_log())) >= 2, 10)
        finish(run, run.start((d, c), 2), has, "without another one, which led")


def case_bad():
    """Of two copies of the lost ranks' part one is damaged: the other one is taken, and the step is the same."""
    with node.Cluster(4, memory="1g", TRANSPCKPT_PEERS="2") as cluster:
        a, b, c, d = cluster.nodes
        run = Spread(cluster, 4, "--zero", steps=160)
        run.what = "bad"
        meet(run, cluster.nodes)
        start = begin(run, (a, b), 2, 20, settled)
        has = destroy(run, start, cluster, b, (a,))
        holder = next(n for n in (c, d, a) if any(".r2." in folder for folder in n.copies()))
        checks.ok(flip(holder, 3), f"bad: rank 3's copy on {holder.name} is damaged")
        finish(run, run.start((a, holder if holder is not a else c), 2), has, "one copy is bad")
        checks.ok(any(re.search("digest|damaged|not usable|cannot be had", n.agent_log()) for n in cluster.nodes if n.alive), "bad: it is noticed", cluster.logs())


def case_broken():
    """A node is lost, and then one of two that have copies of its part, while it gives it to where its ranks start: the other one gives the rest."""
    with node.Cluster(5, memory="1g", TRANSPCKPT_PEERS="2") as cluster:
        a, b, c, d, e = cluster.nodes
        run = Spread(cluster, 4, "--zero", steps=200, size=("--width", "32", "--context", "16", "--bigrams", "32768"))
        run.what = "broken"
        # The copies are on nodes that have no ranks.
        for n in cluster.nodes:
            n.agent(TRANSPCKPT_DOMAIN="holders" if n in (c, d) else "ranks")
        checks.ok(node.until(lambda: all(n.agent_log().count("is a peer") >= 4 for n in cluster.nodes), 60), "broken: the agents meet", cluster.logs())
        start = begin(run, (a, b), 2, 10, settled)
        held = node.until(lambda: [n for n in (a, c, d, e) if any(".r2." in folder for folder in n.copies())][1:2], 30)
        has = destroy(run, start, cluster, b, (a,))
        holders = [n for n in (a, c, d, e) if any(".r2." in folder for folder in n.copies())]
        spare = next(n for n in (e, d, c) if n not in holders)
        checks.ok(held and len(holders) == 2, f"broken: two nodes have its part: {[n.name for n in holders]}", cluster.logs())
        givers = [n for n in holders if n is not a]
        for n in givers:
            n.slow("40mbit")
        sent = {n: n.bytes_out() for n in givers}
        start = run.start((a, spare), 2)
        moving = node.until(lambda: [n for n in givers if n.bytes_out() - sent[n] > 12 << 20], 60)
        checks.ok(moving, "broken: a part of it has come", run.story(), cluster.logs())
        if moving:
            moving[0].destroy()
        finish(run, start, has, "a holder is lost on the way")
        found = re.findall(r"is here: ([\d.]+) MiB came in [\d.]+ s; ranks here had [\d.]+, and ([\d.]+) had come before", spare.agent_log())
        checks.ok(any(float(before) >= 4 for _, before in found), f"broken: MiB that came, and had come before: {found}", cluster.logs())


def case_agents():
    """The agents die while the ranks run, the leader's first: the next ones take over, go on, and have their copies."""
    with node.Cluster(2) as cluster:
        a, b = cluster.nodes
        run = Spread(cluster, 4, steps=240)
        run.what = "agents"
        start = begin(run, (a, b), 2, 20, settled)
        for where, which in (((a,), "a leader"), ((b,), "another one"), ((a, b), "all")):
            for n in where:
                n.signal_agent("KILL")
            then = max(settled(n) for n in (a, b))
            checks.ok(node.until(lambda: settled(a) >= then + 10, 30), f"agents: {which} killed, and it goes on at step {settled(a)}", run.story(),
                      cluster.logs())
        start.kill()
        node.until(lambda: all(len(re.findall("was killed", n.agent_log())) >= 2 for n in (a, b)), 10)
        finish(run, run.start((a, b), 2), min(committed(n) for n in (a, b)), "after that")


def steps_done(run):
    return max((int(n) for text in run.logs() for n in re.findall(r"step (\d+) ", text)), default=0)


def case_settled_late():
    """The agents die as their run ends well, and one of the next ones comes only once another start has begun: what it hears of then is the end of the
    one run, and the other goes on after a kill."""
    with node.Cluster(3) as cluster:
        a, b, c = cluster.nodes
        run = Spread(cluster, 2, steps=480)
        run.what = "settled late"
        start = begin(run, (a, b), 1, 20, TRANSPCKPT_EXIT_WAIT_SEC="0")
        for n in (a, b):
            n.signal_agent("STOP")
        status = start.wait(60)
        checks.ok(status == 0, "settled late: it ends well", status, start.said(), run.story())
        for n in (a, b):
            n.signal_agent("KILL")
        run.anew()
        # The new run's first snapshot would take the place of what is left of that run.
        start = run.start((a, c), TRANSPCKPT_RESUME="never", TRANSPCKPT_INTERVAL="200")
        checks.ok(node.until(lambda: "of generation 2" in c.agent_log(), 60) and "are released" not in a.agent_log(),
                  "settled late: another one begins, and that is not known yet", cluster.logs())
        b.agent()
        checks.ok(node.until(lambda: all("snapshots are released" in n.agent_log() for n in (a, b)), 60), "settled late: then it is", cluster.logs())
        copied = node.until(lambda: re.search(r"step (\d+) of 2 ranks has 1 copies on other nodes, of generation 2", a.agent_log()), 60)
        checks.ok(copied, "settled late: the other one has copies", cluster.logs())
        start.kill()
        node.until(lambda: all("was killed" in n.agent_log() for n in (a, c)), 10)
        finish(run, run.start((a, c)), int(copied[1]) if copied else 0, "the other one")


def case_partition():
    """Two nodes do not reach each other for a while: neither side commits or publishes anything, the ranks train on, and then it
    goes on."""
    with node.Cluster(2, TRANSPCKPT_DURABLE_INTERVAL="10") as cluster:
        a, b = cluster.nodes
        run = Spread(cluster, 4, steps=300)
        run.what = "partition"
        # Longer than it takes to notice.
        slower = {"SIMGPU_KERNEL_US": "800"}
        start = begin(run, (a, b), 2, 20, settled, **slower)
        b.cut()
        alone = node.until(lambda: all("no snapshots until it is back" in n.agent_log() for n in (a, b)), 30)
        checks.ok(alone, "partition: each side says so", run.story(), cluster.logs())
        before, then = [(committed(n), durable(n)) for n in (a, b)], steps_done(run)
        checks.ok(node.until(lambda: steps_done(run) >= then + 20, 30), "partition: the ranks train on", run.story())
        after = [(committed(n), durable(n)) for n in (a, b)]
        checks.ok(before == after and abs(after[0][0] - after[1][0]) <= 20, f"partition: nothing is agreed on meanwhile: {after}", before, cluster.logs())
        b.heal()
        checks.ok(node.until(lambda: settled(a) > after[0][0], 60), f"partition: then it goes on at step {settled(a)}", run.story(), cluster.logs())
        has = settled(a)
        start.kill()
        node.until(lambda: all(len(re.findall("was killed", n.agent_log())) >= 2 for n in (a, b)), 10)
        finish(run, run.start((a, b), 2, **slower), has, "after that")


def case_slow():
    """Copies of one node take long, and the leader's agent dies meanwhile: the round that nobody ended does not hold up the next."""
    with node.Cluster(3) as cluster:
        a, b, c = cluster.nodes
        run = Spread(cluster, 3, steps=300)
        run.what = "slow"
        start = begin(run, (a, b, c), 1, 20, settled, SIMGPU_KERNEL_US="800")
        c.slow("100kbit")
        held_up = node.until(lambda: committed(a) > settled(a) and node.time.sleep(1) is None and committed(a) > settled(a), 20)
        a.signal_agent("KILL")
        has = settled(a)
        checks.ok(node.until(lambda: "the agents of all 3 ranks" in a.agent_log(), 30) and held_up, "slow: the next agent leads on", run.story(),
                  cluster.logs())
        c.slow(None)
        checks.ok(node.until(lambda: settled(a) >= has + 20, 40), f"slow: and it goes on at step {settled(a)}, from {has}", run.story(),
                  cluster.logs())
        start.kill()


def case_changed():
    """Another variable is another program: it begins anew, and says why."""
    with node.Cluster(2, TRANSPCKPT_DURABLE_INTERVAL="10") as cluster:
        run = Spread(cluster, 2, steps=100)
        run.what = "changed"
        start = begin(run, cluster.nodes, 1, 10, durable)
        start.kill()
        node.until(lambda: all("was killed" in n.agent_log() for n in cluster.nodes), 10)
        start = run.start(cluster.nodes, LEARNING_RATE="2")
        checks.ok(start.wait(60) == 0 and not run.same(), "changed: it ends well", run.story(), cluster.logs())
        said = run.said()[0]
        checks.ok(run.resumed() is None and "not resuming" in said and "LEARNING_RATE" in said, "changed: it begins anew, and says why", run.story())


def case_late():
    """A process that has the only image of its rank ends when the next start, which is elsewhere, is there already."""
    with node.Cluster(4) as cluster:
        a, b, c, d = cluster.nodes
        run = Spread(cluster, 2, steps=120)
        run.what = "late"
        # Copies go to another domain.
        for n in cluster.nodes:
            n.agent(TRANSPCKPT_DOMAIN="two" if n is c else "one")
        checks.ok(node.until(lambda: all(len(re.findall("is a peer", n.agent_log())) >= 3 for n in cluster.nodes), 60),
                  "late: the agents meet", cluster.logs())
        start = begin(run, (a, b), 1, 10, settled)
        has = min(committed(a), committed(b))
        checks.ok(not a.copies() and not b.copies() and not d.copies(), "late: there are no copies on other nodes", cluster.logs())
        # Before anybody sees it, and gives the copies to others.
        c.cut()
        last = start.starts.pop()
        start.kill()
        ending = threading.Timer(1.5, last.kill)
        ending.start()
        finish(run, run.start((a, d)), has, "on another node")
        ending.join()


def case_starting():
    """An agent dies while its ranks are on their way to their step, and those of the other node wait there: all try it once more."""
    for number in (0, 1):
        with node.Cluster(2) as cluster:
            run = Spread(cluster, 2, steps=120)
            run.what = f"starting: agent {number}"
            start = begin(run, cluster.nodes, 1, 20, settled)
            # A rank is stopped on its way, if it is not there yet by then.
            stop = 'until grep -q "resuming at" "$0" 2>/dev/null; do :; done; for p in /proc/[0-9]*; do ' \
                   '[ "$(cat $p/comm)" = gpt_ranks ] && kill -STOP ${p#/proc/}; done 2>/dev/null'
            here = cluster.nodes[number]
            for _ in range(10):
                has = min(committed(n) for n in cluster.nodes)
                start.kill()
                start = run.start(cluster.nodes)
                here.run(["sh", "-c", stop, os.path.join(run.said_in, f"err.{number:02d}")], cluster.environment)
                if not any(job.LIVE.search(text) for text in run.said()):
                    break
            checks.ok(not any(job.LIVE.search(text) for text in run.said()), f"{run.what}: a rank is on its way", run.story())
            here.signal_agent("KILL")
            here.run(["sh", "-c", 'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = gpt_ranks ] && kill -CONT ${p#/proc/}; done 2>/dev/null'],
                     cluster.environment)
            finish(run, start, has, "its agent is killed")


def generations(where):
    """Whose sessions are in a node's memory."""
    return sorted({re.search(r"/g(\d+)\.r\d+[^/]*$", path).group(1) for path in glob.glob(where.path("j", "g*.r*"))})


def case_staging():
    """Each of two ranks gets its part from the node that the other one is on, and no other has it, when one of the agents dies, which gives and
    gets: the node's next one is taken in again, and nobody begins anew. Then so where a node gets a lost one's part. In turn the agent of the
    leader and another one; without CASE= two of the four."""
    for number in range(4) if BY_CASE else (0, 3):
        swapped, which = number < 2, number % 2
        with node.Cluster(4, memory="1g") as cluster:
            a, b, c, d = cluster.nodes
            run = Spread(cluster, 2, "--zero", steps=200, size=("--width", "32", "--context", "16", "--bigrams", "32768"))
            run.what = f"staging: {'an agent gives and gets' if swapped else 'a part is on its way'}, rank {which}'s"
            # The copies are on a node that has no ranks.
            for n in (a, b, c) if swapped else cluster.nodes:
                n.agent(TRANSPCKPT_DOMAIN="holder" if n is c else "ranks")
            start = begin(run, (a, b), 1, 10, settled)
            where = (b, a) if swapped else (a, d)
            if swapped:
                start.kill()
                node.until(lambda: all("was killed" in n.agent_log() for n in (a, b)), 10)
                has, givers = min(committed(n) for n in (a, b)), (a, b)
                c.destroy()
            else:
                has, givers = settled(a), (c,)
                b.destroy()
                start.kill()
                node.until(lambda: "was killed" in a.agent_log(), 10)
            node.time.sleep(1)
            for n in givers:
                n.slow("10mbit")
            sent = {n: n.bytes_out() for n in givers}
            start = run.start(where)
            moving = node.until(lambda: all(n.bytes_out() - sent[n] > 2 << 20 for n in givers), 60)
            checks.ok(moving and not any(job.LIVE.search(text) for text in run.said()), f"{run.what}: parts are on their way", run.story(), cluster.logs())
            where[which].signal_agent("KILL")
            for n in givers:
                n.slow(None)
            checks.ok(node.until(lambda: all(is_live(run, rank) for rank in (0, 1)), 60) and "not resuming" not in run.story() and
                      "once more" not in run.story(), f"{run.what}: nobody begins anew", run.story(), cluster.logs())
            # Of the start before this one, and of this one.
            made = {n.name: generations(n) for n in where}
            checks.ok(all(len(of) <= 2 for of in made.values()), f"{run.what}: nothing else is in memory: {made}", cluster.logs())
            finish(run, start, has, "an agent is killed")


def agent_of(where):
    """The process that is a node's agent, as the test sees it."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            # Those that are dead have no program.
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "transpckptd" and \
                    os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{where.init}/ns/pid"):
                return pid
        except OSError:
            pass
    raise RuntimeError(f"{where.name} has no agent")


def welcoming(run, here, other, number):
    """Starts the ranks again; the agent of a node dies when it would welcome the rank there that is `number` in its order, from 1. Its log so far."""
    log = len(here.agent_log())
    # All ranks wait until the agents speak to each other again.
    other.cut()
    start = run.start(run.cluster.nodes, 3)
    node.time.sleep(2)
    pid = agent_of(here)
    # Only the thread that welcomes: nothing else is sent by it until it has done so.
    tracer = subprocess.Popen(["strace", "-q", "-o", "/dev/null", "-p", pid, "-etrace=sendmsg", f"-einject=sendmsg:signal=KILL:when={number}"],
                              stderr=subprocess.DEVNULL)
    checks.ok(node.until(lambda: f"TracerPid:\t{tracer.pid}\n" in job.read(f"/proc/{pid}/status"), 5), f"{run.what}: the agent is traced")
    other.heal()
    try:
        tracer.wait(30)
    except subprocess.TimeoutExpired:
        tracer.terminate()
        checks.ok(False, f"{run.what}: the agent dies", run.story(), run.cluster.logs())
    return start, log


def case_welcome():
    """The agent of a node, the leader's and another one, dies when it has welcomed none, one or two of its three ranks: its next one tells the others
    the same, and all go live at once. Without CASE= one of the six."""
    if not shutil.which("strace"):
        checks.ok(True, "welcome # SKIP strace is missing")
        return
    with node.Cluster(2, memory="1g") as cluster:
        a, b = cluster.nodes
        run = Spread(cluster, 6, steps=150)
        run.what = "welcome"
        start = begin(run, (a, b), 3, 10, settled)
        for here, other, number in ((a, b, 2), (b, a, 1), (b, a, 2), (b, a, 3), (a, b, 1), (a, b, 3))[:None if BY_CASE else 1]:
            run.what = f"welcome: {'the leader' if here is a else 'another'}'s agent, {number - 1} of 3 were told"
            has = min(committed(n) for n in (a, b))
            start.kill()
            node.until(lambda: not any(n.run(["pgrep", "-x", "gpt_ranks"], cluster.environment).stdout for n in (a, b)), 10)
            start, log = welcoming(run, here, other, number)
            checks.ok(node.until(lambda: all(is_live(run, rank) for rank in range(6)), 40) and "not resuming" not in run.story() and
                      "once more" not in run.story() and (run.resumed() or -1) >= has, f"{run.what}: all go on at step {run.resumed()}, at least {has}",
                      run.story(), cluster.logs())
            told = here.agent_log()[log:].count("as the last agent was about to tell it")
            checks.ok(told == 4 - number, f"{run.what}: the next agent tells {told}", run.story(), cluster.logs())
            then = settled(a)
            checks.ok(node.until(lambda: settled(a) > then, 60), f"{run.what}: and snapshots go on", run.story(), cluster.logs())
        checks.ok(start.wait() == 0 and not run.same(), "welcome: it ends well", run.story(), cluster.logs())


def case_unheard():
    """The leader says that all begin, which one of three nodes does not hear: its agent dies, and the leader's, too; or its link is cut, and one of the two dies, or
    none: its next agent begins without a network then. Its ranks are taken in as they are, and nobody begins anew. The part of the last one to be ready comes from a node without ranks, whose link is
    slow. Without CASE= one of the five."""
    for cut, dies in ((False, "ac"), (False, "c"), (True, "a"), (True, ""), (True, "c"))[:None if BY_CASE else 1]:
        with node.Cluster(5, memory="1g") as cluster:
            a, b, c, d, e = cluster.nodes
            run = Spread(cluster, 3, "--zero", steps=120, size=("--width", "32", "--context", "16", "--bigrams", "32768"))
            run.what = f"unheard: {'the link is cut' if cut else 'no cut'}, {len(dies)} agents die"
            for n in (a, b, c, d):
                n.agent(TRANSPCKPT_DOMAIN="holder" if n is d else "ranks")
            start = begin(run, (a, b, c), 1, 10, settled)
            has = settled(a)
            b.destroy()
            start.kill()
            node.until(lambda: all("was killed" in n.agent_log() for n in (a, c)), 10)
            node.time.sleep(1)
            d.slow("10mbit")
            sent, logs, old = d.bytes_out(), {n: len(n.agent_log()) for n in (a, c)}, generations(c)
            start = run.start((a, e, c))
            moving = node.until(lambda: d.bytes_out() - sent > 1 << 20 and generations(c) != old, 60)
            node.time.sleep(1)
            if cut:
                c.cut()
            else:
                c.signal_agent("STOP")
            d.slow(None)
            checks.ok(moving and node.until(lambda: "go on from step" in a.agent_log()[logs[a]:], 30), f"{run.what}: all begin", run.story(), cluster.logs())
            checks.ok(node.until(lambda: "resuming at step" in run.said()[1], 20), f"{run.what}: another node has heard it", run.story(), cluster.logs())
            for n in (a, c):
                if n.name[-1] in dies:
                    n.signal_agent("KILL")
            if cut:
                # What is on its way would come yet.
                node.until(lambda: f"{a.name} is gone" in c.agent_log()[logs[c]:] and (dies or f"{c.name} is gone" in a.agent_log()[logs[a]:]), 30)
                c.heal()
            checks.ok(node.until(lambda: all(is_live(run, rank) for rank in range(3)), 50) and "not resuming" not in run.story() and
                      "once more" not in run.story(), f"{run.what}: nobody begins anew", run.story(), cluster.logs())
            checks.ok("has not heard yet" in a.agent_log()[logs[a]:], f"{run.what}: the leader knows of it", cluster.logs())
            finish(run, start, has, "it is said again")


def is_ready(run, rank):
    return "ready to go live" in run.said()[rank]


def is_live(run, rank):
    return job.LIVE.search(run.said()[rank]) is not None


def case_live():
    """The agent that leads tells all to go live, and dies when one node has heard it and another has not: the next one tells that. Then it dies before it has
    told anybody: the next one decides. No rank starts anew for it."""
    with node.Cluster(3) as cluster:
        a, b, c = cluster.nodes
        # The second rank is the last to come to its step.
        run = Spread(cluster, 3, "--late", "1:3:5", steps=120)
        run.what = "live"
        start = begin(run, cluster.nodes, 1, 20, settled)
        for told in (True, False):
            for _ in range(5):
                has = min(committed(n) for n in cluster.nodes)
                start.kill()
                marks = {n.name: len(n.agent_log()) for n in cluster.nodes}
                start = run.start(cluster.nodes)
                node.until(lambda: is_ready(run, 0) and is_ready(run, 2), 60)
                # What they say of it comes to the leader.
                node.time.sleep(0.3)
                if told:
                    c.cut()
                else:
                    a.signal_agent("KILL")
                if not is_ready(run, 1):
                    break
                c.heal()
            checks.ok(not is_ready(run, 1), "live: two ranks are ready, and the third is not", run.story(), cluster.logs())
            if told:
                checks.ok(node.until(lambda: is_live(run, 1), 60) and not is_live(run, 2), "live: one has heard it, and one has not", run.story(), cluster.logs())
                a.signal_agent("KILL")
                c.heal()
            checks.ok(node.until(lambda: all(is_live(run, rank) for rank in range(3)), 60), "live: all are live", run.story(), cluster.logs())
            missed = [n.name for n in cluster.nodes if "those that are ready wait" in n.agent_log()[marks[n.name]:]]
            checks.ok(missed, f"live: {missed} had missed the agent that led", cluster.logs())
            checks.ok("once more" not in run.story() and (run.resumed() or -1) >= has, f"live: none has started anew, at step {run.resumed()}, at least {has}",
                      run.story())
            then = settled(a)
            checks.ok(node.until(lambda: settled(a) > then, 60), "live: and snapshots go on", run.story(), cluster.logs())
        checks.ok(start.wait() == 0 and not run.same(), "live: it ends well", run.story(), cluster.logs())


def case_nodes():
    """No folder is shared but the program's own: hosts by name, a secret that was given, a store on each node. Agents are killed, then all
    processes, and then a node is lost."""
    with node.Cluster(3, **node.UNSHARED) as cluster:
        cluster.give_secret()
        a, b, c = cluster.nodes
        run = Spread(cluster, 4, "--zero", steps=200)
        run.what = "nodes"
        meet(run, cluster.nodes)
        start = begin(run, (a, b), 2, 20, settled)
        for n in (a, b):
            n.signal_agent("KILL")
        has = max(settled(n) for n in cluster.nodes)
        checks.ok(node.until(lambda: settled(a) >= has + 10, 30), "nodes: agents are killed, and others come at their ports", run.story(),
                  cluster.logs())
        has = max(settled(n) for n in cluster.nodes)
        start.kill()
        node.until(lambda: all(len(re.findall("was killed", n.agent_log())) >= 2 for n in (a, b)), 10)
        start = run.start((a, b), 2)
        checks.ok(node.until(lambda: settled(a) >= has + 20, 60), "nodes: it goes on and has copies again", run.story(), cluster.logs())
        checks.ok((run.resumed() or -1) >= has, f"nodes: at step {run.resumed()}, at least {has}", run.story(), cluster.logs())
        has = destroy(run, start, cluster, b, (a,))
        finish(run, run.start((c, a), 2), has, "without a node")


def case_master():
    """No folder is shared but the program's own, and nobody says who there is: all that a node knows is where the ranks meet, that is, one
    node. Agents are killed; then that node is lost, and the ranks meet on one that had no agent before."""
    with node.Cluster(4, memory="1g", TRANSPCKPT_DIR="/dev/shm/d", TRANSPCKPT_PEERS="2") as cluster:
        cluster.give_secret()
        a, b, c, d = cluster.nodes
        run = Spread(cluster, 4, "--zero", steps=200)
        run.what = "master"
        for n in (b, c, a):
            n.agent(MASTER_ADDR=a.address)
        checks.ok(node.until(lambda: all(n.agent_log().count("is a peer") >= 2 for n in (a, b, c)), 60), "master: agents are told of each other",
                  cluster.logs())
        start = begin(run, (a, b), 2, 20, settled)
        for n in (b, a):
            n.signal_agent("KILL")
        has = max(settled(n) for n in (a, b))
        checks.ok(node.until(lambda: settled(a) >= has + 10, 30), "master: agents are killed, and others come in their place", run.story(),
                  cluster.logs())
        has = destroy(run, start, cluster, a, (b,))
        finish(run, run.start((d, b), 2), has, "where the ranks met is gone")
        checks.ok(node.until(lambda: f"the agent of {d.name} " in c.agent_log(), 30), "master: who has no ranks hears where they meet now",
                  cluster.logs())


TRACKER = """
import http.server, sys
class Rows(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(sys.argv[1], "ab", 0) as rows:
            rows.write(body + b"\\n")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("0.0.0.0", 5000), Rows).serve_forever()
"""


def case_tracker():
    """Each rank sends its rows to a machine that is no node of the job, by a port of that server's own; what was sent before the step that ranks go on at
    is not sent again, and a line says what was sent behind it, by a start that left no snapshot, too. The connections by which ranks meet are real."""
    with node.Cluster(3) as cluster:
        a, b, other = cluster.nodes
        file = os.path.join(cluster.root, "rows")
        server = other.start([sys.executable, "-c", TRACKER, file], cluster.environment, "tracker", cluster.root)
        node.until(lambda: other.run([sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 5000), 1)"],
                                     cluster.environment).returncode == 0, 20)
        run = Spread(cluster, 2, steps=160)
        run.what = "tracker"
        where = {"TRACKER": f"{other.address}:5000"}
        start = begin(run, (a, b), 1, 30, **where)
        start.kill()
        node.until(lambda: all("was killed" in n.agent_log() for n in (a, b)), 10)
        has, sent = min(committed(n) for n in (a, b)), len(job.read(file).splitlines())
        start = run.start((a, b), 1, TRANSPCKPT_INTERVAL="1000000", **where)
        checks.ok(run.slowly_until(lambda: all("\n".join(job.read(file).splitlines()[sent:]).count(f"rank {rank} ") >= 3 for rank in range(2)), job.WAIT_SEC),
                  "tracker: a start goes on, and sends more", run.story(), cluster.logs())
        start.kill()
        node.until(lambda: all("left no snapshot" in n.agent_log() for n in (a, b)), 10)
        finish(run, run.start((a, b), 1, **where), has, "started again")
        tried = f"starts that left no snapshot sent something there to {other.address}:5000\n"
        checks.ok(all(tried in said for said in run.said()), "tracker: each rank says what was sent by a start that left no snapshot", run.story(), cluster.logs())
        rows = [tuple(re.findall(r"rank (\d) step (\d+) loss (\S+)$", line)[0]) for line in job.read(file).splitlines()]
        at = run.resumed() or 0
        again = {row for row in rows if rows.count(row) > 1}
        checks.ok({(int(rank), int(step)) for rank, step, _ in rows} == {(rank, step) for rank in range(2) for step in range(160)} and
                  len(set(rows)) == 320, "tracker: it has a row of each rank's each step, with one loss", len(rows), len(set(rows)))
        # A step's row goes behind its last launch, so that of step N - 1 lies behind boundary N.
        checks.ok(again and all(int(step) >= at - 1 for _, step, _ in again),
                  f"tracker: what came before step {at} came once", sorted(again, key=lambda row: int(row[1]))[:4], run.story())
        server.kill()


def case_early():
    """Ranks whose communicators cannot be made anew, as where another one has died, or the network is gone: their calls fail, as they do without the
    library, they end with their own status, and what there is stays on offer."""
    with node.Cluster(2) as cluster:
        run = Spread(cluster, 2, "--tp", "2", steps=200)
        run.what = "early"
        start = begin(run, cluster.nodes, 1, 20)
        start.kill()
        node.until(lambda: all("was killed" in n.agent_log() for n in cluster.nodes), 10)
        has = min(committed(n) for n in cluster.nodes)
        # NCCL cannot be used.
        fabric = cluster.environment["SIMGPU_FABRIC"]
        os.rename(fabric, fabric + ".away")
        start = run.start(cluster.nodes, 1)
        status = start.wait(60)
        os.rename(fabric + ".away", fabric)
        checks.ok(status == 1 and "is not made anew" in "".join(run.said()), "early: ranks that cannot meet end with their own status", status, run.story(),
                  cluster.logs())
        finish(run, run.start(cluster.nodes, 1), has, "started again")


def case_stalled():
    """Ranks that do not get on: every node's `show` names the one that all wait for, and where it is."""
    def told(where):
        rows = json.loads(where.run([os.path.join(cluster.build, "transpckpt"), "show", "--json"], cluster.environment).stdout or "[]")
        return sorted({row["waiting"] for row in rows if row.get("waiting")})

    def shows(pattern, what):
        wanted = re.compile(r"no iteration has ended since [\d:]{8}: " + pattern + "$")
        found = node.until(lambda: all(any(wanted.match(text) for text in told(n)) for n in (a, b)), 60)
        checks.ok(found, what, told(a), told(b), run.story(), cluster.logs())

    third = ('for p in /proc/[0-9]*; do if [ "$(cat $p/comm)" = gpt_ranks ] && tr "\\0" "\\n" <$p/environ | grep -qx RANK=3; '
             'then kill -{} ${{p#/proc/}}; fi; done')
    with node.Cluster(2, TRANSPCKPT_STALL_SEC="1") as cluster:
        a, b = cluster.nodes
        run = Spread(cluster, 4, "--late", "3:150:8", steps=160)
        run.what = "stalled"
        start = begin(run, cluster.nodes, 2, 20)
        queued = r" not queued collective \d+ of communicator 0(, ncclAllReduce of \d+ elements)?; ranks? [012](, 1 and 2| and [12])? queued it"
        shows(rf"rank 3 on {b.name} has{queued}", "stalled: a rank whose data do not come, on both nodes")
        checks.ok(node.until(lambda: not told(a) and not told(b), 60), "stalled: they go on, and it is said no more", told(a), told(b))
        b.run(["sh", "-c", third.format("STOP")], cluster.environment)
        shows(rf"rank 3 \(process \d+, which is stopped\) on {b.name} (has{queued}|may hold up the others; every rank has queued the same collectives)",
              "stalled: one that is stopped")
        b.run(["sh", "-c", third.format("CONT")], cluster.environment)
        status = start.wait()
        log = a.agent_log()
        checks.ok(status == 0 and not run.same(), "stalled: it ends well", status, run.story())
        checks.ok(log.count("no iteration has ended") >= 2 and log.count("no iteration has ended") == log.count("the ranks go on after") and
                  "no iteration" not in b.agent_log(), "stalled: one agent says so, once each time", cluster.logs())


def case_twins():
    """What ranks of other nodes have themselves need not be sent. Such a copy is as good as any: a node is lost."""
    with node.Cluster(4, memory="1200m", TRANSPCKPT_INTERVAL="3") as cluster:
        nodes = cluster.nodes
        run = Spread(cluster, 3, steps=40, size=("--width", "64", "--context", "16", "--bigrams", "131072"))
        run.what = "twins"
        nodes[3].agent()
        start = begin(run, nodes[:3], 1, 8, settled)
        has = settled(nodes[0])
        nodes[1].destroy()
        start.wait(20)
        copies = [(float(came), float(found)) for n in nodes if n.alive
                  for came, found in re.findall(r"is here: ([\d.]+) MiB came in [\d.]+ s; ranks here had ([\d.]+)", n.agent_log())]
        print(f"# copies of 66 MiB and a log: MiB that came, and that were there: {copies}")
        checks.ok(any(found >= 4 * came for came, found in copies), "twins: of a copy most was there", copies, cluster.logs())
        finish(run, run.start((nodes[0], nodes[3], nodes[2])), has, "on other nodes")


BY_NAME = ("afresh", "bad", "broken", "copies_only", "dead", "eight", "erasure", "erasure_few", "erasure_wide", "fewer", "gathered", "killed", "late", "moved", "node", "nodes", "scattered", "singly", "slow", "stalled", "starting", "tracker", "twins")
# What dies while a start is on its way.
STARTS = ("changed", "early", "live", "mark", "settled_late", "staging", "unheard", "welcome")
node.run_cases(globals(), BY_NAME, starts=STARTS)
checks.end()
