#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.9 memory=1500M about=12s
"""Jobs whose ranks are on several nodes end with the bytes of the same job on one node. CASE=NAME runs one case."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Spread

import job

node.enter()
checks = job.Checks()
# What goes between the nodes differs, and how each launcher says who is where.
LAYOUTS = (("torchrun",), ("openmpi", "--zero"), ("pmi", "--tp", "2"), ("slurm", "--pp", "2"), ("torchrun", "--tp", "2", "--pp", "2"))


def ends_same(run, start, what):
    status = start.wait()
    checks.ok(status == 0 and not run.same(), f"{what}: the same bytes as on one node", status, "\n".join(run.same()), start.said(),
              run.story(), run.cluster.logs())


def case_plain():
    with node.Cluster(4) as cluster:
        for number, (launcher, *layout) in enumerate(LAYOUTS):
            run = Spread(cluster, 4, *layout, steps=8, launcher=launcher, name=f"layout{number}")
            what = " ".join(("plain", launcher, *layout))
            ends_same(run, run.start(cluster.nodes, preloaded=False), f"{what}, four nodes")
            run.anew()
            ends_same(run, run.start(cluster.nodes[1:3], 2, preloaded=False), f"{what}, two nodes")


def trained(run):
    """All ranks of the newest start are past its first steps."""
    return node.until(lambda: all("step 3 " in text for text in run.logs()), 60)


def case_lost():
    """A node goes: the ranks on the other one hear of it by their devices, and a start anew ends well."""
    with node.Cluster(3) as cluster:
        a, b, c = cluster.nodes
        run = Spread(cluster, 4, "--watch", steps=100)
        # The job must not end while it is looked at.
        first = run.start((a, b), 2, preloaded=False, SIMGPU_KERNEL_US="500")
        begun = trained(run)
        b.destroy()
        # The ranks' own launcher ends as they do; nothing else has told it.
        status = first.starts[0].wait(60)
        checks.ok(begun and status == 4 and any("remote process exited" in text for text in run.said()[:2]),
                  "a node is lost, and the other one's ranks see it", begun, status, first.said(), run.story())
        checks.ok(first.wait() not in (0, "hung"), "the start has failed", first.said())
        run.anew()
        ends_same(run, run.start((c, a), 2, preloaded=False), "a start on other nodes")


def case_hangs():
    """Ranks that do not look wait for ever for one that was killed. All are ended, as a real launcher sees to."""
    with node.Cluster(2) as cluster:
        a, b = cluster.nodes
        run = Spread(cluster, 4, steps=60)
        first = run.start((a, b), 2, preloaded=False, SIMGPU_KERNEL_US="500")
        begun = trained(run) and run.kill_rank(2)
        status = first.wait(60)
        # Nobody waits for those that have ended, whose command line is empty.
        gone = node.until(lambda: "gpt_ranks" not in a.run(["sh", "-c", "cat /proc/[0-9]*/cmdline"], cluster.environment).stdout)
        checks.ok(begun and status == 128 + 9 and gone, "a rank is killed, and none is left", begun, status, gone, first.said(), run.story())


def case_preloaded():
    """With the library and an agent on each node: a rank is killed, and the same command started again."""
    with node.Cluster(2) as cluster:
        run = Spread(cluster, 4, steps=60)
        first = run.start(cluster.nodes, 2, SIMGPU_KERNEL_US="200")
        killed = trained(run) and run.kill_rank(3)
        status = first.wait(60)
        checks.ok(killed and status not in (0, "hung"), "preloaded: a rank is killed, and the start fails", killed, status, run.story())
        ends_same(run, run.start(cluster.nodes, 2), "preloaded")
        checks.ok(all("transpckpt:" in text for text in run.said()), f"the library was there, and all went on at step {run.resumed() or 0}",
                  run.story())


wanted = os.environ.get("CASE")
for name, case in list(globals().items()):
    if name.startswith("case_") and wanted in (None, name[5:]):
        case()
checks.end()
