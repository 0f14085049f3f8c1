#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 about=12s
"""A program works on the device and no iteration of it is found: one line says that it is not protected. It says nothing of a program that uploads little,
of one whose iterations are found, or where it was told not to."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

LINE = "no iteration of a training loop is found"
# Two launches for each batch, of a kernel whose name tells nothing, of a grid of one block: nothing about them comes one a tensor.
PROGRAM = """
import ctypes, sys, time
kernels, batches, seconds = sys.argv[1].encode(), int(sys.argv[2]), float(sys.argv[3])
cuda, context, module, add, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_ulonglong()
done = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
        cuda.cuModuleLoad(ctypes.byref(module), kernels), cuda.cuModuleGetFunction(ctypes.byref(add), module, b"add"),
        cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096))]
assert not any(done), done
batch = (ctypes.c_int * 256)()
for i in range(batches):
    cuda.cuMemcpyHtoD_v2(memory, batch, ctypes.c_size_t(ctypes.sizeof(batch)))
    for _ in range(2):
        given = ctypes.c_ulonglong(memory.value), ctypes.c_int(256), ctypes.c_int(1)
        pointers = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.pointer(g), ctypes.c_void_p) for g in given))
        assert not cuda.cuLaunchKernel(add, 1, 1, 1, 256, 1, 1, 0, None, pointers, None)
    cuda.cuCtxSynchronize()
    time.sleep(seconds / batches)
"""


def lines(place, batches, seconds, **settings):
    """Status, and the lines that say it."""
    kernels = os.path.join(place.build, "tests/sim/test_kernels.simimg")
    start = job.Start(place, [os.path.join(place.build, "transpckpt"), "run", "--", *place.runner, sys.executable, "-c", PROGRAM, kernels, str(batches), str(seconds)],
                      place.root, {**place.environment, "TRANSPCKPT_LOG": "warn", **settings}, "start")
    return start.wait(), [line for line in start.said().splitlines() if LINE in line], start.said()[-600:]


def main():
    checks = job.Checks()
    with job.Place(TRANSPCKPT_STALL_SEC="2") as place:
        status, found, said = lines(place, 300, 4)
        checks.ok(status == 0 and len(found) == 1 and "transpckpt show" in found[0], "200 batches, and a while later: one line", status, found, said)
        status, found, said = lines(place, 20, 3)
        checks.ok(status == 0 and not found, "few batches: none", status, found, said)
        status, found, said = lines(place, 300, 3, TRANSPCKPT_STALL_SEC="0")
        checks.ok(status == 0 and not found, "TRANSPCKPT_STALL_SEC=0: none", status, found, said)
    with job.Place(TRANSPCKPT_STALL_SEC="2") as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "400", "--save-every", "1000")
        start = this.start()
        status = start.wait()
        checks.ok(status == 0 and LINE not in start.said(), "a trainer whose iterations are found: none", status, start.said()[-600:])
    checks.end()


if __name__ == "__main__":
    main()
