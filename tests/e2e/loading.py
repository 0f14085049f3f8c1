#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 about=20s
"""Modules that take long to load: a question for a variable loads one, and no boundary waits for that, whether other calls have to wait meanwhile or go
on. The variables are in the snapshots all the same."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

LOAD_SEC = 1.2
GPT = ["gpt", "--seed", "3", "--steps", "4000", "--dropout", "0.1"]
CASES = {
    "other calls wait": (GPT, {}),
    "other calls go on": (GPT, {"SIMGPU_HELPFUL": "loading"}),
    "three modules": (["gan", "--seed", "3", "--steps", "4000", "--augment", "augment.so", "--augment", "augment-too.so"], {"SIMGPU_HELPFUL": "loading"}),
}


def notes(place):
    return max((row["notes"] for row in place.shown() if row.get("notes")), key=lambda n: n["captured"], default={"captured": 0})


def case(checks, name):
    (trainer, *arguments), settings = CASES[name]
    with job.Place(SIMGPU_ASK_US=str(int(LOAD_SEC * 1e6)), **settings) as place:
        arguments = [place.trainer(word) if word.endswith(".so") else word for word in arguments]
        this = job.Job(place, trainer, *arguments)
        start, begun = this.start(), time.monotonic()
        first = start.until(lambda: notes(place)["captured"] >= 1) and time.monotonic() - begun
        checks.ok(first >= LOAD_SEC, f"{name}: the first snapshot comes once the modules are loaded, after {first:.2f} s", this.story())
        came = start.until(lambda: notes(place)["captured"] >= 3)
        now = notes(place)
        checks.ok(came, f"{name}: there are snapshots, {now}", this.story())
        longest = now.get("stall_ns_max", 0) / 1e9
        checks.ok(0 < longest < LOAD_SEC / 2, f"{name}: a module takes {LOAD_SEC} s to load, and no boundary more than {longest:.4f}", this.story())
        start.kill()
        again = this.start()
        checks.ok(again.until(lambda: job.LIVE.search(again.said())) and int(job.LIVE.search(again.said())[1]) > 0, f"{name}: killed, it goes on from one",
                  this.story())
        again.kill()


def main():
    checks = job.Checks()
    for name in sys.argv[1:] or CASES:
        case(checks, name)
    checks.end()


if __name__ == "__main__":
    main()
