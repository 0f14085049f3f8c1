#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 about=5s
"""A program reads back thousands of times and only ever asks events whether that is done: it waits for no stream. That ends no protection: what has
arrived is taken note of."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

PROGRAM = """
import ctypes, sys, time
cuda, context, stream, event = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
memory, pinned = ctypes.c_ulonglong(), ctypes.c_void_p()
SIZE = int(sys.argv[2])
done = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(SIZE)), cuda.cuMemAllocHost_v2(ctypes.byref(pinned), ctypes.c_size_t(SIZE)),
        cuda.cuStreamCreate(ctypes.byref(stream), 1), cuda.cuEventCreate(ctypes.byref(event), 2)]
assert not any(done), done
for i in range(int(sys.argv[1])):
    assert not cuda.cuMemsetD32Async(memory, ctypes.c_uint(i), ctypes.c_size_t(SIZE // 4), stream)
    assert not cuda.cuMemcpyDtoHAsync_v2(pinned, memory, ctypes.c_size_t(SIZE), stream)
    if i % 64 == 63:
        assert not cuda.cuEventRecord(event, stream)
        while cuda.cuEventQuery(event):
            pass
        assert ctypes.cast(pinned, ctypes.POINTER(ctypes.c_int))[SIZE // 4 - 1] == i
print("done", flush=True)
"""


def main():
    checks = job.Checks()
    for count, size in ((20480, 4), (1280, 16384), (128, 1 << 20)):
        with job.Place(TRANSPCKPT_LOG="warn") as place:
            start = job.Start(place, [os.path.join(place.build, "transpckpt"), "run", "--", *place.runner, sys.executable, "-c", PROGRAM, str(count), str(size)],
                              place.root, place.environment, "start")
            status = start.wait()
            checks.ok(status == 0 and "transpckpt" not in start.said() and start.printed() == "done\n", f"{count} times {size} bytes, and no stream waited for: no line",
                      status, start.said())
    checks.end()


if __name__ == "__main__":
    main()
