#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=1G about=10s disk
"""Files whose target is on a file system that several nodes may have mounted, and is slow: FUSE, with a rate. There the first
save of a name goes into memory, too, though nobody knows how large it will be."""
import os
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import SKIP, Checks, Place, run_tests, until

MIB = 1 << 20
# Where the bytes are when half of it is written, at its end, and how long it took.
SAVER = """
import os, sys, time
name, mib = sys.argv[1], int(sys.argv[2])
parts = [b"%9d." % i * (1 << 20) for i in range(mib // 10)]
def where(f): return "target" if os.fstat(f.fileno()).st_dev == os.stat(".").st_dev else "memory"
begun = time.perf_counter()
with open(name, "wb") as f:
    for i, part in enumerate(parts):
        f.write(part)
        if i == len(parts) // 2: middle = where(f)
    f.flush()
    end = where(f)
print(middle, end, time.perf_counter() - begun, flush=True)
if len(sys.argv) > 3: sys.stdin.readline()
"""


def content_of(mib):
    return b"".join(b"%9d." % i * MIB for i in range(mib // 10))


class Network(Place):
    """The folder of work is on such a file system."""

    def __init__(self, rate, **settings):
        super().__init__(**settings)
        self.behind = os.path.join(self.root, "behind")
        os.makedirs(self.behind)
        subprocess.run(["bindfs", f"--write-rate={rate}", self.behind, self.work], check=True, capture_output=True)

    def __exit__(self, *what):
        self.kill_agent()
        subprocess.run(["umount", "-l", self.work], check=False)
        super().__exit__(*what)

    def save(self, name, mib, **more):
        middle, end, seconds = self.run(SAVER, name, mib, **more).split()
        return (middle, end), float(seconds)


def first(checks):
    with Network("10M") as place:
        _, plain = place.save("plain.txt", 20, preload=False)
        where, ours = place.save("step-1.pt", 20)
        checks.ok(where == ("memory", "memory"), "the first save of a name goes into memory", where)
        checks.ok(ours < plain / 2, "and does not wait for the network", f"{ours:.2f} s beside {plain:.2f}")
        checks.ok(place.content("step-1.pt") == content_of(20), "it is at its path when the program has ended")


def seen(checks):
    with Network("10M") as place:
        saver = place.start(SAVER, "step-1.pt", 20, "stay")
        saver.stdout.readline()
        early = place.listing(), place.content("step-1.pt")
        inside = place.run("import os, sys; print(os.stat('step-1.pt').st_size, os.listdir('.'))")
        checks.ok(early in (([], None), (["step-1.pt"], content_of(20))), "others see nothing of it, or all")
        checks.ok(inside.split(" ", 1)[0] == str(20 * MIB) and "step-1.pt" in inside, "the job sees it at once", inside)
        saver.kill()
        saver.communicate()
        checks.ok(until(lambda: place.content("step-1.pt") == content_of(20), 60), "a kill behind its closing loses nothing")


def torn(checks):
    with Network("10M") as place:
        saver = place.start("""
import sys, time
f = open("step-1.pt", "wb")
f.write(b"x" * (12 << 20))
f.flush()
print("half", flush=True)
time.sleep(600)
""")
        saver.stdout.readline()
        saver.kill()
        saver.communicate()
        gone = until(lambda: not place.listed() and not os.listdir(place.behind))
        checks.ok(gone, "of one that was never closed nothing appears, and nothing is left", place.listed(), os.listdir(place.behind))


def larger(checks):
    """Than there is room for: half of what is set is for files."""
    with Network("60M", TRANSPCKPT_MEMORY="24M") as place:
        where, _ = place.save("step-1.pt", 60)
        checks.ok(where == ("target", "target"), "one that turns out larger than its room goes on beside its target", where)
        checks.ok(place.content("step-1.pt") == content_of(60), "and is whole")
        where, _ = place.save("small-1.pt", 10)
        checks.ok(where == ("memory", "memory") and place.content("small-1.pt") == content_of(10), "one that fits stays in memory", where)


def local(checks):
    """On a disk of the node's own the page cache is as near, and knows no limit."""
    with Place() as place:
        where = place.run(SAVER, "step-1.pt", 20).split()[:2]
        checks.ok(where == ["target", "target"], "the first save of a name onto a local disk goes beside its target", where)
        where = place.run(SAVER, "step-2.pt", 20).split()[:2]
        checks.ok(where == ["memory", "memory"], "the second one into memory", where)


def main():
    if not shutil.which("bindfs"):
        print("1..0 # SKIP bindfs is not installed")
        sys.exit(SKIP)
    try:
        with Network("1M"):
            pass
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"1..0 # SKIP FUSE cannot be used: {getattr(error, 'stderr', error)}")
        sys.exit(SKIP)
    run_tests(Checks(), [first, seen, torn, larger, local])


if __name__ == "__main__":
    main()
