#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=1G minutes=15 about=65s slurm
"""A user who means root's part of the plugin ill: files that root should not read or wait for, an agent that does not answer, processes that are
stopped, programs in the agent's place, and an agent that would stay for ever."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster
import job
from cluster import until

PYTHON = "/usr/bin/python3"
SECRET = "/tpck-secret-of-root"

# In the agent's place: it holds its lock, and lets nobody connect any more.
DEAF = """
import fcntl, os, socket, sys, time
folder = sys.argv[1]
os.makedirs(folder, 0o700)
lock = open(os.path.join(folder, "agent.lock"), "w")
fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(os.path.join(folder, "agent.sock"))
listener.listen(0)
held = []
while True:
    held.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    held[-1].setblocking(False)
    try:
        held[-1].connect(os.path.join(folder, "agent.sock"))
    except BlockingIOError:
        break
print("full", flush=True)
# All that Slurm has as this user is stopped, once somebody says so.
stopped = 0
sys.stdin.readline()
while True:
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat("/proc/" + entry).st_uid == os.getuid() and open(f"/proc/{entry}/comm").read().startswith("slurmstepd"):
                os.kill(int(entry), 19)
                if not stopped:
                    print("stopped", flush=True)
                stopped += 1
        except OSError:
            pass
"""


def as_user(here):
    return {"user": here.user.pw_uid, "group": here.user.pw_gid, "extra_groups": [], "cwd": here.home}


def steps_end(here, checks, what, command, **environment):
    """Runs srun, and gives its output; a step that hangs is cancelled."""
    out = here.path("user", "hostile.txt")
    done = here.popen(command, out, **environment)
    try:
        code = done.wait(60)
    except subprocess.TimeoutExpired:
        code = None
        done.kill()
        done.wait()
        here.run(["scancel", "--user", cluster.USER], root=True)
    said = job.read(out)
    checks.ok(code == 0 and "it runs" in said, f"{what}: the job runs", code, said, here.story())
    return said


def case_conf(here, checks):
    """Settings are read with the user's rights, and from files only."""
    look = ["srun", "--transpckpt", "sh", "-c", "echo \"it runs|except=$TRANSPCKPT_FILES_EXCEPT\""]
    secret, pipe = here.path("secret.conf"), here.path("user", "pipe")
    here.write("secret.conf", f"TRANSPCKPT_FILES_EXCEPT={SECRET}\n")
    os.chmod(secret, 0o600)
    said = steps_end(here, checks, "with a file of root's for settings", look, **here.settings(TRANSPCKPT_CONF=secret))
    checks.ok(SECRET not in said, "it is not read with root's rights", said)
    subprocess.run(["mkfifo", pipe], check=True, **as_user(here))
    steps_end(here, checks, "with a pipe for settings", look, **here.settings(TRANSPCKPT_CONF=pipe))
    steps_end(here, checks, "with a device for settings", look, **here.settings(TRANSPCKPT_CONF="/dev/zero"))
    until(lambda: not here.agents(), 60)


def case_deaf(here, checks):
    """The user's process listens in the agent's place, and lets root's wait; at the job's end it stops what is the user's."""
    folder = os.path.join(here.shm, "deaf")
    out, go = here.path("user", "deaf.txt"), here.path("user", "go")
    with open(here.path("user", "deaf.said"), "wb") as said:
        deaf = subprocess.Popen([PYTHON, "-c", DEAF, folder], stdin=subprocess.PIPE, stdout=said, stderr=said, **as_user(here))
    try:
        checks.ok(until(lambda: "full" in job.read(here.path("user", "deaf.said")), 30), "somebody listens and does not answer",
                  job.read(here.path("user", "deaf.said")))
        done = here.run(["sbatch", "--parsable", "-n1", "-o", out, "--transpckpt", "--wrap",
                         f"touch {here.path('user/begun')}; while [ ! -e {go} ]; do sleep 0.1; done"], **here.settings(TRANSPCKPT_JOB="deaf"))
        number = done.stdout.strip()
        checks.ok(until(lambda: os.path.exists(here.path("user", "begun")), 60), "the job runs all the same", done, here.story())
        deaf.stdin.write(b"\n")
        deaf.stdin.flush()
        here.run(["touch", go])
        ended = until(lambda: here.state_of(number) == "COMPLETED", 30)
        checks.ok(ended, "and ends: the epilog waits for nobody who is stopped", here.state_of(number), here.story())
        checks.ok("stopped" in job.read(here.path("user", "deaf.said")), "one of it was stopped", here.story())
        checks.ok("of its end" in "".join(job.read(here.path("log", node)) for node in here.nodes), "a line says that the agent was not told")
    finally:
        deaf.kill()
        deaf.wait()
        shutil.rmtree(folder, ignore_errors=True)


