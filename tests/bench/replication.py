#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What copies to another node cost the program: its iterations, and a stream that stands for its collectives on the same limited link.
Prints JSON for bench.py. Two namespaces; MODES= chooses, of which unpaced is not among the usual ones, ITERATION_MS and RATE (of tc) set the scale."""
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
import node

import job

MODES = {"plain": {}, "none": {"TRANSPCKPT_PEERS": "0"}, "paced": {}, "unpaced": {"TRANSPCKPT_PEER_PACING": "off"}}
MIB, KERNELS, STEPS = 32, 20, 20
ITERATION_MS = int(os.environ.get("ITERATION_MS") or 1000)
RATE = os.environ.get("RATE") or "800mbit"
# A "collective" of a megabyte, ten a second: a tenth of what the link takes.
STREAM_BYTES, STREAM_SEC, PORT = 1000000, 0.1, "5201"
RECEIVER = """
import socket, sys
s = socket.create_server(("", int(sys.argv[1])))
print("listening", flush=True)
c, _ = s.accept()
left = n = int(sys.argv[2])
while data := c.recv(1 << 20):
    left -= len(data)
    if left <= 0:
        left += n
        c.sendall(b".")
"""
SENDER = """
import socket, sys, time
c = socket.create_connection((sys.argv[1], int(sys.argv[2])))
c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
block, period = bytes(int(sys.argv[3])), float(sys.argv[4])
while True:
    begun = time.monotonic()
    c.sendall(block)
    c.recv(1)
    took = time.monotonic() - begun
    print(begun, took, flush=True)
    time.sleep(max(period - took, 0))
"""


def shown(a):
    try:
        rows = json.loads(a.run([os.path.join(a.cluster.build, "transpckpt"), "show", "--json"], a.cluster.environment).stdout)
    except ValueError:
        return {}
    return rows[-1] if rows else {}


def measure(mode):
    with node.Cluster(2, memory="2g", **{"TRANSPCKPT_INTERVAL": "1", **MODES[mode]}) as cluster:
        a, b = cluster.nodes
        a.slow(RATE)
        receiver = b.start([sys.executable, "-c", RECEIVER, PORT, str(STREAM_BYTES)], cluster.environment, "receiver", cluster.root)
        node.until(lambda: "listening" in receiver.printed())
        sender = a.start([sys.executable, "-c", SENDER, b.address, PORT, str(STREAM_BYTES), str(STREAM_SEC)], cluster.environment, "sender",
                         cluster.root)
        environment = {**cluster.environment, "SIMGPU_COPY_GBPS": f"{MIB * 1.048576 / (0.5 * ITERATION_MS):.5f}"}
        for kernel in ("ward", "adamw"):
            environment[f"SIMGPU_KERNEL_US_{kernel}"] = str(ITERATION_MS * 1000 // (KERNELS + 1))
        argv = [*cluster.runner, os.path.join(cluster.build, "transpckpt"), "run", "--"]
        if mode == "plain":
            argv = cluster.runner
            environment = {k: v for k, v in environment.items() if not k.startswith("TRANSPCKPT_")}
        elif mode != "none":
            b.agent()
        trainer = subprocess.Popen(a.command([*argv, os.path.join(cluster.build, "tests/bench/trainer"), "--mib", str(MIB), "--steps", str(STEPS),
                                              "--kernels", str(KERNELS), "--quiet", "--batch", "512", "--go"], environment),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        # Until classes are known, which takes some twenty iterations.
        if mode == "plain":
            time.sleep(5 * ITERATION_MS / 1000)
        else:
            node.until(lambda: time.sleep(0.5) or (shown(a).get("iterations", 0) >= 30 and shown(a)["notes"]["captured"] >= 3), 200)
        before, begun = shown(a), time.monotonic()
        trainer.stdin.write("go")
        trainer.stdin.flush()
        line = json.loads(trainer.stdout.readline())
        ended, after = time.monotonic(), shown(a)
        trainer.kill()
        trainer.wait()
        times = [tuple(map(float, row.split())) for row in sender.printed().splitlines() if len(row.split()) == 2]
        sender.kill()
        receiver.kill()
        took = sorted(took for at, took in times if begun <= at <= ended)
        sent = [x.get("replication", {"copies": 0, "bytes": 0, "behind": 0}) for x in (before, after)]
        return {"iteration_ms": line["iteration_mean_us"] / 1e3, "stream_ms": statistics.mean(took) * 1e3,
                "stream_p95_ms": took[len(took) * 95 // 100] * 1e3, "streams": len(took),
                "captured": after["notes"]["captured"] - before["notes"]["captured"] if after else 0,
                **{key: sent[1][key] - sent[0][key] for key in ("copies", "bytes", "behind")}}


node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
print(json.dumps({mode: measure(mode) for mode in (os.environ.get("MODES") or "plain none paced").split()}))
