#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 about=50s
"""A program works on the device and no iteration of it is found: where its memory shows that it trains, snapshots are taken at uploads; else
one line says that it is not protected. It says nothing of a program that uploads little,
of one whose iterations are found, or where it was told not to."""
import concurrent.futures
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../trainers/launch.py")
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


# The same kernel adds to weights of 512 KiB what nobody overwrites, in one launch among others; a sum of them is read at times.
TRAINS = """
import ctypes, sys, time
kernels, batches, seconds = sys.argv[1].encode(), int(sys.argv[2]), float(sys.argv[3])
cuda, context, module, add = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
memory = [ctypes.c_ulonglong() for _ in range(3)]
COUNT = 1 << 17
done = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context),
        cuda.cuModuleLoad(ctypes.byref(module), kernels), cuda.cuModuleGetFunction(ctypes.byref(add), module, b"add"),
        *(cuda.cuMemAlloc_v2(ctypes.byref(m), ctypes.c_size_t(COUNT * 4)) for m in memory)]
done += [cuda.cuMemsetD32_v2(m, ctypes.c_uint(5), ctypes.c_size_t(COUNT)) for m in memory]
assert not any(done), done
weights, constant, activations = memory
batch, back = (ctypes.c_int * 256)(), (ctypes.c_int * COUNT)()
def launch(where, count, what):
    given = ctypes.c_ulonglong(where.value), ctypes.c_int(count), ctypes.c_int(what)
    pointers = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.pointer(g), ctypes.c_void_p) for g in given))
    assert not cuda.cuLaunchKernel(add, count // 256, 1, 1, 256, 1, 1, 0, None, pointers, None)
for i in range(batches):
    batch[0] = i
    if "reads" in sys.argv and not ("once" in sys.argv and i == 200):
        cuda.cuMemcpyDtoH_v2(batch, activations, ctypes.c_size_t(ctypes.sizeof(batch)))
    else:
        cuda.cuMemcpyHtoD_v2(activations, batch, ctypes.c_size_t(ctypes.sizeof(batch)))
    for k in range(3):
        launch(activations, 256, k)
    if "infers" not in sys.argv:
        launch(weights, COUNT, i % 7 + 1)
    cuda.cuCtxSynchronize()
    if i % 20 == 0:
        cuda.cuMemcpyDtoH_v2(back, weights, ctypes.c_size_t(COUNT * 4))
        print("batch", i, sum(back[::4096]), flush=True)
    time.sleep(seconds / batches)
cuda.cuMemcpyDtoH_v2(back, weights, ctypes.c_size_t(COUNT * 4))
print("weights", hash(bytes(back)), sum(back), flush=True)
"""
UPLOADS = "snapshots are taken where a batch comes to the device"


def trainer(place, name, batches, seconds, *more, plain=False):
    kernels = os.path.join(place.build, "tests/sim/test_kernels.simimg")
    run = [] if plain else [os.path.join(place.build, "transpckpt"), "run", "--"]
    environment = {k: v for k, v in place.environment.items() if not plain or not k.startswith("TRANSPCKPT_")}
    return job.Start(place, [*run, *place.runner, sys.executable, "-c", TRAINS, kernels, str(batches), str(seconds), *more], place.root,
                     {**environment, "PYTHONHASHSEED": "0", "TRANSPCKPT_STALL_SEC": "2"}, name)


def killed_twice(checks, what, *more):
    with job.Place(TRANSPCKPT_STALL_SEC="2") as place:
        plain = trainer(place, "plain", 800, 0, *more, plain=True)
        plain.wait()
        start = trainer(place, "first", 800, 9, *more)
        start.until(lambda: any(row["offered"] and row["step"] > 20 for row in place.listed()))
        shown = place.shown()
        start.kill()
        notes = [row.get("notes", {}) for row in shown]
        at_copies = UPLOADS in start.said() and any(note.get("by_uploads") for note in notes)
        # Where batches are uploaded the memory witness may have found the iterations before that.
        found = not more and any(note.get("sure_by_pattern") and not note.get("by_uploads") for note in notes)
        checks.ok(at_copies or found, f"{what}: weights that change: snapshots {'at copies, and a line' if at_copies else 'at the ends that memory tells'}",
                  start.said(), shown)
        again = trainer(place, "again", 800, 9, *more)
        again.until(lambda: job.LIVE.search(again.said()))
        live = job.LIVE.search(again.said())
        step = int(live[1]) if live else 0
        # The wait for an iteration is not made a second time.
        newer = again.until(lambda: any(row["offered"] and row["step"] > step + 5 for row in place.listed()), 60)
        again.kill()
        last = trainer(place, "last", 800, 9, *more)
        status = last.wait()
        printed = job.each_once(start.printed() + again.printed() + last.printed())
        checks.ok(status == 0 and step > 0 and newer and job.LIVE.search(last.said()) and printed == job.each_once(plain.printed()),
                  f"{what}: killed twice, it ends as if it had not been", status, step, newer, last.said(), *printed[-3:], *plain.printed().splitlines()[-3:])


