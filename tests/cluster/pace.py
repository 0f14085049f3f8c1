#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=5G minutes=20 about=50s alone
"""Copies to other nodes leave the network to the program: by counters of the agents, and ratios of what one run measures twice.
CASE=NAME runs one case, CASE=every all one after the other; otherwise those that mostly wait run side by side, and then some of the
others do."""
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node

import job

node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
checks = job.Checks()
# What is sent at once, and for how long a ceiling may be caught up with (runtime/policy/bandwidth.h).
PIECE, DEPTH_SEC = 256 << 10, 0.1


class Run:
    """One start of a trainer, whose copies are mostly as large as its state."""

    def __init__(self, cluster, where, bigrams, kernel_us="20"):
        self.cluster, self.bigrams, self.starts = cluster, bigrams, 0
        self.work = os.path.join(cluster.root, "work")
        os.makedirs(self.work)
        self.kernel_us = kernel_us
        self.start(where)

    def start(self, where):
        self.starts += 1
        self.where = where
        self.process = where.start([*self.cluster.runner, os.path.join(self.cluster.build, "transpckpt"), "run", "--",
                                    os.path.join(self.cluster.build, "tests/trainers/gpt"), "--steps", "100000", "--seed", "7", "--bigrams",
                                    str(self.bigrams), "--out", "out"],
                                   {**self.cluster.environment, "SIMGPU_KERNEL_US": self.kernel_us, "SIMGPU_TOGETHER_US": "0"}, f"start{self.starts}", self.work)

    def shown(self):
        """The newest session, as its own node's agent says; None: not yet."""
        done = self.where.run([os.path.join(self.cluster.build, "transpckpt"), "show", "--json"], self.cluster.environment)
        try:
            rows = [row for row in json.loads(done.stdout) if row.get("replication")]
        except ValueError:
            return None
        return rows[-1] if rows else None

    def sent(self):
        return (self.shown() or {}).get("replication") or {"copies": 0}

    def wait_copies(self, count, seconds=100):
        return node.until(lambda: time.sleep(0.1) or self.sent()["copies"] >= count or not self.process.running(), seconds) and self.sent()["copies"] >= count

    def story(self):
        return self.process.said(), json.dumps(self.sent()), self.cluster.logs()


def measured(run, copies):
    """Until so many more copies are there: whether they are, bytes that went, seconds in which one was under way, and all seconds."""
    begun, before = time.monotonic(), run.sent()
    there = run.wait_copies(before["copies"] + copies)
    after = run.sent()
    return there, after["bytes"] - before["bytes"], max(after["seconds"] - before["seconds"], 1e-9), time.monotonic() - begun


def case_ceiling():
    """Half of what goes without a ceiling, all time counted. It holds however long the machine takes."""
    bigrams = 16000
    with node.Cluster(2, memory="2g") as cluster:
        cluster.nodes[1].agent()
        run = Run(cluster, cluster.nodes[0], bigrams)
        there = run.wait_copies(2) and measured(run, 4)
        checks.ok(there and there[0] and run.sent()["limited_seconds"] == 0, "without a ceiling nothing is held back", *run.story())
        _, moved, busy, took = there
        free = moved / busy
        ceiling = int(moved / took / 2)
        run.process.kill()
    with node.Cluster(2, memory="2g", TRANSPCKPT_PEER_BANDWIDTH=str(ceiling)) as cluster:
        cluster.nodes[1].agent()
        run = Run(cluster, cluster.nodes[0], bigrams)
        checks.ok(run.wait_copies(1), "copies come to be there under a ceiling", *run.story())
        there, moved, busy, took = measured(run, 2)
        limit = ceiling * (took + DEPTH_SEC) + PIECE
        checks.ok(there and moved <= limit, f"{moved / limit:.2f} of what may go went", *run.story())
        checks.ok(moved / busy <= 0.5 * free, f"copies go at {moved / busy / free:.3f} of their rate without a ceiling", *run.story())
        sent = run.sent()
        checks.ok(sent["limited_seconds"] > 0 and sent["bandwidth"] == ceiling, "show says what held them back", *run.story())
        shown = run.where.run([os.path.join(cluster.build, "transpckpt"), "show"], cluster.environment).stdout
        checks.ok(re.search(r"copies sent, .* held back for [\d.]+ s by the ceiling of ", shown), "in words, too", shown)
        run.process.kill()


def case_recovery():
    """A start that waits for its copy gets it as fast as the link takes, whatever the ceiling."""
    ceiling = 4 << 20
    with node.Cluster(3, memory="2g", TRANSPCKPT_PEER_BANDWIDTH=str(ceiling), TRANSPCKPT_LOG="debug") as cluster:
        a, b, c = cluster.nodes
        b.agent()
        run = Run(cluster, a, 24000)
        checks.ok(run.wait_copies(1), "a copy comes to be there", *run.story())
        a.destroy()
        run.process.wait(10)
        run.start(c)
        gave = r"given to a peer: ([\d.]+) MiB in ([\d.]+) s"
        given = node.until(lambda: re.search(gave, b.agent_log()), 60)
        mib, took = (float(given[1]), float(given[2])) if given else (0, 1)
        least = mib * (1 << 20) / ceiling
        checks.ok(given and mib > 8 and took < 0.5 * least, f"{mib} MiB came in {took / max(least, 1e-9):.3f} of the ceiling's time", *run.story())
        run.process.kill()


