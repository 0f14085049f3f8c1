#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=1G minutes=20 about=76s slurm
"""Activation by Slurm, on a Slurm of its own: options and their twins, what a task gets, a killed step, a requeued job, and what
is left of a job that has ended."""
import glob
import json
import os
import re
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster
import job
from cluster import until

STEPS = 60
# A library of the user's, that does nothing here.
OWN = "libpthread.so.0"
# One line, which srun does not mix with another task's.
LOOK = ["sh", "-c", "echo \"preload=$LD_PRELOAD|interval=$TRANSPCKPT_INTERVAL|dir=$TRANSPCKPT_DIR|peers=$TRANSPCKPT_PEERS|job=$TRANSPCKPT_JOB|"
        "mapped=$(grep -c libtranspckpt.so /proc/self/maps)|personality=$(cat /proc/self/personality)\""]
# ADDR_NO_RANDOMIZE
FIXED = "00040000"


def look(here, *options, argv=None, tasks=1, **environment):
    """What a task found, as dictionaries, one a task."""
    done = here.run([*(argv or ["srun", f"-n{tasks}", f"-N{tasks}", *options]), *LOOK], **here.settings(**environment))
    found = [dict(word.split("=", 1) for word in line.split("|")) for line in done.stdout.splitlines() if line.startswith("preload=")]
    return found, done


def case_values(here, checks):
    """Bad values are a line each, and no job."""
    for options, environment in ((["--transpckpt=often"], {}), (["--transpckpt-dir=here"], {}),
                                 (["--transpckpt-dir=scratch:/x"], {}), ([], {"TRANSPCKPT": "maybe"}),
                                 (["--transpckpt"], {"TRANSPCKPT_INTERVAL": "often"}),
                                 (["--transpckpt"], {"TRANSPCKPT_DIR": "here"}), (["--transpckpt-peers=many"], {}),
                                 (["--transpckpt"], {"TRANSPCKPT_PEERS": "-1"})):
        for command in (["srun", *options, "true"], ["sbatch", *options, "--wrap", "true"]):
            before = here.jobs()
            done = here.run(command, **here.settings(**environment))
            lines = [line for line in done.stderr.splitlines() if "transpckpt: " in line]
            checks.ok(done.returncode != 0 and len(lines) == 1 and here.jobs() == before,
                      f"{command[0]} {' '.join(options)} {environment or ''}: one line and no job", done.stderr, done.returncode)
    done = here.run(["srun", "--help"])
    checks.ok(len(re.findall(r"\[transpckpt\]", done.stdout)) == 4, "srun --help has the four options", done.stdout)


