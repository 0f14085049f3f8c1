#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the death of a program to its first live iteration: by its twin, and the long way, by the same command once more; at a young and at an old age, of
four ranks, and with much state beside the copy of it to the device; and what a twin takes from the program beside it. Prints JSON for bench.py. Arguments: age,
ranks, nodes, spare, state, beside. TAKEOVER_MIB sets the size, AGES the iterations, ROUNDS how often (default 3)."""
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import job
import twin_ranks
import twins

AGES = [int(age) for age in (os.environ.get("AGES") or "1000,10000").split(",")]
MIB = int(os.environ.get("TAKEOVER_MIB") or 1024)
ROUNDS = int(os.environ.get("ROUNDS") or 3)
RANKS, RANKS_AGE = 4, 1000
WINDOW_SEC, TICKS = 6.0, os.sysconf("SC_CLK_TCK")


def until(start, condition, seconds=600):
    found = start.until(condition, seconds)
    if not found:
        raise ValueError(f"it did not come so far: {start.said()[-300:]}")
    return found


def command(place, twin, argv):
    return [*place.runner, os.path.join(place.build, "transpckpt"), "run", *(["--twin"] if twin else []), "--", *argv]


def begin(place, twin, argv, name):
    return job.Start(place, command(place, twin, argv), place.root, place.environment, name)


def lives(start):
    return len(job.LIVE.findall(start.said()))


def held(place):
    return max([row["held_step"] for row in place.shown()] or [0])


def near(place):
    """The twin is as near as it comes."""
    return any(row.get("twin") and row["twin"]["proven"] + 3 >= row["iterations"] for row in place.shown())


def by_twin(place, start, goal):
    """Seconds from the kill to the line that says that the process is live."""
    until(start, lambda: held(place) >= goal and twins.covered(start) and near(place))
    before, living = lives(start), twins.covered(start)
    begun = time.monotonic()
    job.signal_if_there(living)
    until(start, lambda: lives(start) > before)
    return time.monotonic() - begun


def by_start(place, start, argv, goal):
    """The same where somebody starts the command again at once. The next start is the second value."""
    until(start, lambda: held(place) >= goal)
    begun = time.monotonic()
    start.kill()
    start = begin(place, False, argv, f"long{goal}")
    until(start, lambda: lives(start))
    return time.monotonic() - begun, start


def memory_of(place, start):
    """MiB that the program and its twin take, each with its share of what both have, of these what the record takes, and what lies in the twin's folder."""
    living, twin = twins.processes(start)
    there = [int(re.search(r"^Pss:\s+(\d+)", job.read(f"/proc/{pid}/smaps_rollup"), re.M)[1]) / 1024 for pid in (living, twin)]
    [record] = [row["record"] for row in place.shown() if row["pid"] == living]
    folder = os.path.join(place.shm, "j", f"twin.{twin}")
    overlay = sum(os.lstat(os.path.join(at, name)).st_blocks * 512 for at, _, names in os.walk(folder) for name in names)
    return {"program": there[0], "twin": there[1], "record": record["memory"] / 2**20, "overlay": overlay / 2**20}


def age():
    """A small model: what a takeover takes at each age, and the long way; and what program and twin have in memory by then."""
    rows = []
    for goal in AGES:
        argv = None
        with job.Place(TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_LOG="info") as place:
            argv = [place.trainer("gpt"), "--seed", "7", "--steps", "1000000", "--save-every", "1000000", "--out", os.path.join(place.root, "out")]
            start = begin(place, True, argv, "twin")
            until(start, lambda: held(place) >= goal and twins.covered(start) and near(place))  # pylint: disable=cell-var-from-loop
            memory = memory_of(place, start)
            seconds = [by_twin(place, start, goal + 100 * number) for number in range(ROUNDS)]
            record = [row["record"] for row in place.shown() if row["running"]]
            start.process.kill()
            start.process.wait()
        with job.Place(TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_LOG="info") as place:
            argv[argv.index("--out") + 1] = os.path.join(place.root, "out")
            start = begin(place, False, argv, "plain")
            long, start = by_start(place, start, argv, goal)
            start.kill()
        rows.append({"age": goal, "twin": seconds, "long": long, "memory": memory, "record": record[0] if record else None})
    return rows


def all_live(this, start, times):
    until(start, lambda: all(count >= times for count in this.takeovers()))


