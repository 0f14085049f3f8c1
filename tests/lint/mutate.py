#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which faults does nobody notice? Draws small faults in the rooms' C files, lets the tests run with each of them, and says
with which all passed. By hand, in the build folder; takes an hour or more.

  mutate.py [--seed N] [--count N] [--rooms ROOM,...] [--suites quick,normal] [--continue] [--added PATTERN] ...

All faults are in one build, each behind a switch (mutations.py), in a copy of the tree and a build folder of its own, in
build/mutate. Every test runs once with all of them off: that says how long it takes and which faults it comes to. A fault
then needs only the tests that come to it, cheap ones first, until one fails. It counts if it passes without the fault at that
time, and fails with it again. Each test has processes, /tmp and /dev/shm of its own, which end with it.

Results are lines of JSON in build/mutate/results.jsonl as they come; --continue goes on with them, --table only prints
what they say."""
import argparse
import contextlib
import fcntl
import filecmp
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import mutations

SRC = os.path.realpath(os.environ.get("srcdir") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
BUILD = os.path.realpath(os.environ.get("builddir", "."))
ROOMS = ("runtime/store,runtime/wire,runtime/view,runtime/reach,runtime/capture,runtime/replay,runtime/files,runtime/follow,runtime/engine,runtime/peer,"
         "agent/loop,agent/home,agent/programs,agent/files,agent/session,agent/durable,agent/peers,agent/copies,agent/hello,agent/accord,agent/salvage,tools/agent,hooks")
# Not the software device's own tests and the lints, which have none of this code, and what needs large packages or root.
WITHOUT = "tests/lint,tests/sim,tests/gpu,tests/torch,tests/stacks,tests/frameworks,tests/slurm"

# The first process of a test's own: places of its own for what it leaves, and nobody else's processes.
INIT = r"""
import os, subprocess, sys
own, switches, tmp = sys.argv[1:4]
for words in (["-t", "proc", "proc", "/proc"], ["-t", "tmpfs", "tmpfs", "/dev/shm"], ["--bind", own + "/switches", switches],
              ["--bind", own + "/tmp", tmp]):
    if subprocess.run(["mount"] + words, check=False).returncode:
        os._exit(125)
child = os.fork()
if not child:
    os.setsid()
    try:
        os.execvp(sys.argv[4], sys.argv[4:])
    finally:
        os._exit(126)
while True:
    pid, status = os.wait()
    if pid == child:
        os._exit(min(os.waitstatus_to_exitcode(status) % 256, 255))
"""


def said(what):
    print(f"mutate: {what}", flush=True)


def must(words, **more):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **more)
    if done.returncode:
        sys.exit(f"mutate: {shlex.join(words)} failed:\n" + "\n".join(done.stdout.splitlines()[-30:]))
    return done.stdout


class Results:
    """The file of what is known, one line of JSON each. Several threads add to it."""

    def __init__(self, path, go_on):
        self.path = path
        self.lines = []
        self.lock = threading.Lock()
        if go_on:
            with open(path, encoding="utf-8") as f:
                self.lines = [json.loads(line) for line in f if line.endswith("\n")]
        elif os.path.exists(path):
            os.replace(path, path + ".old")

    def add(self, what, **fields):
        line = {"what": what, **fields}
        with self.lock, open(self.path, "a", encoding="utf-8") as f:
            self.lines.append(line)
            f.write(json.dumps(line) + "\n")

    def of(self, what, **having):
        return [r for r in self.lines if r["what"] == what and all(r.get(k) == v for k, v in having.items())]


class Copy:
    """A copy of the working tree and a build folder in it, in the caller's build folder."""

    def __init__(self, work):
        self.work = work
        self.tree = os.path.join(work, "tree")
        self.build = os.path.join(self.tree, "build")
        self.switches = os.path.join(work, "switches")

    def make(self, *words):
        return must(["make", "-C", self.build, "-j2", *words])

    def take(self, under=""):
        """The working tree's files, those that differ."""
        for name in must(["git", "-C", SRC, "ls-files", "-co", "--exclude-standard"]).splitlines():
            old, new = os.path.join(SRC, name), os.path.join(self.tree, name)
            if name.startswith(under) and os.path.isfile(old) and not (os.path.exists(new) and filecmp.cmp(old, new)):
                os.makedirs(os.path.dirname(new), exist_ok=True)
                shutil.copy(old, new)

    def prepare(self):
        shutil.rmtree(self.tree, ignore_errors=True)
        os.makedirs(self.build)
        self.take()
        said("configuring")
        must(["./autogen.sh"], cwd=self.tree)
        configured = shlex.split(must([os.path.join(BUILD, "config.status"), "--config"]).strip())
        must(["../configure", *configured, "--disable-werror", "CFLAGS=-O2"], cwd=self.build)

    def source(self, name):
        with open(os.path.join(SRC, name), encoding="utf-8") as f:
            return f.read()

    def write(self, texts):
        for name, text in texts.items():
            with open(os.path.join(self.tree, name), "w", encoding="utf-8") as f:
                f.write(text)

    def variables(self, *names):
        lines = must(["make", "-s", "-C", self.build, "--eval", "mutate-says-%: ; @echo '$($*)'", "--no-print-directory",
                      *(f"mutate-says-{n}" for n in names)]).splitlines()
        return dict(zip(names, lines))


