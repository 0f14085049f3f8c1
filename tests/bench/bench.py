#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what the library costs beside the plain run, side by side: prints a table, says what has moved since the committed
results (last.json), and writes bench.json into the folder that it runs in. Arguments: groups of rows (default: all). Environment:
builddir; ROUNDS, how often each pair is run (default 5); UPDATE=1: the results become the committed ones."""
import concurrent.futures
import glob
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import compare
import file_rows
import job
import record_rows
from table import LIMIT_SEC, LeftOut, Table

HERE = os.path.dirname(os.path.abspath(__file__))
COMMITTED = os.path.join(HERE, "last.json")
ROUNDS = int(os.environ.get("ROUNDS") or 5)


class Runs:
    """Programs plain and preloaded in one place."""

    def __init__(self, place, environment=None):
        self.place = place
        self.environment = {**place.environment, **(environment or {})}
        self.runner = place.runner
        self.plain_environment = {k: v for k, v in self.environment.items() if not k.startswith("TRANSPCKPT_")}
        self.number = 0

    def program(self, name):
        return os.path.join(self.place.build, "tests/bench", name)

    def plain(self, *argv):
        return subprocess.run([*self.runner, *argv], env=self.plain_environment, capture_output=True, text=True,
                              check=True, cwd=self.place.root, stdin=subprocess.DEVNULL)

    def preloaded_argv(self, *argv):
        return [*self.runner, os.path.join(self.place.build, "transpckpt"), "run", "--", *argv]

    def preloaded(self, *argv):
        return subprocess.run(self.preloaded_argv(*argv), env=self.environment, capture_output=True, text=True,
                              check=True, cwd=self.place.root, stdin=subprocess.DEVNULL)

    def begin(self, *argv, preload=True):
        """A trainer that waits for its word to measure."""
        argv = [*(self.preloaded_argv(*argv) if preload else [*self.runner, *argv]), "--go"]
        with open(os.path.join(self.place.root, "said"), "wb") as err:
            return subprocess.Popen(argv, env=self.environment if preload else self.plain_environment,
                                    cwd=self.place.root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True)

    def look(self, process):
        rows = [r for r in self.place.shown() if r.get("pid") == process.pid]
        return rows[0] if rows else None

    def wait_captured(self, process, count, boundaries, seconds=150):
        """Until images are there and snapshots are taken: how long that takes is not what is measured."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and process.poll() is None:
            shown = self.look(process)
            if shown and shown["notes"]["captured"] >= count and shown["iterations"] >= boundaries:
                return
            time.sleep(0.1)
        last = job.read(os.path.join(self.place.root, "said")).strip().splitlines()[-1:]
        raise RuntimeError(f"the trainer has no {count} snapshots and {boundaries} iterations after {seconds} s; it said {' '.join(last) or 'nothing'}")

    def measured(self, *argv, preload=True, captured=3, boundaries=0):
        """(The trainer's line, the row of show when it was done, the row when it began to measure)."""
        process = self.begin(*argv, preload=preload)
        before = None
        if preload:
            self.wait_captured(process, captured, boundaries)
            before = self.look(process)
        process.stdin.write("go")
        process.stdin.flush()
        line = json.loads(process.stdout.readline())
        shown = self.look(process) if preload else None
        process.stdin.close()
        process.stdin = None
        process.communicate()
        return line, shown, before


class IdleRuns(Runs):
    """The same over a driver whose launch and copies return at once."""

    def __init__(self, place):
        super().__init__(place)
        if not os.path.exists(f"{place.build}/tests/bench/lib/libcuda.so.1"):
            raise FileNotFoundError("the idle driver has not been built: make bench does")
        self.runner = ["env", f"LD_LIBRARY_PATH={place.build}/tests/bench/lib:{place.build}/tests/sim/lib"]


def median(values):
    return statistics.median(values) if values else float("nan")


def ratios(figures, baselines):
    """Of each round."""
    return [a / b for a, b in zip(figures, baselines) if b]


