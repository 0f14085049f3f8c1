# SPDX-License-Identifier: Apache-2.0
"""The stage `large`: states of some GiB, up to the largest that device and shared memory have room for."""
import os
import sys

import machine
import programs
import pytorch

# Images take three times the state and an eighth, and the library leaves room for others.
IMAGES, LEFT_GIB = 3.125, 2
VARIANTS = {"": {}, "-one-connection": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "-eager": {"CUDA_MODULE_LOADING": "EAGER"}}


def device_free_gib():
    """Of the first device."""
    said = machine.said_by([sys.executable, "-c", "import ctypes as c; d = c.CDLL('libcuda.so.1'); v, x, f, t = c.c_int(), c.c_void_p(), c.c_size_t(), "
                            "c.c_size_t(); d.cuInit(0); d.cuDeviceGet(c.byref(v), 0); d.cuDevicePrimaryCtxRetain(c.byref(x), v); d.cuCtxSetCurrent(x); "
                            "d.cuMemGetInfo_v2(c.byref(f), c.byref(t)); print(f.value)"])
    return int(said or 0) / 2**30


def largest_gib():
    """Parameters and moments, beside gradients that are a third as much."""
    shm = min(machine.free_bytes("/dev/shm"), machine.memory_available() * 7 // 8) / 2**30
    return {"device_free_GiB": round(device_free_gib(), 1), "shm_GiB": round(shm, 1),
            "state_GiB": round(max(min((device_free_gib() - LEFT_GIB) / 1.5, (shm - LEFT_GIB) / IMAGES / 1.34), 0.1), 2)}


def main(stage):
    if not machine.torch_python():
        stage.say("python", "not there", why="no Python with PyTorch")
        return
    programs.ready(stage, ["digest.fatbin"])
    room = largest_gib()
    if stage.wanted("room"):
        stage.say("room", "passed", **room)
    script = os.path.join(pytorch.SCRIPTS, "large.py")
    most = min(room["state_GiB"], float(os.environ.get("GIB") or 1e6))
    plan = [(min(1, most), ""), (most, "")] + [(most, variant) for variant in VARIANTS if variant] + [(8, "")]
    for size, variant in dict.fromkeys(one for one in plan if one[0] <= most):
        # The disk is not what is measured: nothing is to be written there meanwhile.
        pytorch.script(stage, f"{size:g}GiB{variant}", [script, "--gib", str(size)], VARIANTS[variant], phases=pytorch.SOME, seconds=150, about=45,
                       killed={"TRANSPCKPT_INTERVAL": "20"},  # each holds the next iteration up for longer than that takes
                       settings={"TRANSPCKPT_DURABLE_INTERVAL": "3600s", "TRANSPCKPT_EXIT_WAIT_SEC": "5", "TRANSPCKPT_MEMORY": "85%"})
