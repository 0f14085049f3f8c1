#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What fragments on other nodes take beside whole copies that survive as much: memory, bytes sent, the agent's time, and how long a start takes
on a spare node after the loss. Prints JSON for bench.py. Namespaces on one machine; MODES= chooses."""
import json
import os
import re
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
import node
from rank_jobs import Ranks

import job

MODES = "2 2+1 3 4+2"
SNAPSHOTS = 8
SLOW = {"SIMGPU_KERNEL_US": "50"}


def memory_in(where):
    files = (os.path.join(folder, name) for folder in [*where.copies(), *where.fragments()] for name in os.listdir(folder))
    return sum(os.stat(f).st_blocks * 512 for f in files)


def agent_seconds(where):
    """Processor time of the node's agent."""
    lock = os.path.join(where.cluster.environment["TRANSPCKPT_SHM"], "j", "agent.lock")
    told = where.run(["sh", "-c", f"cat /proc/$(cat {lock})/stat"], where.cluster.environment).stdout
    fields = told.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sent(where):
    """Of each snapshot that was sent: its step, MiB and seconds."""
    found = re.findall(r"step (\d+) has \d+ \w+ on other nodes: ([\d.]+) MiB of [\d.]+ sent in ([\d.]+) s", where.agent_log())
    return [(int(step), float(mib), float(seconds)) for step, mib, seconds in found]


def measure(setting):
    wide = max(sum(int(n) for n in s.split("+")) for s in MODES.split()) + 2
    with node.Cluster(wide, memory="1g", TRANSPCKPT_PEERS=setting, TRANSPCKPT_PEER_PACING="off", TRANSPCKPT_INTERVAL="2") as cluster:
        a, *others = cluster.nodes
        for n in others:
            n.agent()
        node.until(lambda: all(n.agent_log().count("is a peer") >= wide - 2 for n in others), 60)
        run = Ranks(cluster, 1, steps=40, size=("--width", "32", "--context", "16", "--bigrams", "65536"))
        first = run.start(a, **SLOW)
        node.until(lambda: len(sent(a)) >= 3 or not first.running(), 120)
        cpu, begun = agent_seconds(a), len(sent(a))
        node.until(lambda: len(sent(a)) >= begun + SNAPSHOTS or not first.running(), 120)
        rows, cpu = sent(a)[begun:], agent_seconds(a) - cpu
        a.destroy()
        first.wait(10)
        memory = sum(memory_in(n) for n in others)
        spare = next(n for n in others if not n.copies() and not n.fragments())
        begun = time.monotonic()
        second = run.start(spare, **SLOW)
        at = node.until(run.resumed, 90)
        return {"memory_mib": memory / 2**20, "sent_mib": statistics.mean(mib for _, mib, _ in rows),
                "seconds": statistics.median(seconds for _, _, seconds in rows), "agent_seconds": cpu / len(rows), "snapshots": len(rows),
                "resume_seconds": time.monotonic() - begun, "resumed": at, "ended": second.kill()}


node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
if not node.makes_fragments():
    job.skip("the agent was built without ISA-L")
print(json.dumps({mode: measure(mode) for mode in (os.environ.get("MODES") or MODES).split()}))
