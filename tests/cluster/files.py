#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.1 memory=1500M minutes=20 about=50s
"""A node is lost with files of the program's own that it had not put at their paths yet: at TRANSPCKPT_FSYNC=replicated its peers
have them, and the next start finds them. CASE=NAME runs one case; BY_NAME only so, for the time they take."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node

import job

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "torch"))
import scripts

node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
if not shutil.which("strace"):
    job.skip("strace is missing")
checks = job.Checks()

# What all programs here begin with: they meet the test by files that no rule takes.
BEGIN = """
import json, os, sys, time
signs = os.environ["SIGNS"]
def step(name):
    # A rename would wait for what is owed.
    open(os.path.join(signs, name), "w").close()
    while not os.path.exists(os.path.join(signs, name + ".go")):
        time.sleep(0.005)
def save(name, byte, size=300000, sync=True, to=None):
    with open(name, "wb") as f:
        f.write(bytes([byte]) * size)
        f.flush()
        if sync:
            os.fsync(f.fileno())
    if to:
        os.rename(name, to)
def sync(name="."):
    fd = os.open(name, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
"""

# The first file of a name goes beside its target: behind these all is in memory.
TRAIN = BEGIN + """
save("a-0.pt", 1)
save("a-0.pt.tmp", 1, to="b-0.pt")
save("latest", 1, 5)
step("begun")
"""

LOOK = BEGIN + """
found = {}
for name in sorted(os.listdir(".")):
    with open(name, "rb") as f:
        data = f.read()
    found[name] = [len(data), data[0] if data and data == data[:1] * len(data) else None]
with open(os.path.join(signs, "found"), "w") as f:
    json.dump(found, f)
"""


class Run:
    """Programs on nodes of a cluster that see one folder."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.work = os.path.join(cluster.root, "work")
        self.signs = os.path.join(cluster.root, "signs")
        os.mkdir(self.work)
        os.mkdir(self.signs)
        self.environment = dict(cluster.environment, SIGNS=self.signs, TRANSPCKPT_EXIT_WAIT_SEC="1")
        # What enters the node is not of the job.
        self.argv = ["env", "LD_PRELOAD=" + os.path.join(cluster.build, ".libs/libtranspckpt.so"), sys.executable, "-c"]
        self.starts = 0
        self.tracers = []

    def start(self, where, program, **settings):
        self.starts += 1
        return where.start([*self.argv, program], {**self.environment, **settings}, f"start{self.starts}", self.work)

    def told(self, start, name, seconds=60):
        good = node.until(lambda: os.path.exists(os.path.join(self.signs, name)) or not start.running(), seconds) and start.running()
        if not good:
            checks.ok(False, f"the program comes to {name}", start.said(), self.cluster.logs())
        return good

    def go(self, name):
        with open(os.path.join(self.signs, name + ".go"), "w", encoding="ascii"):
            pass

    def agents(self, where):
        """Its processes as this namespace knows them."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if job.read(f"/proc/{pid}/comm") == "transpckptd\n" and \
                        os.readlink(f"/proc/{pid}/ns/pid") == os.readlink(f"/proc/{where.init}/ns/pid"):
                    found.append(int(pid))
            except OSError:
                pass
        return found

    def hold_back(self, where):
        """Nothing that this node's agent owes comes to its path from here on: a disk that hangs."""
        tasks = []
        for pid in self.agents(where):
            for task in os.listdir(f"/proc/{pid}/task"):
                if re.fullmatch(r"tpck-files(-\d)?\n", job.read(f"/proc/{pid}/task/{task}/comm")):
                    tasks.append(task)
        tracer = subprocess.Popen(["strace", "-q", "-o", "/dev/null", *[a for t in tasks for a in ("-p", t)], "-P", self.work,
                                   "-etrace=openat", "-einject=openat:delay_enter=300000000"], stderr=subprocess.DEVNULL)
        self.tracers.append(tracer)
        traced = node.until(lambda: all(f"TracerPid:\t{tracer.pid}\n" in job.read(f"/proc/{t}/status") for t in tasks), 20)
        if not tasks or not traced:
            raise RuntimeError("the agent cannot be held back")
        return tracer

    def destroy(self, where, tracer):
        """A node whose agent is being held back: the namespace ends only once the tracer has let go of the dead."""
        where.cut()
        for pid in self.agents(where):
            job.signal_if_there(pid)
        tracer.kill()
        tracer.wait()
        where.end()

    def let_go(self, tracer):
        tracer.terminate()
        tracer.wait(30)

    def look(self, where, **settings):
        """What a start on this node finds: sizes, and the byte that all of it is."""
        path = os.path.join(self.signs, "found")
        if os.path.exists(path):
            os.unlink(path)
        start = self.start(where, LOOK, **settings)
        status = start.wait()
        print(f"# a start that looks took {time.monotonic() - start.begun:.1f} s")
        if status != 0:
            checks.ok(False, "a start that looks", status, start.said(), self.cluster.logs())
            return {}, start
        return json.loads(job.read(path)), start

    def there(self):
        """What is at the paths, as strangers see it."""
        found = {}
        for name in sorted(os.listdir(self.work)):
            if not name.startswith(".tpck-"):
                with open(os.path.join(self.work, name), "rb") as f:
                    data = f.read()
                found[name] = [len(data), data[0] if data == data[:1] * len(data) else None]
        return found

    def parts(self):
        return [n for n in os.listdir(self.work) if n.startswith(".tpck-")]

    def holds(self, where):
        """Folders with records of other nodes' files."""
        return sorted({os.path.basename(os.path.dirname(f)) for f in glob.glob(where.path("j", "owed.*", "*.record"))})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for tracer in self.tracers:
            tracer.kill()
            tracer.wait()


SETTINGS = {"TRANSPCKPT_FILES": "auto", "TRANSPCKPT_FSYNC": "replicated"}
BY_NAME = ("narrow", "torch")
OLD = {"a-0.pt": [300000, 1], "b-0.pt": [300000, 1], "latest": [5, 1]}


def begun(run, where, program, **settings):
    """A program whose files are not put at their paths from its first step on."""
    first = run.start(where, TRAIN + program, **settings)
    if not run.told(first, "begun") or not node.until(lambda: run.there() == OLD, 30):
        raise RuntimeError("the program does not begin: " + first.said() + str(run.there()) + run.cluster.logs())
    tracer = run.hold_back(where)
    run.go("begun")
    return first, tracer


SEQUENCE = """
os.umask(0o27)
save("a-1.pt", 2)
save("a-0.pt.tmp", 3, to="b-0.pt")
with open("a-2.pt", "wb") as f:
    f.truncate(3 << 20)
    f.seek(1 << 20)
    f.write(b"x" * 1000)
os.utime("a-2.pt", (1e9, 1e9))
os.unlink("a-0.pt")
save("latest", 4, 5)
sync()
again = open("a-1.pt", "ab")
again.write(b"more")
again.flush()
time.sleep(0.5)
step("saved")
"""


def case_lost():
    """Whole, with the rename, the pointer and the removal, and as it was what is being written again; at the level `memory` nothing."""
    for level in ("replicated", "memory"):
        with node.Cluster(2, **{**SETTINGS, "TRANSPCKPT_FSYNC": level}) as cluster, Run(cluster) as run:
            lost(cluster, run, level)


def lost(cluster, run, level):
    a, b = cluster.nodes
    b.agent()
    first, tracer = begun(run, a, SEQUENCE)
    if not run.told(first, "saved"):
        return
    checks.ok(run.there() == OLD, f"{level}: nothing is at its path yet", run.there())
    checks.ok(bool(run.holds(b)) == (level == "replicated"), f"{level}: the peer has {'it' if level == 'replicated' else 'nothing'}",
              cluster.logs())
    shown = b.run([os.path.join(cluster.build, "transpckpt"), "show"], cluster.environment).stdout
    checks.ok(("holds 5 files, 3.6 MiB, that nodea has not put at their paths\n" in shown) == (level == "replicated"), f"{level}: show says so" if level == "replicated" else f"{level}: show says nothing", shown)
    run.destroy(a, tracer)
    first.wait(10)
    found, second = run.look(b)
    if level == "memory":
        checks.ok(found == OLD, "memory: the next start finds what was there before", found)
        return
    new = {"a-1.pt": [300000, 2], "a-2.pt": [3 << 20, None], "b-0.pt": [300000, 3], "latest": [5, 4]}
    checks.ok(found == new, "replicated: the next start finds all of it", found, second.said(), cluster.logs())
    path = os.path.join(run.work, "a-2.pt")
    with open(path, "rb") as f:
        data = f.read()
    facts = os.stat(path)
    checks.ok(data == b"\0" * (1 << 20) + b"x" * 1000 + b"\0" * ((2 << 20) - 1000) and facts.st_mtime == 1e9 and
              facts.st_mode & 0o777 == 0o640 and facts.st_blocks * 512 <= 1 << 20, "byte for byte, with times, mode and holes", facts)
    checks.ok(not run.holds(b) and not run.parts() and not second.said(), "and nothing is left over", run.parts(), second.said())


NARROW = """
save("a-1.pt", 2, 16 << 20)
sync()
step("saved")
"""


def case_narrow():
    """What is sent at once takes a narrow link longer than a peer may be silent."""
    with node.Cluster(2, links={"delay_ms": 5, "rate_mbit": 6}, **SETTINGS) as cluster, Run(cluster) as run:
        a, b = cluster.nodes
        b.agent()
        first, tracer = begun(run, a, NARROW)
        if not run.told(first, "saved", 150):
            return
        checks.ok(run.holds(b) and "does not answer any more" not in cluster.logs(), "a narrow link: the peer has it, and was never given up",
                  cluster.logs())
        run.destroy(a, tracer)
        first.wait(10)
        found, second = run.look(b)
        checks.ok(found == {**OLD, "a-1.pt": [16 << 20, 2]}, "and the next start finds it", found, second.said(), cluster.logs())


NEW = {"a-0.pt": [300000, 1], "a-1.pt": [300000, 2], "b-0.pt": [300000, 3], "latest": [5, 4]}
SAVES = """
save("a-1.pt", 2)
save("a-0.pt.tmp", 3, to="b-0.pt")
save("latest", 4, 5)
sync()
step("saved")
"""


def case_restarted():
    """The agent dies, its node does not: the next one puts all at its path, and the peer forgets it."""
    with node.Cluster(2, **SETTINGS) as cluster, Run(cluster) as run:
        a, b = cluster.nodes
        b.agent()
        first, tracer = begun(run, a, SAVES + "save('a-3.pt', 5)\nstep('more')\n")
        if not run.told(first, "saved"):
            return
        checks.ok(run.holds(b) and run.there() == OLD, "an agent that dies: the peer has what it owed", run.there(), cluster.logs())
        for pid in run.agents(a):
            job.signal_if_there(pid)
        tracer.kill()
        tracer.wait()
        run.go("saved")
        want = {**NEW, "a-3.pt": [300000, 5]}
        checks.ok(run.told(first, "more") and node.until(lambda: run.there() == want, 60), "the next one puts it at its path", run.there(),
                  cluster.logs())
        checks.ok(node.until(lambda: not run.holds(b), 60) and "is lost" not in b.agent_log(), "the peer does not, and forgets it",
                  cluster.logs())


def case_moved():
    """The program is killed, its node lives: a start on another one waits until what it left is at its path."""
    with node.Cluster(2, **SETTINGS) as cluster, Run(cluster) as run:
        a, b = cluster.nodes
        b.agent()
        first, tracer = begun(run, a, SAVES)
        if not run.told(first, "saved"):
            return
        first.kill()
        second = run.start(b, LOOK)
        looks = node.until(lambda: "is looked for" in b.agent_log(), 30)
        time.sleep(1)
        checks.ok(looks and second.running() and run.there() == OLD, "a program that is killed: its start on another node waits", second.said(),
                  run.there(), cluster.logs())
        run.let_go(tracer)
        status = second.wait(60)
        found = json.loads(job.read(os.path.join(run.signs, "found")) or "{}")
        checks.ok(status == 0 and found == NEW and "is lost" not in b.agent_log(), "until its node has put all at its path", status, found,
                  second.said(), cluster.logs())


def case_peers():
    """The peer that has them is lost, another one gets them; then the owner, and the program starts on a node that has none."""
    with node.Cluster(4, **SETTINGS) as cluster, Run(cluster) as run:
        a, b, c, d = cluster.nodes
        b.agent()
        c.agent()
        first, tracer = begun(run, a, SAVES)
        if not run.told(first, "saved"):
            return
        holder, other = (b, c) if run.holds(b) else (c, b)
        checks.ok(run.holds(holder) and not run.holds(other), "one of two peers has it", cluster.logs())
        holder.destroy()
        checks.ok(node.until(lambda: run.holds(other), 60), "it is lost, and the other one gets it", cluster.logs())
        node.until(lambda: len(os.listdir(other.path("j", run.holds(other)[0]))) >= 7, 20)
        run.destroy(a, tracer)
        found, start = run.look(d)
        checks.ok(found == NEW, "the owner is lost: a start on a third node finds it", found, start.said(), cluster.logs(), job.read(os.path.join(cluster.store, "j", "agent.log")))


def case_twice():
    """Two peers have them; the agent of one dies, and the next one there has what it had."""
    with node.Cluster(3, **SETTINGS, TRANSPCKPT_PEERS="2") as cluster, Run(cluster) as run:
        a, b, c = cluster.nodes
        b.agent()
        c.agent()
        first, tracer = begun(run, a, SAVES)
        if not run.told(first, "saved"):
            return
        checks.ok(run.holds(b) and run.holds(c), "both of two peers have it", cluster.logs())
        for pid in run.agents(b):
            job.signal_if_there(pid)
        run.destroy(a, tracer)
        b.agent()
        found, start = run.look(b)
        checks.ok(found == NEW, "an agent that was started anew has what the last one there kept", found, start.said(), cluster.logs())
        checks.ok(node.until(lambda: not run.holds(b) and not run.holds(c), 30) and "is left as it is" not in cluster.logs() and not run.parts(),
                  "and both forget it", cluster.logs(), run.parts())


def case_partition():
    """The owner is cut off and lives. What its peer put there, and somebody saved since, it does not replace."""
    with node.Cluster(2, **SETTINGS) as cluster, Run(cluster) as run:
        a, b = cluster.nodes
        b.agent()
        first, tracer = begun(run, a, SAVES)
        if not run.told(first, "saved"):
            return
        a.cut()
        found, start = run.look(b)
        checks.ok(found == NEW, "an owner that is cut off: the start beyond finds what it owed", found, start.said(), cluster.logs(), job.read(os.path.join(cluster.store, "j", "agent.log")))
        newer = run.start(b, BEGIN + "save('a-1.pt', 9, 400000)\nsave('latest', 9, 5)\n")
        status = newer.wait(60)
        want = {**NEW, "a-1.pt": [400000, 9], "latest": [5, 9]}
        checks.ok(status == 0 and node.until(lambda: run.there() == want, 30), "and saves newer ones", status, newer.said(), run.there())
        run.let_go(tracer)
        checks.ok(node.until(lambda: a.agent_log().count("is left as it is") >= 2, 30) and run.there() == want,
                  "the owner goes on: it leaves them, and says so", run.there(), cluster.logs())
        a.heal()
        run.go("saved")
        status = first.wait(60)
        checks.ok(status == 0 and run.there() == want and not run.parts(), "and so it stays when it is back", status, run.there(), run.parts(),
                  first.said())
        checks.ok(node.until(lambda: not run.holds(b), 40) and run.there() == want, "and its peer leaves them, too", run.there(), cluster.logs())


LARGE = """
save("a-1.pt", 2)
sync()
step("small")
save("a-2.pt", 3, 40 << 20)
step("closed")
"""


def case_full():
    """A peer that has no room: what it cannot keep is waited for on the disk, and nothing behind it comes without it."""
    with node.Cluster(2, **SETTINGS) as cluster, Run(cluster) as run:
        a, b = cluster.nodes
        b.agent(TRANSPCKPT_MEMORY="16M")
        first, tracer = begun(run, a, LARGE)
        if not run.told(first, "small"):
            return
        run.go("small")
        checks.ok(node.until(lambda: "keeps no files of this node for now" in a.agent_log(), 60), "a peer has no room: a line says so",
                  cluster.logs())
        checks.ok(node.never(lambda: os.path.exists(os.path.join(run.signs, "closed")), 2) and "a-2.pt" not in run.there() and
                  "no peer has room" in first.said(), "closing waits for the disk, and says so", run.there(), first.said())
        run.let_go(tracer)
        checks.ok(run.told(first, "closed") and run.there().get("a-2.pt") == [40 << 20, 3], "until it is there", run.there(), first.said())
        checks.ok(node.until(lambda: not run.holds(b), 30), "and the peer has nothing", cluster.logs())


MANY = """
n = 0
while True:
    n += 1
    save(f"m-{n}.pt.tmp", n % 250 + 1, 200000, sync=False, to=f"m-{n}.pt")
    save("latest", n % 250 + 1, n, sync=False)
    if n > 4:
        os.unlink(f"m-{n - 4}.pt")
    if n % 5 == 0:
        sync()
        with open(os.path.join(signs, "n"), "w") as f:
            f.write(str(n))
"""


def case_random():
    """At any moment: what a pointer names is there, whole, and all that a sync has waited for."""
    chance = job.drawn_from()
    with node.Cluster(2, **SETTINGS) as cluster, Run(cluster) as run:
        a, b = cluster.nodes
        b.agent()
        first, tracer = begun(run, a, MANY)
        sync = os.path.join(run.signs, "n")
        if not node.until(lambda: job.read(sync), 60):
            checks.ok(False, "the program saves", first.said(), cluster.logs())
            return
        time.sleep(chance.uniform(0, 2))
        run.destroy(a, tracer)
        synced = int(job.read(sync) or 0)
        found, start = run.look(b)
        newest = found.get("latest", [0])[0]
        missing = [n for n in range(max(1, newest - 3), newest + 1) if found.get(f"m-{n}.pt") != [200000, n % 250 + 1]]
        torn = {name: what for name, what in found.items() if what[1] is None}
        print(f"# synced {synced}, found {newest}")
        checks.ok(newest >= synced >= 5 and not missing and not torn, f"a node that is lost at save {newest}: all of {synced} that were "
                  "synced is there, and what the pointer names", sorted(found), missing, torn, start.said(), cluster.logs())


TORCH = BEGIN + """
import torch
torch.set_num_threads(1)
def state(n):
    torch.manual_seed(n)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 256))
    return {"model": model.state_dict(), "step": n}
def put(n):
    torch.save(state(n), f"step-{n}.pt.tmp")
    os.replace(f"step-{n}.pt.tmp", f"step-{n}.pt")
    with open("latest", "w") as f:
        f.write(f"step-{n}.pt")
"""


def case_torch():
    """torch.save, os.replace and a pointer; torch.load on the other node."""
    python = scripts.find_python()
    if not python:
        print("# torch: PyTorch is not installed")
        return
    with node.Cluster(2, **SETTINGS) as cluster, Run(cluster) as run:
        a, b = cluster.nodes
        run.argv[2] = python
        b.agent()
        first = run.start(a, TORCH + "put(1)\nput(2)\nstep('begun')\nfor n in range(3, 8):\n    put(n)\nsync()\nstep('saved')\n")
        if not run.told(first, "begun", 120) or not node.until(lambda: sorted(run.there()) == ["latest", "step-1.pt", "step-2.pt"], 60):
            checks.ok(False, "torch saves", first.said(), run.there())
            return
        tracer = run.hold_back(a)
        run.go("begun")
        if not run.told(first, "saved", 120):
            return
        checks.ok(len(run.there()) == 3, "torch.save: nothing is at its path yet", run.there())
        run.destroy(a, tracer)
        second = run.start(b, TORCH + """
assert open("latest").read() == "step-7.pt"
for n in range(1, 8):
    found, want = torch.load(f"step-{n}.pt"), state(n)
    assert found["step"] == n and all(torch.equal(found["model"][k], v) for k, v in want["model"].items())
""")
        status = second.wait()
        checks.ok(status == 0, "torch.load on the other node has all of them, tensor for tensor", second.said(), run.there(), cluster.logs())


node.run_cases(globals(), BY_NAME)
checks.end()