def two_ranks(checks):
    """Their uploads have the same numbers, whenever each begins to take snapshots there."""
    with job.Place(TRANSPCKPT_STALL_SEC="2") as place:
        kernels = os.path.join(place.build, "tests/sim/test_kernels.simimg")

        def begin(name, seconds, *under):
            environment = {k: v for k, v in place.environment.items() if under or not k.startswith("TRANSPCKPT_")}
            start = job.Start(place, [*place.runner, sys.executable, LAUNCH, "--outputs", os.path.join(place.root, name), "2", *under, sys.executable, "-c",
                                      TRAINS, kernels, "800", str(seconds)], place.root, {**environment, "PYTHONHASHSEED": "0"}, name)
            start.each = lambda what: [job.read(os.path.join(place.root, name, f"{what}.{rank:02d}")) for rank in range(2)]
            return start
        plain = begin("plain", 0)
        plain.wait()
        run = [os.path.join(place.build, "transpckpt"), "run", "--"]
        first = begin("first", 9, *run)
        first.until(lambda: any(row["offered"] and row["state"] != "held" and row["step"] > 20 for row in place.listed()))
        first.kill()
        last = begin("last", 9, *run)
        status = last.wait()
        live = [job.LIVE.search(said) for said in last.each("err")]
        printed = [job.each_once(a + b) for a, b in zip(first.each("out"), last.each("out"))]
        checks.ok(status == 0 and all(live) and live[0][1] == live[1][1] and printed == [job.each_once(text) for text in plain.each("out")],
                  "two ranks: killed, both go on at one step, and end as if they had not been", status, *last.each("err"), place.agent_log()[-800:],
                  *[p[-2:] for p in printed], *[text[-100:] for text in plain.each("out")])


def infers(checks):
    """Weights that stay, and where uploads are not to be boundaries."""
    with job.Place(TRANSPCKPT_STALL_SEC="2") as place:
        start = trainer(place, "infers", 600, 8, "infers")
        status = start.wait()
        checks.ok(status == 0 and UPLOADS not in start.said() and LINE in start.said(), "weights that stay: none, and the other line", status, start.said())
    with job.Place(TRANSPCKPT_STALL_SEC="2", TRANSPCKPT_INFER="both") as place:
        start = trainer(place, "both", 600, 8)
        status = start.wait()
        checks.ok(status == 0 and UPLOADS not in start.said() and LINE in start.said(), "TRANSPCKPT_INFER=both: none either", status, start.said())


def lines(place, batches, seconds, look=None, **settings):
    """Status, and the lines that say it. look: what is called once that is said, while the program runs."""
    kernels = os.path.join(place.build, "tests/sim/test_kernels.simimg")
    start = job.Start(place, [os.path.join(place.build, "transpckpt"), "run", "--", *place.runner, sys.executable, "-c", PROGRAM, kernels, str(batches), str(seconds)],
                      place.root, {**place.environment, "TRANSPCKPT_LOG": "warn", **settings}, "start")
    if look and start.until(lambda: LINE in start.said()):
        look()
    return start.wait(), [line for line in start.said().splitlines() if LINE in line], start.said()[-600:]


def main():
    checks = job.Checks()
    with job.Place(TRANSPCKPT_STALL_SEC="2") as place:
        told = []

        def look():
            """What top says of it, as show does."""
            told[:] = [row["reason"] for row in place.shown() if row["running"]] + [place.command("top", "-n", "1", "j").stdout]
        status, found, said = lines(place, 400, 8, look)
        checks.ok(len(told) == 2 and told[0] and f"\n  nothing is captured: {told[0]}"[:100] in told[1], "top says under its row that nothing is captured, and why", *told)
        checks.ok(status == 0 and len(found) == 1 and "transpckpt show" in found[0], "200 batches, and a while later: one line", status, found, said)
        status, found, said = lines(place, 20, 3)
        checks.ok(status == 0 and not found, "few batches: none", status, found, said)
        status, found, said = lines(place, 300, 3, TRANSPCKPT_STALL_SEC="0")
        checks.ok(status == 0 and not found, "TRANSPCKPT_STALL_SEC=0: none", status, found, said)
    tests = (lambda: killed_twice(checks, "uploads"), lambda: killed_twice(checks, "read-backs", "reads"),
             lambda: killed_twice(checks, "read-backs and one upload", "reads", "once"), lambda: two_ranks(checks), lambda: infers(checks))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(test) for test in tests]:
            done.result()
    with job.Place(TRANSPCKPT_STALL_SEC="2") as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "400", "--save-every", "1000")
        start = this.start()
        status = start.wait()
        checks.ok(status == 0 and LINE not in start.said(), "a trainer whose iterations are found: none", status, start.said()[-600:])
    checks.end()


if __name__ == "__main__":
    main()