class Compiler:
    """One file at a time, as make compiles it for its room: is a mutant a program at all, and another one?"""

    def __init__(self, copy):
        self.copy = copy
        self.commands = {}
        said("asking make how it compiles")
        line = re.compile(r"(?:^|\s)(\S*(?:cc|clang)\S*)( [^\n]*?) -MT \S+ -MD -MP -MF \S+ -c -o \S+ (?:`[^`]*`)?(\S+\.c)\b", re.M)
        # As if all were to be made anew: all depend on it.
        lines = must(["make", "-C", copy.build, "-n", "-W", "config.h", "V=1", "all"]).replace("\\\n", " ")
        for match in line.finditer(lines):
            name = os.path.relpath(os.path.join(copy.build, match.group(3)), copy.tree)
            if not os.path.exists(os.path.join(copy.tree, name)):
                name = os.path.normpath(match.group(3))
            self.commands.setdefault(name, shlex.split(match.group(1) + match.group(2)))
        self.originals = {}

    def compile(self, name, text, *words):
        return subprocess.run([*self.commands[name], "-w", "-fPIC", "-x", "c", "-c", "-", *words], input=text, text=True,
                              cwd=self.copy.build, capture_output=True, check=False).returncode == 0

    def accepts(self, name, text):
        return self.compile(name, text, "-fsyntax-only")

    def object(self, name, text):
        """The object's bytes, or None."""
        path = os.path.join(self.copy.work, "one.o")
        if not self.compile(name, text, "-o", path):
            return None
        with open(path, "rb") as f:
            data = f.read()
        os.unlink(path)
        return data

    def original(self, name):
        if name not in self.originals:
            self.originals[name] = self.object(name, self.copy.source(name))
        return self.originals[name]


def room_files(compiler, room):
    return sorted(n for n in compiler.commands if n.startswith(room + "/") and os.path.exists(os.path.join(SRC, n)))


def draw(copy, compiler, seed, count, rooms):
    """count faults spread evenly over the rooms, none of which touches another one's text."""
    drawn = []
    again = {"does not compile": 0, "the same code": 0, "overlaps": 0}
    for at, room in enumerate(rooms):
        chance = random.Random(f"{seed} {room}")
        names = room_files(compiler, room)
        found = {}
        for name in names:
            for point in mutations.points(copy.source(name)):
                found.setdefault(point.kind, []).append((name, point))
        if not found:
            sys.exit(f"mutate: nothing to draw in {room}")
        wanted = count * (at + 1) // len(rooms) - count * at // len(rooms)
        mine = []
        while len(mine) < wanted and found:
            kind = chance.choice(sorted(found))
            name, point = found[kind].pop(chance.randrange(len(found[kind])))
            if not found[kind]:
                del found[kind]
            if any(n == name and point.begin < p.end and p.begin < point.end for n, p in mine):
                again["overlaps"] += 1
                continue
            text = copy.source(name)
            if not compiler.accepts(name, mutations.switched(text, [(0, point)], "none", 1)):
                again["does not compile"] += 1
                continue
            whole = compiler.object(name, mutations.mutated(text, point))
            if whole is None:
                again["does not compile"] += 1
            elif whole == compiler.original(name):
                again["the same code"] += 1
            else:
                mine.append((name, point))
        drawn += [(room, name, point) for name, point in sorted(mine, key=lambda m: (m[0], m[1].begin))]
    said(f"drew {len(drawn)} faults; drawn anew: " + ", ".join(f"{n} ({why})" for why, n in again.items()))
    return drawn


