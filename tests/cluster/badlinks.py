#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.3 memory=1500M about=21s
"""Jobs whose nodes are far from each other, by links that are late at random and lose packets (badlink.c): copies arrive, all ranks go on at
one step when a node is lost, and nobody takes a bad link for a dead node for good. CASE=NAME runs one case; BY_NAME only so, for the time
they take. LINK_SEED=N gives the links' chances again, though not the moments at which packets come."""
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Spread

import job

node.enter()
node.need_bad_links()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
checks = job.Checks()
FAR = {"delay_ms": 25, "jitter_ms": 8, "loss": 0.01}


def committed(where):
    return max((int(n) for n in re.findall(r"committed step (\d+) ", where.agent_log())), default=-1)


def settled(where):
    """The newest step of which all nodes have their copies, as the leader says."""
    return max((int(n) for n in re.findall(r"step (\d+) of \d+ ranks has [1-9]\d* copies on other nodes", where.agent_log())), default=-1)


def silent(cluster):
    """Peers that were given up, by whom."""
    return [f"{n.name}: {line}" for n in cluster.nodes if n.alive
            for line in re.findall(r"the agent of .* is gone: .*", n.agent_log())]


def ok(run, good, what, *more):
    return checks.ok(good, f"{run.what}: {what}", *([] if good else [*more, run.story(), run.cluster.logs()]))


def steps_done(run):
    return max((int(n) for text in run.logs() for n in re.findall(r"step (\d+) ", text)), default=0)


def is_bad(cluster):
    """What the links are said to be is what programs meet there."""
    a, b = cluster.nodes[:2]
    lost, shortest, middle = node.probe(a, b)
    told = [n.link.tell() for n in (a, b)]
    dropped, passed = sum(counts[1] for counts in told), sum(counts[0] for counts in told)
    print(f"# of datagrams {lost:.3f} are lost there and back; the quickest took {shortest:.1f} ms, the middle one {middle:.1f} ms; "
          f"{passed} packets passed, {dropped} were lost", flush=True)
    least = 2 * (cluster.links["delay_ms"] - cluster.links["jitter_ms"])
    checks.ok(shortest >= least, f"no packet is there and back within {least} ms: {shortest}")
    checks.ok(middle >= shortest + cluster.links["jitter_ms"] / 2, f"some take longer: {middle} ms, and not {shortest}")
    # Twenty are to be.
    checks.ok(dropped >= 4 and lost > 0, f"packets are lost: {dropped} of {passed + dropped}, {lost:.3f} there and back")


def meet(run, nodes, start=True):
    for n in nodes if start else ():
        n.agent()
    ok(run, node.until(lambda: all(n.agent_log().count("is a peer") >= len(nodes) - 1 for n in nodes), 60), "the agents meet")


def begin(run, where, step, **settings):
    start = run.start(where, 1, **settings)
    ok(run, node.until(lambda: settled(where[0]) >= step, 150), "copies of all ranks")
    return start


def finish(run, start, floor, what):
    status = start.wait()
    ok(run, status == 0, f"{what}: it ends well", status, start.said())
    at = run.resumed()
    ok(run, at is not None and at >= floor, f"{what}: all ranks go on at step {at}, at least {floor}")
    ok(run, not run.same(), f"{what}: with the same bytes", "\n".join(run.same()))


def says(run, where):
    """What the commands say of a running job: each rank has its copy, on another node."""
    tool = os.path.join(run.cluster.build, "transpckpt")

    def rows(*argv):
        return json.loads(where.run([tool, *argv, "--json"], run.cluster.environment).stdout or "[]")

    shown = node.until(lambda: [row for row in rows("show") if row.get("copies")], 30) or []
    listed = node.until(lambda: [row for row in rows("ls") if row.get("step", 0) > 0], 30) or []
    ok(run, shown and all(copy["host"] != where.name for row in shown for copy in row["copies"]), "`show` says where copies are", rows("show"))
    ok(run, listed, "`ls` has a step", rows("ls"))


def case_lost():
    """A node is lost, and its rank goes on from the copy that came by such a link, on a node that gets it by another one."""
    with node.Cluster(3, links=FAR) as cluster:
        a, b, c = cluster.nodes
        is_bad(cluster)
        run = Spread(cluster, 2, "--zero", steps=160)
        run.what = "lost"
        meet(run, cluster.nodes)
        start = begin(run, (a, b), 20)
        says(run, a)
        has = settled(a)
        b.destroy()
        start.wait(20)
        node.until(lambda: "was killed" in a.agent_log(), 10)
        finish(run, run.start((a, c), 1), has, "on other nodes")
    left = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=False).stdout.splitlines()
    checks.ok(len(left) == 1 and "lo:" in left[0], "lost: no interface is left", *left)


