#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast a rank's state comes back: from local memory, from a peer's copy, from the store, each beside its raw medium in the same round, and how long
several nodes take to agree on what they go on from. Prints JSON for bench.py. Arguments: local, tcp, ucx, mpi, consensus. RECOVERY_MIB sets the size, ROUNDS how often (default 2)."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster"))
import node
from rank_jobs import Spread

import job


# Device, images, copies and what is started from them are there at the same time: some six times as much.
MIB = int(os.environ.get("RECOVERY_MIB") or 512)
ROUNDS = int(os.environ.get("ROUNDS") or 2)
ARGV = ["--mib", str(MIB), "--steps", "100000", "--quiet"]


def until(condition, seconds=100):
    found = node.until(condition, seconds)
    if not found:
        raise ValueError("it did not come so far")
    return found


def trainer(build, runner):
    return [*runner, os.path.join(build, "transpckpt"), "run", "--", os.path.join(build, "tests/bench/trainer"), *ARGV]


def last(what, text):
    return float(re.findall(what, text)[-1])


def used(pid):
    """Seconds of processor time of a process."""
    fields = job.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- this node's memory and store --------------------------------------------------------------

def newest_stored(place):
    """Every chunk is new in each: the newest checkpoint is one file."""
    found = [path for path in glob.glob(os.path.join(place.store, "**"), recursive=True) if os.path.isfile(path) and os.path.getsize(path) >= MIB << 20]
    return max(found, key=os.path.getmtime)