class Runner:
    """Runs tests, each in namespaces of its own."""

    def __init__(self, copy, count, chosen_seed):
        self.copy = copy
        self.count = count
        self.last = 0
        self.lock = threading.Lock()
        names = ("PYTHON3", "CC", "CXX", "CUDA_CPPFLAGS", "TESTS", "QUICK_TESTS")
        self.made = copy.variables(*names)
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(("TRANSPCKPT_", "SIMGPU_", "MAKE")) and k not in ("LD_PRELOAD", "TMPDIR")}
        self.environment.update({n: self.made[n] for n in names[:4]}, srcdir=copy.tree, builddir=copy.build,
                                PYTHONDONTWRITEBYTECODE="1", SEED=str(chosen_seed))
        self.unshare = ["unshare", "-mpf", "--kill-child"] + ([] if os.geteuid() == 0 else ["-r"])
        # A /tmp of its own, unless the copy itself lies there.
        inside = os.path.realpath(copy.work).startswith("/tmp/")
        self.tmp = os.path.join(copy.work, "tmp") if inside else "/tmp"
        if inside:
            os.makedirs(self.tmp, exist_ok=True)
            self.environment["TMPDIR"] = self.tmp

    def command(self, test):
        path = os.path.join(self.copy.build, test)
        if not os.path.exists(path):
            path = os.path.join(self.copy.tree, test)
        return [self.made["PYTHON3"], path] if test.endswith(".py") else [path]

    def run(self, test, on, limit):
        """Exit status (None: it hung), seconds, the numbers of the faults that it came to, and what it said."""
        with self.lock:
            self.last += 1
            own = os.path.join(self.copy.work, "run", str(self.last))
        os.makedirs(os.path.join(own, "tmp"))
        os.chmod(os.path.join(own, "tmp"), 0o1777)
        switches = bytearray(b"0" * self.count + b"." * self.count)
        if on is not None:
            switches[on] = ord("1")
        path = os.path.join(own, "switches")
        with open(path, "wb") as f:
            f.write(switches)
        os.chmod(path, 0o666)
        began = time.monotonic()
        with open(os.path.join(own, "log"), "wb") as log:
            child = subprocess.Popen(self.unshare + [self.made["PYTHON3"], "-c", INIT, own, self.copy.switches, self.tmp] +
                                     self.command(test), cwd=self.copy.build, env=self.environment, stdin=subprocess.DEVNULL,
                                     stdout=log, stderr=log)
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            status = None
        seconds = time.monotonic() - began
        with open(path, "rb") as f:
            reached = [n for n, mark in enumerate(f.read()[self.count:]) if mark == ord("r")]
        with open(os.path.join(own, "log"), errors="replace", encoding="utf-8") as f:
            words = f.read()
        if status in (125, 126):
            raise RuntimeError(f"{test} cannot be started: {words[-2000:]}")
        # What a killed test leaves may still be in use for a moment.
        for _ in range(20):
            shutil.rmtree(own, ignore_errors=True)
            if not os.path.exists(own):
                break
            time.sleep(0.1)
        return status, round(seconds, 1), reached, words


def complaint(words, status):
    lines = words.strip().splitlines()
    return next((line for line in lines if line.startswith("not ok")), lines[-1] if lines else f"status {status}")[:300]


def baseline(results, runner, suite, tests, limit, jobs, retry):
    """Every test once with all faults off. Added ones may have changed since."""
    known = {r["test"] for r in results.of("base") if not retry or r["status"] in (0, 77)} if suite != "added" else set()
    left = [t for t in tests if t not in known]

    def one(test):
        status, seconds, reached, words = runner.run(test, None, limit)
        results.add("base", suite=suite, test=test, status=status, seconds=seconds, reached=reached)
        if status not in (0, 77):
            why = f"takes longer than {limit:g} s" if status is None else f"fails ({complaint(words, status)})"
            said(f"{test} {why} without a fault: left out")

    said(f"{suite}: {len(left)} tests with all faults off, at most {limit:g} s each")
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, left))


