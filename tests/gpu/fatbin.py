#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: about=1s
"""The device code that is installed, and that of the kit for machines with a GPU: drivers of long ago can read it, and it is there for each
generation of devices that the compiler knows, and as PTX for those to come."""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from job import SKIP, Checks

MAGIC, PTX, ELF = 0xBA55ED50, 1, 2
# Of an entry: LZ4, which drivers of CUDA 11 read; zstd, which those before 550.54 do not.
COMPRESSED = 0x2000 | 0x8000
WANTED = {80, 90, 100}


def fatbins(path):
    """The contents of the file: a fat binary, or a program with several in a section."""
    with open(path, "rb") as f:
        data = f.read()
    if data[:4] != b"\x7fELF":
        return data
    shoff, = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQ", data, shoff + i * size) for i in range(count)]
    for name, _, _, _, offset, length in sections:
        start = sections[names][4] + name
        if data[start:data.index(b"\0", start)] == b".nv_fatbin":
            return data[offset:offset + length]
    return b""


def entries(data):
    at = 0
    while at < len(data):
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if not magic:  # between two of them
            at += 8
            continue
        assert magic == MAGIC, hex(magic)
        at += header
        end = at + size
        while at < end:
            kind, _, head, payload = struct.unpack_from("<HHIQ", data, at)
            arch, = struct.unpack_from("<I", data, at + 28)
            flags, = struct.unpack_from("<Q", data, at + 40)
            yield kind, arch, flags
            at += head + payload


def main():
    build = os.environ.get("builddir", ".")
    programs = os.path.join(build, "tests/gpu/programs")
    paths = [os.path.join(build, "kernels/digest.fatbin")]
    if os.path.isdir(programs):
        paths += sorted(os.path.join(programs, name) for name in os.listdir(programs) if os.path.isfile(os.path.join(programs, name)))
    if not os.path.exists(paths[0]):
        print("1..0 # SKIP it is not built: there is no nvcc here")
        sys.exit(SKIP)
    checks = Checks()
    for path in paths:
        found, name = list(entries(fatbins(path))), os.path.relpath(path, build)
        checks.ok(WANTED <= {arch for kind, arch, _ in found if kind == ELF}, f"{name}: code for each generation", found)
        checks.ok(any(kind == PTX for kind, _, _ in found), f"{name}: and PTX", found)
        checks.ok(not any(flags & COMPRESSED for _, _, flags in found), f"{name}: none of it is compressed", [(k, a, hex(f)) for k, a, f in found])
    checks.end()


if __name__ == "__main__":
    main()
