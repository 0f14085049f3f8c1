#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""From the death of a program to its first live iteration: by its twin, and the long way, by the same command once more; at a young and at an old age, and
with much state beside the copy of it to the device. Prints JSON for bench.py. Arguments: age, state. TAKEOVER_MIB sets the size, AGES the iterations,
ROUNDS how often (default 3)."""
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import job
import twins

AGES = [int(age) for age in (os.environ.get("AGES") or "1000,10000").split(",")]
MIB = int(os.environ.get("TAKEOVER_MIB") or 1024)
ROUNDS = int(os.environ.get("ROUNDS") or 3)




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


def age():
    """A small model: what a takeover takes at each age, and the long way."""
    rows = []
    for goal in AGES:
        argv = None
        with job.Place(TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_LOG="info") as place:
            argv = [place.trainer("gpt"), "--seed", "7", "--steps", "1000000", "--save-every", "1000000", "--out", os.path.join(place.root, "out")]
            start = begin(place, True, argv, "twin")
            seconds = [by_twin(place, start, goal + 100 * number) for number in range(ROUNDS)]
            start.process.kill()
            start.process.wait()
        with job.Place(TRANSPCKPT_DURABLE_INTERVAL="1000000", TRANSPCKPT_LOG="info") as place:
            argv[argv.index("--out") + 1] = os.path.join(place.root, "out")
            start = begin(place, False, argv, "plain")
            long, start = by_start(place, start, argv, goal)
            start.kill()
        rows.append({"age": goal, "twin": seconds, "long": long})
    return rows


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
    print(json.dumps({"age": age, "state": state}[sys.argv[1]]()))


main()
