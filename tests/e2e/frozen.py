#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 about=25s
"""A thread of the library's that stops anywhere in the library's own code costs snapshots, and never the program: it goes on while the thread stands
still, and takes snapshots when that goes on, from which it is resumed. FREEZES, SEED."""
import ctypes
import os
import random
import re
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

THREADS = ("tpck-copier", "tpck-images", "tpck-link")
FREEZES, STEPS_ON = int(os.environ.get("FREEZES", "6")), 8
# ptrace(2)
SEIZE, INTERRUPT, SINGLESTEP, GETREGS, DETACH, WALL = 0x4206, 0x4207, 9, 12, 17, 0x40000000
RIP, RSP = 16, 19  # places among the registers of x86-64, in words

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]


def code_of(pid, library):
    """Where the library's code is in a process."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        return [tuple(int(x, 16) for x in line.split()[0].split("-")) for line in f if library in line and "r-xp" in line]


def thread_of(pid, name):
    try:
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/comm", encoding="utf-8") as f:
                if f.read().strip() == name:
                    return int(tid)
    except FileNotFoundError:
        pass
    return None


class Frozen:
    """A thread that stands still in the library's code, and in no call of the driver's: it was stepped on until it was there."""

    def __init__(self, pid, tid, rng):
        self.pid, self.tid, self.at = pid, tid, 0
        code, self.driver = code_of(pid, "/libtranspckpt.so"), code_of(pid, "/libcuda.so.1")
        if libc.ptrace(SEIZE, tid, None, None):
            job.skip(f"ptrace is not allowed: {os.strerror(ctypes.get_errno())}")
        libc.ptrace(INTERRUPT, tid, None, None)
        os.waitpid(tid, WALL)
        # So many steps of the library's own, so that it stands elsewhere each time.
        more, end = rng.randrange(800), time.monotonic() + 30
        while time.monotonic() < end and not (self.at and more <= 0):
            libc.ptrace(SINGLESTEP, tid, None, None)
            os.waitpid(tid, WALL)
            at, stack = self.registers()
            self.at = next((at - first for first, last in code if first <= at < last), 0)
            more -= self.at > 0
            if self.at and more <= 0 and self.in_driver(stack):
                self.at = 0
        if more > 0:  # there was no more time, and it may be anywhere
            self.at = 0

    def registers(self):
        registers = (ctypes.c_ulong * 32)()
        libc.ptrace(GETREGS, self.tid, None, ctypes.addressof(registers))
        return registers[RIP], registers[RSP]

    def in_driver(self, stack):
        """What the library exports may have been called by the driver, as clock_gettime() is: then there is a way back to it on the stack."""
        with open(f"/proc/{self.pid}/mem", "rb", 0) as f:
            f.seek(stack)
            words = f.read(4096)
        return any(first <= word < last for word, in struct.iter_unpack("<Q", words[:len(words) // 8 * 8]) for first, last in self.driver)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        libc.ptrace(DETACH, self.tid, None, None)


def process_of(start):
    """The trainer: of the command's processes the one that has such a thread."""
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.getpgid(int(entry)) == start.process.pid and thread_of(int(entry), THREADS[0]):
                return int(entry)
        except ProcessLookupError:
            pass
    return None


def steps_of(start):
    return len(re.findall(r"^step ", start.printed(), re.M))


def captured(place):
    return max((row["notes"]["captured"] for row in place.shown() if row.get("notes")), default=0)


def main():
    checks = job.Checks()
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    print(f"# SEED={seed}")
    with job.Place(SIMGPU_COPY_GBPS="0.4", SIMGPU_KERNEL_US="10") as place:
        this = job.Job(place, "rough", "--seed", "3", "--steps", "100000", "--streams", "9", "--late")
        start = this.start()
        start.until(lambda: captured(place) >= 3)
        pid, placed = process_of(start), 0
        for number in range(FREEZES):
            name = THREADS[number % len(THREADS)]
            with Frozen(pid, thread_of(pid, name), rng) as frozen:
                if not frozen.at:  # a busy machine: it did not come so far in time
                    continue
                placed += 1
                now = steps_of(start)
                on = start.until(lambda now=now: steps_of(start) >= now + STEPS_ON, 60)
                checks.ok(on, f"{name} stands still at {frozen.at:#x}: the program goes on", steps_of(start) - now, start.said())
            if not on:
                break
            now = captured(place)
            checks.ok(start.until(lambda now=now: captured(place) > now + 1, 60), f"{name} goes on: there are snapshots again", captured(place) - now, start.said())
        checks.ok(placed >= 2, f"{placed} times it stood still in the library's code")
        start.kill()
        again = this.start()
        checks.ok(again.until(lambda: job.LIVE.search(again.said())), "killed then, it is resumed", this.story())
        again.kill()
    checks.end()


if __name__ == "__main__":
    main()
