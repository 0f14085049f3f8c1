#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1 about=25s
"""A device that computes other digests than the processor costs nothing but them: one line, and snapshots that a run goes on from. Of the kernels that lie beside the
library the device is given the one that it takes."""
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

LINE = "this device computes other digests than the processor"
# Each is wrong for some bytes only: in a word's place, in the tail behind the last word, and by a lane.
WRONG = {"step": ("(unit.first_word + i + 1) * TPCK_DIGEST_STEP", "(unit.first_word + i) * TPCK_DIGEST_STEP"),
         "tail": ("(8 * b)", "(4 * b)"),
         "sum": ("lane = 1; lane <", "lane = 2; lane <"),
         "lane": ("threadIdx.x; i < count", "threadIdx.x; i < count && threadIdx.x < 31")}


def built(place, name, old, new):
    """The library's kernel with a fault."""
    source = os.path.join(os.environ.get("srcdir", "."), "kernels/digest.cu")
    text = job.read(source)
    assert text.count(old) >= 1, (name, old)
    path = os.path.join(place.root, name)
    with open(path + ".cu", "w", encoding="utf-8") as f:
        f.write(text.replace(old, new))
    subprocess.run([os.path.join(place.build, "tests/sim/simnvcc"), "-O2", "-I" + os.environ.get("srcdir", "."), "--image", path + ".cu",
                    "-o", path + ".simgpu"], check=True)
    return path + ".simgpu"


def beside(place):
    """The kernels lie where an installation has them, that for hardware first, which this device does not take; nobody says which."""
    place.copy_build("gpt")
    folder = os.path.join(place.build, ".libs/transpckpt")
    os.makedirs(folder)
    made = os.path.join(os.environ.get("builddir", "."), "kernels/digest.fatbin")
    if os.path.exists(made):
        shutil.copy(made, folder)
    else:
        with open(os.path.join(folder, "digest.fatbin"), "wb") as f:
            f.write(b"\x50\xed\x55\xba" + bytes(60))  # a fat binary's first bytes, and nothing in it
    shutil.copy(place.environment.pop("TRANSPCKPT_KERNELS"), folder)


def shown(place, *options):
    return subprocess.run([os.path.join(place.build, "transpckpt"), "show", *options], env=place.environment, capture_output=True, text=True, check=False).stdout


def says_ways(checks, place, what, digests, words):
    """What `show` says of the driver, and of the way in which things are done with it."""
    rows, text = json.loads(shown(place, "--json") or "[]"), shown(place)
    ways = rows[0].get("ways", {}) if rows else {}
    checks.ok(ways.get("digests") == digests and f"digests: {words};" in text, f"{what}: show says who takes digests", ways, text)
    checks.ok(ways.get("driver", "").endswith("/tests/sim/lib/libcuda.so.1") and ways["driver_version"] == 13000 and "/libcuda.so.1, of CUDA 13.0\n" in text and
              ways["arena"] and ways["images_mapped"] and ways["images_pinned"] == ways["images_mapped"] and not ways["refused_waits"] and
              "from the arena; images: {0} of {0} pinned\n".format(ways["images_mapped"]) in text, f"{what}: and what else", ways, text)
    kernels, bare, parameters, compared = (ways.get(key, -1) for key in ("kernels", "kernels_bare", "parameters", "parameters_compared"))
    line = f"  kernels: {kernels} launched; of their {parameters} parameters a resume compares {compared}, and leaves out {parameters - compared}: "
    # The trainer's take pointers and numbers, but for one that takes a structure.
    checks.ok(not bare and "parameters the driver does not tell" not in text and kernels > 10 and 0 < compared < parameters < compared + 9 and line in text,
              f"{what}: how many of the {parameters} parameters of {kernels} kernels a resume compares: {compared}", ways, text)


def untold(checks):
    with job.Place(SIMGPU_FAULT="no_param_info") as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "5000")
        start = this.start()
        start.until(lambda: any(row["offered"] and row["step"] > 20 for row in place.listed()))
        ways, text = json.loads(shown(place, "--json") or "[{}]")[0].get("ways", {}), shown(place)
        start.kill()
        kernels = ways.get("kernels", 0)
        checks.ok(kernels > 10 and ways["kernels_bare"] == kernels and not ways["parameters"] and
                  f"  kernels whose parameters the driver does not tell: {kernels}; a resume compares their launches without arguments\n" in text,
                  "a driver that does not tell parameters: show says that launches are compared without arguments", ways, text)


def trains(checks, what, kernels, wrong):
    with job.Place(SIMGPU_KERNEL_US="60") as place:
        if kernels == "beside":
            beside(place)
        elif kernels:
            place.environment["TRANSPCKPT_KERNELS"] = built(place, what, *kernels)
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "150")
        this.run_plain()
        this.killed_at(20)
        says_ways(checks, place, what, "other" if wrong else "device", "none: this device computes others than the processor" if wrong else "on the device")
        # How long a snapshot takes is not known beforehand: killed once there is one of this start's own.
        second = job.Job.resumed_at(this.killed_at(10, lambda: any(row["generation"] == 2 and row["offered"] for row in place.listed()))) or 0
        start = this.start()
        status = start.wait()
        third = job.Job.resumed_at(start) or 0
        checks.ok(status == 0 and 0 < second < third and not this.differences(), f"{what}: killed, and goes on at step {second}, then {third}, to the "
                  "same bytes", status, *this.differences(), this.story())
        said = this.starts[0].said().count(LINE)
        checks.ok(said == wrong, f"{what}: it is said {said} times", this.story())
        checks.ok("does not hold what the device had" not in this.story() and "failed" not in this.story(), f"{what}: no snapshot is dropped", this.story())


def main():
    checks = job.Checks()
    trains(checks, "right", None, 0)
    trains(checks, "beside the library", "beside", 0)
    for what, fault in WRONG.items():
        trains(checks, what, fault, 1)
    untold(checks)
    checks.end()


if __name__ == "__main__":
    main()
