# SPDX-License-Identifier: Apache-2.0
"""A trainer of several ranks in a test's cluster: all of them on one node, or spread over several."""
import os
import re
import shutil
import sys
import time

import node

import baseline
import job
import twins

LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../trainers/launch.py")
# Iterations take long enough for each to have its copy.
SLOW = {"SIMGPU_KERNEL_US": os.environ.get("KERNEL_US", "300")}


class Ranks:
    """A trainer of several ranks, all on one node: plain, and on nodes of a cluster that see one folder."""

    def __init__(self, cluster, ranks, *more, steps, size=("--width", "16", "--context", "16", "--bigrams", "64"), launcher="torchrun",
                 name=""):
        """With a name of its own it is one of several in the same cluster."""
        self.cluster, self.ranks, self.starts, self.launcher = cluster, ranks, 0, launcher
        self.root = os.path.join(cluster.root, name)
        self.plain, self.work = (os.path.join(self.root, folder) for folder in ("plain", "work"))
        for folder in (self.plain, self.work):
            os.makedirs(folder)
        self.trainer = [os.path.join(cluster.build, "tests/trainers/gpt_ranks"), "--seed", "3", "--steps", str(steps), "--out", "out",
                        "--save-every", "20", *size, *more]
        self.environment = {k: v for k, v in cluster.environment.items() if not k.startswith("TRANSPCKPT_")}
        baseline.copy(cluster.build, [self.trainer[0]], [ranks, launcher, *self.trainer[1:]], self.environment, self.run_plain, self.plain)

    def run_plain(self, folder):
        plain = job.Start(self, self.argv(os.path.join(folder, "said"), self.trainer), folder, self.environment, "plain")
        if plain.wait() != 0:
            raise RuntimeError(plain.said() + job.read(os.path.join(folder, "said", "err.00")))

    def argv(self, said, command, ranks=None, node_of=()):
        return [*self.cluster.runner, sys.executable, LAUNCH, "--as", self.launcher, "--outputs", said, *node_of,
                str(ranks or self.ranks), *command]

    def next_start(self, ranks):
        """The command that the ranks of the start that comes next run."""
        self.starts += 1
        self.said_in, self.now = os.path.join(self.work, f"said{self.starts}"), ranks
        return [os.path.join(self.cluster.build, "transpckpt"), "run", "--", *self.trainer]

    def start(self, where, ranks=None, **settings):
        command = self.next_start(ranks or self.ranks)
        return where.start(self.argv(self.said_in, command, ranks), {**self.cluster.environment, **SLOW, **settings},
                           f"start{self.starts}", self.work, self)

    def said(self):
        """What each rank said in the newest start."""
        return [job.read(os.path.join(self.said_in, f"err.{rank:02d}")) for rank in range(self.now)]

    def logs(self):
        """What the program itself writes of each rank's steps."""
        return [job.read(os.path.join(self.work, "out", f"log_r{rank:02d}.txt")) for rank in range(self.now)]

    def story(self):
        return "\n".join(f"rank {rank}: {line}" for rank, text in enumerate(self.said()) for line in text.splitlines())

    def trains(self):
        """Whether the newest start has come so far that it makes steps."""
        return any("step " in job.read(os.path.join(self.said_in, f"out.{rank:02d}")) for rank in range(self.now))

    def resumed(self):
        """The one step that all ranks went on at; None: not all of them did, or not at the same."""
        found = [job.LIVE.search(text) for text in self.said()]
        return int(found[0][1]) if all(found) and len({m[1] for m in found}) == 1 else None

    def same(self):
        return job.differences(os.path.join(self.plain, "out"), os.path.join(self.work, "out"))


class Launch:
    """One start of a job on several nodes: `starts` are those of the nodes' launchers, in order of rank."""

    def __init__(self, starts):
        self.starts = starts

    def running(self):
        return any(start.running() for start in self.starts)

    def kill(self):
        for start in self.starts:
            if start.running():
                start.kill()

    def said(self):
        return "\n".join(start.said() for start in self.starts)

    def wait(self, seconds=job.WAIT_SEC):
        """The status of the launcher that failed first; then all are ended, as torchrun's would hear of it. 0: all ended well."""
        end = time.monotonic() + seconds
        while True:
            found = [start.process.poll() for start in self.starts]
            failed = [status for status in found if status]
            if failed or time.monotonic() > end:
                self.kill()
                return failed[0] if failed else "hung"
            if None not in found:
                return 0
            time.sleep(0.01)