def groups_of(pid):
    """Hierarchy -> group, of those that are ours."""
    found = {}
    for line in job.read(f"/proc/{pid}/cgroup").splitlines():
        _, kind, path = line.split(":", 2)
        if "/transpckpt_" in path:
            found[kind] = path
    return found


def case_program(here, checks):
    """What runs outside of the step is this installation's agent, with the job's limits."""
    ran, own = here.path("user", "ran"), here.path("user", "own.sh")
    with open(own, "w", encoding="ascii") as f:
        f.write(f"#!/bin/sh\ncat /proc/self/cgroup >>{ran}\n")
    os.chmod(own, 0o755)
    out, go = here.path("user", "program.txt"), here.path("user", "go.program")
    limited = ["--mem=300M"] if here.constrained else []
    done = here.run(["sbatch", "--parsable", "-n1", "-o", out, "-J", "program", *limited, "--transpckpt", "--wrap",
                     f"srun true; srun true; touch {here.path('user/begun.program')}; while [ ! -e {go} ]; do sleep 0.1; done"],
                    **here.settings(TRANSPCKPT_AGENT=own, LD_LIBRARY_PATH="/tpck-nowhere", LD_OF_THE_USER="1"))
    number = done.stdout.strip()
    begun = number and until(lambda: os.path.exists(here.path("user", "begun.program")), 60)
    agents = [pid for pid, folder in here.agents().items() if os.path.basename(folder).startswith("program-")]
    checks.ok(begun and len(agents) == 1, "the job has an agent", done, here.agents(), here.story())
    checks.ok(not os.path.exists(ran), "which is not what TRANSPCKPT_AGENT names", job.read(ran))
    record = job.read(here.path("state", f"{number}.job")).splitlines()
    checks.ok(len(record) == 1, "three steps are one line of the job's record", record)
    if len(agents) != 1:
        here.run(["touch", go])
        return
    variables = job.read(f"/proc/{agents[0]}/environ").split("\0")
    checks.ok(not [v for v in variables if v.startswith("LD_")], "its loader is told nothing by the user", variables)
    groups = groups_of(agents[0])
    if here.cgroups == 1:
        checks.ok("freezer" in groups and groups["freezer"].endswith(f"/transpckpt_{number}"), "it is in a group of its own", groups,
                  job.read(f"/proc/{agents[0]}/cgroup"))
    if here.cgroups == 1 and here.constrained:
        limit = int(job.read(f"/sys/fs/cgroup/memory{groups.get('memory', '')}/memory.limit_in_bytes") or 0)
        cores = job.read(f"/sys/fs/cgroup/cpuset{groups.get('cpuset', '')}/cpuset.cpus").strip()
        jobs = glob.glob(f"/sys/fs/cgroup/cpuset/slurm_*/uid_*/job_{number}/cpuset.cpus")
        checks.ok(limit == 300 << 20, "with the job's limit of memory", limit, groups)
        checks.ok(jobs and cores == job.read(jobs[0]).strip(), "and the job's cores", cores, jobs, groups)
    here.run(["touch", go])
    checks.ok(until(lambda: here.state_of(number) == "COMPLETED", 60), "the job ends", here.state_of(number))
    left = [f"/sys/fs/cgroup/{kind}{path}" for kind, path in groups.items()]
    checks.ok(until(lambda: not [path for path in left if os.path.exists(path)], 60), "its group goes with it", left, here.story())


# Goes to a group, becomes the user, and says what opening devices is answered with. Names of groups and devices follow the user's number.
PROBE = """
import errno, os, sys
user, group = sys.argv[1:3]
if group:
    open(os.path.join(group, "cgroup.procs"), "w").write("0")
if user != "-":
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
for path in sys.argv[3:]:
    try:
        os.open(path, os.O_RDWR)
        print("open")
    except OSError as e:
        print(errno.errorcode[e.errno])
"""


def opened(here, group, *devices):
    return subprocess.run([PYTHON, "-c", PROBE, str(here.user.pw_uid), group, *devices], capture_output=True, text=True, check=False).stdout.split()


