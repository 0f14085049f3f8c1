#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.3 memory=1500M minutes=20 about=55s
"""Jobs whose ranks are on several nodes lose ranks, agents and nodes at random, round after round, and are started again on what is
left: all ranks go on at one step, no older than what the loss leaves, and end with the same bytes.

SEED=N, SCENARIOS=N and PEERS=2+1 by environment; each scenario prints the seed that gives it alone, with SCENARIOS=1. TRANSPORT=mpi: agents speak over MPI, and a loop
calls mpirun (MPIRUN=PATH) again whenever it ends, with the nodes that there are; ULFM=1: Open MPI 5 with that. LINKS=1: over links that
are late and lose packets; LINKS=some: every third scenario, which its seed says; LINKS="delay_ms=20 loss=0.1": such ones."""
import os
import random
import re
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Spread

import job

LAYOUTS = {2: ((), ("--zero",), ("--tp", "2"), ("--pp", "2")),
           4: ((), ("--zero",), ("--tp", "2"), ("--pp", "2"), ("--tp", "2", "--pp", "2"))}
# How often one of the next start follows at once.
EARLY = float(os.environ.get("EARLY", "0.25"))
# Only some of these: LOSSES="late cut".
LOSSES = os.environ.get("LOSSES", "rank ranks node nodes agent agents both all cut late allocation").split()
# Of all losses so many are that of the whole allocation: nodes are lost, the agents of the others are told to end, and then all memory goes.
ALLOCATION = 1 / 6 if len(LOSSES) > 1 else 1

# Over bad links.
LINKS = os.environ.get("LINKS", "")

node.enter()
if LINKS:
    node.need_bad_links()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
checks = job.Checks()


