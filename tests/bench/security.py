#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What it costs to keep copies to another node from who is between: the rate of a copy and the processor time of both agents, with
TRANSPCKPT_PEER_SECURITY off, auth and encrypt, by turns. Prints JSON for bench.py. Two namespaces on one machine; LEVELS= and ROUNDS= choose,
SECURITY_MIB= is the state's size."""
import json
import os
import re
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
import node

import job

MIB, COPIES = int(os.environ.get("SECURITY_MIB") or 128), 5
ITERATION_MS, KERNELS = 2000, 20


def agent_seconds(where):
    """Processor time of the node's agent."""
    lock = os.path.join(where.cluster.environment["TRANSPCKPT_SHM"], "j", "agent.lock")
    told = where.run(["sh", "-c", f"cat /proc/$(cat {lock})/stat"], where.cluster.environment).stdout
    fields = told.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def copies(where):
    """MiB and seconds of each that has come."""
    return [(float(mib), float(took)) for mib, took in re.findall(r"is here: ([\d.]+) MiB came in ([\d.]+) s", where.agent_log())]


def measure(level):
    with node.Cluster(2, memory=f"{1024 + 8 * MIB}m", TRANSPCKPT_PEER_SECURITY=level, TRANSPCKPT_PEER_PACING="off", TRANSPCKPT_INTERVAL="1") as cluster:
        a, b = cluster.nodes
        environment = {**cluster.environment, "SIMGPU_COPY_GBPS": f"{MIB * 1.048576 / (0.5 * ITERATION_MS):.5f}"}
        for kernel in ("ward", "adamw"):
            environment[f"SIMGPU_KERNEL_US_{kernel}"] = str(ITERATION_MS * 1000 // (KERNELS + 1))
        b.agent()
        trainer = a.start([*cluster.runner, os.path.join(cluster.build, "transpckpt"), "run", "--", os.path.join(cluster.build, "tests/bench/trainer"),
                           "--mib", str(MIB), "--steps", "1000000", "--kernels", str(KERNELS), "--quiet", "--batch", "512"], environment, "trainer",
                          cluster.root)
        node.until(lambda: len(copies(b)) >= 3 or not trainer.running(), 200)
        begun, used = len(copies(b)), [agent_seconds(n) for n in (a, b)]
        node.until(lambda: len(copies(b)) >= begun + COPIES or not trainer.running(), 200)
        rows, used = copies(b)[begun:], [agent_seconds(n) - before for n, before in zip((a, b), used)]
        trainer.kill()
        gib = sum(mib for mib, _ in rows) / 1024
        how = re.search("what is sent is (.*)", b.agent_log())
        return {"rate": statistics.median(mib / took for mib, took in rows), "sender_seconds_gib": used[0] / gib, "receiver_seconds_gib": used[1] / gib,
                "mib": gib * 1024, "copies": len(rows), "how": how[1] if how else ""}


node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
levels = (os.environ.get("LEVELS") or "off auth encrypt").split()
found = {level: [] for level in levels}
for _ in range(int(os.environ.get("ROUNDS") or 3)):
    for each in levels:
        found[each].append(measure(each))
print(json.dumps(found))
