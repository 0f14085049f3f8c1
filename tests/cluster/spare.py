#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 memory=2500M minutes=15 about=60s
"""Spare nodes: a node of a job is lost, and its ranks go on at a node where `transpckpt spare` runs; launchers of the other nodes see no process end, and the
bytes are those of a run that was left alone. One of four cases is run, another one each time (SEED); CASE=NAME runs one case, CASE=every all."""
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node
from rank_jobs import Spared, Spread

import job
import twins

node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
checks = job.Checks()
rng = job.drawn_from()


SETTINGS = {"TRANSPCKPT_PEERS": "1", "TRANSPCKPT_LOG": "debug"}


def wait_all(run, launch, lost, commands, seconds=job.WAIT_SEC):
    """The statuses of the launchers that are left, and of these spare nodes' commands; "hung": it did not end."""
    waited = [start for n, start in enumerate(launch.starts) if n not in lost] + commands
    node.until(lambda: all(not start.running() for start in waited) or any(start.process.poll() for start in waited), seconds)
    found = ["hung" if start.running() else start.process.poll() for start in waited]
    for start in [*launch.starts, *run.spares]:
        if start.running():
            start.kill()
    return found


def ends_alike(run, launch, what, lost, commands):
    found = wait_all(run, launch, lost, commands)
    wrong = ([f"statuses {found}"] if any(found) else []) + run.same()
    checks.ok(not wrong, what, *wrong, run.story())


def begin(cluster, what, *, nodes=2, per_node=1, spares=1, steps=350, **settings):
    """A job on the first nodes, with spare nodes behind them, that makes steps and whose ranks could be started on each of those."""
    run = Spared(cluster, nodes * per_node, steps=steps)
    for here in cluster.nodes[nodes:nodes + spares]:
        run.spare(here)
    launch = run.start(cluster.nodes[:nodes], per_node, **settings)
    ready = all(run.watched(here, nodes * per_node) for here in cluster.nodes[nodes:nodes + spares]) and node.until(run.trains, 60)
    checks.ok(ready, f"{what}: the spare nodes know how all ranks were started", run.story())
    time.sleep(rng.uniform(1, 3))
    return run, launch


def goes_on(run, launch, what, left, begun, times):
    """All ranks went on so many times, counted together, and launchers of these nodes have seen no end."""
    went_on = node.until(lambda: len(job.LIVE.findall(run.all_said())) >= times or not all(launch.starts[n].running() for n in left), 120)
    checks.ok(went_on and len(job.LIVE.findall(run.all_said())) >= times and run.supervisors(launch, left) == begun and begun,
              f"{what}: the launched processes of nodes that are left are the same", begun, run.supervisors(launch, left), run.story())


def lose(which, what, cut=False, per_node=2):
    with node.Cluster(3, memory="1g", **SETTINGS) as cluster:
        # What nodes without a link do on the devices goes on by itself.
        run, launch = begin(cluster, what, per_node=per_node, steps=800 if cut else 350)
        left = [1 - which]
        begun, ended = run.supervisors(launch, left), run.supervisors(launch, [which])
        (cluster.nodes[which].cut if cut else cluster.nodes[which].destroy)()
        lost_at = time.monotonic()
        node.until(lambda: "is started here" in run.spares[0].said(), 90)
        started_at = time.monotonic()
        # Nobody is told of that: they have to know it themselves.
        late = [pid for pid in ended.values() for child in [pid, *job.children_of(pid)] if twins.started_at(child) is not None]
        checks.ok(len(ended) == per_node and not late, f"{what}: none of its ranks runs any more when they are started elsewhere", late, run.story())
        goes_on(run, launch, what, left, begun, 2 * per_node)
        print(f"# from the loss to live: {time.monotonic() - lost_at:.2f} s; from their start there: {time.monotonic() - started_at:.2f} s")
        if cut:
            cluster.nodes[which].heal()
        ends_alike(run, launch, f"{what}: its ranks go on at the spare node, and the same bytes", [which], run.spares)


def case_second():
    """The node that does not have rank 0."""
    lose(1, "the second node is lost")


def case_first():
    """The node that all ranks meet at."""
    lose(0, "rank 0's node is lost")


def case_second_cut():
    """It lives, and hears nobody."""
    lose(1, "the second node is cut off", cut=True, per_node=1)


def case_first_cut():
    lose(0, "rank 0's node is cut off", cut=True, per_node=1)