def case_task(here, checks):
    """What a task gets, and who says so."""
    ours = f"{here.forwarder}:{here.library}"
    found, done = look(here)
    checks.ok(len(found) == 1 and found[0]["preload"] == "" and found[0]["mapped"] == "0" and found[0]["job"] == "" and
              found[0]["personality"] != FIXED and not here.memory(),
              "without the option nothing is preloaded", done)
    found, done = look(here, LD_PRELOAD=OWN)
    checks.ok(len(found) == 1 and found[0]["preload"] == OWN, "without the option LD_PRELOAD is the user's", done)
    found, done = look(here, "--transpckpt", LD_PRELOAD=OWN)
    checks.ok(len(found) == 1 and found[0]["preload"] == f"{ours}:{OWN}" and found[0]["mapped"] != "0",
              "with it the library comes first, and the user's behind it", done)
    checks.ok(len(found) == 1 and found[0]["personality"] == FIXED and found[0]["job"].startswith("sh-"),
              "addresses are not randomised, and the job has a name", done)
    found, done = look(here, "--transpckpt", TRANSPCKPT_ASLR="1", TRANSPCKPT_JOB="mine")
    checks.ok(len(found) == 1 and found[0]["personality"] != FIXED and found[0]["job"] == "mine", "but where the user says so", done)
    found, done = look(here, "--transpckpt=7s", f"--transpckpt-dir={here.path('user/other')}", tasks=2)
    checks.ok(len(found) == 2 and all(f["preload"] == ours and f["interval"] == "7s" and f["dir"] == here.path("user/other")
                                      for f in found), "on two nodes, with interval and folder of the command line", done)
    found, done = look(here, "--transpckpt", "--transpckpt-peers=2", TRANSPCKPT_PEERS="1")
    checks.ok(len(found) == 1 and found[0]["peers"] == "2", "with so many copies on other nodes as the command line says", done)
    found, done = look(here, TRANSPCKPT="1")
    checks.ok(len(found) == 1 and found[0]["preload"] == ours and found[0]["interval"] == "1", "TRANSPCKPT=1 asks for it", done)
    found, done = look(here, "--transpckpt", TRANSPCKPT="0")
    checks.ok(len(found) == 1 and found[0]["preload"] == ours, "the command line beats TRANSPCKPT=0", done)
    for options, environment in ((["--transpckpt", "--no-transpckpt"], {}), (["--no-transpckpt"], {"TRANSPCKPT": "1"})):
        found, done = look(here, *options, **environment)
        checks.ok(len(found) == 1 and found[0]["preload"] == "", f"--no-transpckpt wins ({options} {environment})", done)
    found, done = look(here, argv=["srun", "--transpckpt", "srun", "--overlap", "--no-transpckpt"], LD_PRELOAD=OWN)
    checks.ok(len(found) == 1 and found[0]["preload"] == OWN, "a step without it in a job with it", done)
    here.plugstack("default=on", "interval=9", "keep=no", f"dir={here.path('user/site')}")
    found, done = look(here, TRANSPCKPT_INTERVAL="")
    checks.ok(len(found) == 1 and found[0]["preload"] == ours, "default=on of plugstack.conf", done)
    checks.ok(len(re.findall("srun: error: transpckpt: 'keep=no' in plugstack.conf", done.stderr)) == 1,
              "a bad argument there is a line", done)
    environment = {k: v for k, v in here.settings().items() if k not in ("TRANSPCKPT_INTERVAL", "TRANSPCKPT_DIR")}
    done = here.run(["srun", *LOOK], **environment)
    checks.ok("|interval=9|" in done.stdout and f"|dir={here.path('user/site')}|" in done.stdout,
              "settings of plugstack.conf hold where the job has none", done)
    found, done = look(here, "--no-transpckpt")
    checks.ok(len(found) == 1 and found[0]["preload"] == "", "--no-transpckpt beats it", done)
    here.plugstack()
    checks.ok(until(lambda: not here.memory(), 90), "no agent is left behind by programs that had nothing to keep", here.memory())


class Trainer:
    """The GPT in a folder of its own."""

    def __init__(self, here, name, **settings):
        self.here, self.name = here, name
        self.work = here.path("user", name)
        os.mkdir(self.work)
        os.chown(self.work, here.user.pw_uid, here.user.pw_gid)
        # Nothing is durable but by what the agent does after a death.
        self.settings = here.settings(TRANSPCKPT_DURABLE_INTERVAL="1000000", SIMGPU_KERNEL_US="100", **settings)
        self.command = [here.path("inst/sim/simgpu-run"), here.path("inst/gpt"), "--seed", "5", "--steps", str(STEPS), "--save-every",
                        "25", "--out", "out"]
        self.out = os.path.join(self.work, "out")
        self.said = os.path.join(here.home, name + ".txt")

    def steps(self):
        return len(re.findall(r"^step (\d+) ", job.read(os.path.join(self.out, "log.txt")), re.M))

    def processes(self):
        """Those that train in its folder."""
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.readlink(f"/proc/{entry}/cwd") == self.work and os.path.basename(os.readlink(f"/proc/{entry}/exe")) == "gpt":
                    found.append(int(entry))
            except OSError:
                pass
        return found

    def held_at(self, reached):
        """Its processes once that holds, stopped: a short run does not end while Slurm's commands take their time. None: it ended before."""
        def held():
            pids = [pid for pid in self.processes() if job.stand_still(pid)]
            if reached():
                return pids
            self.go_on(pids)
            return None

        return until(held)

    @staticmethod
    def go_on(pids):
        for pid in pids or ():
            job.signal_if_there(pid, signal.SIGCONT)

    def submit(self, script, *options):
        done = self.here.run(["sbatch", "--parsable", "-n1", "-o", self.said, "--open-mode=append", "-J", self.name, *options,
                              "--wrap", script], cwd=self.work, **self.settings)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def live(self):
        return [int(at) for at, _, _ in job.LIVE.findall(job.read(self.said))]

    def durable(self):
        """Steps on disk."""
        done = self.here.run([self.here.path("inst/bin/transpckpt"), "ls", "--json"], **self.settings)
        return [row["step"] for row in json.loads(done.stdout or "[]") if "disk" in row["where"]]

    def newest(self):
        """The newest step that could be gone on from, of each of its jobs (a task of an array is one)."""
        done = self.here.run([self.here.path("inst/bin/transpckpt"), "ls", "--json"], **self.settings)
        found = {}
        for row in json.loads(done.stdout or "[]"):
            if row["job"].startswith(self.name) and row["offered"]:
                found[row["job"]] = max(row["step"], found.get(row["job"], 0))
        return found

    def is_at(self, least):
        """So many steps are done, and a kill now would cost two at most: on a busy machine boundaries are passed over."""
        steps = self.steps()
        return steps >= least and max(self.newest().values(), default=0) >= steps - 2

    def agent(self):
        """(process, folder) of this job's agent."""
        return next(((pid, folder) for pid, folder in self.here.agents().items()
                     if os.path.basename(folder).startswith(self.name)), None)