class Scenario:
    """One job in a cluster of its own."""

    def __init__(self, seed, **settings):
        self.settings = settings
        draw = self.draw = random.Random(seed)
        self.seed = seed
        self.ranks = draw.choice((2, 2, 4))
        self.per_node = draw.choice((1, 2)) if self.ranks == 4 else 1
        self.needed = self.ranks // self.per_node
        self.count = min(5, self.needed + draw.choice((1, 1, 2)))
        self.peers = os.environ.get("PEERS") or draw.choice(("1", "1", "2", "2+1"))
        if "+" in self.peers:
            # Fragments until too many nodes are gone, and then whole copies.
            self.count = max(self.count, sum(int(n) for n in self.peers.split("+")) + draw.choice((1, 2)))
        self.layout = draw.choice(LAYOUTS[self.ranks])
        self.steps = draw.choice((160, 200, 240))
        self.rounds = draw.choice((1, 2, 2, 3))
        self.story = [f"seed {seed}: {self.ranks} ranks, {self.per_node} a node, {self.count} nodes, {self.peers} peers, "
                      f"{' '.join(self.layout) or 'data parallel'}, {self.steps} steps"]
        # By chances of their own: else a seed would give another scenario.
        self.allocation = random.Random(f"allocations of {seed}")
        chance = random.Random(f"links of {seed}")
        self.links = None
        if LINKS == "1" or (LINKS == "some" and chance.random() < 1 / 3):
            self.links = {"delay_ms": chance.choice((2, 20, 50)), "jitter_ms": chance.choice((0, 2, 10)), "loss": chance.choice((0, 0.01, 0.03))}
        elif "=" in LINKS:
            self.links = dict(word.split("=") for word in LINKS.split())
        if self.links:
            self.story.append(f"links: {self.links}")
        self.cut, self.begun = [], []
        # What is left of the newest step that has its copies; -1: nothing that a start has to go on from.
        self.floor = -1

    def note(self, text):
        self.story.append(text)
        if os.environ.get("VERBOSE"):
            print(f"# {time.monotonic():.1f} {text}", flush=True)

    def ok(self, good, what):
        return checks.ok(good, f"seed {self.seed}: {what}", *([] if good else [*self.story, self.run.story(), self.logs()]))

    def logs(self):
        said = "\n".join(f"--- {n.name}\n{n.agent_log()[-int(os.environ.get('LOG_BYTES', '9000')):]}" for n in self.cluster.nodes if n.alive)
        return said + (f"\n--- mpirun\n{self.cluster.mpi.story()}" if self.cluster.mpi else "")

    def since(self, where):
        """What its agents have said of the newest start. The one before may still have had its say."""
        said = where.agent_log()[self.marks.get(where.name, 0):]
        begun = re.search(r"is rank \d+ of generation", said)
        return said[begun.start():] if begun else ""

    def generation(self, where):
        """Of the newest start; agents that have adopted what is left of the one before may go on with that for a while."""
        begun = re.findall(r"is rank \d+ of generation (\d+)", self.since(where))
        return begun[-1] if begun else "none"

    def committed(self, where):
        return max((int(n) for n in re.findall(rf"committed step (\d+) of generation {self.generation(where)}$", self.since(where), re.M)), default=-1)

    def settled(self):
        """The newest step of this start that has its copies, as the leader says, and how many."""
        found = re.findall(rf"step (\d+) of \d+ ranks has (\d+) copies on other nodes, of generation {self.generation(self.where[0])}$",
                           self.since(self.where[0]), re.M)
        return max(((int(step), int(copies)) for step, copies in found if int(copies) > 0), default=(-1, 0))

    def meet(self, nodes):
        """Those whose agents are gone get others, as a node's own service gives them. Over MPI a loop calls mpirun again."""
        if self.cluster.mpi:
            self.cluster.mpi.keep(lambda: [n for n in self.cluster.nodes if n.alive and n not in self.cut])
            return
        for n in nodes:
            n.agent()

    def is_over(self):
        """All ranks of the newest start had ended well, loss or not: there is nothing to go on with."""
        return bool(self.begun) and all(start.process.poll() == 0 or
                                        (n.alive and self.since(n).count("ended with status 0") == self.per_node)
                                        for n, start in self.begun)

    def begin(self):
        if self.is_over():
            self.floor = -1
            self.note("all ranks had ended well before the loss")
        left = [n for n in self.cluster.nodes if n.alive and n not in self.cut]
        if self.draw.random() < 0.5:
            stayed = [n for n in self.where if n in left]
            spares = [n for n in left if n not in stayed]
            self.where = [n if n in left else spares.pop(0) for n in self.where]
        else:
            self.where = self.draw.sample(left, self.needed)
        self.meet([n for n in left if n not in self.where])
        self.marks = {n.name: len(n.agent_log()) for n in self.cluster.nodes if n.alive}
        self.note(f"start on {' '.join(n.name for n in self.where)}")
        start = self.run.start(self.where, self.per_node)
        self.begun = list(zip(self.where, start.starts))
        return start

    def lost_nodes(self, count, copies):
        """As many as may go, of all that are left; the leader's among them."""
        left = [n for n in self.cluster.nodes if n.alive and n not in self.cut]
        count = min(count, copies, len(left) - self.needed)
        return self.draw.sample(left, count) if count > 0 else []

    def lose(self, start):
        """One loss; what has to be left of the job's snapshots is the new floor."""
        what = self.draw.choice([loss for loss in LOSSES if loss != "allocation"] or ["ranks"])
        settled, copies = self.settled()
        committed = min(self.committed(n) for n in self.where)
        # Who is cut off has not heard that it is over.
        if "allocation" in LOSSES and self.allocation.random() < ALLOCATION and not self.cut:
            self.lose_allocation(start, settled, copies, committed)
            return
        gone = self.lost_nodes(2 if what == "nodes" else 1, copies) if what in ("node", "nodes", "cut", "both") else []
        if what in ("node", "nodes", "cut", "both") and not gone:
            what = "ranks"
        self.note(f"loss: {what} {' '.join(n.name for n in gone)}; step {settled} has {copies} copies, {committed} is committed")
        self.floor = max(self.floor, settled if gone else committed)
        if what == "rank":
            rank = self.draw.randrange(self.ranks)
            self.note(f"rank {rank} is killed: {self.run.kill_rank(rank)}")
        elif what in ("agent", "agents", "all", "both"):
            for n in self.draw.sample(self.where, 1) if what == "agent" else self.where:
                self.note(f"{n.name}'s agent is killed")
                n.signal_agent("KILL")
            if what == "all":
                start.kill()
            elif what != "both":
                # The processes go on, whose next agent adopts them.
                time.sleep(self.draw.random())
        elif what == "cut":
            gone[0].cut()
            self.cut.append(gone[0])
            time.sleep(self.draw.random())
        for n in gone if what != "cut" else ():
            n.destroy()
        if what == "late":
            # Those of one node, which wait for the others, are only ended when the next start is there already.
            last = start.starts.pop(self.draw.randrange(len(start.starts)))
            start.kill()
            seconds = 0.3 + self.draw.random()
            self.note(f"those of one node end {seconds:.1f} s later")
            threading.Timer(seconds, last.kill).start()
            return
        if what != "rank":
            start.kill()
        else:
            start.wait(30)
        self.wait_gone()

    def agent_pid(self, where):
        return job.read(where.path("j", "agent.lock")).strip()

    def lose_allocation(self, start, settled, copies, committed):
        """The agents that are left end, sooner or later than others; one of their nodes may be lost, too, while they make durable what all had. Then all
        is as on nodes that have never been there."""
        draw = self.allocation
        left = [n for n in self.cluster.nodes if n.alive]
        gone = draw.sample(left, draw.randint(0, min(copies, len(left) - 1)))
        self.floor = max(self.floor, settled if gone else committed)
        self.note(f"loss: the allocation, first {' '.join(n.name for n in gone)}; step {settled} has {copies} copies, {committed} is committed")
        first, then = gone[:1], gone[1:]
        for n in first if len(gone) > 1 and draw.random() < 0.5 else gone:
            n.destroy()
        then = [n for n in then if n.alive]
        start.kill()
        self.wait_gone()
        if self.is_over():
            self.floor = -1
            self.note("all ranks had ended well before the loss")
        left = [n for n in self.cluster.nodes if n.alive]
        told = set()
        draw.shuffle(left)
        for n in left:
            time.sleep(draw.choice((0, 0, 0.3, 3)))
            n.signal_agent("TERM")
            told.add((n.name, self.agent_pid(n)))
        for n in then:
            node.until(lambda n=n: not n.has_agent() or "is made durable of what is left" in n.agent_log(), 30 * draw.random())
            self.note(f"{n.name} is lost, too")
            n.destroy()
        left = [n for n in left if n.alive]

        def have_ended():
            there = [n for n in left if n.has_agent()]
            for n in there:
                # mpirun may end them for the loss of a node before they are through, and be called again.
                if self.cluster.mpi and (n.name, self.agent_pid(n)) not in told:
                    n.signal_agent("TERM")
                    told.add((n.name, self.agent_pid(n)))
            return not there
        self.ok(node.until(have_ended, 120), "the agents that are left end")
        if os.environ.get("VERBOSE"):
            self.note(self.logs())
        # The script that calls mpirun is on one of the nodes.
        if self.cluster.mpi:
            self.cluster.mpi.end()
        self.where = [self.cluster.nodes.index(n) for n in self.where]
        for number in range(self.count):
            self.cluster.replace(number)
        self.where = [self.cluster.nodes[number] for number in self.where]
        self.begun = []
        self.meet(self.cluster.nodes)

    def lose_early(self, start):
        """While it starts: what there was to go on from stays."""
        seconds, rank, what = self.draw.random() * 1.5, self.draw.randrange(self.ranks), self.draw.choice(("rank", "ranks", "agent"))
        time.sleep(seconds)
        self.note(f"early loss after {seconds:.1f} s: {what} (rank {rank}); {self.run.resumed()}")
        if what == "rank":
            self.run.kill_rank(rank)
        elif what == "agent":
            self.draw.choice(self.where).signal_agent("KILL")
            time.sleep(self.draw.random())
        start.kill()
        self.wait_gone()
        return self.begin()

    def wait_gone(self):
        """As a launcher waits for its processes; those that nobody waits for have no command line any more."""
        for n in self.cluster.nodes:
            if n.alive:
                node.until(lambda n=n: "gpt_ranks" not in n.run(["sh", "-c", "cat /proc/[0-9]*/cmdline 2>/dev/null"],
                                                                self.cluster.environment).stdout, 20)

    def came_back(self, what):
        at = self.run.resumed()
        said = self.run.story()
        if self.floor >= 0:
            self.ok(at is not None and at >= self.floor, f"{what}: all ranks go on at step {at}, at least {self.floor}")
        self.ok("diverged" not in said, f"{what}: no rank is at another place")
        return at

    def play(self):
        with node.Cluster(self.count, links=self.links, TRANSPCKPT_PEERS=self.peers, **self.settings) as self.cluster:
            nodes = self.cluster.nodes
            self.run = Spread(self.cluster, self.ranks, *self.layout, steps=self.steps)
            self.where = nodes[:self.needed]
            self.meet(nodes)
            if not self.ok(node.until(lambda: all(len(re.findall("is a peer", n.agent_log())) >= self.count - 1 for n in nodes), 60),
                           "the agents meet"):
                return
            start = self.begin()
            for number in range(self.rounds):
                wants_copies = self.draw.random() < 0.8

                def ready(start=start, wants_copies=wants_copies):
                    return not start.running() or (self.settled()[0] >= 0 if wants_copies
                                                   else all(self.committed(n) >= 0 for n in self.where))
                # What agents say of the start before is in their logs, too.
                if not self.ok(node.until(lambda start=start: not start.running() or self.run.trains(), 90) and node.until(ready, 90),
                               f"round {number}: snapshots of all ranks"):
                    start.kill()
                    return
                if not start.running():
                    self.note("it ended before anything was lost")
                    break
                if number:
                    self.came_back(f"round {number}")
                self.lose(start)
                start = self.begin()
                if self.draw.random() < EARLY:
                    start = self.lose_early(start)
            status = start.wait()
            self.ok(status == 0, f"the last start ends well: {status}")
            self.came_back("the last start")
            differ = self.run.same()
            if differ:
                self.note("\n".join(differ))
            self.ok(not differ, "with the same bytes")
            self.ok(not [n for n in self.where if "their snapshots end here" in self.since(n)], "no agent of it was lost")
            left = node.until(lambda: not self.left() or None, 20)
            if not left:
                self.note(f"left: {self.left()}")
            self.ok(left, "nothing is left in memory where it ended")

    def left(self):
        found = []
        for n in self.where:
            out = n.run(["sh", "-c", "cd /dev/shm/t/j && ls -d */image.* copy.* fragment.* 2>/dev/null"], self.cluster.environment).stdout
            found += [f"{n.name}:{line}" for line in out.splitlines()]
        return found


def play(seed, **settings):
    began = time.monotonic()
    Scenario(seed, **settings).play()
    print(f"# seed {seed} took {time.monotonic() - began:.0f} s", flush=True)


draw = job.drawn_from()
count = int(os.environ.get("SCENARIOS") or 1)
first = int(os.environ["SEED"]) if os.environ.get("SEED") else draw.randrange(1 << 32)
for n in range(count):
    play(first + n)
# By itself it plays over both transports.
if not os.environ.get("SCENARIOS") and not os.environ.get("TRANSPORT"):
    if node.lacks_mpi():
        print(f"# not over MPI: {node.lacks_mpi()}")
    else:
        print(f"# TRANSPORT=mpi SEED={first + count}:")
        play(first + count, TRANSPCKPT_TRANSPORT="mpi")
checks.end()