def ranks():
    """Four ranks: one dies, and all are live again; by twins, where there are none yet, and by the same command once more."""
    found = {"twins": [], "again": [], "long": []}
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_LOG="info") as place:
        this = twin_ranks.Twins(place, RANKS, steps=1000000, together=True)
        start, times = this.start(), 0
        for number in range(ROUNDS):
            until(start, lambda: held(place) >= RANKS_AGE + 100 * number and this.covered(start) and near(place))  # pylint: disable=cell-var-from-loop
            for what in ("twins", "again"):
                living = {rank: twins.processes(pid)[0] for rank, pid in this.supervisors(start).items()}
                begun = time.monotonic()
                job.signal_if_there(living[number % RANKS])
                times += 1
                all_live(this, start, times)
                found[what].append(time.monotonic() - begun)
        start.kill()
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_LOG="info") as place:
        this = twin_ranks.Twins(place, RANKS, steps=1000000, together=True)
        plain = os.path.join(place.build, "transpckpt") + " run --"
        start = this.begin(this.work, place.environment, plain)
        until(start, lambda: held(place) >= RANKS_AGE)
        begun = time.monotonic()
        start.kill()
        start = this.begin(this.work, place.environment, plain)
        all_live(this, start, 1)
        found["long"].append(time.monotonic() - begun)
        start.kill()
    return found


def nodes():
    """Four ranks on two nodes of this machine's own (tests/cluster/twins.py): one dies, and all are live again. None where there can be no nodes."""
    test = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster/twins.py")
    run = subprocess.run([sys.executable, test], env={**os.environ, "CASE": "killed"}, capture_output=True, text=True, check=False)
    return [int(found) / 1e3 for found in re.findall(r"^# from a death to all live: (\d+) ms$", run.stdout, re.M)] if run.returncode == 0 else None


def spare():
    """A node is lost, and its ranks go on at a spare one, or by hand (tests/cluster/spare.py). None where there can be no nodes."""
    test = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cluster/spare.py")
    said = subprocess.run([sys.executable, test], env={**os.environ, "CASE": "second by_hand"}, capture_output=True, text=True, check=False).stdout
    loss, start, hand = (re.search(pattern, said) for pattern in (r"to live: ([\d.]+) s; from", r"start there: ([\d.]+)", r"by hand to live: ([\d.]+)"))
    return {"loss": float(loss[1]), "start": float(start[1]), "hand": float(hand[1])} if loss and start and hand else None


def ticks(process):
    """Of the processor, of a process, its threads and the children that it has waited for."""
    fields = job.read(f"/proc/{process}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) if len(fields) > 14 else 0


def in_window(place):
    """Iterations a second, and the processor seconds of the twin for each, in some seconds."""
    def looked():
        [row] = [row for row in place.shown() if row["running"]]
        return time.monotonic(), row["iterations"], ticks(row["twin"]["pid"]) if row.get("twin") else 0
    first = looked()
    time.sleep(WINDOW_SEC)
    last = looked()
    count = last[1] - first[1]
    return {"rate": count / (last[0] - first[0]), "twin": (last[2] - first[2]) / TICKS / count}


def beside():
    """What the program gets done beside its twin, that follows closely, and without one, by turns."""
    found = {"with": [], "without": []}
    for _ in range(ROUNDS):
        for what in found:
            with job.Place(TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_LOG="info") as place:
                argv = [place.trainer("gpt"), "--seed", "7", "--steps", "1000000", "--save-every", "1000000", "--out", os.path.join(place.root, "out")]
                start = begin(place, what == "with", argv, what)
                until(start, lambda: held(place) >= 300 and (what == "without" or near(place)))  # pylint: disable=cell-var-from-loop
                found[what].append(in_window(place))
                start.process.kill()
                start.process.wait()
    return found


def first_copy(place):
    """Seconds of the first copy of so much into fresh device memory."""
    plain = {k: v for k, v in place.environment.items() if not k.startswith("TRANSPCKPT_")}
    done = subprocess.run([*place.runner, os.path.join(place.build, "tests/bench/upload"), str(MIB)], env=plain, capture_output=True, text=True, check=True)
    return MIB / 1024 / json.loads(done.stdout)["first_gib_s"]


def state():
    """Much state: a takeover beside the copy of it to the device."""
    with job.Place(SIMGPU_MEMORY="6G", TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_LOG="info", TRANSPCKPT_FILES="none") as place:
        argv = [os.path.join(place.build, "tests/bench/trainer"), "--mib", str(MIB), "--steps", "100000", "--quiet"]
        start, rows = begin(place, True, argv, "twin"), []
        for number in range(ROUNDS):
            copy = first_copy(place)
            rows.append({"seconds": by_twin(place, start, held(place) + 3), "copy": copy, "said": re.findall(r"and ([\d.]+) s inject", start.said())[-1]})
        start.process.kill()
        start.process.wait()
    return {"mib": MIB, "rows": rows}


def main():
    print(json.dumps({"age": age, "ranks": ranks, "nodes": nodes, "spare": spare, "state": state, "beside": beside}[sys.argv[1]]()))


main()
