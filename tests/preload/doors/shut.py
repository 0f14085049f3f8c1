#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shuts doors: copies a library, with some of its exported symbols under names that nobody asks for.

  shut.py LIBRARY COPY SYMBOL...
"""
import struct
import sys


def dynstr(data):
    """Offset and size of the section .dynstr of a 64-bit ELF file."""
    at, = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3a)
    headers = [struct.unpack_from("<IIQQQQ", data, at + i * size) for i in range(count)]
    names_at = headers[names][4]
    for header in headers:
        start = names_at + header[0]
        if data[start:data.index(b"\0", start)] == b".dynstr":
            return header[4], header[5]
    sys.exit("no .dynstr")


def main():
    with open(sys.argv[1], "rb") as library:
        data = bytearray(library.read())
    at, size = dynstr(data)
    for symbol in sys.argv[3:]:
        # A name may be the tail of another: then both are shut, as they share its bytes.
        found = data.find(symbol.encode() + b"\0", at, at + size)
        if found < 0:
            sys.exit(f"{symbol} is not in {sys.argv[1]}")
        data[found + len(symbol) - 1] = ord("!")
    with open(sys.argv[2], "wb") as copy:
        copy.write(data)


main()