def try_fault(results, runner, number, suite, budget):
    """One fault against the tests of a suite that come to it, until one fails."""
    base = {r["test"]: r for r in results.of("base", suite=suite)}
    coming = [r for r in base.values() if number in r["reached"] and r["status"] != 77]
    able = sorted((r for r in coming if r["status"] == 0), key=lambda r: (not r["test"].startswith("tests/unit/"), r["seconds"]))
    left_out = [r["test"] for r in coming if r["status"] != 0]
    if suite != "added":
        passed = {t for r in results.of("result", number=number, suite=suite) for t in r["ran"] if t not in r["unsteady"]}
        able = [r for r in able if r["test"] not in passed]
    ran, unsteady, spent, by, how = [], [], 0.0, None, None
    outcome = "not run" if coming else "not reached"
    for r in able:
        if spent + r["seconds"] > budget:
            left_out.append(r["test"])
            continue
        limit = 20 + 4 * r["seconds"]
        status, seconds, _, words = runner.run(r["test"], number, limit)
        spent += seconds
        ran.append(r["test"])
        outcome = "passed"
        if status in (0, 77):
            continue
        # On a busy machine tests fail that have nothing against it: it must be the fault that they fail by.
        if runner.run(r["test"], None, limit)[0] != 0 or runner.run(r["test"], number, limit)[0] in (0, 77):
            unsteady.append(r["test"])
            continue
        outcome, by = ("hangs" if status is None else "noticed"), r["test"]
        how = complaint(words, status)
        break
    results.add("result", number=number, suite=suite, outcome=outcome, by=by, how=how, ran=ran, left_out=left_out,
                unsteady=unsteady, seconds=round(spent, 1))
    return outcome


def settled(results, number):
    """What became of a fault in all suites so far: the last word, and the suite that said it."""
    said_of = results.of("result", number=number)
    for r in said_of:
        if r["outcome"] in ("noticed", "hangs"):
            return r["outcome"], r["suite"], r["by"]
    outcomes = [r["outcome"] for r in said_of]
    return next((o for o in ("passed", "not run", "not reached") if o in outcomes), "not tried"), None, None


def table(results):
    faults = results.of("fault")
    suites = list(dict.fromkeys(r["suite"] for r in results.of("result")))
    rooms = list(dict.fromkeys(f["room"] for f in faults))
    print("\n| room | faults | " + " | ".join(f"noticed by {s}" for s in suites) +
          " | of them hang | passed | not run | not reached |")
    print("| --- |" + " --- |" * (len(suites) + 5))
    total = [0] * (len(suites) + 5)
    for room in rooms:
        ends = [settled(results, f["number"]) for f in faults if f["room"] == room]
        row = [len(ends)] + [sum(e[0] in ("noticed", "hangs") and e[1] == s for e in ends) for s in suites]
        row += [sum(e[0] == w for e in ends) for w in ("hangs", "passed", "not run", "not reached")]
        total = [a + b for a, b in zip(total, row)]
        print(f"| `{room}` | " + " | ".join(map(str, row)) + " |")
    print("| all | " + " | ".join(map(str, total)) + " |\n")
    for f in faults:
        end, _, _ = settled(results, f["number"])
        if end not in ("noticed", "hangs"):
            print(f"{f['number']}: {end}: {f['file']}:{f['line']}: {f['kind']}\n    {' '.join(f['old'].split())}\n"
                  f"    {' '.join(f['new'].split())}")
            ran = [t for r in results.of("result", number=f["number"]) for t in r["ran"]]
            if ran:
                print("    passed: " + " ".join(ran))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60, help="of faults (60)")
    parser.add_argument("--rooms", default=ROOMS, help="folders")
    parser.add_argument("--suites", default="quick,normal", help="quick, normal or both (quick,normal)")
    parser.add_argument("--without", default=WITHOUT, help="folders whose tests do not run")
    parser.add_argument("--tests", help="only tests whose names match this pattern")
    parser.add_argument("--budget", type=float, default=120, help="seconds of tests for a fault and suite (120)")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time (1)")
    parser.add_argument("--work", default=os.path.join(BUILD, "mutate"), help="folder for copy and results (mutate)")
    parser.add_argument("--continue", dest="go_on", action="store_true", help="with what a former run has drawn and found")
    parser.add_argument("--retry", action="store_true", help="with --continue: once more what failed or took too long without a fault")
    parser.add_argument("--table", action="store_true", help="only say what is known")
    parser.add_argument("--added", metavar="PATTERN", help="with --continue: take the working tree's tests as they are now, "
                        "and try what nobody noticed against those whose names match")
    return parser.parse_args()