def read_raw(path):
    """MiB/s of reading it past the page cache."""
    done = subprocess.run(["fio", "--name=r", "--ioengine=io_uring", "--direct=1", "--rw=read", "--bs=4m", "--iodepth=8", "--readonly",
                           "--filename=" + path, f"--size={os.path.getsize(path) >> 22 << 22}", "--output-format=json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]["bw"] / 1024


class Local:
    def __init__(self, place):
        self.place, self.starts = place, 0
        self.plain = {k: v for k, v in place.environment.items() if not k.startswith("TRANSPCKPT_")}

    def first_copy(self):
        """MiB/s of the first copy into fresh device memory."""
        done = subprocess.run([*self.place.runner, os.path.join(self.place.build, "tests/bench/upload"), str(MIB)], env=self.plain, capture_output=True,
                              text=True, check=True)
        return json.loads(done.stdout)["first_gib_s"] * 1024

    def start(self, **settings):
        self.starts += 1
        return job.Start(self.place, trainer(self.place.build, self.place.runner), self.place.root, {**self.place.environment, **settings},
                         f"start{self.starts}")

    def held(self, start):
        rows = [row for row in self.place.shown() if row.get("pid") == start.process.pid]
        return rows[0]["held_step"] if rows else -1

    def live(self, start, begun):
        found = until(lambda: job.LIVE.search(start.said()))
        return {"step": int(found[1]), "inject": float(found[3]), "all": time.monotonic() - begun - float(found[2])}

    def memory(self):
        start = self.start()
        until(lambda: self.held(start) >= 2)
        rows = []
        for _ in range(ROUNDS):
            start.kill()
            raw, begun = self.first_copy(), time.monotonic()
            start = self.start()
            found = self.live(start, begun)
            rows.append({**found, "rate": MIB / found["inject"], "raw": raw, "mib": MIB})
            # The next start is no repeated death.
            until(lambda start=start, found=found: self.held(start) > found["step"] + 2)
        start.kill()
        return rows

    def durable(self):
        place, rows = self.place, []
        place.signal_agents(signal.SIGTERM)
        until(lambda: not place.agents())
        path = newest_stored(place)
        size = os.path.getsize(path) / (1 << 20)
        for _ in range(ROUNDS):
            for folder in glob.glob(os.path.join(place.shm, "*")):
                shutil.rmtree(folder, ignore_errors=True)
            raw, begun = read_raw(path), time.monotonic()
            start = self.start()
            found = self.live(start, begun)
            seconds = last(r"was staged in ([\d.]+) s", place.agent_log())
            rows.append({**found, "seconds": seconds, "rate": size / seconds, "raw": raw, "mib": size, "cpu": used(place.agents()[0])})
            place.signal_agents()
            start.kill()
        return rows


def local():
    with job.Place(SIMGPU_MEMORY="4G", TRANSPCKPT_LINGER_SEC="120", TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_LOG="debug",
                   TRANSPCKPT_FILES="none") as place:
        this = Local(place)
        found = {"memory": this.memory()}
        if shutil.which("fio"):
            found["durable"] = this.durable()
        return found


# ---- another node ------------------------------------------------------------------------------

def iperf(a, b):
    """MiB/s from a to b."""
    if not shutil.which("iperf3"):
        return None
    environment = a.cluster.environment
    server = job.Start(a.cluster, ["nsenter", "-t", str(b.init), "-m", "-n", "-p", "-u", "iperf3", "-s", "-1", "--forceflush"], a.cluster.root, environment, "iperf")
    until(lambda: "listening" in server.printed(), 5)
    done = a.run(["iperf3", "-c", b.address, "-J", "-t", "2"], environment)
    server.wait(10)
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 8 / (1 << 20)


def peer(transport):
    memory = f"{MIB * 6}m"
    with node.Cluster(3, memory=memory, TRANSPCKPT_TRANSPORT=transport, SIMGPU_MEMORY="4G", TRANSPCKPT_PEER_PACING="off", TRANSPCKPT_INTERVAL="1",
                      TRANSPCKPT_LINGER_SEC="600") as cluster:
        a, b, c = cluster.nodes
        work = os.path.join(cluster.root, "work")
        os.makedirs(work)
        argv = trainer(cluster.build, cluster.runner)
        b.agent()
        start = a.start(argv, cluster.environment, "start", work)
        # Over MPI all have agents.
        b = until(lambda: next((n for n in (b, c) if "a copy of step" in n.agent_log() and " is here" in n.agent_log()), None))
        c = next(n for n in cluster.nodes[1:] if n is not b)
        a.destroy()
        start.wait(10)
        c.signal_agent("KILL")
        c.run(["rm", "-rf", "/dev/shm/t"], cluster.environment)
        rows = []
        for number in range(ROUNDS):
            if cluster.mpi and cluster.mpi.running:
                cluster.mpi.ended()
            raw, begun = iperf(b, c), time.monotonic()
            start = c.start(argv, cluster.environment, f"again{number}", work)
            live = until(lambda start=start: job.LIVE.search(start.said()))
            took = time.monotonic() - begun - float(live[2])
            # The agent may say so when the program is live already.
            mib, seconds = map(float, until(lambda: re.search(r"is here: ([\d.]+) MiB came in ([\d.]+) s", c.agent_log())).groups())
            offer, place = map(float, until(lambda: re.search(r"took ([\d.]+) s until somebody offered it, and ([\d.]+) s to make", c.agent_log())).groups())
            rows.append({"seconds": seconds, "rate": mib / seconds, "raw": raw, "mib": mib, "offer": offer, "place": place, "inject": float(live[3]), "all": took})
            c.signal_agent("KILL")
            start.kill()
            c.run(["rm", "-rf", "/dev/shm/t"], cluster.environment)
        return rows


def consensus():
    """Four nodes of two ranks each: all processes die, and then a node is lost, too."""
    rows = {"killed": [], "lost": []}
    said = r"is what all go on from, ([\d.]+) s after they were asked"
    for what, found in rows.items():
        with node.Cluster(5) as cluster:
            *nodes, spare = cluster.nodes
            for n in cluster.nodes:
                n.agent()
            until(lambda: all(n.agent_log().count("is a peer") >= 4 for n in cluster.nodes))
            run = Spread(cluster, 8, steps=400)
            start = run.start(nodes, 2)
            for number in range(ROUNDS if what == "killed" else 1):
                agreed = len(re.findall(r"step \d+ of \d+ ranks has [1-9]\d* copies", nodes[0].agent_log()))
                until(lambda: len(re.findall(r"step \d+ of \d+ ranks has [1-9]\d* copies", nodes[0].agent_log())) >= agreed + 3)
                if what == "lost":
                    nodes[1].destroy()
                    nodes[1] = spare
                start.kill()
                start.wait(20)
                until(lambda: all(len(re.findall("was killed|failed; its snapshot", n.agent_log())) >= 2 * number + 2 for n in nodes if n is not spare))
                start = run.start(nodes, 2)
                until(run.resumed)
                found.append(last(said, nodes[0].agent_log()))
            start.kill()
    return rows


def main():
    what = sys.argv[1]
    if what != "local":
        node.enter()
        needed = {"mpi": "#define HAVE_OPENMPI 1", "ucx": "#define HAVE_UCX 1"}.get(what, "#define HAVE_SODIUM 1")
        if needed not in job.read(os.path.join(job.build_folder(), "config.h")):
            job.skip(f"the agent was built without what {what} takes")
    print(json.dumps({"local": local, "tcp": lambda: peer("tcp"), "ucx": lambda: peer("ucx"), "mpi": lambda: peer("mpi"), "consensus": consensus}[what]()))


main()