def outside(here, pid):
    """What is wrong with where a process is, as lines."""
    lines = []
    groups = job.read(f"/proc/{pid}/cgroup")
    status = job.read(f"/proc/{pid}/status")
    if "/job_" in groups:
        lines.append("it is in a step's cgroup: " + groups)
    if f"Uid:\t{here.user.pw_uid}\t{here.user.pw_uid}\t{here.user.pw_uid}\t{here.user.pw_uid}" not in status:
        lines.append("it is not the user's: " + status)
    while (above := re.search(r"^PPid:\t([1-9]\d*)", status, re.M)):
        status = job.read(f"/proc/{above[1]}/status")
        if status.startswith("Name:\tslurmstepd"):
            lines.append("it is below slurmstepd")
    return lines


def case_killed_step(here, checks, plain):
    """The step is killed; what it left is published; the next step of the job goes on."""
    trainer = Trainer(here, "killed")
    line = " ".join(trainer.command)
    number = trainer.submit(f"srun {line}; touch ended; while [ ! -e go ]; do sleep 0.1; done; srun {line}; touch whole; "
                            "while [ ! -e end ]; do sleep 0.1; done", "--transpckpt")
    reached = trainer.held_at(lambda: trainer.is_at(15))
    before = trainer.agent()
    checks.ok(reached and before, "the trainer runs and has an agent", here.story())
    if not before:
        return
    checks.ok(not outside(here, before[0]), "the agent is outside of the step", *outside(here, before[0]))
    checks.ok(not trainer.durable(), "nothing is durable yet", trainer.durable())
    here.run(["scancel", "--signal=KILL", f"{number}.0"])
    checks.ok(until(lambda: os.path.exists(os.path.join(trainer.work, "ended"))), "the step ends when it is killed", here.story())
    steps = trainer.steps()
    published = until(trainer.durable, 30)
    checks.ok(published and max(published) >= steps - 2, f"killed at {steps}, the agent publishes what was left: {published}",
              here.story())
    checks.ok(trainer.agent() == before, "it is the agent of before", before, trainer.agent())
    here.run(["touch", "go"], cwd=trainer.work)
    checks.ok(until(lambda: os.path.exists(os.path.join(trainer.work, "whole")), 120), "the next step goes to the end", here.story())
    time.sleep(4)
    checks.ok(trainer.agent() == before, "the agent stays for what the job may start next", before, trainer.agent())
    here.run(["touch", "end"], cwd=trainer.work)
    checks.ok(until(lambda: here.state_of(number) == "COMPLETED"), "the job ends", here.state_of(number), here.story())
    checks.ok(trainer.live() and trainer.live()[0] >= steps - 2, f"it went on at {trainer.live()}", here.story())
    checks.ok(not job.differences(plain, trainer.out), "bit for bit", *job.differences(plain, trainer.out))
    checks.ok(until(lambda: not trainer.agent(), 30) and os.path.basename(before[1]) not in here.memory(),
              "the memory tier goes with the job", here.memory())