class Spread(Ranks):
    """The same with the ranks of one start on several nodes, as many on each."""

    def start(self, where, per_node=1, preloaded=True, **settings):
        """On these nodes; the first has the first ranks."""
        ranks = per_node * len(where)
        command = self.next_start(ranks)
        environment = {**self.cluster.environment, **SLOW, **settings}
        if not preloaded:
            command, environment = self.trainer, {**self.environment, **settings}
        starts = []
        for number, here in enumerate(where):
            # Ranks that are left of an earlier start may still have its port.
            node_of = ["--nnodes", str(len(where)), "--node-rank", str(number), "--master-addr", where[0].address,
                       "--master-port", str(29500 + self.starts)]
            starts.append(here.start(self.argv(self.said_in, command, per_node, node_of), environment,
                                     f"start{self.starts}.{here.name}", self.work, self))
        self.where, self.per_node = where, per_node
        return Launch(starts)

    def kill_rank(self, rank, how="KILL"):
        """One rank of the newest start, by whatever launcher; nobody is told. False: it was not there."""
        script = 'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = gpt_ranks ] && grep -qzxE "(RANK|.*WORLD_RANK|PMI_RANK|SLURM_PROCID)=$0" ' \
                 '$p/environ && kill -$1 ${p#/proc/} && echo killed; done 2>/dev/null'
        return "killed" in self.where[rank // self.per_node].run(["sh", "-c", script, str(rank), how], self.cluster.environment).stdout

    def slowly_until(self, condition, seconds):
        """node.until(), with all ranks stopped once they have come to three quarters of their steps: what agents do meanwhile may take a busy machine
        longer than the rest of the program."""
        last, held = int(self.trainer[self.trainer.index("--steps") + 1]) * 3 // 4, []

        def looks():
            if not held and any(f"\nstep {last} " in job.read(os.path.join(self.said_in, f"out.{rank:02d}")) for rank in range(self.now)):
                held.extend(rank for rank in range(self.now) if self.kill_rank(rank, "STOP"))
            return condition()
        found = node.until(looks, seconds)
        for rank in held:
            self.kill_rank(rank, "CONT")
        return found

    def reference(self, where, per_node):
        """What a start that nothing happens to gives with the ranks on these nodes is what later ones are compared with."""
        if self.start(where, per_node, preloaded=False).wait():
            raise RuntimeError(self.story())
        shutil.rmtree(os.path.join(self.plain, "out"))
        os.rename(os.path.join(self.work, "out"), os.path.join(self.plain, "out"))

    def anew(self):
        """The next start finds nothing that the program wrote."""
        shutil.rmtree(os.path.join(self.work, "out"))


class Spared(Spread):
    """The same with supervisors, and with spare nodes."""

    def __init__(self, *more, **named):
        super().__init__(*more, **named)
        self.spares = []

    def next_start(self, ranks):
        command = super().next_start(ranks)
        return [*command[:2], "--twin", *command[2:]]

    def spare(self, where, *more, **settings):
        start = where.start([os.path.join(self.cluster.build, "transpckpt"), "spare", *more], {**self.cluster.environment, **SLOW, **settings}, f"spare.{where.name}",
                            self.work, self)
        self.spares.append(start)
        node.until(lambda: "is a spare one" in start.said(), 30)
        return start

    def supervisors(self, launch, numbers=None):
        """By rank: the processes that were launched on these nodes, as this test sees them."""
        return twins.supervisors(start.process.pid for n, start in enumerate(launch.starts) if numbers is None or n in numbers)

    def watched(self, spare, ranks):
        """Whether the spare node's agent knows how so many ranks were started."""
        return node.until(lambda: len(set(re.findall(r"rank (\d+) of generation \d+ could be started here", spare.agent_log()))) >= ranks, 60)

    def all_said(self):
        return "\n".join([*self.said(), *(start.said() for start in self.spares)])

    def story(self):
        return "\n".join([super().story(), *(start.said() for start in self.spares), self.cluster.logs()])
