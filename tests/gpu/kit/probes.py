# SPDX-License-Identifier: Apache-2.0
"""The stage `probes`: what the driver does, without the library."""
import concurrent.futures
import json
import os
import sys

import cases
import machine
import programs

ACTIONS = ("lazy", "load", "launches", "one-queue", "d2h-4B", "h2d-4B", "d2h-1G", "h2d-1G", "null-copy", "malloc", "hostalloc", "register",
           "sync-other", "graph", "blocking", "ctx-sync")
CONNECTIONS, STREAMS = (1, 8, 32), (2, 40)
# Processes at the same time: what hangs only waits, and each has a context of its own.
AT_ONCE = int(os.environ.get("AT_ONCE") or 6)

TORCH_ADDRESS = """
import json, os, subprocess, sys, ctypes
if sys.argv[2] == "after":
    import torch
    torch.zeros(1).cuda()
cuda = ctypes.CDLL("libcuda.so.1")
device, context, got = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_ulonglong()
done = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAddressReserve(ctypes.byref(got), ctypes.c_size_t(256 << 30), ctypes.c_size_t(0), ctypes.c_ulonglong(int(sys.argv[1], 16)),
                                 ctypes.c_ulonglong(0))]
if sys.argv[2] == "before":
    import torch
    torch.zeros(1).cuda()
print(json.dumps({"result": "passed" if got.value == int(sys.argv[1], 16) else "elsewhere", "got": hex(got.value), "answers": done}), flush=True)
"""
ARENA = "4a0000000000"


def at_once():
    exclusive = "Exclusive" in machine.said_by(["nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader"], 20)
    return 1 if exclusive else AT_ONCE


def mib(stage_mib):
    """Sizes are smaller where MIB says so."""
    return str(min(stage_mib, int(os.environ.get("MIB") or stage_mib)))


def diagnosis(status, printed, said):
    """What transpckpt doctor says, as rows."""
    try:
        findings = json.loads(printed)
    except ValueError:
        return {"result": "failed", "why": "what it says is not JSON", "printed": printed[:4000], "said": said[:4000]}
    return {"result": "passed" if status == 0 else "failed", "why": "; ".join(row["text"] for row in findings if row.get("finding") == "bad"),
            "findings": findings}


def doctor(stage):
    command = machine.path("inst", "bin", "transpckpt")
    cases = {"doctor": {}, "doctor-one-connection": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}}
    if not any(stage.wanted(case) for case in cases):
        return
    if "--device" not in machine.said_by([command, "doctor", "--help"]):
        stage.say("doctor", "not there", why="transpckpt doctor has no --device")
        return
    try:
        devices = len(os.listdir("/proc/driver/nvidia/gpus"))
    except OSError:
        devices = 1
    for case, environment in cases.items():
        stage.run(case, [command, "doctor", "--device", "--json"], min(80 + 20 * devices, 240), about=10 + 10 * devices, judge=diagnosis,
                  environment={"TRANSPCKPT_KERNELS": machine.digest_kernel(), **environment})


def hazards(stage, fence):
    cells = [(fence, action, connections, streams) for action in ACTIONS for connections in CONNECTIONS for streams in STREAMS]

    def run(cell):
        fence, action, connections, streams = cell
        environment = {"CUDA_DEVICE_MAX_CONNECTIONS": str(connections)}
        if action == "blocking":
            environment["CUDA_LAUNCH_BLOCKING"] = "1"
        stage.run(f"hazard-{fence}-{action}-{connections}-{streams}",
                  [machine.probe("hazard"), machine.kernels(), fence, action, str(streams), mib(1024), str(int(3000 * cases.PATIENCE))], 40, environment=environment, about=3,
                  judge=lambda status, printed, said: {"cell": {"fence": fence, "action": action, "connections": connections, "streams": streams}})

    with concurrent.futures.ThreadPoolExecutor(at_once()) as pool:
        list(pool.map(run, cells))


def addresses(stage):
    def run(i):
        stage.run(f"address-{i}", [machine.probe("address"), ARENA], 10)

    with concurrent.futures.ThreadPoolExecutor(at_once()) as pool:
        list(pool.map(run, range(20)))


def addresses_with_torch(stage):
    """Before and after its import, which maps much."""
    cases = [(when, i) for i in range(10) for when in ("before", "after")]
    if not any(stage.wanted(f"address-torch-{when}-{i}") for when, i in cases):
        return
    if not machine.torch_python():
        stage.say("address-torch", "not there", why="no Python with PyTorch")
        return

    def run(case):
        when, i = case
        stage.run(f"address-torch-{when}-{i}", [machine.torch_python(), "-c", TORCH_ADDRESS, ARENA, when], 60, about=5)

    with concurrent.futures.ThreadPoolExecutor(at_once()) as pool:
        list(pool.map(run, cases))


def main(stage):
    here = os.path.dirname(os.path.abspath(__file__))
    for name in ("machine", "device"):
        stage.run(name, [sys.executable, "-B", os.path.join(here, name + ".py")], 60)
    doctor(stage)
    programs.ready(stage, ["kernels.fatbin", "digest.fatbin"])
    stage.run("names", [machine.probe("names"), machine.kernels()], 10)
    stage.run("digest", [machine.probe("digest"), machine.digest_kernel(), mib(4096)], 30)
    stage.run("vmm", [machine.probe("vmm"), mib(4096)], 30)
    pieces = str(max(4, int(mib(4096)) // 64))
    stage.run("tmpfs", [machine.probe("tmpfs"), machine.kernels(), f"/dev/shm/tpck-kit-probe.{os.getpid()}", pieces], 60)
    stage.run("places", [machine.probe("address"), ARENA, "places"], 20)
    addresses(stage)
    hazards(stage, "event")
    addresses_with_torch(stage)
    hazards(stage, "value")  # the fence that was given up
