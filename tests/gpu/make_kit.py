#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Puts together what is carried to a machine with a GPU that has no network: make_kit.py SOURCE-FOLDER BUILD-FOLDER KIT.

The kit has the installed tree with the libraries that its programs need beside glibc, the probes, the trainers as nvcc built them
(where there is an nvcc), their sources, the scripts of PyTorch users, and the tests that run them."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys

MOST_BYTES = 60 << 20
# What every machine has that runs programs of this one.
GLIBC = re.compile(r"(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util))\.so\b")
TEXTS = ("COPYING", "doc/architecture.md", "doc/cluster.md", "doc/snapshots.md", "doc/record.md", "doc/outside.md", "doc/ranks.md", "doc/store.md")
PROBES = ("address", "digest", "hazard", "names", "stuck", "tmpfs", "vmm")
PROGRAMS = ("gpt", "classifier", "gan", "rough", "gpt_ranks", "augment.so", "augment-too.so", "kernels.fatbin")
SOURCES = ("tests/e2e/*.py", "tests/e2e/*.c", "tests/e2e/*.cc", "tests/e2e/*.h", "tests/torch/*.py", "tests/torch/strangers/*.py", "tests/stacks/*_loop.py", "tests/stacks/numba_kernels.py", "tests/trainers/*.cu", "tests/trainers/*.cuh", "tests/trainers/launch.py",
           "tests/gpu/kit/*.py", "tests/gpu/scripts/*.py", "tests/gpu/probes/*.c", "tests/gpu/probes/*.h", "tests/gpu/probes/*.cu", "tests/sim/standin/nccl.h",
           "kernels/digest.cu", "runtime/base/block_digest.h", "shim/driver_symbols.txt", "COPYING")


def copy(source, target, strip=False):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy(source, target)
    if strip:  # names of functions stay, for stacks
        subprocess.run(["strip", "--strip-debug", target], check=True)


def needed(program):
    """Paths of the libraries that it is linked to beside glibc's."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        name, _, found = line.strip().partition(" => ")
        if not found or GLIBC.match(name):
            continue
        if not found.startswith("/"):
            sys.exit(f"make_kit: {program} needs {name}, which is not found")
        yield name, found.split(" (")[0]


def fill(source, build, kit):
    at = lambda *names: os.path.join(kit, *names)
    built = lambda *names: os.path.join(build, *names)
    for name in ("transpckpt", "transpckptd"):
        program = built("tests/gpu/bin", name)
        copy(program, at("inst/bin", name), strip=True)
        for library, path in needed(program):
            copy(path, at("inst/lib/transpckpt/deps", library))
            subprocess.run(["strip", "--strip-unneeded", at("inst/lib/transpckpt/deps", library)], check=False, capture_output=True)
    copy(built(".libs/libtranspckpt.so"), at("inst/lib/libtranspckpt.so"), strip=True)
    copy(built("shim/lib/transpckpt/libcuda.so.1"), at("inst/lib/transpckpt/libcuda.so.1"), strip=True)
    for name in PROBES:
        copy(built("tests/gpu/probes", name), at("probes", name), strip=True)
    made = [name for name in PROGRAMS if os.path.exists(built("tests/gpu/programs", name))]
    for name in made:
        copy(built("tests/gpu/programs", name), at("programs", name))
    if os.path.exists(built("kernels/digest.fatbin")):
        copy(built("kernels/digest.fatbin"), at("inst/lib/transpckpt/digest.fatbin"))
    for runtime in glob.glob(built("tests/gpu/programs/lib/libcudart.so.*")) if made else ():
        copy(runtime, at("programs/lib", os.path.basename(runtime)))
    for pattern in SOURCES:
        for path in glob.glob(os.path.join(source, pattern)):
            copy(path, at(os.path.relpath(path, source)))
    copy(os.path.join(source, "tests/gpu/kit/run.sh"), at("run.sh"))
    with open(at("data.txt"), "wb") as f:  # for the trainers, which find their own on most machines only
        for name in TEXTS:
            with open(os.path.join(source, name), "rb") as text:
                f.write(text.read())
    return made


def toolkit():
    """What the programs were built with, as the driver counts versions: 13000 for 13.0."""
    nvcc = os.environ.get("NVCC")
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout if nvcc else ""
    found = re.search(r"release (\d+)\.(\d+)", said)
    return int(found[1]) * 1000 + int(found[2]) * 10 if found else 0


def main():
    source, build, kit = (os.path.abspath(p) for p in sys.argv[1:4])
    for name in os.listdir(kit) if os.path.isdir(kit) else ():
        if name != "results":  # a run's, which may not be had again
            path = os.path.join(kit, name)
            (os.unlink if os.path.isfile(path) else shutil.rmtree)(path)
    made = fill(source, build, kit)
    with open(os.path.join(kit, "kit.json"), "w", encoding="utf-8") as f:
        json.dump({"toolkit": toolkit() if made else 0, "programs": made}, f)
    size = sum(os.path.getsize(os.path.join(base, name)) for base, _, names in os.walk(kit) for name in names
               if not base.startswith(os.path.join(kit, "results")))
    print(f"{kit}: {size / 2**20:.1f} MiB" + ("" if made else ", without programs for hardware: there is no nvcc here"))
    if size > MOST_BYTES:
        sys.exit(f"make_kit: that is more than {MOST_BYTES >> 20} MiB")


main()
