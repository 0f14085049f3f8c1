# SPDX-License-Identifier: Apache-2.0
"""Programs for this machine's driver: those of the kit where the driver is as new as the compiler that made them, else made here."""
import json
import os
import subprocess
import sys

import machine

MADE = machine.path("made")
FLAGS = {"gpt": [], "classifier": [], "gan": [], "rough": [], "gpt_ranks": ["-lnccl"], "augment.so": ["-Xcompiler", "-fPIC", "-shared", "-DDRAWN=1"],
         "augment-too.so": ["-Xcompiler", "-fPIC", "-shared", "-DDRAWN=2"]}
SOURCE = {"augment.so": "augment", "augment-too.so": "augment"}


def driver_version():
    said = machine.said_by([sys.executable, "-c", "import ctypes; v = ctypes.c_int(); ctypes.CDLL('libcuda.so.1').cuDriverGetVersion(ctypes.byref(v)); "
                            "print(v.value)"])
    return int(said or 0)


def are_carried():
    """Whether the kit's own will do, or those that PROGRAMS names."""
    if os.environ.get("PROGRAMS"):
        return True
    with open(machine.path("kit.json"), encoding="utf-8") as f:
        found = json.load(f)
    return bool(found["programs"]) and driver_version() >= found["toolkit"] // 1000 * 1000


def command(name):
    """How nvcc makes one of them here."""
    out = os.path.join(MADE, name)
    if name == "kernels.fatbin":
        return [machine.nvcc(), "-fatbin", "-arch=native", "-o", out, machine.path("tests", "gpu", "probes", "kernels.cu")]
    if name == "digest.fatbin":
        return [machine.nvcc(), "-fatbin", "-arch=native", "-I" + machine.KIT, "-o", out, machine.path("kernels", "digest.cu")]
    runtime = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(machine.nvcc()))), "lib64")
    argv = [machine.nvcc(), "-std=c++17", "-O2", "-arch=native", "--cudart", "shared", "-Xlinker", "-rpath", "-Xlinker", runtime, "-o", out,
            machine.path("tests", "trainers", SOURCE.get(name, name) + ".cu")]
    if name == "gpt_ranks":
        folder = machine.nccl_folder()
        argv += ["-I" + machine.path("tests", "sim", "standin")]
        argv += ["-L" + folder, "-Xlinker", os.path.join(folder, "libnccl.so.2")] if folder else FLAGS[name]
        return argv
    return argv + FLAGS[name]


def ready(stage, names):
    """Makes what is needed of these, and says so. False if they cannot be had."""
    if are_carried():
        return True
    if not driver_version():
        stage.say("programs", "not there", why="no driver that tells its version")
        return False
    missing = [name for name in names if not os.path.exists(os.path.join(MADE, name))]
    if missing and not machine.nvcc():
        stage.say("programs", "not there", why="the kit has none for this driver, and there is no nvcc")
        return False
    os.makedirs(MADE, exist_ok=True)
    running = [(name, subprocess.Popen(command(name), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)) for name in missing]
    good = True
    for name, process in running:
        said = process.communicate()[1]
        good = not process.returncode and good
        stage.say(f"programs-{name}", "failed" if process.returncode else "passed", said=said[-1500:])
    machine.PROGRAMS = MADE
    return good