def case_requeued(here, checks, plain):
    """A job that comes back finds its memory tier."""
    trainer = Trainer(here, "requeued")
    number = trainer.submit(" ".join(trainer.command), "--requeue", "--transpckpt=1")
    trainer.held_at(lambda: trainer.is_at(15))
    before = trainer.agent()
    checks.ok(before, "the batch step itself has an agent", here.story())
    if not before:
        return
    here.run(["scontrol", "requeue", number])
    until(lambda: here.state_of(number) == "PENDING" and
          f"job {number} comes back" in "".join(job.read(here.path("log", node)) for node in here.nodes), 30)
    steps = trainer.steps()
    checks.ok(trainer.agent() == before, "its agent stays, with the memory tier", before, trainer.agent(), here.story())
    here.run(["scontrol", "update", f"jobid={number}", "starttime=now"], root=True)
    checks.ok(until(lambda: here.state_of(number) == "COMPLETED", 120), "it runs again, to its end", here.state_of(number), here.story())
    checks.ok(trainer.live() and trainer.live()[0] >= steps - 2, f"killed at {steps}, it went on at {trainer.live()}", here.story())
    checks.ok(not job.differences(plain, trainer.out), "bit for bit", *job.differences(plain, trainer.out))


def case_array(here, checks, plain):
    """Tasks of an array at the same time in one folder: each has a memory tier, and a place in the store, of its own. One of them comes
    back, and goes on from what it has left."""
    trainer = Trainer(here, "array")
    outs = [os.path.join(trainer.work, f"out{task}") for task in range(2)]

    def steps(task):
        return len(re.findall(r"^step (\d+) ", job.read(os.path.join(outs[task], "log.txt")), re.M))

    def tier(task):
        return next((name for name in here.memory() if re.fullmatch(rf"array-[0-9a-f]+-{task}", name)), None)

    def said(task):
        return job.read(f"{trainer.said}-{task}.txt")

    command = " ".join(trainer.command).replace("--out out", "--out out$SLURM_ARRAY_TASK_ID")
    number = trainer.submit(command, "--array=0-1", "-o", f"{trainer.said}-%a.txt", "--requeue", "--transpckpt=1")
    def both_at(least):
        reached, newest = sorted([steps(0), steps(1)]), sorted(trainer.newest().values())
        return reached[0] >= least and len(newest) == 2 and all(has >= at - 2 for has, at in zip(newest, reached))

    held = trainer.held_at(lambda: both_at(15))
    # That of another job may still be on its way out.
    agents = {os.path.basename(folder) for folder in here.agents().values()}
    checks.ok(tier(0) and tier(1) and {tier(0), tier(1)} <= agents, "each task of an array has an agent, and memory, of its own", here.memory(), agents,
              here.story())
    here.run(["scontrol", "requeue", f"{number}_1"])
    until(lambda: here.state_of(f"{number}_1") == "PENDING" and "comes back" in "".join(job.read(here.path("log", n)) for n in here.nodes), 30)
    trainer.go_on(held)
    reached = steps(1)
    here.run(["scontrol", "update", f"jobid={number}_1", "starttime=now"], root=True)
    checks.ok(until(lambda: {here.state_of(f"{number}_{task}") for task in range(2)} == {"COMPLETED"}, 120), "both end well",
              here.state_of(f"{number}_0"), here.state_of(f"{number}_1"), here.story())
    live = [[int(at) for at, _, _ in job.LIVE.findall(said(task))] for task in range(2)]
    checks.ok(not live[0] and len(live[1]) == 1 and live[1][0] >= reached - 2, f"one was requeued at {reached}, and went on at {live[1]}", live,
              here.story())
    for task in range(2):
        checks.ok(not job.differences(plain, outs[task]), f"task {task}: bit for bit", *job.differences(plain, outs[task]))
    checks.ok(until(lambda: not tier(0) and not tier(1), 60), "nothing is left in memory", here.memory())