def case_heavy():
    """For some seconds every seventh packet is lost each way: the ranks train on, what is agreed on is one step, and then copies catch up."""
    with node.Cluster(3, links=FAR, TRANSPCKPT_DURABLE_INTERVAL="40") as cluster:
        a, b, c = cluster.nodes
        run = Spread(cluster, 3, steps=1500)
        run.what = "heavy"
        meet(run, cluster.nodes)
        slower = {"SIMGPU_KERNEL_US": "60"}
        start = begin(run, (a, b, c), 20, **slower)
        pace = []
        for loss in (FAR["loss"], 0.15, 0.2, FAR["loss"]):
            for n in cluster.nodes:
                n.link.tell(loss=loss)
            began, step = time.monotonic(), steps_done(run)
            time.sleep(8)
            pace.append((steps_done(run) - step) / (time.monotonic() - began))
            print(f"# with a loss of {loss}: {pace[-1] / pace[0]:.2f} of the steps a second; committed {[committed(n) for n in cluster.nodes]}, settled {settled(a)}",
                  flush=True)
        ok(run, start.running() and min(pace) > 0, "the ranks train on")
        then = max(committed(n) for n in cluster.nodes)
        ok(run, node.until(lambda: settled(a) > then, 60), f"copies catch up: {settled(a)} after {then}")
        print(f"# given up meanwhile: {silent(cluster)}")
        numbers = [set(re.findall(r"is rank \d+ of generation (\d+)", n.agent_log())) for n in cluster.nodes]
        ok(run, all(number == numbers[0] for number in numbers), "it is one generation", numbers)
        has = settled(a)
        start.kill()
        node.until(lambda: all("was killed" in n.agent_log() for n in cluster.nodes), 10)
        finish(run, run.start((a, b, c), 1, **slower), has, "after that")
        whole = a.run([os.path.join(cluster.build, "transpckpt"), "verify", "--job", "j"], cluster.environment)
        ok(run, whole.returncode == 0, "what is in the store is whole", whole.stdout, whole.stderr)


def case_answer():
    """What the only node that has a lost rank's copy says takes longer than a start waits where it has been told of something: nothing is passed
    over for it."""
    with node.Cluster(4, links=FAR) as cluster:
        a, b, c, d = cluster.nodes
        run = Spread(cluster, 2, "--zero", steps=160)
        run.what = "answer"
        # Copies go to another domain.
        for n in cluster.nodes:
            n.agent(TRANSPCKPT_DOMAIN="two" if n is c else "one")
        meet(run, cluster.nodes, start=False)
        start = begin(run, (a, b), 20)
        has = settled(a)
        b.destroy()
        start.wait(20)
        node.until(lambda: "was killed" in a.agent_log(), 10)
        for n in (a, c, d):
            n.link.tell(loss=0, jitter_ms=0, delay_ms=3500 if n is c else 0)
        offered = a.agent_log().count("offering step")
        start = run.start((a, d), 1)
        # The node has been told.
        node.until(lambda: a.agent_log().count("offering step") > offered or not start.running(), 60)
        c.link.tell(delay_ms=0)
        finish(run, start, has, "told late")


def case_narrow():
    """A copy takes longer than a peer may be silent: it arrives all the same, and so does what a start gets."""
    with node.Cluster(3, links={**FAR, "rate_mbit": 6}) as cluster:
        a, b, c = cluster.nodes
        run = Spread(cluster, 2, "--zero", steps=64, size=("--width", "64", "--context", "16", "--bigrams", "10240"))
        run.what = "narrow"
        meet(run, cluster.nodes)
        slower = {"SIMGPU_KERNEL_US": "8000"}
        start = begin(run, (a, b), 10, **slower)
        ok(run, not silent(cluster), "nobody is given up", *silent(cluster))
        took = [float(s) for n in cluster.nodes for s in re.findall(r"MiB came in ([\d.]+) s", n.agent_log())]
        has = settled(a)
        print(f"# step {has}; copies took {took} s")
        b.destroy()
        start.wait(20)
        node.until(lambda: "was killed" in a.agent_log(), 10)
        finish(run, run.start((a, c), 1, **slower), has, "on other nodes")
        ok(run, max(took, default=0) > 8, f"a copy took longer than a peer may be silent: {took}")


BY_NAME = ("answer", "heavy", "narrow")
wanted = os.environ.get("CASE")
for name, case in list(globals().items()):
    if name.startswith("case_") and (name[5:] == wanted or (wanted is None and name[5:] not in BY_NAME)):
        began = time.monotonic()
        case()
        print(f"# {name[5:]} took {time.monotonic() - began:.0f} s", flush=True)
checks.end()