def case_row():
    """Two losses, one behind the other: the second one of the node that has taken over from the first."""
    with node.Cluster(4, memory="1g", **SETTINGS) as cluster:
        run, launch = begin(cluster, "two losses", spares=2, steps=550)
        begun = run.supervisors(launch, [0])
        cluster.nodes[1].destroy()
        goes_on(run, launch, "the first loss", [0], begun, 2)
        first = next((n for n, start in enumerate(run.spares) if "is started here" in start.said()), 0)
        node.until(lambda: len(re.findall(r"committed step \d+ of generation 2", cluster.nodes[0].agent_log())) > 2, 30)
        cluster.nodes[2 + first].destroy()
        goes_on(run, launch, "the second loss", [0], begun, 4)
        ends_alike(run, launch, "two losses: the ranks go on at one spare node, and then at the other, and the same bytes", [1], [run.spares[1 - first]])


def case_during():
    """The spare node is lost while ranks that it has started are on their way."""
    with node.Cluster(4, memory="1g", **SETTINGS) as cluster:
        run, launch = begin(cluster, "a loss during a takeover", spares=2)
        begun = run.supervisors(launch, [0])
        cluster.nodes[1].destroy()
        node.until(lambda: any("is started here" in start.said() for start in run.spares), 90)
        time.sleep(rng.uniform(0, 0.4))
        first = next((n for n, start in enumerate(run.spares) if "is started here" in start.said()), 0)
        cluster.nodes[2 + first].destroy()
        node.until(lambda: "is started here" in run.spares[1 - first].said(), 90)
        node.until(lambda: job.LIVE.search(run.spares[1 - first].said()) or not launch.starts[0].running(), 90)
        checks.ok(run.supervisors(launch, [0]) == begun and begun, "a loss during a takeover: the launched processes are the same", run.story())
        ends_alike(run, launch, "a loss during a takeover: another spare node takes over, and the same bytes", [1], [run.spares[1 - first]])


def case_spare_lost():
    """The spare node itself, and then an agent that comes back: nothing happens to the job."""
    with node.Cluster(3, memory="1g", **SETTINGS) as cluster:
        run, launch = begin(cluster, "the spare node", steps=1500)
        begun = run.supervisors(launch)
        cluster.nodes[1].signal_agent("KILL")
        quiet = node.never(lambda: "is started here" in run.spares[0].said(), 20)
        checks.ok(quiet, "an agent that is killed, and comes back, is no loss of a node", run.story())
        cluster.nodes[2].destroy()
        time.sleep(16)
        checks.ok(run.supervisors(launch) == begun and len(begun) == 2, "the spare node is lost: the ranks run on", begun, run.supervisors(launch), run.story())
        ends_alike(run, launch, "the spare node is lost: the same bytes", [], [])


def case_room():
    """A spare node that has no room for all ranks that the node had takes none."""
    with node.Cluster(3, memory="1g", **SETTINGS, TRANSPCKPT_SPARE_RANKS="1") as cluster:
        run, launch = begin(cluster, "room", per_node=2)
        cluster.nodes[1].destroy()
        said = node.until(lambda: "can be started here" in cluster.nodes[2].agent_log(), 60)
        checks.ok(said and "is started here" not in run.spares[0].said(), "a spare node without room for all ranks of the node that is lost takes none, and says so",
                  run.story())
        for start in [*launch.starts, *run.spares]:
            start.kill()


def case_by_hand():
    """What else there is: whoever has launched the job does so again, with the spare node in place of the one that is lost."""
    with node.Cluster(3, memory="1g", **SETTINGS) as cluster:
        run = Spread(cluster, 4, steps=350)
        cluster.nodes[2].agent()
        launch = run.start(cluster.nodes[:2], 2)
        node.until(lambda: run.trains() and "copies on other nodes" in cluster.nodes[0].agent_log(), 60)
        cluster.nodes[1].destroy()
        launch.kill()
        begun = time.monotonic()
        launch = run.start([cluster.nodes[0], cluster.nodes[2]], 2)
        checks.ok(node.until(run.resumed, 60), "by hand: all ranks go on", run.story(), cluster.logs())
        print(f"# from the start by hand to live: {time.monotonic() - begun:.2f} s")
        launch.kill()


def main():
    os.environ.setdefault("CASE", rng.choice(["second", "first", "second_cut", "first_cut"]))
    node.run_cases(globals(), ())
    checks.end()


if __name__ == "__main__":
    main()
