#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fsx and fsstress of xfstests (git.kernel.org, fs/xfs/xfstests-dev), whose sources XFSTESTS names: both are as content as without the library, and leave the
same bytes and names. fsx checks each byte that it reads back of a file that it writes, cuts, maps and punches at random, by plain calls, AIO, io_uring and
O_DIRECT; fsstress makes random calls on a tree. ROUNDS says how many seeds; a word on the command line names one way (fsx_aio)."""
import hashlib
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import Checks, Place, until
from job import skip

MODES = {"default": {}, "all": {"TRANSPCKPT_FILES": "*"}}
OPERATIONS = 3000
# The name is that of a checkpoint; every twentieth operation closes the file and opens it again.
FSX = {"fsx": [], "fsx_aio": ["-A"], "fsx_uring": ["-U"], "fsx_direct": ["-Z", "-R", "-W", "-r", "4096", "-w", "4096"], "fsx_synced": ["-y"]}
HEADERS = ("ASSERT DIRENT ERRNO ERR LIBGEN LINUX_FALLOC LINUX_FIEMAP MALLOC STDLIB STRINGS STRING SYS_FCNTL SYS_IOCTL SYS_MMAN SYS_PARAM SYS_PRCTL SYS_STATVFS SYS_STAT "
           "SYS_TIME SYS_TYPES SYS_WAIT TIME UNISTD XFS_XFS ATTR_ATTRIBUTES").split()
DEFINES = ["_GNU_SOURCE", "_FILE_OFFSET_BITS=64", "XFS", "AIO", "URING", "FALLOCATE", "HAVE_COPY_FILE_RANGE", "HAVE_RENAMEAT2", "NEED_INTERNAL_XFS_IOC_EXCHANGE_RANGE"]


def ready(root):
    """Both built, without the rest of xfstests."""
    sources = os.environ.get("XFSTESTS")
    if not sources or not os.path.exists(os.path.join(sources, "ltp/fsx.c")):
        skip("XFSTESTS names no folder with the sources of xfstests")
    with open(os.path.join(root, "config.h"), "w", encoding="ascii") as f:
        f.writelines(f"#define HAVE_{name}_H 1\n" for name in HEADERS)
    for program in ("fsx", "fsstress"):
        done = subprocess.run(["cc", "-O1", "-w", *["-D" + name for name in DEFINES], "-I" + root, "-I" + os.path.join(sources, "src"), "-o",
                               os.path.join(root, program), os.path.join(sources, "ltp", program + ".c"), "-laio", "-luring"],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            skip(f"{program} does not build (libaio-dev, liburing-dev, xfslibs-dev, libattr1-dev): {done.stderr.strip()[-300:]}")


def tree(folder):
    """Names, kinds and bytes of all that is there."""
    found = {}
    for at, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = os.path.join(at, name)
            told = os.lstat(path)
            what = f"{told.st_mode:o} {told.st_nlink}"
            if os.path.islink(path):
                what += " " + os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as f:
                    what += f" {told.st_size} " + hashlib.sha256(f.read()).hexdigest()
            found[os.path.relpath(path, folder)] = what
    return found


def run(root, way, seed, settings):
    """What it leaves, and says where it is not content; of how many files digests were kept."""
    with Place(tempfile.mkdtemp(dir=root), **(settings or {})) as place:
        os.makedirs(place.path("checkpoint-1"))
        if way == "fsstress":
            command = [os.path.join(root, "fsstress"), "-d", place.path("checkpoint-1"), "-n", "500", "-p", "1", "-s", str(seed)]
        else:
            command = [os.path.join(root, "fsx"), "-q", "-N", str(OPERATIONS), "-S", str(seed), "-c", "20", "-P", place.shm, *FSX[way], "model.pt"]
        done = subprocess.run(command, cwd=place.work, env=place.plain if settings is None else place.environment, capture_output=True, text=True,
                              errors="replace", check=False, timeout=600)
        if settings is not None:
            until(lambda: not place.listed(), 60)
        said = "" if done.returncode == 0 else f"{done.returncode}: {(done.stdout + done.stderr)[-400:]}"
        return tree(place.work), said, place.recorded()


def differences(plain, other):
    return [f"{name}: plain {plain.get(name)}, with the library {other.get(name)}" for name in sorted(set(plain) | set(other)) if plain.get(name) != other.get(name)]


def main():
    checks = Checks()
    root = tempfile.mkdtemp(prefix="tpck-xfstests.")
    seed = int(os.environ.get("SEED") or random.randrange(1 << 20))
    print(f"# SEED={seed}")
    try:
        ready(root)
        for way in sys.argv[1:] or [*FSX, "fsstress"]:
            for mode, settings in MODES.items():
                wrong, kept = [], 0
                for i in range(int(os.environ.get("ROUNDS") or 3)):
                    plain, plain_said, _ = run(root, way, seed + i, None)
                    other, said, recorded = run(root, way, seed + i, settings)
                    kept += recorded
                    wrong += [f"seed {seed + i}: {line}" for line in [*differences(plain, other)[:3], *([said] if said != plain_said else [])]]
                checks.ok(not wrong and (kept or mode != "all"), f"{way}, {mode}: as without the library; digests of {kept} files were kept", *wrong)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    checks.end()


if __name__ == "__main__":
    main()