def build(copy, results):
    """The copy with all faults, off."""
    faults = results.of("fault")
    texts = {}
    for name in sorted({f["file"] for f in faults}):
        numbered = [(f["number"], mutations.Point(*(f[k] for k in mutations.Point._fields))) for f in faults if f["file"] == name]
        texts[name] = mutations.switched(copy.source(name), numbered, copy.switches, len(faults))
    copy.write(texts)
    with open(copy.switches, "wb"):
        pass
    said("building")
    copy.make("all")
    copy.make("trainers", "check-programs")
    results.add("built")


def draw_all(copy, results, asked):
    drawn = draw(copy, Compiler(copy), asked.seed, asked.count, asked.rooms.split(","))
    revision = must(["git", "-C", SRC, "describe", "--always", "--dirty"]).strip()
    results.add("drawn", seed=asked.seed, count=len(drawn), rooms=asked.rooms, revision=revision)
    for number, (room, name, point) in enumerate(drawn):
        line = copy.source(name).count("\n", 0, point.begin) + 1
        results.add("fault", number=number, room=room, file=name, line=line, **point._asdict())


def main():
    asked = arguments()
    os.makedirs(asked.work, exist_ok=True)
    copy = Copy(os.path.realpath(asked.work))
    results = Results(os.path.join(copy.work, "results.jsonl"), asked.go_on or asked.table)
    if asked.table:
        table(results)
        return
    lock = open(os.path.join(copy.work, "lock"), "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"mutate: another one works in {copy.work}")
    shutil.rmtree(os.path.join(copy.work, "run"), ignore_errors=True)
    if not results.of("built"):
        said(f"a build of the tree, each test once, then at most {asked.budget * 2 * asked.count / 60 / asked.jobs:.0f} min for "
             f"{asked.count} faults; most need less than a minute")
        copy.prepare()
        results.lines = []
        draw_all(copy, results, asked)
        build(copy, results)
    if asked.added:
        copy.take("tests/")
        copy.make("check-programs")
    faults = [f["number"] for f in results.of("fault")]
    runner = Runner(copy, len(faults), asked.seed)
    quick = runner.made["QUICK_TESTS"].split()
    every = runner.made["TESTS"].split()
    suites = {"quick": quick, "normal": [t for t in every if t not in quick],
              "added": [t for t in every if re.search(asked.added or "", t)]}
    without = tuple(f.rstrip("/") + "/" for f in asked.without.split(",") if f)
    for suite in ["added"] if asked.added else asked.suites.split(","):
        tests = [t for t in suites[suite] if not t.startswith(without) and re.search(asked.tests or "", t)]
        baseline(results, runner, suite, tests, asked.budget, asked.jobs, asked.retry)
        left = [n for n in faults if settled(results, n)[0] not in ("noticed", "hangs") and
                (suite == "added" or asked.retry or not results.of("result", number=n, suite=suite))]
        base = results.of("base", suite=suite)
        most = sum(min(asked.budget, sum(r["seconds"] for r in base if n in r["reached"] and r["status"] == 0)) for n in left)
        said(f"{suite}: {len(left)} faults, at most about {most / 60 / asked.jobs:.0f} min")

        def one(number):
            outcome = try_fault(results, runner, number, suite, asked.budget)
            fault = results.of("fault", number=number)[0]
            said(f"{suite}: {number} {fault['file']}:{fault['line']}: {outcome}")
        with ThreadPoolExecutor(asked.jobs) as pool:
            list(pool.map(one, left))
    table(results)


with contextlib.suppress(KeyboardInterrupt):
    main()
