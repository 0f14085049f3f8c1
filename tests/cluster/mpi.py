#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=1500M minutes=14 about=90s
"""Agents that mpirun has started on the nodes, and that speak over MPI: a lost node's step is had from a peer, mpirun is called again after
the loss of an agent, and all end together. CASE=NAME runs one case, BY_NAME only so; MPIRUN=PATH is another Open MPI's mpirun."""
import errno
import glob
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Spread, SLOW

import baseline
import job

node.enter()
checks = job.Checks()
STEPS = "150"
MPI = {"TRANSPCKPT_TRANSPORT": "mpi"}


class Run:
    """The trainer, plain and on nodes of a cluster that see one folder."""

    def __init__(self, cluster, steps=STEPS):
        self.cluster, self.starts = cluster, 0
        self.work, self.plain = os.path.join(cluster.root, "work"), os.path.join(cluster.root, "plain")
        for folder in (self.work, self.plain):
            os.makedirs(folder)
        trainer = [os.path.join(cluster.build, "tests/trainers/gpt"), "--steps", str(steps), "--seed", "7", "--out", "out"]
        self.argv = [*cluster.runner, os.path.join(cluster.build, "transpckpt"), "run", "--", *trainer]
        environment = {k: v for k, v in cluster.environment.items() if not k.startswith("TRANSPCKPT_")}

        def run_plain(folder):
            plain = job.Start(cluster, [*cluster.runner, *trainer], folder, environment, "plain")
            if plain.wait() != 0:
                raise RuntimeError(plain.said())

        baseline.copy(cluster.build, trainer[:1], trainer[1:], environment, run_plain, self.plain)

    def start(self, where, **settings):
        self.starts += 1
        return where.start(self.argv, {**self.cluster.environment, **SLOW, **settings}, f"start{self.starts}", self.work)

    def finish(self, start, what, floor):
        status = start.wait()
        found = job.LIVE.search(start.said())
        checks.ok(status == 0 and found and int(found[1]) >= floor, f"{what}: it goes on at step {found and found[1]}, at least {floor}, and ends well", status,
                  start.said(), self.cluster.logs())
        different = job.differences(os.path.join(self.plain, "out"), os.path.join(self.work, "out"))
        checks.ok(not different, f"{what}: with the same bytes", "\n".join(different))


def kept(where):
    return max((int(n) for n in re.findall(r"a copy of step (\d+) of generation \d+ of \w+ is here", where.agent_log())), default=-1)


WAITS = r"rank \d of 2 waits for the agent that mpirun is to start here"


def newest(where):
    return max((int(n) for n in re.findall(r"committed step (\d+) ", where.agent_log())), default=-1)


def says(where, line):
    return len(re.findall(line, where.agent_log()))


