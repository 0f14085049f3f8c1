#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A demonstration for people: a GPT is trained by four ranks on four nodes of this machine's own, one of them is destroyed, and
the same command goes on on the others and a spare one; then with `transpckpt spare`, so that nobody starts anything again. Prints what happens and whether it ends with the bytes of a run that was
left alone: 0, otherwise 1; 77 where there can be no nodes. Environment: builddir."""
import hashlib
import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Spared, Spread

import job

STEPS = 300
# The node is destroyed once there are copies of this step or a later one.
GOAL = 20


def cannot(why):
    print(f"This demonstration makes nodes of namespaces, and cannot do so here: {why}")
    sys.exit(job.SKIP)


def say(text=""):
    print(text, flush=True)


def seconds(value):
    return "-" if value is None else f"{value:.2f} s"


class Watch(threading.Thread):
    """Every line of the nodes' agents and of the ranks, with the time at which it was seen."""

    def __init__(self, nodes):
        super().__init__(daemon=True)
        self.nodes, self.over = nodes, False
        self.lines = []  # (time, who, line)
        self.at = {}
        self.more = []  # (who, path)

    def look(self):
        for who, path in [(n.name, n.path("j", "agent.log")) for n in self.nodes if n.alive] + self.more:
            try:
                with open(path, "rb") as f:
                    f.seek(self.at.get((who, path), 0))
                    new = f.read()
            except OSError:
                continue
            whole = new[:new.rfind(b"\n") + 1]
            self.at[who, path] = self.at.get((who, path), 0) + len(whole)
            now = time.monotonic()
            self.lines += [(now, who, line) for line in whole.decode(errors="replace").splitlines()]

    def run(self):
        while not self.over:
            self.look()
            time.sleep(0.005)

    def end(self):
        self.over = True
        self.join()
        self.look()

    def find(self, pattern, who=None, after=0.0):
        """The first such line, as its time and match; None, None: there is none."""
        for when, whose, line in list(self.lines):
            found = re.search(pattern, line) if when >= after and who in (None, whose) else None
            if found:
                return when, found
        return None, None

    def newest(self, pattern, who):
        return max((int(found[1]) for _, whose, line in list(self.lines) if whose == who and (found := re.search(pattern, line))), default=-1)


def row(*cells):
    say("  {:>4}  {:<7} {:<7} {:<28} {:>10} {:>12} {:>8}".format(*cells))


def finished(run):
    """How many iterations each rank had finished."""
    return [len(re.findall(r"^step ", text, re.M)) for text in run.logs()]


def state_from(watch, here, there_before, step, after):
    """Where the state of the rank that is on this node now was, as its agent says, and when that was ready."""
    when, offered = watch.find(rf"offering step {step} of generation \d+ from (.*)", here.name, after)
    if not offered:
        return "?", None
    if offered[1] != "memory":
        return f"the store ({offered[1]})", when
    _, got = watch.find(rf"got a copy of step {step} of generation \d+ from (\S+)", here.name, after)
    if got:
        return f"a copy, from {got[1]}'s memory", when
    return ("its own node's memory" if here is there_before else f"a copy in {here.name}'s memory"), when


def compare(plain, other):
    """Prints what is equal; whether all is."""
    left, right = job.tree(plain), job.tree(other)
    for name in sorted(left.keys() | right.keys()):
        digests = [hashlib.sha256(files[name]).hexdigest()[:16] if name in files else "missing" for files in (left, right)]
        if re.match(r"(final|log)_", name) or digests[0] != digests[1]:
            say(f"  {name:16} left alone {digests[0]:16}   node lost {digests[1]:16}   {'equal' if digests[0] == digests[1] else 'DIFFERENT'}")
    lines = job.differences(plain, other)
    for line in lines:
        say(f"  {line}")
    same = bool(left) and not lines
    say(f"\n{f'Every one of the {len(left)} files of both runs is equal, byte for byte.' if same else 'The runs differ.'}")
    return same


