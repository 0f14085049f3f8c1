# SPDX-License-Identifier: Apache-2.0
"""Runs a script that prints its steps, and has callgrind count from one step's line to another's, where the process ends. Arguments: a library
made of instrument.c, the two steps, the script, its arguments. It knows nothing of the library."""
import ctypes
import os
import runpy
import sys

switch, first, last = ctypes.CDLL(sys.argv[1]), *sys.argv[2:4]


class Lines:
    """Standard output."""

    def __init__(self, out):
        self.out = out

    def write(self, text):
        written = self.out.write(text)
        if text.startswith(f"step {first} "):
            switch.count_on()
        elif text.startswith(f"step {last} "):
            switch.count_off()
            self.out.flush()
            # Nothing after the last step counts; callgrind writes what it has.
            os._exit(0)
        return written

    def flush(self):
        self.out.flush()


sys.stdout = Lines(sys.stdout)
sys.argv[1:] = sys.argv[5:]
runpy.run_path(sys.orig_argv[sys.orig_argv.index(__file__) + 4], run_name="__main__")
