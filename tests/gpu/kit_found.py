#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kit_bare.sh has to find in its root once the stages ran: kit_found.py ROOT. TAP."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from job import Checks, read

ROOT = os.path.realpath(sys.argv[1])
WANTED = {
    "probes": {"machine": "passed", "device": "passed", "names": "passed", "digest": "passed", "vmm": "passed", "tmpfs": "passed", "address-0": "passed",
               "hazard-event-lazy-8-2": "moved", "hazard-event-launches-1-40": "moved", "hazard-event-blocking-32-2": "moved",
               # The fence that waits for what is not submitted yet: as on hardware, a kernel's loading never ends behind it.
               "hazard-value-lazy-8-2": "stuck"},
    "trainers": {"gpt-not-killed": "passed", "classifier": "passed"},
    "self": {"stuck": "hung"},
}


def rows(stage, results="kit/results"):
    return {row["case"]: row for row in map(json.loads, read(f"{ROOT}/{results}/{stage}.jsonl").splitlines())}


def of_root():
    """Processes that run in it."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/root").startswith(ROOT):
                found.append(read(f"/proc/{pid}/cmdline").replace("\0", " "))
        except OSError:
            pass
    return found


def main():
    checks = Checks()
    found = {stage: rows(stage) for stage in WANTED}
    for stage, wanted in WANTED.items():
        for case, result in wanted.items():
            row = found[stage].get(case, {})
            checks.ok(row.get("result") == result, f"{stage}, {case}: {result}", json.dumps(row)[:3000])
    stuck = found["probes"].get("hazard-value-lazy-8-2", {})
    checks.ok(stuck.get("released_by_store") and stuck.get("program_in") == "cuLaunchKernel", "what is stuck says in which calls, and what releases it", stuck)
    doctor = found["probes"].get("doctor", {}).get("result")
    checks.ok(doctor in ("passed", "not there"), f"transpckpt doctor --device: {doctor}", found["probes"].get("doctor"))
    machine = found["probes"].get("machine", {})
    checks.ok("cuMemAlloc_v2" not in machine.get("unknown_to_us", ["cuMemAlloc_v2"]) and machine.get("exported", 0) > 500,
              "the driver's functions are compared with those that the library knows", machine)
    environment = machine.get("environment")
    checks.ok(environment == {"LD_LIBRARY_PATH": "/driver"}, "what the kit needs for itself is in nobody's environment", environment)
    classifier = found["trainers"].get("classifier", {})
    checks.ok(len(classifier.get("kills", [])) == 3, "the trainer was killed, and each kill is told of", classifier)
    told = json.dumps(found["self"].get("stuck", {}).get("stacks", []))
    checks.ok("stuck_in_a_loop" in told and "stuck_at_a_lock" in told, "the stacks of what hangs name its functions", told)
    checks.ok("stuck:main" in told, "and those of its child in a session of its own", told)
    unkillable = [row for stage in found.values() for row in stage.values() if row.get("not_killable") or row.get("left")]
    checks.ok(not unkillable, "no case left processes behind when it ended", unkillable)
    cut = rows("self", "cut").get("stuck", {})
    checks.ok(cut.get("result") == "cut off", "what the stage's end cuts off is not said to hang", cut)
    late = rows("trainers", "late")
    checks.ok("gpt-varlen" in late and all(row["result"] == "not run" for row in late.values()), "what does not fit into the stage's time is written down", late)
    checks.ok(os.path.exists(f"{ROOT}/ended/self.jsonl") and not rows("self", "ended"), "the kit that was to be ended had begun", rows("self", "ended"))
    report = read(f"{ROOT}/report")
    checks.ok("| fence | program does |" in report and "STUCK" in report and "| classifier | passed |" in report, "the report has tables", report)
    checks.ok(os.path.exists(f"{ROOT}/kit/results/report.md"), "and lies beside the results")
    checks.ok(not of_root(), "no process is left", of_root())
    left = [os.path.join(folder, name) for folder in ("dev/shm", "tmp") for name in os.listdir(f"{ROOT}/{folder}")]
    checks.ok(not left, "and no files", left)
    ours = [name for base, _, names in os.walk(f"{ROOT}") for name in names if name.startswith(("liburing", "libjson-c")) and "/kit" not in base and "/proc" not in base]
    checks.ok(not ours, "the libraries of the agent were those of the kit", ours)
    checks.end()


main()
