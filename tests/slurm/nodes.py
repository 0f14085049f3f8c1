#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.35 memory=1G minutes=20 about=64s slurm
"""Jobs whose ranks are on several nodes, started by srun: each slurmd is on a node of its own (tests/cluster/node.py). A step is
killed and the next one of the job goes on from memory; a job is cancelled, and what it left becomes durable; a node is lost, and the job, requeued, goes on
with another one from copies, or goes on with a spare one; ranks that have twins are killed. CASE=NAME runs one case; of `twin` and `spare` one is run, another one each time (SEED); `timeout`, `alone` and `rest` are run so only, for the
time it takes."""
import glob
import os
import re
import secrets
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster")]
import cluster
import job
import node
import twins

STEPS = 200
# What users write: who leads is the first of the nodes, by Slurm's own command, and where it listens is the job's.
SCRIPT = """#!/bin/sh
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
ranks() {{
	export MASTER_PORT=$((20000 + $1))
	srun --kill-on-bad-exit=1 {wrapper} {trainer}
}}
{body}
"""
# What goes before a trainer that knows torchrun's variables only.
AS_TORCHRUN = "sh -c 'export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID; exec \"$0\" \"$@\"'"
PER_NODE = 2


class Nodes(cluster.Cluster):
    """Slurm with a slurmd on each node of some; slurmctld is at the bridge, and so are the commands of the test."""
    control = "localhost(10.77.0.254)"
    memory = "600m"
    # As node.py has them: links as they are, and no mpirun.
    links = mpi = None

    def __init__(self, count):
        # Slurm's names of nodes are those of cgroups too, which other tests' nodes have as well.
        self.prefix, self.count = "t" + secrets.token_hex(3) + "n", count
        self.machines = []
        super().__init__()
        for folder, mode in (("state", 0o755), ("fabric", 0o777)):
            os.mkdir(self.path(folder))
            os.chmod(self.path(folder), mode)

    def names(self):
        return [f"{self.prefix}{number + 1}" for number in range(self.count)]

    def ports(self):
        return [6817] + [6818] * self.count

    def place(self, number):
        name, address = node.node_called(number)
        return f"NodeHostname={name} NodeAddr={address}"

    def on(self, number):
        return ["nsenter", "-t", str(self.machines[number].init), "-m", "-n", "-p", "-u", "--wdns=" + self.root, *super().on(number)]

    def begin(self):
        node.run("ip", "link", "add", "tpck0", "type", "bridge")
        node.run("ip", "addr", "add", "10.77.0.254/24", "dev", "tpck0")
        node.run("ip", "link", "set", "tpck0", "up")
        node.run("ip", "link", "set", "lo", "up")
        self.write("hosts", "127.0.0.1 localhost\n" + "".join("{1} {0} {2}\n".format(*node.node_called(number), name) for number, name in enumerate(self.nodes)))
        node.run("mount", "--bind", self.path("hosts"), "/etc/hosts")
        for number in range(self.count):
            here = node.Node(self, number)
            self.machines.append(here)
            node.run("nsenter", "-t", str(here.init), "-m", "mount", "-t", "tmpfs", "tmpfs", self.path("state"))
        super().begin()

    def __exit__(self, *what):
        for here in self.machines:
            here.end()
        super().__exit__(*what)

    def environment(self, **more):
        return {**super().environment(**more), "SIMGPU_FABRIC": self.path("fabric")}

    def settings(self, **more):
        found = super().settings(TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_FILES="none", TRANSPCKPT_LOG="debug", **more)
        # In each node's /dev/shm, by its own name, as users have it.
        del found["TRANSPCKPT_SHM"]
        return found

    # ---- what is on the nodes ----------------------------------------------------------------

    def tiers(self, number):
        """Folders of the memory tier on a node, of all jobs."""
        here = self.machines[number]
        return glob.glob(f"/proc/{here.init}/root/dev/shm/transpckpt-{self.user.pw_uid}/*") if here.alive else []

    def log(self, number, name):
        """What the agent of a job says on a node."""
        return "".join(job.read(os.path.join(folder, "agent.log")) for folder in self.tiers(number)
                       if os.path.basename(folder).startswith(name))

    def story(self):
        """What Slurm says of the project and of jobs, and what agents and ranks say."""
        text = ""
        for path in sorted(glob.glob(self.path("log/*")) + glob.glob(self.path("user/*.txt"))):
            lines = [line for line in job.read(path).splitlines() if "transpckpt" in line or path.endswith("ctld")]
            text += f"--- {path}\n" + "\n".join(lines[-25:]) + "\n"
        for number, here in enumerate(self.machines):
            for folder in self.tiers(number):
                text += f"--- {here.name} {os.path.basename(folder)}\n{job.read(os.path.join(folder, 'agent.log'))[-5000:]}\n"
        return text