def script(name, *arguments):
    """What a script of this folder prints as JSON. It ends with 77 where it cannot be run here."""
    with subprocess.Popen([sys.executable, "-B", os.path.join(HERE, name), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, start_new_session=True) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            # An interrupted script ends what it has started and removes its folders. One behind an unshare, which takes no such signal, is in its group.
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.communicate(timeout=60)
            finally:
                process.kill()
            raise
    said = (out + err).strip().splitlines()
    if process.returncode == job.SKIP:
        raise LeftOut(said[-1].partition("SKIP ")[2] if said else "it does not say why")
    if process.returncode:
        raise RuntimeError(f"{name} ended with {process.returncode}: {' '.join(said[-1:])}")
    return json.loads(out)


# ---- calls ---------------------------------------------------------------------------------------------------------

def calls(table):
    """Steady state: iterations are known; nothing is captured meanwhile, so that calls alone are compared."""
    plain, preloaded = {}, {}
    with job.Place(TRANSPCKPT_INTERVAL="1000000", SIMGPU_EXECUTE="0", TRANSPCKPT_LOG="none") as place:
        runs = Runs(place)
        idle = IdleRuns(place)
        for number in range(ROUNDS + 2):
            table.step(f"round {number + 1} of {ROUNDS + 2}")
            for found, how in ((plain, runs.plain), (preloaded, runs.preloaded)):
                for line in how(runs.program("calls")).stdout.splitlines():
                    name, value, _ = line.split()
                    found.setdefault(name, []).append(float(value))
            for found, how in ((plain, idle.plain), (preloaded, idle.preloaded)):
                for line in how(runs.program("calls")).stdout.splitlines()[:3]:
                    name, value, _ = line.split()
                    found.setdefault(f"{name}, driver idle", []).append(float(value))
    for name, values in plain.items():
        base, figure = median(values), median(preloaded[name])
        table.row(f"call: {name}", figure, base, "ns", ratios=ratios(preloaded[name], values), aim="<= 50 ns more" if "launch" in name else "",
            note=f"{figure - base:+.0f} ns")


# ---- instructions --------------------------------------------------------------------------------------------------

# Names of the functions of calls.cu and of the rows, in its order.
STEADY = {"launch": "launch", "upload": "upload", "download": "download", "allocate": "malloc+free",
          "allocate_async": "mallocasync+freeasync"}
INSTRUCTION_STEPS = (100, 20)


# Valgrind 3.19 has no openat2, by which a start asks whether the store is on a block device; without an answer a child looks
# there, by a clone that valgrind refuses. So a program under valgrind does not look for something to go on from. That is
# before its first iteration; what is counted comes later.
WITHOUT_LOOK = {"TRANSPCKPT_RESUME": "never"}


def callgrind(runs, preload):
    """What a call of the program's cost in the iterations that count, by its name: {"Ir": instructions, "Ge": atomic
    ones among them, "sysCount": system calls}."""
    out = os.path.join(runs.place.root, "callgrind")
    environment = dict(runs.plain_environment)
    if preload:
        environment = {**runs.environment, **WITHOUT_LOOK, "LD_PRELOAD": os.path.join(runs.place.build, ".libs/libtranspckpt.so")}
    learning, steady = INSTRUCTION_STEPS
    said = subprocess.run(
        ["valgrind", "--tool=callgrind", "--collect-bus=yes", "--collect-systime=yes", "--trace-children=yes",
         "--trace-children-skip=*transpckptd*,*simgpu-device*,/bin/*,/usr/bin/*", f"--callgrind-out-file={out}.%p",
         "-q", *runs.runner, runs.program("calls"), str(learning + steady), str(learning)],
        env=environment, capture_output=True, text=True, check=True, cwd=runs.place.root).stdout
    calls_a_time = {line.split()[0]: int(line.split()[2]) for line in said.splitlines()}
    found, names = {}, {}
    for path in glob.glob(f"{out}.*"):
        events, callee, count = [], None, False
        for line in job.read(path).splitlines():
            if line.startswith("events:"):
                events = line.split()[1:]
            elif line.startswith("cfn="):
                number, _, name = line[4:].partition(" ")
                callee = names.setdefault((path, number), name) if name else names[path, number]
            elif line.startswith("fn="):
                number, _, name = line[3:].partition(" ")
                if name:
                    names[path, number] = name
            elif line.startswith("calls="):
                count = True
            elif count:
                count = False
                if callee and callee.startswith("steady_"):
                    row = found.setdefault(STEADY[callee[7:]], dict.fromkeys(events, 0))
                    for event, cost in zip(events, line.split()[1:]):
                        row[event] += int(cost)
        os.unlink(path)
    for name, row in found.items():
        for event in row:
            row[event] /= calls_a_time[name] * steady
    return found


def instructions(table):
    """Instructions of the calling thread, over the idle driver: they do not depend on what else the machine does."""
    if not shutil.which("valgrind"):
        raise LeftOut("there is no valgrind")
    with job.Place(TRANSPCKPT_INTERVAL="1000000", SIMGPU_EXECUTE="0", TRANSPCKPT_LOG="none") as place:
        runs = IdleRuns(place)
        plain, preloaded = (callgrind(runs, preload) for preload in (False, True))
        for name in STEADY.values():
            figure, base = preloaded[name], plain[name]
            table.row(f"instructions: {name}", figure["Ir"], base["Ir"], "", tolerance=0.01,
                note=f"{figure['Ir'] - base['Ir']:+.0f}; {figure['Ge'] - base['Ge']:+.1f} atomic, "
                     f"{figure['sysCount'] - base['sysCount']:+.2f} system calls")


# ---- stalls --------------------------------------------------------------------------------------------------------

# MiB of state, in how many blocks if not of 16 MiB, steps, runs.
STALLS = ((16, 0, 100, ROUNDS), (256, 0, 15, min(ROUNDS, 3)), (32, 8192, 15, min(ROUNDS, 3)), *([(2048, 0, 5, 1)] if os.environ.get("LARGE") == "1" else []))


def stalls(table):
    """Beside the plain run, and beside the plain run under the same load: a thread of the program's own reads all of
    the state on the device and copies it to the host at every boundary, since the software device does both on the
    processors that the program runs on."""
    for mib, blocks, steps, rounds in STALLS:
        what = f"{mib} MiB" + (f" in {blocks:,} blocks" if blocks else "")
        plain, loaded, lines, notes = [], [], [], []
        for number in range(rounds):
            table.step(f"{what}, run {number + 1} of {rounds}")
            with job.Place(SIMGPU_MEMORY="6G", TRANSPCKPT_DURABLE_INTERVAL="1000000") as place:
                if mib > 1000 and shutil.disk_usage(place.shm).free < (9 << 30):
                    break
                runs = Runs(place, {"SIMGPU_KERNEL_US": "5" if blocks else "200"})
                argv = [runs.program("trainer"), "--mib", str(mib), "--steps", str(steps + 10)]
                argv += ["--block-kib", str((mib << 10) // blocks)] if blocks else []
                plain.append(runs.measured(*argv, preload=False)[0])
                loaded.append(runs.measured(*argv, "--load", preload=False)[0])
                line, shown, _ = runs.measured(*argv)
                lines.append(line)
                notes.append(shown["notes"])
        if not notes:
            table.left_out(f"stall, {what}", "there is too little memory")
            continue

        def of(key, found, what=median):
            return what([line[key] for line in found])

        def each(key):
            return ratios(of(key, lines, list), of(key, loaded, list))

        boundaries = sum(n["stall_count"] for n in notes)
        longest = [n["stall_ns_max"] / 1e3 for n in notes]
        cpu = max(n["stall_cpu_ns_max"] for n in notes) / 1e3
        table.row(f"stall, {what}: longest time in hooks at a boundary, CPU", cpu, None, "us", aim="<= 1000 us",
            note=f"{boundaries} boundaries, {sum(n['captured'] for n in notes)} captured")
        table.row(f"stall, {what}: longest time in hooks at a boundary, clock", median(longest),
            of("boundary_max_us", loaded), "us", ratios=ratios(longest, of("boundary_max_us", loaded, list)), aim="<= 1000 us",
            note=f"beside starting such a copy by hand; longest of {len(longest)} runs: "
                 f"{', '.join(f'{x:.0f}' for x in longest)}")
        table.row(f"stall, {what}: mean time in hooks at a boundary",
            sum(n["stall_ns_sum"] for n in notes) / 1e3 / max(boundaries, 1), None, "us", aim="<= 1000 us",
            note=f"{boundaries} boundaries")
        waits = sum(n["submit_count"] for n in notes)
        table.row(f"stall, {what}: longest wait for copies to be handed over", median([n["submit_ns_max"] / 1e3 for n in notes]), None, "us",
            aim="<= 1000 us", note=f"{waits} waits, {sum(n['submit_ns_sum'] for n in notes) / 1e3 / max(waits, 1):.0f} us in the mean")
        figure, base = of("call_p999_us", lines), of("call_p999_us", loaded)
        table.row(f"stall, {what}: p99.9 of a launch, same load", figure, base, "us", ratios=each("call_p999_us"), aim="<= 1000 us more",
            note=f"{figure - base:+.0f} us; worst run {of('call_p999_us', lines, max):.0f}, loaded "
                 f"{of('call_p999_us', loaded, max):.0f}; without the load {of('call_p999_us', plain):.0f}")
        table.row(f"stall, {what}: a small copy of the program's own, same load", of("small_us", lines),
            of("small_us", loaded), "us", ratios=each("small_us"),
            note=f"median; longest {of('small_max_us', lines, max):.0f}, loaded {of('small_max_us', loaded, max):.0f}; "
                 f"without the load {of('small_us', plain):.0f}")


# ---- iterations under the clock model ------------------------------------------------------------------------------

# The model sets how long an iteration takes; what moves it from run to run is other work on the processors.
ITERATION_TOLERANCE = 0.02


# How long an iteration takes, as a part of the copy's time; what is special; the interval; how many iterations are measured.
ITERATIONS = ((1.5, "", "1", 20), (1.5, "late-loss", "1", 20), (1.5, "graph", "1", 10), (1.5, "one connection", "1", 10), (0.5, "", "1", 10), (0.5, "", "auto", 120))
OVERHEAD = 5


def iteration(times, kind, interval, steps):
    """The arguments of a row."""
    mib, copy_ms, kernels = 8, 300, 20
    kernel_us = f"{copy_ms * 1e3 * times / (kernels + 1):.0f}"
    with job.Place(TRANSPCKPT_INTERVAL=interval, TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_OVERHEAD=str(OVERHEAD)) as place:
        runs = Runs(place, {"SIMGPU_KERNEL_US_ward": kernel_us, "SIMGPU_KERNEL_US_adamw": kernel_us,
                            "SIMGPU_COPY_GBPS": f"{mib * 1.048576 / copy_ms:.5f}",
                            **({"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if kind == "one connection" else {})})
        argv = [runs.program("trainer"), "--mib", str(mib), "--kernels", str(kernels), "--quiet", "--batch", "512",
                *([f"--{kind}"] if kind and " " not in kind else []), "--steps"]
        # Ten iterations that nothing disturbs.
        plain = runs.measured(*argv, "20", preload=False)[0]
        # Until classes are known, which takes some twenty iterations.
        line, shown, before = runs.measured(*argv, str(steps + 10), captured=1, boundaries=30)
        notes, then = shown["notes"], before["notes"]
        unknown = notes["classes"]["unknown"]["bytes"] >> 10
        captured = notes["captured"] - then["captured"]
        wait = (notes["wait_ns_sum"] - then["wait_ns_sum"]) / 1e6 / max(captured, 1)
        words = {"": "", "late-loss": ", loss read behind the update", "graph": ", whole-step graph", "one connection": ", one connection"}[kind]
        return {"name": f"iteration, {times} x copy{words}, interval {interval}", "figure": line["iteration_mean_us"] / 1e3,
                "baseline": plain["iteration_mean_us"] / 1e3, "unit": "ms", "tolerance": ITERATION_TOLERANCE,
                "aim": "<= 1.1" if interval == "auto" else "<= 1.01" if times > 1 and kind not in ("graph", "one connection") else "",
                "note": f"{captured} of {steps} captured, device waits {wait:.1f} ms each, role unproven {unknown} KiB"}


def iterations(table):
    """8 MiB whose copy takes 300 ms, so that what the software device computes for real (digests) is small beside
    what it models. So two go at the same time, where there are two processors."""
    with concurrent.futures.ThreadPoolExecutor(min(2, len(os.sched_getaffinity(0)))) as pool:
        for row in pool.map(lambda case: iteration(*case), ITERATIONS):
            table.row(**row)


# ---- copies to another node ------------------------------------------------------------------------------------------

def replication(table):
    """The same trainer beside a stream on one limited link: plain, without peers, and with copies, spread and not."""
    found = script("replication.py")
    plain, none = found["plain"], found["none"]
    table.row("iteration, without peers, beside plain", none["iteration_ms"], plain["iteration_ms"], "ms", tolerance=ITERATION_TOLERANCE,
        note=f"{none['captured']} captured")
    for mode in sorted(found.keys() - {"plain", "none"}):
        this = found[mode]
        words = "spread" if mode == "paced" else "as fast as the link takes"
        note = f"{this['captured']} captured, {this['copies']} copies, {this['bytes'] / (1 << 20):.0f} MiB sent, {this['behind']} behind"
        table.row(f"iteration, copies {words}, beside no peers", this["iteration_ms"], none["iteration_ms"], "ms",
            tolerance=ITERATION_TOLERANCE, aim="<= 1.01" if mode == "paced" else "", note=note)
        table.row(f"iteration, copies {words}, beside plain", this["iteration_ms"], plain["iteration_ms"], "ms",
            tolerance=ITERATION_TOLERANCE)
        table.row(f"stream of 1 MB, copies {words}: mean, beside no peers", this["stream_ms"], none["stream_ms"], "ms",
            note=f"95 of 100 within {this['stream_p95_ms']:.0f} ms, without peers {none['stream_p95_ms']:.0f}; {this['streams']} times")


def fragments(table):
    """Fragments on other nodes beside whole copies that survive as much."""
    found = script("fragments.py")
    for copies, code in (("2", "2+1"), ("3", "4+2")):
        this, full = found[code], found[copies]
        words = f"{code} fragments beside {copies} copies"
        table.row(f"{words}: memory on other nodes", this["memory_mib"], full["memory_mib"], "MiB", note="of two snapshots and the log")
        table.row(f"{words}: sent for a snapshot", this["sent_mib"], full["sent_mib"], "MiB", note=f"{this['snapshots']} and {full['snapshots']} snapshots")
        table.row(f"{words}: until a snapshot is there", this["seconds"], full["seconds"], "s")
        table.row(f"{words}: processor time of the agent, a snapshot", this["agent_seconds"], full["agent_seconds"], "s")
        table.row(f"{words}: a start on a spare node, until it is live", this["resume_seconds"], full["resume_seconds"], "s",
            note=f"at steps {this['resumed']} and {full['resumed']}")


def security(table):
    """Copies to another node that nobody between can change, or read, beside such as anybody can."""
    found = script("security.py")
    off = found["off"]
    for level in ("auth", "encrypt"):
        this = found[level]
        for key, unit, words in (("rate", "MiB/s", "rate of a copy"), ("sender_seconds_gib", "s", "processor time of who sends, a GiB"),
                                 ("receiver_seconds_gib", "s", "processor time of who receives, a GiB")):
            pairs = [one[key] / other[key] for one, other in zip(this, off)]
            table.row(f"{level}: {words}, beside off", median([one[key] for one in this]), median([one[key] for one in off]), unit, ratio=median(pairs),
                ratios=pairs, note=this[0]["how"])


# ---- recovery ------------------------------------------------------------------------------------------------------

def recovered(table, what):
    """{} where it cannot be measured, so that the other places still are."""
    table.step(what)
    try:
        return script("recovery.py", what)
    except LeftOut as why:
        table.left_out(f"recovery, {what}", why)
    except (RuntimeError, ValueError) as error:
        table.failed(f"recovery, {what}", error)
    return {}


def recovery_row(table, name, found, raw, bytes_of):
    rates, raws, pairs = [r["rate"] for r in found], [r["raw"] for r in found if r["raw"]], [r["rate"] / r["raw"] for r in found if r["raw"]]
    table.row(f"recovery, {bytes_of} MiB: {name}", median(rates), median(raws) if pairs else None, "MiB/s",
        ratio=median(pairs) if pairs else None, ratios=pairs, aim=">= 0.85",
        note=f"beside {raw}; of each round {', '.join(f'{x:.2f}' for x in pairs)}" if pairs else "")
    table.row(f"recovery, {bytes_of} MiB: {name}: exec until it is live, less running forward", median([r["all"] for r in found]), None, "s",
        note=f"{median([r['inject'] for r in found]):.2f} s of it from memory to the device")


def recovery(table):
    """A rank's state from each place that it comes from, beside the place's raw medium."""
    for tool in ("fio", "iperf3"):
        if not shutil.which(tool):
            table.left_out(f"recovery beside {tool}", f"there is no {tool}")
    found = recovered(table, "local")
    for name, what, raw in (("from local memory to the device", "memory", "the first copy into fresh device memory"),
                            ("from the store to memory", "durable", "fio, io_uring and O_DIRECT, on the same file")):
        if found.get(what):
            recovery_row(table, name, found[what], raw, round(found[what][0]["mib"]))
    for transport in ("tcp", "mpi"):
        found = recovered(table, transport)
        if found:
            recovery_row(table, f"from a peer's copy to memory, {transport}", found, "iperf3 from that node to this one", round(found[0]["mib"]))
    found = recovered(table, "consensus")
    for what, words in (("killed", "all four nodes are there"), ("lost", "one of four is lost")):
        if found.get(what):
            table.row(f"from the question to what each node goes on from, {words}", median(found[what]), None, "s",
                note=", ".join(f"{x:.3f}" for x in found[what]))


# ---- takeover ------------------------------------------------------------------------------------------------------

def takeover(table):
    """From a program's death to its first live iteration, by its twin."""
    table.step("age")
    ages = script("takeover.py", "age")
    for row in ages:
        table.row(f"takeover, gpt after {row['age']} iterations: death to live", median(row["twin"]) * 1e3, row["long"] * 1e3, "ms",
            ratio=median(row["twin"]) / row["long"], ratios=[seconds / row["long"] for seconds in row["twin"]],
            note="beside the same command started again at once; " + ", ".join(f"{seconds * 1e3:.0f}" for seconds in row["twin"]))
        record = row["record"]
        if record and record["packed"]:
            table.row(f"record, gpt after {row['age']} iterations: packed, in the store and on the wire", record["packed"] / (row["age"] or 1), record["packed_raw"] / row["age"],
                "B", note=f"an iteration; beside the same as it was recorded; memory has {record['memory'] / 2**20:.1f} MiB")
        memory, first = row["memory"], ages[0]["memory"]
        table.row(f"memory, gpt after {row['age']} iterations: the program and its twin", memory["program"] + memory["twin"], first["program"] + first["twin"], "MiB",
            note=f"beside {ages[0]['age']} iterations; the twin has {memory['twin']:.1f}; the record {memory['record']:.1f}; the twin's folder {memory['overlay']:.1f}")
    table.step("ranks")
    found = script("takeover.py", "ranks")
    for what, words in (("twins", "by twins"), ("again", "none has a twin: forked once more")):
        table.row(f"takeover, four ranks: death of one to all live, {words}", median(found[what]) * 1e3, found["long"][0] * 1e3, "ms",
            ratio=median(found[what]) / found["long"][0], ratios=[seconds / found["long"][0] for seconds in found[what]],
            note="beside the same command started again at once, after 1,000 iterations; " + ", ".join(f"{seconds * 1e3:.0f}" for seconds in found[what]))
    one_node = median(found["twins"])
    table.step("nodes")
    nodes = script("takeover.py", "nodes")
    if nodes:
        table.row("takeover, four ranks on two nodes: death of one to all live, by twins", median(nodes) * 1e3, one_node * 1e3, "ms", ratio=median(nodes) / one_node,
            ratios=[seconds / one_node for seconds in nodes], note="beside four ranks on one node, behind fewer iterations; " + ", ".join(f"{seconds * 1e3:.0f}" for seconds in nodes))
    table.step("beside")
    lost = script("takeover.py", "spare")
    if lost:
        table.row("takeover, a node of two is lost: from its ranks' start on the spare node to all live", lost["start"], lost["hand"], "s",
            note=f"beside the same command started again by hand at once, without detection; from the loss {lost['loss']:.1f} s, of which 22 are until it counts as lost")
    found = script("takeover.py", "beside")
    ratios = [one["rate"] / other["rate"] for one, other in zip(found["with"], found["without"])]
    table.row("iterations a second, gpt beside its twin", median([row["rate"] for row in found["with"]]), median([row["rate"] for row in found["without"]]), "/s",
        ratio=median(ratios), ratios=ratios, note="without a twin, by turns; the twin takes "
        f"{median([row['twin'] for row in found['with']]) * 1e3:.2f} ms of a processor an iteration")
    table.step("state")
    found = script("takeover.py", "state")
    rows = found["rows"]
    ratios = [max(row["seconds"] - 0.1, 0) / row["copy"] for row in rows]
    table.row(f"takeover, {found['mib']} MiB: death to live, less 100 ms", median([row["seconds"] for row in rows]) * 1e3 - 100,
        median([row["copy"] for row in rows]) * 1e3, "ms", ratio=median(ratios), ratios=ratios, aim="<= 1.3",
        note="beside the first copy of as much into fresh device memory; putting the state in place took " + ", ".join(row["said"] for row in rows) + " s")


# ---- flush ---------------------------------------------------------------------------------------------------------

FLUSHED = re.compile(r"is durable: ([\d.]+) MiB, ([\d.]+) of it new, written in ([\d.]+) s, read back in ([\d.]+) s")


def fio(folder, mib):
    path = os.path.join(folder, "fio")
    done = subprocess.run(["fio", "--name=w", "--ioengine=io_uring", "--direct=1", "--rw=write", "--bs=4m",
                           "--iodepth=8", f"--size={mib}m", f"--filename={path}", "--fallocate=none", "--end_fsync=1",
                           "--output-format=json"], capture_output=True, text=True, check=False)
    if os.path.exists(path):
        os.unlink(path)
    try:
        return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["write"]["bw"] / 1024
    except (ValueError, KeyError, IndexError):
        return None


def flush(table):
    """The trainer is killed three times. What the agent wrote before had the trainer beside it, what it writes then has
    not; nor has fio."""
    mib = 512
    beside, alone, base, back, pairs, pairs_beside = [], [], [], [], [], []
    for number in range(3):
        table.step(f"run {number + 1} of 3")
        with job.Place(SIMGPU_MEMORY="4G", TRANSPCKPT_DURABLE_INTERVAL="3") as place:
            runs = Runs(place, {"SIMGPU_KERNEL_US": "200"})
            process = runs.begin(runs.program("trainer"), "--mib", str(mib))

            def large(place=place):
                return [f for f in FLUSHED.findall(place.agent_log()) if float(f[1]) > mib / 2]

            def until(condition):
                end = time.monotonic() + 60
                while not condition() and time.monotonic() < end:
                    time.sleep(0.05)

            until(lambda: len(large()) >= 2)
            shown = runs.look(process)
            if not shown:
                continue
            until(lambda: (runs.look(process) or shown)["held_step"] > shown["held_step"] + 1)
            process.kill()
            process.communicate()
            written = len(large())
            until(lambda: len(large()) > written)
            place.agent_settles()
            found = [(float(f[1]) / float(f[2]), float(f[3]) / float(f[0]) * 1024) for f in large()]
            beside += [rate for rate, _ in found[:written]]
            alone += [rate for rate, _ in found[written:]]
            back += [rate for _, rate in found[written:]]
            if shutil.which("fio"):
                raw = [x for x in (fio(place.root, mib) for _ in range(2)) if x]
                base += raw
                pairs += ratios([rate for rate, _ in found[written:]], [median(raw)] * len(found) if raw else [])
                pairs_beside += ratios([rate for rate, _ in found[:written]], [median(raw)] * len(found) if raw else [])
    if not alone:
        raise RuntimeError("nothing large became durable")
    if not base:
        table.left_out("flush beside fio", "there is no fio, or it cannot use io_uring here")
    table.row("flush: written by the agent", median(alone), median(base) if base else None, "MiB/s", ratios=pairs, aim=">= 0.95 of fio",
        note=f"{len(alone)} times {mib} MiB; agent {', '.join(f'{x:.0f}' for x in alone)}; fio "
             f"{', '.join(f'{x:.0f}' for x in base)}")
    table.row("flush: written by the agent, while training goes on", median(beside), median(base) if base else None, "MiB/s",
        ratios=pairs_beside,
        note=f"{len(beside)} times {mib} MiB")
    table.row("publish: reading back after the last byte, a GiB", median(back), None, "s")


# ---- resume --------------------------------------------------------------------------------------------------------

def resume(table):
    mib = 256
    with job.Place(SIMGPU_MEMORY="4G", TRANSPCKPT_LINGER_SEC="60") as place:
        runs = Runs(place)
        first, best, pairs = [], [], []
        argv = [*runs.preloaded_argv(runs.program("trainer"), "--mib", str(mib), "--steps", "4000")]
        starts, injects = [], []
        steps = 0
        for number in range(6):
            table.step(f"{mib} MiB, start {number + 1} of 6")
            # Beside each resume, so that both meet the machine in the same state.
            found = json.loads(runs.plain(runs.program("upload"), str(mib)).stdout)
            if number:
                first.append(found["first_gib_s"])
                best.append(found["gib_s"])
            path = os.path.join(place.root, f"r{number}.err")
            with open(path, "wb") as err:
                begun = time.monotonic()
                process = subprocess.Popen(argv, env=runs.environment, cwd=place.root, stdin=subprocess.DEVNULL,
                                           stdout=subprocess.DEVNULL, stderr=err)
            while number and process.poll() is None and time.monotonic() - begun < 60:
                live = job.LIVE.search(job.read(path))
                if live:
                    starts.append(time.monotonic() - begun - float(live[2]) - float(live[3]))
                    injects.append(float(live[3]))
                    pairs.append(mib / 1024 / injects[-1] / first[-1])
                    steps = int(live[1])
                    break
                time.sleep(0.001)
            # Until there is a newer snapshot, so that the next start is no repeated death.
            until = time.monotonic() + 60
            while time.monotonic() < until and process.poll() is None:
                shown = runs.look(process)
                if shown and shown["held_step"] > steps + 3:
                    break
                time.sleep(0.1)
            process.send_signal(signal.SIGKILL)
            process.wait()
        if not injects:
            raise RuntimeError("it was never resumed")
        table.row(f"resume, {mib} MiB: exec to running forward", median(starts) * 1e3, None, "ms")
        table.row(f"resume, {mib} MiB: putting the state in place", mib / 1024 / median(injects), median(first), "GiB/s", ratios=pairs,
            aim=">= 0.90", note=f"beside the first copy into fresh device memory; copied again: {median(best):.2f}; seconds "
                                f"{', '.join(f'{x:.3f}' for x in injects)}, first copies "
                                f"{', '.join(f'{mib / 1024 / x:.3f}' for x in first)}")

    table.step("gpt")
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "400")
        this.run_plain()
        forwards, starts = [], []
        goal = 100
        for _ in range(4):
            start = this.start()
            start.until(lambda: job.LIVE.search(start.said()) or this.progress() >= goal)
            live = job.LIVE.search(start.said())
            if live:
                forwards.append(int(live[1]) / max(float(live[2]), 1e-3))
                starts.append(time.monotonic() - start.begun)
            start.until(lambda: this.progress() >= goal)
            goal += 40
            start.kill()
        table.row("resume, gpt: exec to first live iteration", median(starts) * 1e3, None, "ms")
        table.row("resume, gpt: iterations/s forward, beside plain", median(forwards), 400 / this.plain_sec, "1/s",
                  ratios=ratios(forwards, [400 / this.plain_sec] * len(forwards)))


# ---- memory --------------------------------------------------------------------------------------------------------

def resident(pid):
    """KiB of a process without shared memory, and its locked pages."""
    text = job.read(f"/proc/{pid}/status")
    return "RssAnon" in text and sum(int(re.search(rf"{name}:\s+(\d+)", text)[1]) for name in ("RssAnon", "RssFile"))


def memory(table):
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "300")
        plain, preloaded, agents = [], [], []
        for _ in range(ROUNDS):
            for found, preload in ((plain, False), (preloaded, True)):
                environment = place.environment if preload else {
                    k: v for k, v in place.environment.items() if not k.startswith("TRANSPCKPT_")}
                argv = [*this.runner, *([os.path.join(place.build, "transpckpt"), "run", "--"] if preload else []),
                        *this.arguments]
                start = job.Start(place, argv, this.work, environment, "memory")
                start.until(lambda: start.printed().count("\nstep") >= 100)
                found.append(resident(start.process.pid))
                if preload:
                    agents += [size for size in map(resident, place.agents()) if size]
                start.kill()
            shutil.rmtree(os.path.join(place.shm, "j"), ignore_errors=True)
            for pid in place.agents():
                os.kill(pid, signal.SIGKILL)
        table.row("memory: library in a trainer, without images", (median(preloaded) - median(plain)) / 1024, None, "MiB",
            aim="<= 16 MiB", note=f"trainer {median(plain) / 1024:.1f}, preloaded {median(preloaded) / 1024:.1f}")
        if agents:
            table.row("memory: agent, buffers of its writers included", median(agents) / 1024, None, "MiB",
                aim="<= 32 + buffers")


# ---- digests -------------------------------------------------------------------------------------------------------

def digests(table):
    found = [json.loads(subprocess.run([os.path.join(job.build_folder(), "tests/bench/digest")], capture_output=True, text=True,
                                       check=True).stdout) for _ in range(min(ROUNDS, 3))]
    for what, which in (("digest of a stored chunk", "stored"), ("block digest (twin of the device's)", "block")):
        for where, end in (("memory", ""), ("cached", "_cached")):
            ours, raw = ([one[name + end] for one in found] for name in (which, "xxh3"))
            table.row(f"{what}, {where}", median(ours), median(raw), "GiB/s", ratios=ratios(ours, raw))


# ---- PyTorch -------------------------------------------------------------------------------------------------------

TORCH_STEPS, TORCH_FROM, TORCH_TO = 500, 100, 300


def used(pid):
    """Seconds of processor time of a process, all of its threads."""
    fields = job.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pace(argv, environment, folder, until=None, said=""):
    """Starts a script that prints its steps: (seconds, seconds of processor time) from one step's line to another's; killed at
    the second one, or where `until` says. It must have said `said` by then."""
    with subprocess.Popen(argv, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as process:
        marks = {}
        for line in process.stdout:
            words = line.split()
            if words[0] == "step" and int(words[1]) in (TORCH_FROM, TORCH_TO):
                marks[int(words[1])] = time.monotonic(), used(process.pid)
            if until(line) if until else TORCH_TO in marks:
                break
        process.kill()
        errors = process.stderr.read()
    if TORCH_TO not in marks or said not in errors or "live at" in errors:
        raise ValueError(f"not what was to be measured, up to step {max(marks, default=0)}: {errors[-300:]}")
    return [b - a for a, b in zip(marks[TORCH_FROM], marks[TORCH_TO])]


def torch(table):
    sys.path.insert(0, os.path.join(HERE, "../torch"))
    import scripts
    python = scripts.find_python()
    if not python:
        raise LeftOut("there is no Python with PyTorch: ./bootstrap.sh torch installs one")
    steps, off, forward, plain, preloaded = TORCH_TO - TORCH_FROM, [], [], [], []
    script = [python, "-W", "ignore", os.path.join(scripts.HERE, "gpt.py"), "--steps", str(TORCH_STEPS)]
    rounds = min(ROUNDS, 2)
    for number in range(rounds):
        table.step(f"run {number + 1} of {rounds}")
        with job.Place(OMP_NUM_THREADS="1", TRANSPCKPT_OUTPUT="again") as place:
            runs = Runs(place)
            argv = runs.preloaded_argv(*script)
            off.append(pace([*runs.runner, *script], {**runs.plain_environment, "SIMGPU_EXECUTE": "0"}, place.root))
            # Killed when there is a snapshot past the last step that is looked at.
            pace(argv, runs.environment, place.root,
                 lambda line: line.startswith("step") and int(line.split()[1]) > TORCH_TO + 20 and
                 any(r["held_step"] > TORCH_TO for r in place.shown() if "held_step" in r))
            forward.append(pace(argv, runs.environment, place.root, said="resuming at"))
        # Copies are work of simgpu's own threads: none is due.
        with job.Place(OMP_NUM_THREADS="1", TRANSPCKPT_INTERVAL="3600s") as place:
            runs = Runs(place)
            plain.append(pace([*runs.runner, *script], runs.plain_environment, place.root))
            preloaded.append(pace(runs.preloaded_argv(*script), runs.environment, place.root))
    wall = [[steps / wall for wall, _ in found] for found in (forward, off)]
    table.row("torch, gpt: steps/s forward, beside plain without kernels", *map(median, wall), "1/s", ratios=ratios(*wall), aim=">= 0.80",
        note=f"{', '.join(f'{x:.1f}' for x in wall[0])} beside {', '.join(f'{x:.1f}' for x in wall[1])}")
    cpu = [[cpu / steps * 1e3 for _, cpu in found] for found in (preloaded, plain)]
    table.row("torch, gpt: processor time of a step without a snapshot", *map(median, cpu), "ms", ratios=ratios(*cpu), aim="<= 1.02",
        note=f"{', '.join(f'{x:.2f}' for x in cpu[0])} beside {', '.join(f'{x:.2f}' for x in cpu[1])}")


# Two steps behind what is learnt from.
COUNTED_STEPS = (60, 140)


def instructions_of(python, library, preload):
    """Of a step, all threads of the process. What the wrapper does before the program is not under valgrind: the first time it makes the
    libraries that stand for the vendor's."""
    first, last = COUNTED_STEPS
    with job.Place(OMP_NUM_THREADS="1", TRANSPCKPT_INTERVAL="1000000", TRANSPCKPT_LOG="none", SIMGPU_EXECUTE="0") as place:
        runs, out = Runs(place), os.path.join(place.root, "callgrind")
        argv = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}.%p", "-q", python, "-W", "ignore",
                os.path.join(HERE, "counted.py"), library, str(first), str(last), os.path.join(HERE, "../torch/gpt.py"), "--accumulate", "1",
                "--steps", str(last + 10)]
        subprocess.run(runs.preloaded_argv(*argv) if preload else [*runs.runner, *argv],
                       env={**runs.environment, **WITHOUT_LOOK} if preload else runs.plain_environment,
                       capture_output=True, text=True, check=True, cwd=place.root, stdin=subprocess.DEVNULL, timeout=LIMIT_SEC)
        found = [int(n) for path in glob.glob(f"{out}.*") for n in re.findall(r"^(?:totals|summary): (\d+)", job.read(path), re.M)]
        if not any(found):
            raise RuntimeError("callgrind has counted nothing")
        return max(found) / (last - first)


def torch_instructions(table):
    """Instructions of a step without a snapshot, inference and all, beside the plain step's; both over simgpu's driver."""
    sys.path.insert(0, os.path.join(HERE, "../torch"))
    import scripts
    python = scripts.find_python()
    if not python or not shutil.which("valgrind"):
        raise LeftOut("there is no Python with PyTorch (./bootstrap.sh torch installs one), or no valgrind")
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "instrument.so")
        built = subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, os.path.join(HERE, "instrument.c")], capture_output=True, text=True, check=False)
        if built.returncode:
            raise LeftOut(f"valgrind's header cannot be used: {built.stderr.strip()[-200:]}")
        # Beside each other: what is counted does not depend on what else the machine does.
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            plain, preloaded = pool.map(lambda preload: instructions_of(python, library, preload), (False, True))
    table.row("torch, gpt: instructions of a step without a snapshot", preloaded / 1e6, plain / 1e6, "10^6", tolerance=0.01, aim="<= 1.02")


GROUPS = {
    "calls": (calls, "a call of the program's"),
    "instructions": (instructions, "instructions of a call"),
    "stalls": (stalls, "time in the library at a boundary"),
    "iterations": (iterations, "an iteration with a snapshot, under the clock model"),
    "replication": (replication, "an iteration and a stream while copies go to another node"),
    "fragments": (fragments, "fragments on other nodes beside whole copies"),
    "security": (security, "copies to another node that are authenticated or encrypted"),
    "flush": (flush, "what the agent writes beside fio"),
    "resume": (resume, "exec to running forward, and the state's copy"),
    "takeover": (takeover, "a program's death to its first live iteration, by its twin"),
    "recovery": (recovery, "a rank's state from memory, store and peers"),
    "memory": (memory, "resident memory"),
    "digests": (digests, "one core's digests beside XXH3-128"),
    "torch": (torch, "a PyTorch step"),
    "torch_instructions": (torch_instructions, "instructions of a PyTorch step"),
    "record": (record_rows.record, "bytes of the record of an iteration"),
    "saves": (file_rows.saves, "a save by torch.save"),
    "commands": (file_rows.commands, "programs that save nothing"),
    "streams": (file_rows.streams, "a call that writes by a stream"),
    "small": (file_rows.small, "programs that pass many small files along"),
}


def chosen(words):
    """The groups that the words name, with commas or spaces between them, each once; all where there are none."""
    names = list(dict.fromkeys(re.split(r"[\s,]+", " ".join(words).strip(" ,\t"))))
    if names == [""]:
        return list(GROUPS)
    for name in names:
        if name not in GROUPS:
            sys.exit(f"bench: there is no group {name}; there are {', '.join(GROUPS)}")
    return names


def main():
    names, update = chosen(sys.argv[1:]), os.environ.get("UPDATE") == "1"
    try:
        reference = compare.load(COMMITTED)
    except ValueError as error:
        if not update:
            sys.exit(f"bench: {error}; UPDATE=1 writes it anew")
        reference = compare.nothing()
    table = Table(reference, names, GROUPS)
    # Who is ended ends what it has started, and removes its folders.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    for name in names:
        function, what = GROUPS[name]
        table.measure(name, what, lambda function=function: function(table))
        # Written after each group: what has been measured stays where the bench is ended.
        with open("bench.json", "w", encoding="utf-8") as f:
            json.dump(table.results(), f, indent=1)
            f.write("\n")
    status = table.end("tests/bench/last.json")
    if update:
        compare.save(COMMITTED, compare.merged(reference, table.results(), table.whole(), GROUPS))
    return status


if __name__ == "__main__":
    sys.exit(main())