def agents_of(here, trainer):
    """All of this job, wherever their folders are. One that a program starts while there is one is there for a moment."""
    found = []
    for entry in os.listdir("/proc"):
        words = job.read(f"/proc/{entry}/cmdline").split("\0") if entry.isdigit() else []
        if len(words) > 2 and words[0].startswith(here.root) and words[2].startswith(trainer.name + "-"):
            found.append(int(entry))
    return found


def case_private(here, checks, plain):
    """Each job has a /dev/shm and a /tmp of its own, and what memory it has asked for. Its step is killed, then it is requeued: the next
    start goes on from the node's memory, while the store does not work. A file that it saves in its own /tmp is there."""
    trainer = Trainer(here, "private")
    line = " ".join(trainer.command)
    kept, odd = f"/tmp/model-{os.getpid()}.pt", here.shm + ".odd"
    number = trainer.submit(f"stat -c %d /dev/shm >>devices; srun {line}; touch ended$SLURM_RESTART_COUNT; srun {line}; touch whole; "
                            f"srun sh -c 'echo saved >{kept}'; srun --no-transpckpt cat {kept} >saved; "
                            f"touch {odd}; TRANSPCKPT_JOB=odd TRANSPCKPT_SHM={odd} srun echo runs >odd 2>&1; touch said; "
                            "while [ ! -e end ]; do sleep 0.1; done", "--transpckpt", "--requeue",
                            *(["--mem=200M"] if here.constrained else []))
    reached = trainer.held_at(lambda: trainer.is_at(12))
    before = trainer.agent()
    checks.ok(reached and before, "with a /dev/shm of the job's own the trainer runs, and has the node's agent", here.story())
    if not before:
        return
    checks.ok(int(job.read(os.path.join(trainer.work, "devices"))) != os.stat("/dev/shm").st_dev, "the job's /dev/shm is another")
    checks.ok(until(lambda: agents_of(here, trainer) == [before[0]], 10), "there is no other agent", agents_of(here, trainer), before)
    checks.ok(not outside(here, before[0]), "the agent is outside of the step", *outside(here, before[0]))
    # A file in the store's place.
    store = trainer.settings["TRANSPCKPT_DIR"]
    os.rename(store, store + ".away")
    with open(store, "w", encoding="ascii"):
        pass
    here.run(["scancel", "--signal=KILL", f"{number}.0"])
    checks.ok(until(lambda: os.path.exists(os.path.join(trainer.work, "ended"))), "the step ends when it is killed", here.story())
    first = trainer.steps()
    checks.ok(trainer.held_at(lambda: trainer.live() and trainer.steps() >= first + 8), "the next step goes on", here.story())
    here.run(["scontrol", "requeue", number])
    until(lambda: here.state_of(number) == "PENDING" and
          f"job {number} comes back" in "".join(job.read(here.path("log", node)) for node in here.nodes), 30)
    second = trainer.steps()
    checks.ok(trainer.agent() == before and until(lambda: agents_of(here, trainer) == [before[0]], 10), "its agent stays when it is requeued",
              before, agents_of(here, trainer), here.story())
    # Where slurmd still knows the job by its credential it makes no mounts for it: Slurm lets a requeued job wait for as long.
    time.sleep(7)
    here.run(["scontrol", "update", f"jobid={number}", "starttime=now"], root=True)
    whole = until(lambda: os.path.exists(os.path.join(trainer.work, "whole")) or here.state_of(number) == "FAILED", 120)
    checks.ok(whole and here.state_of(number) == "RUNNING", "it runs again, to its end", job.read(trainer.said), here.story())
    if here.state_of(number) != "RUNNING":
        return
    devices = job.read(os.path.join(trainer.work, "devices")).split()
    live = trainer.live()
    checks.ok(len(devices) == 2 and len(live) >= 2 and live[0] >= first - 2 and live[1] >= second - 2,
              f"killed at {first}, requeued at {second}, it went on at {live}, from memory", devices, here.story())
    checks.ok(until(lambda: agents_of(here, trainer) == [before[0]], 10), "it is the agent of before", before, agents_of(here, trainer))
    checks.ok(until(lambda: job.read(os.path.join(trainer.work, "saved")) == "saved\n", 30) and not os.path.exists(kept),
              "what is saved in a /tmp of the job's own is there, and nowhere else", here.story())
    until(lambda: os.path.exists(os.path.join(trainer.work, "said")), 30)
    said = job.read(os.path.join(trainer.work, "odd"))
    checks.ok("runs\n" in said and len(re.findall(r"error: transpckpt: this job has mounts of its own, and \S+ of the node cannot be mounted there", said)) == 1,
              "where the job has a file in the folder's place it runs, and one line says so", said)
    checks.ok(not re.findall(r"transpckpt: .*mounts of its own", job.read(trainer.said)), "nothing is said", job.read(trainer.said))
    os.unlink(store)
    os.rename(store + ".away", store)
    here.run(["touch", "end"], cwd=trainer.work)
    checks.ok(until(lambda: here.state_of(number) == "COMPLETED"), "the job ends", here.state_of(number), here.story())
    checks.ok(not job.differences(plain, trainer.out), "bit for bit", *job.differences(plain, trainer.out))
    checks.ok(until(lambda: not trainer.agent() and os.path.basename(before[1]) not in here.memory(), 90),
              "the memory tier goes with the job", here.memory(), here.story())
    shutil.rmtree(odd, ignore_errors=True)


