#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: about=1s
"""The device code that is installed: drivers of long ago can read it, and it is there for each generation of devices that the compiler knows, and as PTX
for those to come."""
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
from job import SKIP, Checks

MAGIC, PTX, ELF = 0xBA55ED50, 1, 2
# Of an entry: LZ4, which drivers of CUDA 11 read; zstd, which those before 550.54 do not.
COMPRESSED = 0x2000 | 0x8000
WANTED = {80, 90, 100}


def entries(data):
    magic, _, header, size = struct.unpack_from("<IHHQ", data)
    assert magic == MAGIC, hex(magic)
    at = header
    while at < header + size:
        kind, _, head, payload = struct.unpack_from("<HHIQ", data, at)
        arch, = struct.unpack_from("<I", data, at + 28)
        flags, = struct.unpack_from("<Q", data, at + 40)
        yield kind, arch, flags
        at += head + payload


def main():
    path = os.path.join(os.environ.get("builddir", "."), "kernels/digest.fatbin")
    if not os.path.exists(path):
        print("1..0 # SKIP it is not built: there is no nvcc here")
        sys.exit(SKIP)
    with open(path, "rb") as f:
        found = list(entries(f.read()))
    checks = Checks()
    checks.ok(WANTED <= {arch for kind, arch, _ in found if kind == ELF}, "code for each generation", found)
    checks.ok(any(kind == PTX for kind, _, _ in found), "and PTX", found)
    checks.ok(not any(flags & COMPRESSED for _, _, flags in found), "none of it is compressed", [(k, a, hex(f)) for k, a, f in found])
    checks.end()


if __name__ == "__main__":
    main()