class Trainer:
    """The GPT of several ranks, as a batch job."""

    def __init__(self, here, name, wrapper="", **settings):
        self.here, self.name, self.wrapper = here, name, wrapper
        self.work = here.path("user", name)
        os.mkdir(self.work)
        os.chown(self.work, here.user.pw_uid, here.user.pw_gid)
        # Iterations take long enough for each to have its copy.
        self.settings = {**here.settings(**settings), "SIMGPU_KERNEL_US": "300", "SIMGPU_TOGETHER_US": "4000"}
        self.gone_on = 0
        self.out, self.said = os.path.join(self.work, "out"), os.path.join(here.home, name + ".txt")

    def submit(self, body, *options, preloaded=True):
        trainer = " ".join([self.here.path("inst/sim/simgpu-run"), self.here.path("inst/gpt_ranks"), "--seed", "3", "--steps", str(STEPS),
                            "--out", "out", "--save-every", "50", "--width", "16", "--context", "16", "--bigrams", "64", "--zero"])
        script = os.path.join(self.work, "job.sh")
        with open(script, "w", encoding="ascii") as f:
            f.write(SCRIPT.format(wrapper=self.wrapper, trainer=trainer, body=body))
        os.chmod(script, 0o755)
        asked = ["--transpckpt=1", "--transpckpt-peers=1"] if preloaded else []
        done = self.here.run(["sbatch", "--parsable", "-N2", f"--ntasks-per-node={PER_NODE}", "-o", self.said, "--open-mode=append",
                              "-J", self.name, *asked, *options, script], cwd=self.work, **self.settings)
        if done.returncode:
            raise RuntimeError(done.stderr)
        self.number = done.stdout.strip()
        return self.number

    def step(self, pattern):
        """The newest that an agent of the job says so of."""
        return max((int(n) for number in range(self.here.count)
                    for n in re.findall(pattern, self.here.log(number, self.name))), default=-1)

    def committed(self):
        return self.step(r"committed step (\d+) ")

    def settled(self):
        return self.step(r"step (\d+) of \d+ ranks has [1-9]\d* copies on other nodes")

    def durable(self):
        return self.step(r"step (\d+) of \d+ ranks is durable")

    def live(self):
        """Where the ranks went on, in all starts."""
        return [int(at) for at, _, _ in job.LIVE.findall(job.read(self.said))]

    def ended(self, *states):
        return cluster.until(lambda: self.here.state_of(self.number) in states, 120)

    def kill(self, rank):
        """One rank of the step; nobody is told."""
        here = self.here.machines[rank // PER_NODE]
        script = 'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = gpt_ranks ] && grep -qzx "SLURM_PROCID=$0" $p/environ && ' \
                 'kill -KILL ${p#/proc/}; done 2>/dev/null'
        here.run(["sh", "-c", script, str(rank)], {"PATH": os.environ["PATH"]})

    def tiers(self):
        return [os.path.basename(folder) for number in range(self.here.count) for folder in self.here.tiers(number)
                if os.path.basename(folder).startswith(self.name)]


def begin(here, checks, trainer, step, body, *options):
    """A job that has copies of so many steps; None: it never does."""
    trainer.submit(body, *options)
    cluster.until(lambda: trainer.settled() >= step or here.state_of(trainer.number) == "COMPLETED", 60)
    has = trainer.settled()
    return has if checks.ok(has >= step, f"{trainer.name}: agents meet, and steps of all ranks have copies", here.story()) else None


def goes_on(checks, trainer, floor, what):
    """All ranks of the newest start."""
    ranks = 2 * PER_NODE
    cluster.until(lambda: len(trainer.live()) >= trainer.gone_on + ranks, 60)
    live = trainer.live()[trainer.gone_on:]
    trainer.gone_on += ranks
    checks.ok(len(live) == ranks and len(set(live)) == 1 and live[0] >= floor,
              f"{trainer.name}: {what}: all ranks go on at step {live}, at least {floor}", trainer.here.story())


def finish(here, checks, trainer, plain, what):
    """The job goes to its end; nothing of it is left in memory."""
    checks.ok(trainer.ended("COMPLETED", "FAILED", "NODE_FAIL") and here.state_of(trainer.number) == "COMPLETED",
              f"{trainer.name}: {what}: it ends well", here.state_of(trainer.number), here.story())
    checks.ok(not job.differences(plain, trainer.out), f"{trainer.name}: {what}: bit for bit", *job.differences(plain, trainer.out))
    checks.ok(cluster.until(lambda: not trainer.tiers(), 60), f"{trainer.name}: {what}: nothing is left in memory of any node", trainer.tiers(),
              here.story())


def case_killed(here, checks, plain):
    """A rank is killed, and with it the step; the script's next one goes on from memory. That is cancelled: what it leaves becomes
    durable before its memory goes, on each node; submitted again the job goes on, on others."""
    trainer = Trainer(here, "killed", AS_TORCHRUN)
    has = begin(here, checks, trainer, 10, "ranks 1 || ranks 2", "-x", here.nodes[2])
    if has is None:
        return
    trainer.kill(3)
    goes_on(checks, trainer, has, "a rank is killed")
    has = trainer.settled()
    here.run(["scancel", trainer.number])
    checks.ok(trainer.ended("CANCELLED"), "killed: then it is cancelled", here.state_of(trainer.number), here.story())
    checks.ok(cluster.until(lambda: not trainer.tiers(), 60), "killed: nothing is left in memory of any node", trainer.tiers(), here.story())
    trainer.submit("ranks 3", "-x", here.nodes[0])
    goes_on(checks, trainer, has, "submitted again")
    finish(here, checks, trainer, plain, "submitted again")


def lose(here, checks, trainer, told=True):
    """The second node of the job. It runs again on the first and another one."""
    here.machines[1].destroy()
    # As an administrator does, who does not wait for SlurmdTimeout.
    if told:
        here.run(["scontrol", "update", f"nodename={here.nodes[1]}", "state=down", "reason=lost"], root=True)
    checks.ok(cluster.until(lambda: here.state_of(trainer.number) == "PENDING", 60), f"{trainer.name}: the job is requeued", here.story())
    here.run(["scontrol", "update", f"jobid={trainer.number}", "starttime=now", "reqnodelist="], root=True)


def case_lost(here, checks, plain):
    """A node is lost with its slurmd. The job is requeued to one that is left and another one, and goes on from copies."""
    trainer = Trainer(here, "lost")
    has = begin(here, checks, trainer, 10, "ranks 1", "--requeue", "-w", f"{here.nodes[0]},{here.nodes[1]}")
    if has is None:
        return
    lose(here, checks, trainer)
    goes_on(checks, trainer, has, "with another node")
    finish(here, checks, trainer, plain, "with another node")


def case_timeout(here, checks, plain):
    """The same, and nobody tells Slurm, which sees after SlurmdTimeout that the node does not answer."""
    trainer = Trainer(here, "timeout")
    has = begin(here, checks, trainer, 10, "ranks 1", "--requeue", "-w", f"{here.nodes[0]},{here.nodes[1]}")
    if has is None:
        return
    lose(here, checks, trainer, told=False)
    goes_on(checks, trainer, has, "with another node, after SlurmdTimeout")
    finish(here, checks, trainer, plain, "with another node, after SlurmdTimeout")


def case_alone(here, checks, plain):
    """Each node has a store of its own: agents find each other by Slurm's list of nodes and the user's secret at home. A node is lost,
    and one that was not there before takes its place."""
    trainer = Trainer(here, "alone", TRANSPCKPT_DIR="/dev/shm/store")
    has = begin(here, checks, trainer, 10, "ranks 1", "--requeue", "-w", f"{here.nodes[0]},{here.nodes[1]}")
    if has is None:
        return
    lose(here, checks, trainer)
    goes_on(checks, trainer, has, "with another node")
    checks.ok(trainer.ended("COMPLETED", "FAILED") and here.state_of(trainer.number) == "COMPLETED", "alone: it ends well", here.story())
    checks.ok(not job.differences(plain, trainer.out), "alone: bit for bit", *job.differences(plain, trainer.out))


def case_rest(here, checks, plain):
    """A node is lost, and the job ends with it. The one that is left makes durable what both had before its memory goes: submitted again the job goes on
    from that, on others."""
    trainer = Trainer(here, "rest")
    has = begin(here, checks, trainer, 10, "ranks 1", "--no-requeue", "-w", f"{here.nodes[0]},{here.nodes[1]}")
    if has is None:
        return
    has = trainer.settled()
    here.machines[1].destroy()
    here.run(["scontrol", "update", f"nodename={here.nodes[1]}", "state=down", "reason=lost"], root=True)
    checks.ok(trainer.ended("NODE_FAIL") and cluster.until(lambda: "no program comes back" in here.log(0, "rest") or not trainer.tiers(), 30),
              "rest: the job is over, and its agent knows", here.state_of(trainer.number), here.story())
    checks.ok(cluster.until(lambda: not trainer.tiers(), 60), "rest: nothing is left in memory of any node", trainer.tiers(), here.story())
    trainer.submit("ranks 2", "--no-requeue")
    goes_on(checks, trainer, has, "submitted again")
    finish(here, checks, trainer, plain, "submitted again")


def supervisor(rank):
    """What srun has started as this rank, of which the program and its twin are children; None: it is not there."""
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{int(entry)}/environ", "rb") as f:
                is_it = f"SLURM_PROCID={rank}".encode() in f.read().split(b"\0") and job.read(f"/proc/{entry}/comm") == "gpt_ranks\n"
            parent = job.read(f"/proc/{entry}/stat").rpartition(")")[2].split()[1]
        except (OSError, ValueError, IndexError):
            continue
        if is_it and job.read(f"/proc/{parent}/comm") != "gpt_ranks\n":
            return int(entry)
    return None


def case_twin(here, checks, plain):
    """Ranks have twins, and are killed on both nodes: srun sees no task end."""
    trainer = Trainer(here, "twin", TRANSPCKPT_TWIN="1")
    has = begin(here, checks, trainer, 5, "ranks 1", "-w", f"{here.nodes[0]},{here.nodes[1]}")
    if has is None:
        return
    ranks = range(2 * PER_NODE)

    def covered():
        there = [supervisor(rank) for rank in ranks]
        return all(there) and all(twins.covered_below(pid) for pid in there)
    for rank in (3, 0):
        if not checks.ok(cluster.until(covered, 60), "twin: all ranks have twins", here.story()):
            return
        job.signal_if_there(twins.processes(supervisor(rank))[0])
        goes_on(checks, trainer, has, f"rank {rank} is killed")
    finish(here, checks, trainer, plain, "two kills, and one step of srun")


def case_spare(here, checks, plain):
    """A node is lost where there is a spare one in the job: with --no-kill the step goes on, and srun sees no task end on the node that is left."""
    first, second, third = here.nodes
    trainer = Trainer(here, "spare", f"--no-kill --kill-on-bad-exit=0 -N2 -n{2 * PER_NODE} -w {first},{second}", TRANSPCKPT_TWIN="spare")
    stand_by = f"srun --overlap -N1 -n1 --ntasks-per-node=1 -w {third} {here.path('inst/bin/transpckpt')} spare &"
    has = begin(here, checks, trainer, 10, f"{stand_by}\nranks 1\nwait", "-N3", "--no-kill", "-w", ",".join(here.nodes))
    if has is None:
        return
    checks.ok(cluster.until(lambda: here.log(2, "spare").count("could be started here") >= 2 * PER_NODE, 30), "spare: the spare node knows how the ranks were started",
              here.story())
    begun = [supervisor(rank) for rank in range(PER_NODE)]
    here.machines[1].destroy()
    here.run(["scontrol", "update", f"nodename={second}", "state=down", "reason=lost"], root=True)
    goes_on(checks, trainer, has, "at the spare node")
    checks.ok(all(begun) and [supervisor(rank) for rank in range(PER_NODE)] == begun, "spare: tasks of the node that is left are the same", begun, here.story())
    checks.ok(cluster.until(lambda: not job.differences(plain, trainer.out), 60), "spare: bit for bit", *job.differences(plain, trainer.out))
    ended = trainer.ended("COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED")
    print(f"# Slurm says of a job whose node was lost: {here.state_of(trainer.number)}")
    checks.ok(ended and cluster.until(lambda: not trainer.tiers(), 60), "spare: nothing is left in memory of any node", trainer.tiers(), here.story())


def main():
    cluster.needs()
    node.enter(other_users=True)
    if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
        job.skip("the agent was built without libsodium")
    checks = job.Checks()
    # Two of them lose the second node, which does not come back.
    wanted = os.environ.get("CASE", f"killed {job.drawn_from().choice(['twin lost', 'spare'])}").split()
    with Nodes(3) as here:
        trainer = Trainer(here, "plain")
        del trainer.settings["SIMGPU_KERNEL_US"]
        trainer.submit("ranks 1", preloaded=False)
        checks.ok(trainer.ended("COMPLETED", "FAILED") and here.state_of(trainer.number) == "COMPLETED", "the plain run", here.story())
        for case in (case_killed, case_twin, case_spare, case_lost, case_timeout, case_alone, case_rest):
            if case.__name__[5:] in wanted:
                case(here, checks, trainer.out)
    checks.end()


main()
