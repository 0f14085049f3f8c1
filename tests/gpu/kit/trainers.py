# SPDX-License-Identifier: Apache-2.0
"""The stage `trainers`: those of tests/trainers plain, with the library, and killed and started again, by tests/e2e/kill_resume.py,
which compares every byte."""
import os
import re
import shutil
import sys

import machine
import programs

# What matters most comes first: the stage may not get through. Those of ROUGH_CASES are rough.py's, the others kill_resume.py's; a number is how
# often it is killed.
ORDER = ("gpt=0", "gpt", "rough-late", "rough-readback", "rough-streams", "classifier", "gan", "gpt-graph", "rough-streams-one-connection",
         "gpt-fused", "gpt-async-loss", "classifier-churn", "rough-queue", "demo", "gpt-accum", "gpt-varlen", "classifier=0", "gan=0",
         "rough-clock", "rough-tally", "rough-late-eager", "rough-readback-blocking", "classifier-loader-thread", "gan-extensions", "classifier-drawn-seed", "gpt-overwrite", "gpt-rename",
         "gpt-save-best", "gpt-own-resume", "gpt-log-append", "gan-long-growth", "gpt-mapped", "classifier-mapped-churn", "gpt-freeing")
# Each step of the first launches 2,400 kernels; the second are twelve runs.
FEWER = {"rough-queue": {"TPCK_TEST_TIMES": "4"}, "rough-clock": {"TPCK_TEST_TIMES": "10"}}
NEED_COMPILER = ("mapped", "freeing")
KILL_RESUME, ROUGH = (os.path.join(machine.TESTS, "e2e", name) for name in ("kill_resume.py", "rough.py"))
# The trainer of rough.py does what drivers block in. Name: case, environment.
ROUGH_CASES = {"rough-late": ("late", {}), "rough-queue": ("queue", {}), "rough-readback": ("readback", {}), "rough-clock": ("clock", {}),
               "rough-tally": ("tally", {}), "rough-streams": ("streams", {}),
               "rough-streams-one-connection": ("streams", {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
               "rough-late-eager": ("late", {"CUDA_MODULE_LOADING": "EAGER"}),
               "rough-readback-blocking": ("readback", {"CUDA_LAUNCH_BLOCKING": "1"})}


def taps(status, printed, said):
    """What a test that prints TAP found."""
    good = len(re.findall(r"^ok ", printed, re.M))
    bad = re.findall(r"^not ok \d+ - (.*)", printed, re.M)
    found = {"checks": good + len(bad), "kills": [line[2:] for line in re.findall(r"^# killed at .*", printed, re.M)],
             "remarks": sorted({line[4:] for line in re.findall(r"^#   transpckpt: .*", printed, re.M)})[:40]}
    if status == 77:
        found.update(result="skipped", why=printed.partition("SKIP ")[2].strip())
    elif bad or status:
        found.update(result="failed", why="; ".join(bad) or f"status {status}")
    return found


def kill_resume(stage, case, name, kills, seconds, environment):
    stage.run(case, [sys.executable, "-B", KILL_RESUME, f"{name}={kills}"], seconds, about=8, environment=environment, judge=taps)


def demo(stage, environment):
    stage.run("demo", [sys.executable, "-B", os.path.join(machine.TESTS, "e2e", "demo.py")], 90, about=15, environment=environment,
              judge=lambda status, printed, said: {"table": printed})


def main(stage):
    if not programs.ready(stage, ["gpt", "classifier", "gan", "rough", "augment.so", "augment-too.so"]):
        return
    environment = machine.test_environment(stage.work)
    often = int(os.environ.get("KILLS") or 4)
    for one in ORDER:
        name, _, kills = one.partition("=")
        case = f"{name}-not-killed" if kills == "0" else name
        if name in ROUGH_CASES:
            which, more = ROUGH_CASES[name]
            stage.run(name, [sys.executable, "-B", ROUGH, which], 60, about=8, environment={**environment, **more, **FEWER.get(name, {})}, judge=taps)
        elif name == "demo":
            demo(stage, environment)
        elif any(word in name for word in NEED_COMPILER) and not shutil.which("cc"):
            if stage.wanted(case):
                stage.say(case, "not run", why="no C compiler here")
        else:
            kill_resume(stage, case, name, int(kills or often), 60, environment)
