#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 about=25s
"""Drivers of several versions: what one does not export yet the library does without. A trainer is killed and continued to the same bytes with each."""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import job

# As CUDA numbers them; the last has all that there is. What is newer still is tried by doors.sh.
VERSIONS = [12000, 12040, 12080, 13000]
# What the library knows to do without, by the version that brought it.
OPTIONAL = {"cuFuncGetName": 12030, "cuKernelGetName": 12030, "cuFuncGetParamInfo": 12040, "cuKernelGetParamInfo": 12040}


def newer(build, version):
    """Symbols that a driver of this version does not export."""
    with open(os.path.join(build, "tests/sim/driver_procs.inc"), encoding="utf-8") as f:
        rows = re.findall(r'"(\w+)", (\d+), "(\w+)"', f.read())
    first = {}
    for _, since, symbol in rows:
        first[symbol] = min(int(since), first.get(symbol, int(since)))
    return sorted(symbol for symbol, since in first.items() if since > version)


def driver_of(place, version):
    """A folder with the software device's driver as it would be then."""
    folder = os.path.join(place.root, str(version))
    os.mkdir(folder)
    gone = newer(place.build, version)
    lib = os.path.join(place.build, "tests/sim/lib")
    for name in os.listdir(lib):
        if name != "libcuda.so.1":
            os.symlink(os.path.join(lib, name), os.path.join(folder, name))
    subprocess.run([sys.executable, os.path.join(HERE, "doors/shut.py"), os.path.join(lib, "libcuda.so.1"),
                    os.path.join(folder, "libcuda.so.1"), *gone], check=True)
    return folder, gone


def main():
    checks = job.Checks()
    for version in VERSIONS:
        # Else the program is at its end between two looks of a busy machine.
        with job.Place(SIMGPU_KERNEL_US="100") as place:
            folder, gone = driver_of(place, version)
            what = f"{version // 1000}.{version % 1000 // 10}"
            checks.ok(all((symbol in gone) == (since > version) for symbol, since in OPTIONAL.items()),
                      f"{what}: a driver without {len(gone)} symbols", gone)
            this = job.Job(place, "gpt", "--seed", "5", "--steps", "60")
            this.run_plain()
            this.runner = ["env", f"LD_LIBRARY_PATH={folder}"]
            this.killed_at(20)
            start = this.start()
            status = start.wait()
            at = job.Job.resumed_at(start) or 0
            checks.ok(status == 0 and at > 0 and not this.differences(), f"{what}: killed, and goes on at step {at}, to the same bytes", status,
                      *this.differences(), this.story())
    checks.end()


if __name__ == "__main__":
    main()
