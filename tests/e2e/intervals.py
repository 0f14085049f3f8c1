#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 about=6s
"""How often snapshots are taken: every Nth iteration, or as often as the overhead allows; and that the classes of state
are learnt meanwhile, although few snapshots show them."""
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job


def running(place, goal, **environment):
    """What `show` says of a gpt that is `goal` iterations on and has two snapshots (the second one shows what was
    learnt after the first); it is killed afterwards."""
    this = job.Job(place, "gpt", "--seed", "5", "--steps", "2000")
    start = this.start(environment=environment)
    found = []

    def there():
        found[:] = [row for row in place.shown()
                    if row["running"] and row["iterations"] >= goal and row["notes"]["captured"] >= 2]
        return found

    start.until(there)
    start.kill()
    return found[0] if found else None


def classes_known(row):
    classes = row["notes"]["classes"]
    return classes["optimizer"]["bytes"] > classes["unknown"]["bytes"] + classes["early"]["bytes"]


def main():
    checks = job.Checks()
    with job.Place(TRANSPCKPT_INTERVAL="40") as place:
        row = running(place, 130)
        if checks.ok(row, "gpt trains with an interval of 40"):
            notes = row["notes"]
            checks.ok(row["held_step"] and row["held_step"] % 40 == 0, f"the newest snapshot is of step {row['held_step']}")
            checks.ok(notes["captured"] <= row["iterations"] / 40, f"{notes['captured']} snapshots in {row['iterations']} iterations")
            checks.ok(classes_known(row), "classes are known all the same", notes["classes"])
    # There is time for what the first one needs.
    with job.Place(TRANSPCKPT_INTERVAL="60", TRANSPCKPT_LOG="debug", SIMGPU_KERNEL_US="100") as place:
        row = running(place, 130)
        log = place.agent_log()
        checks.ok(row and "committed step 60 " in log, "the first snapshot is of the first step that is due", log)
    # Copies so slow that a snapshot takes many iterations.
    with job.Place(TRANSPCKPT_INTERVAL="auto", TRANSPCKPT_OVERHEAD="5") as place:
        row = running(place, 130, SIMGPU_COPY_GBPS="0.01")
        if checks.ok(row, "gpt trains with slow copies, as often as 5% allow"):
            notes = row["notes"]
            checks.ok(0 < notes["captured"] <= row["iterations"] / 4,
                      f"{notes['captured']} snapshots in {row['iterations']} iterations")
            checks.ok(classes_known(row), "classes are known all the same", notes["classes"])
    # A share that lets two of them be minutes apart, but for the first minute.
    with job.Place(TRANSPCKPT_INTERVAL="auto", TRANSPCKPT_OVERHEAD="0.1") as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "100000")
        start = this.start(environment={"SIMGPU_COPY_GBPS": "0.01", "SIMGPU_KERNEL_US": "60"})
        begun, found = time.monotonic(), []

        def some():
            found[:] = [row["notes"]["captured"] for row in place.shown() if row["running"]]
            return found and found[0] >= 5
        start.until(some, 40)
        start.kill()
        checks.ok(found and found[0] >= 5, f"in the first minute snapshots are no more than seconds apart: {found} after {time.monotonic() - begun:.0f} s")
    checks.end()


if __name__ == "__main__":
    main()