def case_shm(here, checks):
    """The administrator's folder of the memory tier: each user has one in it, which root makes."""
    shared = here.shm + ".all"
    own = os.path.join(shared, f"transpckpt-{here.user.pw_uid}")
    here.plugstack(f"shm={shared}")
    environment = here.settings()
    del environment["TRANSPCKPT_SHM"]
    try:
        for mode, what in ((None, "made"), (0o1777, "one that all can write")):
            if mode:
                os.chmod(shared, mode)
            done = here.run(["srun", "--transpckpt", "sh", "-c", "umask; echo $TRANSPCKPT_SHM; stat -c '%a %u' $TRANSPCKPT_SHM"], **environment)
            checks.ok(done.stdout.split()[1:] == [own, "700", str(here.user.pw_uid)] and not done.stderr,
                      f"plugstack.conf's folder of the memory tier, {what}: the user's own is in it", done)
        checks.ok(os.stat(shared).st_uid == 0, "it is root's")
        until(lambda: not os.listdir(own), 60)
        os.rmdir(own)
        elsewhere = here.path("elsewhere")
        os.mkdir(elsewhere, 0o700)
        os.symlink(elsewhere, own)
        done = here.run(["srun", "--transpckpt", "echo", "it runs"], **environment)
        checks.ok("it runs" in done.stdout and f"transpckpt: {own} cannot be used" in done.stderr and os.stat(elsewhere).st_uid == 0 and
                  not os.listdir(elsewhere), "a link in its place is not followed, and the job runs", done)
        os.unlink(own)
        os.chmod(shared, 0o777)
        done = here.run(["srun", "--transpckpt", "echo", "it runs"], **environment)
        checks.ok("it runs" in done.stdout and "others than root can change what is in it" in done.stderr and
                  len(re.findall("error: transpckpt: ", done.stderr)) == 1,
                  "nor is a folder where others could put one taken", done)
    finally:
        here.plugstack()
        shutil.rmtree(shared, ignore_errors=True)


def case_export(here, checks):
    """A job that gets nothing of the user's environment has what the command line says."""
    done = here.run(["srun", "--export=NONE", "--transpckpt=7s", f"--transpckpt-dir={here.path('user/other')}", "/bin/sh", *LOOK[1:]],
                    **here.settings(TRANSPCKPT_INTERVAL="3", LD_PRELOAD=OWN))
    checks.ok(f"preload={here.forwarder}:{here.library}|interval=7s|dir={here.path('user/other')}|" in done.stdout and "mapped=0" not in done.stdout,
              "with --export=NONE options count, and what the user has set does not", done)
    tier = f"/dev/shm/transpckpt-{here.user.pw_uid}"
    checks.ok(until(lambda: not glob.glob(os.path.join(tier, "sh-*")), 90), "its agent, in the usual place, goes", glob.glob(os.path.join(tier, "*")))
    if os.path.isdir(tier) and not os.listdir(tier):
        os.rmdir(tier)