def fill(folder):
    """Until nothing more fits."""
    with open(os.path.join(folder, "filled"), "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise


def ends_together(cluster, what):
    """The job is over: the agents leave, and mpirun has nothing to complain of."""
    status = cluster.mpi.ended(60)
    checks.ok(status == 0, f"{what}: the agents end, and mpirun with them", status, cluster.mpi.said, cluster.logs())


def case_lost():
    """A node is lost, of which mpirun does not hear: the other one's agent goes on."""
    with node.Cluster(2, **MPI) as cluster:
        a, b = cluster.nodes
        run = Run(cluster)
        cluster.mpi.start()
        first = run.start(a)
        checks.ok(node.until(lambda: kept(b) >= 10, 60), "lost: the peer gets copies over MPI", first.said(), cluster.logs())
        checks.ok(not cluster.rendezvous() and not says(a, "listens for others at port"), "lost: and over nothing else", cluster.rendezvous())
        a.destroy()
        first.wait(10)
        has = kept(b)
        run.finish(run.start(b), "lost: on the peer", has)


def case_again():
    """An agent is killed. mpirun ends the others, and is called again while the program runs: the agents take over from what is there. Then the program's
    node is lost, of which mpirun does not hear: the others go on."""
    with node.Cluster(3, **MPI) as cluster:
        a, b, c = cluster.nodes
        # The job is not to end while agents are started, which takes mpirun long on a busy machine.
        run = Run(cluster, steps=300)
        cluster.mpi.start()
        slow = {"SIMGPU_KERNEL_US": "2000"}
        first = run.start(a, **slow)
        holder = node.until(lambda: [n for n in (b, c) if kept(n) >= 10][:1], 60)
        checks.ok(holder, "again: a peer gets copies", first.said(), cluster.logs())
        holder = holder[0]
        holder.signal_agent("KILL")
        checks.ok(cluster.mpi.ended(60) != "hung", "again: mpirun ends the others", cluster.logs())
        alone = r"this node works alone, without copies on others: TRANSPCKPT_TRANSPORT is mpi, but this agent was not started by mpirun"
        checks.ok(node.until(lambda: says(a, alone), 60), "again: the program has an agent at once, which says that it is alone", first.said(), cluster.logs())
        had = kept(holder)
        cluster.mpi.start()
        checks.ok("is told to end: this one goes on" in a.agent_log(), "again: mpirun's takes over from it", cluster.logs())
        checks.ok(says(holder, "since before"), "again: and the next one of the killed one finds its copy", cluster.logs())
        checks.ok(node.until(lambda: max(kept(b), kept(c)) >= had + 10, 60), "again: copies go on", first.said(), cluster.logs())
        a.destroy()
        first.wait(10)
        has = max(kept(b), kept(c))
        run.finish(run.start(b, **slow), "again: after the loss of its node", has)


def case_end():
    """The program ends well: so do all agents, and nothing is left in memory. No setting says that they speak over MPI."""
    with node.Cluster(2, TRANSPCKPT_LINGER_SEC="2") as cluster:
        a, b = cluster.nodes
        cluster.mpi = node.MPI(cluster)
        run = Run(cluster)
        cluster.mpi.start()
        status = run.start(a).wait()
        checks.ok(status == 0 and kept(b) > 0, "end: the program ends", status, cluster.logs())
        ends_together(cluster, "end")
        checks.ok(not os.path.exists(a.path("j")) and not os.path.exists(b.path("j")), "end: nothing is left in memory", os.listdir(b.path()))


def case_waits():
    """Ranks of two nodes are started before mpirun's agents are: they wait for these, and have snapshots. Then all is lost but the nodes, and they are started
    first again: they go on."""
    with node.Cluster(2, **MPI) as cluster:
        a, b = cluster.nodes
        run = Spread(cluster, 2, steps=120)
        mpi, floor = cluster.mpi, 0
        for what in ("waits", "waits: again"):
            # Nobody calls mpirun for them.
            cluster.mpi = None
            marks = {n: says(n, WAITS) for n in (a, b)}
            start = run.start((a, b))
            checks.ok(node.until(lambda marks=marks: all(says(n, WAITS) > marks[n] for n in (a, b)), 60), f"{what}: the ranks wait", run.story(), cluster.logs())
            cluster.mpi = mpi
            mpi.start()
            checks.ok(node.until(lambda floor=floor: newest(a) > floor and newest(b) > floor, 60), f"{what}: and have snapshots", run.story(), cluster.logs())
            if floor:
                break
            start.kill()
            node.until(lambda: all("was killed" in n.agent_log() for n in (a, b)), 10)
            floor = min(newest(a), newest(b))
            a.signal_agent("KILL")
            mpi.ended(60)
        status = start.wait()
        checks.ok(status == 0 and (run.resumed() or -1) >= floor, f"waits: all go on at step {run.resumed()}, at least {floor}, and end", status, run.story(), cluster.logs())
        checks.ok(not run.same(), "waits: with the same bytes", "\n".join(run.same()))


def case_told():
    """A node is lost, and one agent is told to end that has nothing to do any more. It does not end before the others have made durable what is left, and they do
    that as if they were told, too. None is left behind, for mpirun to kill."""
    with node.Cluster(5, **MPI) as cluster:
        a, b = cluster.nodes[:2]
        if cluster.mpi.major >= 5:
            print("# told: not tried, with ULFM each ends for itself")
            return
        run = Spread(cluster, 2, steps=160)
        cluster.mpi.start()
        start = run.start((a, b))
        settled = r"step (\d+) of 2 ranks has 1 copies on other nodes"
        checks.ok(node.until(lambda: re.findall(settled, b.agent_log() + a.agent_log()), 60), "told: there are copies", run.story(), cluster.logs())
        has = max(int(n) for n in re.findall(settled, a.agent_log()))
        a.destroy()
        start.kill()
        spare = next(n for n in cluster.nodes[2:] if not n.copies())
        spare.signal_agent("TERM")
        checks.ok(node.until(lambda: not any(n.has_agent() for n in cluster.nodes if n.alive), 60), "told: all end by themselves", cluster.logs())
        there = [int(re.search(r"step-(\d+)", path)[1]) for path in glob.glob(os.path.join(cluster.store, "j/step-*/MANIFEST"))]
        checks.ok(there and max(there) >= has, f"told: in the store are {there}, in copies was {has}", cluster.logs())


def case_early():
    """A node is lost, all agents die, and the next ones are told to end before they have met: whom they meet then is asked, too, for what is left:
    neither has all of it."""
    lacks = []
    node.need_bad_links(lacks.append)
    if lacks:
        print(f"# early: not tried, {lacks[0]}")
        return
    with node.Cluster(3, **MPI, links={"delay_ms": 100}) as cluster:
        a, b, c = cluster.nodes
        run = Spread(cluster, 3, steps=160)
        cluster.mpi.start()
        start = run.start((a, b, c))
        settled = r"step (\d+) of 3 ranks has 1 copies on other nodes"
        checks.ok(node.until(lambda: re.findall(settled, a.agent_log()), 60), "early: there are copies", run.story(), cluster.logs())
        has = max(int(n) for n in re.findall(settled, a.agent_log()))
        a.destroy()
        start.kill()
        for n in (b, c):
            n.signal_agent("KILL")
        cluster.mpi.end()
        marks = {n: says(n, "speaks with others over MPI") for n in (b, c)}
        cluster.mpi.start(wait=False)
        checks.ok(node.until(lambda: all(says(n, "speaks with others over MPI") > marks[n] for n in (b, c)), 60), "early: there are other agents", cluster.logs())
        for n in (b, c):
            n.signal_agent("TERM")
        checks.ok(node.until(lambda: not b.has_agent() and not c.has_agent(), 60), "early: all end", cluster.logs())
        there = [int(re.search(r"step-(\d+)", path)[1]) for path in glob.glob(os.path.join(cluster.store, "j/step-*/MANIFEST"))]
        checks.ok(there and max(there) >= has, f"early: in the store are {there}, in copies was {has}", cluster.logs())


def case_unmet():
    """An agent does nothing any more before the others have met it, and these are told to end: when the first one has waited for it long enough, the other one
    follows it, and does not wait on for mpirun to kill it."""
    lacks = []
    node.need_bad_links(lacks.append)
    if lacks:
        print(f"# unmet: not tried, {lacks[0]}")
        return
    # Who is told by the other one, a second or two later, would wait for so much longer.
    with node.Cluster(3, **MPI, links={"delay_ms": 700}) as cluster:
        cluster.mpi.start(wait=False)

        def begun():
            return [n for n in cluster.nodes if says(n, "speaks with others over MPI")]
        # The last one of them has everything from the others, and these have nothing from it but what starts MPI.
        two = node.until(lambda: begun()[1:] and begun(), 60)
        checks.ok(two and len(two) == 2, "unmet: there are agents, and one on its way", two, cluster.logs())
        a, b = two[:2]
        c = next(n for n in cluster.nodes if n not in (a, b))
        c.signal_agent("STOP")
        a.signal_agent("TERM")
        met = r"the agent of {} .* is a peer"
        checks.ok(node.until(lambda: not a.has_agent(), 60) and says(a, met.format(b.name)) and not says(a, met.format(c.name)),
                  "unmet: one ends that has met the other one only", cluster.logs())
        checks.ok(node.until(lambda: not b.has_agent(), 20), "unmet: and so does that one by itself", cluster.logs())


def case_full():
    """The store is full, and agents are told to end: all do, and say what is not durable. It is in memory, and the next start goes on from it. So it is where a
    node is lost before."""
    for lost in (False, True):
        what = "full: a node is lost" if lost else "full"
        cluster = node.Cluster(3, **MPI)
        os.mkdir(cluster.store)
        node.run("mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", cluster.store)
        try:
            with cluster:
                full(cluster, what, lost)
        finally:
            subprocess.run(["umount", "-l", cluster.store], check=False, capture_output=True)
            shutil.rmtree(cluster.root, ignore_errors=True)


def full(cluster, what, lost):
    a, b, c = cluster.nodes
    run = Spread(cluster, 2, steps=160)
    cluster.mpi.start()
    start = run.start((a, b))
    settled = r"step (\d+) of 2 ranks has 1 copies on other nodes"
    checks.ok(node.until(lambda: re.findall(settled, a.agent_log()), 60), f"{what}: there are copies", run.story(), cluster.logs())
    # Each second agents say whether they serve programs: one that does is there until it has been silent for long.
    time.sleep(1.5)
    has = max(int(n) for n in re.findall(settled, a.agent_log()))
    fill(cluster.store)
    holder = next(n for n in (b, c) if any(".r0." in folder for folder in n.copies()))
    if lost:
        a.destroy()
    start.kill()
    left = [n for n in cluster.nodes if n.alive]
    checks.ok(node.until(lambda: all("was killed" in n.agent_log() for n in (a, b) if n.alive), 20), f"{what}: all ranks are dead", cluster.logs())
    # One that follows.
    b.signal_agent("TERM")
    checks.ok(node.until(lambda: not any(n.has_agent() for n in left), 60), f"{what}: all end by themselves", cluster.logs())
    line = r"step (\d+) of generation 1 is not durable, and stays in memory: .*No space left on device"
    said = {n: [int(step) for step in re.findall(line, n.agent_log())] for n in left}
    checks.ok(all(len(said[n]) == (n is not c) and min(said[n], default=has) >= has for n in left),
              f"{what}: those that have ranks say that their step stays in memory, once", list(said.values()), cluster.logs())
    line = "what lost nodes had of generation 1 is not durable, and its copies here stay in memory: .*No space left on device"
    if lost and holder is c:
        checks.ok(says(c, line) == 1, f"{what}: who has a lost node's copy, and no ranks, says so, too", cluster.logs())
    cluster.mpi.end()
    os.unlink(os.path.join(cluster.store, "filled"))
    cluster.mpi.start()
    start = run.start((c if lost else a, b))
    status = start.wait()
    checks.ok(status == 0 and (run.resumed() or -1) >= has, f"{what}: all go on at step {run.resumed()}, at least {has}, and end", status, run.story(),
              cluster.logs())
    checks.ok(not run.same(), f"{what}: with the same bytes", "\n".join(run.same()))


def case_left():
    """A node is lost whose ranks follow, and with it the only copy of what they had: the agents that are left are told to end, one after the other, and all do,
    since nothing is whole. With the copy they make durable what was copied, and end."""
    for copies in (False, True):
        what = "left: with copies" if copies else "left: without the copy"
        with node.Cluster(3, **MPI) as cluster:
            a, b, c = cluster.nodes
            run = Spread(cluster, 3, steps=160)
            cluster.mpi.start()
            start = run.start((a, b, c))
            settled = r"step (\d+) of 3 ranks has 1 copies on other nodes"
            checks.ok(node.until(lambda: re.findall(settled, a.agent_log()), 60), f"{what}: there are copies", run.story(), cluster.logs())
            has = max(int(n) for n in re.findall(settled, a.agent_log()))
            c.destroy()
            start.kill()
            for n in (a, b):
                n.signal_agent("KILL")
            cluster.mpi.end()
            for n in (a, b):
                if not copies:
                    for folder in n.copies():
                        if ".r2." in folder:
                            shutil.rmtree(folder)
            cluster.mpi.start()
            for n in (b, a):
                n.signal_agent("TERM")
            ended = node.until(lambda: not any(n.has_agent() for n in (a, b)), 60)
            checks.ok(ended, f"{what}: all end", cluster.logs())
            there = [int(re.search(r"step-(\d+)", path)[1]) for path in glob.glob(os.path.join(cluster.store, "j/step-*/MANIFEST"))]
            checks.ok((there and max(there) >= has) if copies else not there, f"{what}: in the store are {there}, in copies was {has}", cluster.logs())


def case_stuck():
    """An agent does nothing any more when the program ends: the other one does not wait for it for ever."""
    with node.Cluster(2, **MPI, TRANSPCKPT_LINGER_SEC="2") as cluster:
        a, b = cluster.nodes
        run = Run(cluster)
        cluster.mpi.start()
        first = run.start(a)
        checks.ok(node.until(lambda: kept(b) >= 10, 60), "stuck: the peer gets copies", first.said(), cluster.logs())
        b.signal_agent("STOP")
        status = first.wait()
        checks.ok(status == 0, "stuck: the program ends", status, first.said())
        status = cluster.mpi.ended(120)
        checks.ok(status != "hung", "stuck: and mpirun, since the agent did", status, cluster.mpi.said, cluster.logs())
        checks.ok(not os.path.exists(a.path("j")), "stuck: nothing is left in its memory", os.listdir(a.path()))


def case_failed():
    """With ULFM (Open MPI 5) the others go on after the loss of one; after the loss of a node mpirun is called again."""
    with node.Cluster(3, **MPI) as cluster:
        a, b, c = cluster.nodes
        if cluster.mpi.major < 5:
            print(f"# failed: not tried, mpirun is of version {cluster.mpi.major}")
            return
        run = Run(cluster)
        cluster.mpi.start()
        first = run.start(a)
        holder = node.until(lambda: [n for n in (b, c) if kept(n) >= 10][:1], 60)
        checks.ok(holder, "failed: a peer gets copies", first.said(), cluster.logs())
        holder = holder[0]
        other = c if holder is b else b
        holder.signal_agent("KILL")
        checks.ok(node.until(lambda: says(a, f"the agent of {holder.name} is gone: MPI says that it has failed"), 30), "failed: MPI tells of it", cluster.logs())
        checks.ok(node.until(lambda: kept(other) >= 10, 60) and cluster.mpi.running.running(), "failed: copies go to the other one, and nothing has ended",
                  first.said(), cluster.logs())
        a.destroy()
        first.wait(10)
        has = kept(other)
        # Of a node mpirun does not survive the loss.
        checks.ok(cluster.mpi.ended(60) != "hung", "failed: with its node mpirun ends", cluster.logs())
        cluster.mpi.start()
        run.finish(run.start(other), "failed: after the loss of its node too", has)


def case_gather():
    """With ULFM, and ranks on two of four nodes. An agent where there is nothing of the job dies: nothing ends. Then one where there are ranks does, and the
    next one there works alone: all end, mpirun is called again, and snapshots go on. So it is where those of both nodes die at once, and where ranks
    start on a node whose agent has died before."""
    with node.Cluster(4, **MPI) as cluster:
        a, b, c, d = cluster.nodes
        mpi = cluster.mpi
        if mpi.major < 5:
            print(f"# gather: not tried, mpirun is of version {mpi.major}")
            return
        run = Spread(cluster, 2, steps=240)
        mpi.keep(lambda: [n for n in cluster.nodes if n.alive], fault_tolerant=True)
        checks.ok(node.until(lambda: all(says(n, "is a peer") >= 3 for n in cluster.nodes), 60), "gather: the agents meet", cluster.logs())
        slow = {"SIMGPU_KERNEL_US": "400"}
        start = run.start((a, b), **slow)
        settled = r"step (\d+) of 2 ranks has 1 copies on other nodes"

        def copied():
            return max((int(n) for n in re.findall(settled, a.agent_log() + b.agent_log())), default=-1)
        checks.ok(node.until(lambda: copied() >= 0, 60), "gather: there are copies", run.story(), cluster.logs())
        spare = d if kept(d) < 0 else c
        gone = f"the agent of {spare.name} is gone: MPI says that it has failed"
        spare.signal_agent("KILL")
        checks.ok(node.until(lambda: says(a, gone), 30), "gather: MPI tells of it", cluster.logs())
        # A call that does not get as far as agents counts too.
        had, calls = copied(), mpi.starts
        checks.ok(node.until(lambda: copied() >= had + 10, 60) and mpi.starts == calls, "gather: without one that had nothing to do all go on", mpi.story(),
                  cluster.logs())
        for killed in ((b,), (a, b)):
            what, calls = f"gather: {len(killed)} lost", mpi.starts
            marks = {n: says(n, "speaks with others over MPI") for n in cluster.nodes}
            for n in killed:
                n.signal_agent("KILL")
            checks.ok(node.until(lambda marks=marks: all(says(n, "speaks with others over MPI") > marks[n] for n in cluster.nodes), 60) and mpi.starts > calls,
                      f"{what}: mpirun is called again", mpi.story(), cluster.logs())
            had, calls = min(newest(a), newest(b)), mpi.starts
            checks.ok(node.until(lambda had=had: min(newest(a), newest(b), copied()) >= had + 10, 60) and mpi.starts == calls,
                      f"{what}: snapshots and copies go on", run.story(), mpi.story(), cluster.logs())
        # For a lost node its status may be 0 all the same.
        checks.ok("of mpirun: 0:" not in mpi.story(), "gather: no call of mpirun's has ended well", mpi.story())
        has, calls = copied(), mpi.starts
        a.destroy()
        start.kill()
        left = [n for n in cluster.nodes if n.alive]
        marks = {n: says(n, "is a peer") for n in left}
        checks.ok(node.until(lambda: mpi.starts > calls and all(says(n, "is a peer") >= marks[n] + 2 for n in left), 60), "gather: with a node mpirun ends",
                  mpi.story(), cluster.logs())
        mark, calls = says(b, gone), mpi.starts
        spare.signal_agent("KILL")
        checks.ok(node.until(lambda: says(b, gone) > mark, 30) and mpi.starts == calls, "gather: one dies where nothing runs", mpi.story(), cluster.logs())
        start = run.start((spare, b), **slow)
        status = start.wait()
        checks.ok(status == 0 and (run.resumed() or -1) >= has and mpi.starts > calls,
                  f"gather: ranks start there: all go on at step {run.resumed()}, at least {has}, and end", status, run.story(), mpi.story(), cluster.logs())
        checks.ok(not run.same(), "gather: with the same bytes", "\n".join(run.same()))
        checks.ok(node.until(lambda: not [name for name in os.listdir(os.path.join(cluster.store, "j/agents")) if name.endswith(".alone")], 60),
                  "gather: and nobody is alone", os.listdir(os.path.join(cluster.store, "j/agents")), cluster.logs())


BY_NAME = ("lost", "failed", "stuck", "unmet")
node.run_cases(globals(), BY_NAME)
checks.end()
