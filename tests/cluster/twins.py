#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 memory=2500M minutes=15 about=150s
"""Jobs whose ranks are on several nodes, and have twins: a rank is killed on one of them, and all change over, on all nodes. No launcher sees a process end, and
the bytes are those of a run that was left alone. CASE=NAME runs one case, CASE=every all."""
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Spread

import job
import twins

node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
checks = job.Checks()
rng = random.Random(os.environ.get("SEED"))


class Twins(Spread):
    killed_at = None

    def next_start(self, ranks):
        command = super().next_start(ranks)
        return [*command[:2], "--twin", *command[2:]]

    def supervisors(self, launch):
        """By rank: the processes that were launched, as this test sees them."""
        return twins.supervisors(start.process.pid for start in launch.starts)

    def covered(self, launch):
        """The living ones by rank, where each has a twin that follows; else None."""
        return twins.all_covered((start.process.pid for start in launch.starts), self.now)

    def kill(self, launch, rank, after=0.0, number=signal.SIGKILL):
        """Ends the living one of the rank once all have twins. False: the job ended before."""
        if not node.until(lambda: not launch.running() or self.covered(launch), 60):
            return False
        time.sleep(after)
        living = self.covered(launch) if launch.running() else None
        self.killed_at = time.monotonic()
        if living:
            job.signal_if_there(living[rank], number)
        return bool(living)

    def same_processes(self, launch, begun):
        """One has no child for a moment, while it forks the program once more."""
        same = node.until(lambda: not launch.running() or self.supervisors(launch) == begun, 20)
        checks.ok(same, "the processes that were launched are the same all the time", begun, self.supervisors(launch), self.story())

    def takeovers(self):
        return [len(job.LIVE.findall(text)) for text in self.said()]

    def changed_over(self, launch, times):
        node.until(lambda: self.takeovers() == [times] * self.now or not launch.running(), 60)
        if self.killed_at and self.takeovers() == [times] * self.now:
            print(f"# from a death to all live: {(time.monotonic() - self.killed_at) * 1000:.0f} ms")
        return self.takeovers() == [times] * self.now


def ends_alike(run, launch, what, takeovers):
    status = launch.wait()
    wrong = ([f"status {status}"] if status else []) + run.same()
    if takeovers is not None and run.takeovers() != [takeovers] * run.now:
        wrong.append(f"takeovers {run.takeovers()}, not {takeovers} of each")
    checks.ok(not wrong, what, *wrong, run.story(), run.cluster.logs())


def case_killed():
    """A rank of the node that decides, and one of the other."""
    with node.Cluster(2, memory="1g") as cluster:
        run = Twins(cluster, 4, steps=500)
        launch = run.start(cluster.nodes, 2)
        begun, killed = None, 0
        for rank, number in ((0, signal.SIGKILL), (3, signal.SIGSEGV), (2, signal.SIGKILL)):
            killed += run.kill(launch, rank, rng.uniform(0, 0.3), number)
            begun = begun or run.supervisors(launch)
            if not run.changed_over(launch, killed):
                break
        run.same_processes(launch, begun)
        ends_alike(run, launch, f"two nodes: {killed} kills, the same bytes", killed)
        checks.ok(killed == 3, f"killed {killed} times")


def case_together():
    """Ranks of both nodes at one moment."""
    with node.Cluster(2, memory="1g") as cluster:
        run = Twins(cluster, 2, steps=350)
        launch = run.start(cluster.nodes, 1)
        node.until(lambda: run.covered(launch), 60)
        for living in (run.covered(launch) or {}).values():
            job.signal_if_there(living, signal.SIGKILL)
        run.changed_over(launch, 1)
        ends_alike(run, launch, "ranks of both nodes are killed at one moment: the same bytes", 1)


def case_again():
    """Ranks die where not all have twins, as while they change over: all are forked once more then."""
    with node.Cluster(2, memory="1g") as cluster:
        run = Twins(cluster, 2, steps=700)
        launch = run.start(cluster.nodes, 1)
        node.until(lambda: run.covered(launch), 60)
        begun, killed = run.supervisors(launch), 0
        for first, second in ((0, 1), (1, 0), (1, 1)):
            killed += run.kill(launch, first)
            time.sleep(rng.uniform(0, 0.4))
            living = twins.processes(begun[second])[0] if launch.running() else None
            killed += living is not None and job.signal_if_there(living, signal.SIGKILL)
        run.same_processes(launch, begun)
        ends_alike(run, launch, f"killed {killed} times, with twins or without: the same bytes", None)
        checks.ok("is forked once more in its place" in "".join(run.said()), "where not all have twins all are forked once more", run.story())