def case_ended(here, checks, plain):
    """A job ends for good while its store does not work: nothing is cleaned up before it is durable. Then srun again."""
    trainer = Trainer(here, "ended")
    store = here.path("user/lost")
    trainer.settings["TRANSPCKPT_DIR"] = store
    def begin(node):
        return ["srun", "-w", node, "-J", trainer.name, "--transpckpt", *trainer.command]

    first = here.popen(begin(here.nodes[0]), trainer.said, cwd=trainer.work, **trainer.settings)
    trainer.held_at(lambda: trainer.is_at(15))
    before = trainer.agent()
    checks.ok(before, "srun alone has an agent", here.story())
    if not before:
        first.kill()
        return
    number = max(here.jobs(), key=int)
    # A file in the store's place.
    os.rename(store, store + ".away")
    with open(store, "w", encoding="ascii"):
        pass
    here.run(["scancel", "--signal=KILL", f"{number}.0"])
    checks.ok(first.wait(60) != 0, "srun says that its step was killed")
    steps = trainer.steps()
    told = until(lambda: f"job {number} has ended" in "".join(job.read(here.path("log", node)) for node in here.nodes), 30)
    checks.ok(told, "its agent is told that the job does not come back", here.story())
    until(lambda: "no program comes back" in job.read(os.path.join(before[1], "agent.log")), 30)
    checks.ok(trainer.agent() == before, "what cannot be published stays in memory, and the agent with it", here.memory(),
              here.story())
    os.unlink(store)
    os.rename(store + ".away", store)
    checks.ok(until(lambda: not trainer.agent() and os.path.basename(before[1]) not in here.memory(), 90),
              "once it is published the memory tier goes", here.memory(), here.story())
    checks.ok(trainer.durable() and max(trainer.durable()) >= steps - 2, f"killed at {steps}, on disk: {trainer.durable()}",
              here.story())
    second = here.popen(begin(here.nodes[1]), trainer.said, cwd=trainer.work, **trainer.settings)
    checks.ok(second.wait(120) == 0 and trainer.live() and trainer.live()[0] >= steps - 2,
              f"srun again goes on at {trainer.live()}, on the other node", here.story())
    checks.ok(not job.differences(plain, trainer.out), "bit for bit", *job.differences(plain, trainer.out))


def main():
    cluster.needs()
    checks = job.Checks()
    wanted = os.environ.get("CASE", "values task shm export killed_step requeued array ended v2 private").split()
    with cluster.Cluster() as here:
        print(f"# cgroups of version {here.cgroups} end a step" if here.cgroups else
              "# no writable cgroups here: the process tree ends a step, and cgroups are not tried")
        if "values" in wanted:
            case_values(here, checks)
        if "task" in wanted:
            case_task(here, checks)
        if "shm" in wanted:
            case_shm(here, checks)
        if "export" in wanted:
            case_export(here, checks)
        trainer = Trainer(here, "plain")
        with open(trainer.said, "wb") as out:
            os.fchmod(out.fileno(), 0o666)
        done = here.run(["srun", *trainer.command], cwd=trainer.work, SIMGPU_KERNEL_US="100")
        checks.ok(done.returncode == 0 and trainer.steps() == STEPS, "the plain run", done.stderr)
        for case in (case_killed_step, case_requeued, case_array, case_ended):
            if case.__name__[5:] in wanted:
                case(here, checks, trainer.out)
        if "v2" in wanted and here.cgroups == 1 and cluster.has_v2():
            with cluster.Cluster(cgroups=2) as other:
                case_killed_step(other, checks, trainer.out)
        why_not = cluster.has_private()
        if "private" in wanted and why_not:
            print(f"# private is skipped: {why_not}")
        elif "private" in wanted:
            with cluster.Cluster(private=True, constrained=here.cgroups == 1 and cluster.has_limits()) as other:
                case_private(other, checks, trainer.out)
    checks.end()


main()