def demonstrate(cluster):
    nodes = cluster.nodes
    lost, spare = nodes[2], nodes[4]
    before, after = nodes[:4], [nodes[0], nodes[1], spare, nodes[3]]
    say("A small GPT is trained by four ranks, data parallel, over NCCL on a software device. First it is left alone.")
    run = Spread(cluster, 4, "--watch", steps=STEPS)
    say(f"  {STEPS} iterations, {len(job.tree(os.path.join(run.plain, 'out')))} files written\n")
    say("Now five nodes: namespaces of this machine with processes, a network address and memory of their own, joined by a\n"
        "bridge. Four get a rank each, the fifth is spare. On each runs an agent, transpckptd; with TRANSPCKPT_PEERS=1\n"
        "each has a copy of another's newest snapshot. Only one folder is shared.")
    watch = Watch(nodes)
    watch.start()
    for n in nodes:
        n.agent()
    if not node.until(lambda: all(n.agent_log().count("is a peer") >= len(nodes) - 1 for n in nodes), 60):
        say("The agents do not find each other.\n" + cluster.logs())
        return False
    say("  the agents have found each other\n")
    say(f"$ transpckpt run -- {' '.join(['gpt_ranks', *run.trainer[1:]])}")
    say("  (on each of the four, with the variables that torchrun sets; the trainer knows nothing of all this)")
    start = run.start(before)
    settled = r"step (\d+) of \d+ ranks has [1-9]\d* copies on other nodes"
    if not start.starts[0].until(lambda: watch.newest(settled, nodes[0].name) >= GOAL, 100):
        start.kill()
        say("No step got its copies.\n" + run.story() + cluster.logs())
        return False
    killed = time.monotonic()
    copied = watch.newest(settled, nodes[0].name)
    lost.destroy()
    say(f"  step {copied} of all ranks is in the memory of its node and of one more. Now {lost.name} is destroyed: its link is cut, and\n"
        f"  rank 2, its agent and its memory are gone")
    # NCCL tells the other ranks, which end as such programs do; a launcher would end them otherwise.
    node.until(lambda: not start.running(), 20)
    by_themselves = not start.running()
    start.kill()
    done = finished(run)
    found_out, _ = watch.find(r"process \d+ of generation \d+ failed; its snapshot", after=killed)
    say(f"  the other ranks {'hear so from NCCL and end' if by_themselves else 'are ended'}; rank 0 had finished {done[0]} iterations\n")
    say(f"$ the same command, on {', '.join(n.name for n in after)}")
    again = time.monotonic()
    start = run.start(after)
    watch.more = [(f"rank {rank}", os.path.join(run.said_in, f"err.{rank:02d}")) for rank in range(4)]
    status = start.wait()
    watch.end()
    at = run.resumed()
    if status != 0 or at is None:
        say(f"  it ended with {status}, and the ranks went on at {at}\n{run.story()}\n{cluster.logs()}")
        return False
    agreed, _ = watch.find(rf"all 4 ranks go on from step {at} of", after=again)
    say(f"  all ranks went on at step {at} and trained to the end\n")
    row("rank", "was on", "is on", "its state came from", "was there", "put in place", "live")
    for rank, (old, new) in enumerate(zip(before, after)):
        source, there = state_from(watch, new, old, at, again)
        live, said = watch.find(job.LIVE.pattern, f"rank {rank}", again)
        row(rank, old.name, new.name, source, seconds(there and there - again), seconds(said and float(said[3])), seconds(live and live - again))
    gone, _ = watch.find(f"the agent of {lost.name} is gone", after=killed)
    say(f"\n  lost: {lost.name} with rank 2, its snapshots and the copies that it had of others'\n"
        f"  went on at step {at}; {max(done) - at} iteration{'s' * (max(done) - at != 1)} of {STEPS} had to be computed again\n"
        f"  after {lost.name} was gone: the first agent heard its rank end after {seconds(found_out and found_out - killed)}, "
        f"the first noticed that {lost.name} is silent after {seconds(gone and gone - killed)}\n"
        f"  after the command was started again: all agreed on the step after {seconds(agreed and agreed - again)}, of which\n"
        f"  up to 3 s go to waiting for {lost.name}'s answer. The table says when each rank's state was in the memory of its node, how\n"
        "  long it took to put it on the device, and when training went on; between them the ranks' CPU side goes through\n"
        "  its first iterations again, without the device\n")
    return compare(os.path.join(run.plain, "out"), os.path.join(run.work, "out"))


def takes_over(cluster):
    """The same once more, and nobody starts anything again."""
    nodes = cluster.nodes
    say("\nNow nobody is to start anything again: two nodes with two ranks each, and a third on which stands")
    say("$ transpckpt spare")
    run = Spared(cluster, 4, "--watch", steps=STEPS)
    command = run.spare(nodes[2])
    say(f"$ transpckpt run --twin -- {' '.join(['gpt_ranks', *run.trainer[1:]])}      (on the other two)")
    launch = run.start(nodes[:2], 2)
    if not (run.watched(nodes[2], 4) and node.until(lambda: all("copies on other nodes" in one.agent_log() for one in nodes[:2]), 60)):
        say("The spare node does not hear of the ranks.\n" + run.story())
        return False
    launched = run.supervisors(launch, [0])
    nodes[1].destroy()
    lost = time.monotonic()
    say(f"  {nodes[1].name} is destroyed, with two ranks")
    begun = node.until(lambda: "is started here" in command.said(), 120) and time.monotonic()
    live = node.until(lambda: len(job.LIVE.findall(run.all_said())) >= 4, 60) and time.monotonic()
    same = bool(launched) and run.supervisors(launch, [0]) == launched
    if not begun or not live:
        say("The ranks do not go on.\n" + run.story())
        return False
    say(f"  it was silent, and then lost for good, after {seconds(begun - lost)}; the ranks that it had begin on {nodes[2].name}\n"
        f"  all four ranks were live {seconds(live - begun)} later, and the launcher on {nodes[0].name} has {'the processes that it had' if same else 'OTHER processes'}\n")
    ended = node.until(lambda: not launch.starts[0].running() and not command.running(), 120)
    statuses = [start.process.poll() for start in (launch.starts[0], command)]
    launch.kill()
    if not ended or any(statuses):
        say(f"They ended with {statuses}.\n" + run.story())
        return False
    return compare(os.path.join(run.plain, "out"), os.path.join(run.work, "out")) and same


def main():
    node.enter(cannot)
    if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
        cannot("the agent was built without libsodium, by which nodes know each other")
    begun = time.monotonic()
    with node.Cluster(5) as cluster:
        same = demonstrate(cluster)
    if same:
        with node.Cluster(3, TRANSPCKPT_PEERS="1", TRANSPCKPT_LOG="debug") as cluster:
            same = takes_over(cluster)
    say(f"({time.monotonic() - begun:.0f} s)")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