def case_twin_dies():
    """A rank dies, all are told to change over, and its twin dies before it hears that."""
    with node.Cluster(2, memory="1g") as cluster:
        run = Twins(cluster, 2, steps=300)
        launch = run.start(cluster.nodes, 1)
        living = node.until(lambda: run.covered(launch), 60) and run.covered(launch)
        begun = run.supervisors(launch)
        twin = twins.processes(begun[1])[1]
        # Who decides is held back until who asks has asked, and that one until it is decided.
        job.signal_if_there(begun[0], signal.SIGSTOP)
        job.signal_if_there(living[1], signal.SIGKILL)
        time.sleep(0.5)
        job.signal_if_there(begun[1], signal.SIGSTOP)
        job.signal_if_there(begun[0], signal.SIGCONT)
        told = node.until(lambda: "takes over" in run.said()[0], 30)
        time.sleep(0.5)
        job.signal_if_there(twin, signal.SIGKILL)
        job.signal_if_there(begun[1], signal.SIGCONT)
        checks.ok(told, "a rank dies, and all are told to change over", run.story(), cluster.logs())
        run.same_processes(launch, begun)
        ends_alike(run, launch, "its twin dies before it has heard of that: all are forked once more, and the same bytes", None)
        checks.ok("is forked once more in its place" in "".join(run.said()), "that is said", run.story())


def case_agents():
    """The agents are killed, one after the other, and then a rank."""
    with node.Cluster(2, memory="1g") as cluster:
        run = Twins(cluster, 2, steps=900)
        launch = run.start(cluster.nodes, 1)
        node.until(lambda: run.covered(launch), 60)
        for number, here in enumerate(cluster.nodes):
            here.signal_agent("KILL")
            node.until(lambda here=here: "adopted session" in here.agent_log(), 30)
            killed = run.kill(launch, 1 - number, 0.5)
            run.changed_over(launch, number + 1)
            checks.ok(killed and run.takeovers() == [number + 1] * 2, f"the agent of {here.name} is killed, and a rank behind that: all change over",
                      run.takeovers(), run.story(), cluster.logs())
        ends_alike(run, launch, "and the same bytes", 2)


def case_error():
    """A rank that ends with an error ends the job, on all nodes; and so does a rank that is told to end."""
    with node.Cluster(2, memory="1g") as cluster:
        for rank, number in ((1, signal.SIGUSR2), (0, signal.SIGTERM)):
            run = Twins(cluster, 2, steps=1000, name=f"by{number}")
            launch = run.start(cluster.nodes, 1, **({"LD_PRELOAD": job.built(cluster, "gives_up.so", "gives_up.c")} if rank else {}))
            node.until(lambda run=run, launch=launch: run.covered(launch), 60)
            living = run.covered(launch)
            checks.ok(living, "both ranks have twins", run.story(), cluster.logs())
            job.signal_if_there(living[rank] if rank else run.supervisors(launch)[rank], number)
            status = launch.wait()
            checks.ok(status == (3 if rank else 128 + number) and run.takeovers() == [0, 0], f"rank {rank} ends by itself: status {status}, and no takeover", run.story())


def case_node_lost():
    """A node is lost with its agent and all: the job ends, and goes on elsewhere by the same command."""
    with node.Cluster(3, memory="1g", TRANSPCKPT_PEERS="1") as cluster:
        run = Twins(cluster, 2, steps=500)
        for here in cluster.nodes:
            here.agent()
        node.until(lambda: all(here.agent_log().count("is a peer") >= 2 for here in cluster.nodes), 60)
        launch = run.start(cluster.nodes[:2], 1)
        node.until(lambda: run.covered(launch), 60)
        node.until(lambda: "copies on other nodes" in cluster.nodes[0].agent_log(), 30)
        cluster.nodes[1].destroy()
        launch.wait(20)
        launch = run.start([cluster.nodes[0], cluster.nodes[2]], 1)
        killed = run.kill(launch, 0)
        ends_alike(run, launch, "a node is lost: the job goes on elsewhere, has twins again, and the same bytes", 2 if killed else None)
        checks.ok(killed, "a rank is killed there")


def main():
    node.run_cases(globals(), ())
    checks.end()


if __name__ == "__main__":
    main()