# Iterations that take long beside all that a busy machine does: some 40 kernels each.
LONG = {"kernel_us": "12000"}


def iteration_sec(run):
    return run.shown()["notes"]["iteration_ns"] / 1e9


def behind_by(run):
    """The newest step that is committed, where it has no copy yet."""
    newest = max((int(n) for n in re.findall(r"committed step (\d+) ", run.where.agent_log())), default=0)
    copied = max((int(n) for n in re.findall(r"step (\d+) has [1-9]\d* copies", run.where.agent_log())), default=0)
    return newest if newest > copied else 0


def paced(run):
    """Over four copies: what was sent before and after, and for how much of an iteration the pieces of each lay apart."""
    before = run.sent()
    run.wait_copies(before["copies"] + 4)
    after = run.sent()
    return before, after, (after["paced_seconds"] - before["paced_seconds"]) / max(after["copies"] - before["copies"], 1) / iteration_sec(run)


def case_off():
    """Without pacing copies go at once."""
    with node.Cluster(2, memory="2g", TRANSPCKPT_PEER_PACING="off") as cluster:
        cluster.nodes[1].agent()
        run = Run(cluster, cluster.nodes[0], 24000, **LONG)
        checks.ok(run.wait_copies(3), "pacing off: copies come to be there", *run.story())
        before, after, between = paced(run)
        checks.ok(after["copies"] >= before["copies"] + 4 and between == 0, "pacing off: they go at once", *run.story())
        run.process.kill()


def case_spread():
    """A copy takes its time, but is there before the next snapshot is."""
    with node.Cluster(2, memory="2g", TRANSPCKPT_PEER_PACING="on") as cluster:
        cluster.nodes[1].agent()
        run = Run(cluster, cluster.nodes[0], 24000, **LONG)
        checks.ok(run.wait_copies(3), "pacing on: copies come to be there", *run.story())
        before, after, between = paced(run)
        checks.ok(0.15 <= between <= 0.75, f"pieces lie apart for {between:.2f} of an iteration", *run.story())
        checks.ok(after["behind"] - before["behind"] <= 2, "and copies are there before the next snapshot", *run.story())
        shown = run.where.run([os.path.join(cluster.build, "transpckpt"), "show"], cluster.environment).stdout
        checks.ok("between pieces of a copy that was spread" in shown, "show says so", shown)
        # A snapshot whose copy is on its way when the program dies has it at once.
        step = node.until(lambda: behind_by(run), 60)
        before = run.sent()
        run.process.kill()
        there = node.until(lambda: not behind_by(run), 60)
        held = (run.sent()["paced_seconds"] - before["paced_seconds"]) / iteration_sec(run)
        checks.ok(step and there and held < 0.45, f"the last copy is held back for {held:.2f} of an iteration", *run.story())


STREAM = """
import socket, sys, time
server = socket.create_server(("", 0)) if len(sys.argv) == 1 else None
if server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    while connection.recv(1 << 20):
        pass
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    connection.sendall(bytes(1 << 20))
    time.sleep(0.01)
"""


def case_others():
    """Pieces that are due wait while others send over the links, and the copy is there all the same."""
    with node.Cluster(2, memory="2g") as cluster:
        a, b = cluster.nodes
        b.agent()
        run = Run(cluster, a, 24000, **LONG)
        checks.ok(run.wait_copies(3), "copies come to be there", *run.story())
        waited = []
        for _ in range(2):
            before = run.sent()
            run.wait_copies(before["copies"] + 4)
            after = run.sent()
            waited.append((after["yielded_seconds"] - before["yielded_seconds"]) / max(after["copies"] - before["copies"], 1) / iteration_sec(run))
            if len(waited) == 1:
                receiver = b.start([sys.executable, "-c", STREAM], cluster.environment, "receiver", cluster.root)
                port = node.until(lambda: receiver.printed().strip())
                sender = a.start([sys.executable, "-c", STREAM, b.address, port], cluster.environment, "sender", cluster.root)
        checks.ok(after["copies"] >= before["copies"] + 4, "beside a stream of others' they come, too", *run.story())
        checks.ok(waited[1] > 0.02 and waited[1] > 3 * waited[0],
                  f"and wait {waited[1]:.2f} of an iteration for it, each, and {waited[0]:.3f} without", *run.story())
        shown = a.run([os.path.join(cluster.build, "transpckpt"), "show"], cluster.environment).stdout
        checks.ok("while others used the network" in shown, "show says so", shown)
        sender.kill()
        receiver.kill()


# Cases that mostly wait for long iterations, and do not disturb each other.
WAITING = ("off", "spread", "others")
if not os.environ.get("CASE"):
    node.run_beside(checks, WAITING)
node.run_cases(globals(), WAITING)
checks.end()
