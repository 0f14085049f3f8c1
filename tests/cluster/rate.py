#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast a copy is beside iperf3 between the same two nodes, as a ratio; no test. BIGRAMS= makes the state larger."""
import json
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node

import job

node.enter()
if not shutil.which("iperf3"):
    job.skip("iperf3 is missing")


def iperf(a, b, environment):
    server = b.start(["iperf3", "-s", "-1"], environment, "iperf", b.cluster.root)
    node.until(lambda: "listening" in server.printed(), 5)
    done = a.run(["iperf3", "-c", b.address, "-J", "-t", "3"], environment)
    server.wait(10)
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8 / (1 << 20)


def main():
    with node.Cluster(2, memory="6g", TRANSPCKPT_INTERVAL="1", TRANSPCKPT_PEER_PACING="off") as cluster:
        a, b = cluster.nodes
        work = os.path.join(cluster.root, "work")
        os.makedirs(work)
        alone = iperf(a, b, cluster.environment)
        start = a.start([*cluster.runner, os.path.join(cluster.build, "transpckpt"), "run", "--",
                         os.path.join(cluster.build, "tests/trainers/gpt"), "--steps", "100000", "--seed", "7", "--bigrams",
                         os.environ.get("BIGRAMS", "400000"), "--out", "out"], cluster.environment, "start", work)
        node.until(lambda: len(re.findall("step", start.printed())) > 20 or not start.running(), 100)
        beside = iperf(a, b, cluster.environment)
        b.agent()
        node.until(lambda: len(re.findall("is here: ", b.agent_log())) >= 6 or not start.running(), 100)
        again = iperf(a, b, cluster.environment)
        start.kill()
        copies = [(float(size), float(took)) for size, took in re.findall(r"is here: ([\d.]+) MiB came in ([\d.]+) s", b.agent_log())]
        sends = re.findall(r"copies on other nodes: ([\d.]+) MiB of [\d.]+ sent in ([\d.]+) s", a.agent_log())
        print(f"# iperf3 {alone:.0f} MiB/s by itself, {beside:.0f} beside the program without copies, {again:.0f} with them; "
              f"copies {[f'{size:.0f} MiB in {took} s' for size, took in copies]}; with description and offer {sends}")
        rates = sorted(size / took for size, took in copies)
        print(f"peer copy / iperf3: best {rates[-1] / alone:.2f}, median {rates[len(rates) // 2] / alone:.2f}; "
              f"beside iperf3 that shares the processors with the program, too: {rates[-1] / beside:.2f}, {rates[len(rates) // 2] / beside:.2f}")


main()