def case_devices(here, checks):
    """What runs in the agent's group has the devices that the job has asked for."""
    begun, go = here.path("user", "begun.devices"), here.path("user", "go.devices")
    seen = here.path("user", "seen")
    here.write("probe.py", PROBE)
    devices = [here.path("dev0"), here.path("dev1")]
    done = here.run(["sbatch", "--parsable", "-n1", "-o", here.path("user", "devices.txt"), "-J", "devices", "--gres=gpu:1", "--transpckpt", "--wrap",
                     f"srun --gres=gpu:1 {PYTHON} {here.path('probe.py')} - '' {' '.join(devices)} >{seen}; touch {begun}; while [ ! -e {go} ]; do sleep 0.1; done"], **here.settings())
    number = done.stdout.strip()
    checks.ok(number and until(lambda: os.path.exists(begun), 60), "a job with one of two devices runs", done, here.story())
    agents = [pid for pid, folder in here.agents().items() if os.path.basename(folder).startswith("devices-")]
    groups = groups_of(agents[0]) if agents else {}
    kind, mount = ("devices", cluster.DEVICES) if here.cgroups == 1 else ("", cluster.mount_of_v2())
    checks.ok(kind in groups, "its agent is in a group of its own", groups, job.read(f"/proc/{agents[0]}/cgroup") if agents else here.agents(), here.story())
    checks.ok(job.read(seen).split() == ["ENXIO", "EPERM"], "the step has the first device, and not the second", job.read(seen), here.story())
    if kind in groups:
        checks.ok(opened(here, "", *devices) == ["ENXIO", "ENXIO"], "both are there for who has no limits", opened(here, "", *devices))
        found = opened(here, mount + groups[kind], *devices, "/dev/null")
        checks.ok(found == ["ENXIO", "EPERM", "open"], "what is in the agent's group has the job's device, and not the other", found, groups, here.story())
    here.run(["touch", go])
    checks.ok(until(lambda: here.state_of(number) == "COMPLETED", 60), "the job ends", here.state_of(number))
    left = [path for path in (mount + groups.get(kind, "/"), os.path.dirname(mount + groups.get(kind, "/"))) if os.path.basename(path).endswith(f"_{number}")]
    checks.ok(until(lambda: not [path for path in left if os.path.exists(path)], 60), "and with it the groups", left, here.story())


def case_stay(here, checks):
    """An agent that cannot make durable what it has stays for as long as the administrator says."""
    here.plugstack("stay=2")
    store = here.path("user", "lost")
    out = here.path("user", "stay.txt")
    trainer = [here.path("inst/sim/simgpu-run"), here.path("inst/gpt"), "--seed", "5", "--steps", "100000", "--save-every", "0", "--out", here.path("user/stay.out")]
    settings = here.settings(TRANSPCKPT_DIR=store, TRANSPCKPT_DURABLE_INTERVAL="1000000", SIMGPU_KERNEL_US="100")
    done = here.run(["sbatch", "--parsable", "-n1", "-o", out, "-J", "stay", "--transpckpt", "--wrap", " ".join(trainer)], **settings)
    number = done.stdout.strip()

    def serving():
        return [(pid, folder) for pid, folder in here.agents().items() if os.path.basename(folder).startswith("stay-")]

    def offered():
        rows = here.run([here.path("inst/bin/transpckpt"), "ls", "--json"], **settings).stdout
        return any(row["offered"] for row in json.loads(rows or "[]"))

    before = serving() if until(offered, 30) else []
    checks.ok(before, "a snapshot is in memory", here.run([here.path("inst/bin/transpckpt"), "ls", "--json"], **settings), here.story())
    # A file in the store's place.
    if os.path.exists(store):
        os.rename(store, store + ".away")
    with open(store, "w", encoding="ascii"):
        pass
    here.run(["scancel", number])
    checks.ok(until(lambda: here.state_of(number) == "CANCELLED", 60), "the job is cancelled", here.state_of(number), here.story())
    if here.cgroups and before:
        checks.ok(until(lambda: not os.path.exists(f"/proc/{before[0][0]}"), 60), "its agent is ended", here.story())
        checks.ok(until(lambda: not os.path.exists(before[0][1]), 60), "and its memory tier removed", here.memory(), here.story())
        checks.ok(until(lambda: not glob.glob(here.path("state", f"{number}.*")), 30), "root keeps nothing of it", os.listdir(here.path("state")))
    for pid, _ in serving():
        job.signal_if_there(pid, signal.SIGKILL)
    here.plugstack()


def versions_of_groups():
    """By which devices can be taken from steps here."""
    chosen = [int(os.environ["CGROUPS"])] if os.environ.get("CGROUPS") else [1, 2]
    return [n for n in chosen if (n == 1 and os.access(os.path.join(cluster.DEVICES, "cgroup.procs"), os.W_OK)) or (n == 2 and cluster.mount_of_v2() and cluster.has_v2())]


def main():
    cluster.needs()
    if not os.path.exists(PYTHON):
        job.skip(f"{PYTHON} is missing")
    checks = job.Checks()
    wanted = os.environ.get("CASE", "conf deaf program stay devices").split()
    why_not = cluster.has_private()
    if why_not:
        print(f"# jobs have no mounts of their own: {why_not}")
    limited = not why_not and (int(os.environ.get("CGROUPS") or 1) == 1) and os.access(cluster.FREEZER, os.W_OK) and cluster.has_limits()
    with cluster.Cluster(private=not why_not, constrained=bool(limited)) as here:
        for case in (case_conf, case_deaf, case_program, case_stay):
            if case.__name__[5:] in wanted:
                case(here, checks)
    if "devices" in wanted:
        for version in versions_of_groups():
            print(f"# devices, by cgroups of version {version}")
            with cluster.Cluster(cgroups=version, devices=True) as here:
                case_devices(here, checks)
    checks.end()


main()
