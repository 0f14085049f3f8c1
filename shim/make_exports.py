#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the hook tables into entry points.

  make_exports.py exports   DEF...          assembly: each hooked symbol jumps to tpck_hook_<symbol>
  make_exports.py map       DEF...          the anonymous version script of the preloaded library
  make_exports.py forwarder SYMBOLS         assembly: each driver symbol jumps through a table that
                                            is filled at its first call
  make_exports.py forwarder-map SYMBOLS     its version script
"""
import re
import sys

HEAD = "/* SPDX-License-Identifier: Apache-2.0 */\n/* Made by make_exports.py; do not edit. */\n"


def hooked(paths):
    """A row that is hooked twice is exported by its profiling name, too."""
    names = []
    for path in paths:
        with open(path, encoding="ascii") as table:
            text = re.sub(r"/\*.*?\*/", "", table.read(), flags=re.S)
        names += re.findall(r"\bTPCK_(?:HOOK|HOOK_EXPORT|REFUSE)\(\s*(\w+)\s*,", text)
        names += [p + n for n in re.findall(r"\bTPCK_HOOK_TWICE\(\s*(\w+)\s*,", text) for p in ("", "p")]
    if len(set(names)) != len(names):
        sys.exit("make_exports.py: a symbol has two rows: " +
                 ", ".join(sorted({n for n in names if names.count(n) > 1})))
    return names


def symbols(path):
    with open(path, encoding="ascii") as listing:
        return [line.strip() for line in listing if line.strip() and not line.startswith("#")]


def stub(name, target):
    return (f"\t.globl {name}\n\t.type {name}, @function\n{name}:\n\tendbr64\n\tjmp {target}\n"
            f"\t.size {name}, . - {name}\n")


def version_script(names):
    return "{\n\tglobal:\n" + "".join(f"\t\t{n};\n" for n in names) + "\tlocal: *;\n};\n"


def forwarder(names):
    out = [HEAD, "\t.text\n"]
    for i, name in enumerate(names):
        out.append(f"\t.globl {name}\n\t.type {name}, @function\n{name}:\n\tendbr64\n"
                   f"\tjmp *tpck_forward_table+{8 * i}(%rip)\n"
                   f"tpck_first_{i}:\n\tpushq ${i}\n\tjmp tpck_forward_first\n"
                   f"\t.size {name}, . - {name}\n")
    out.append("\t.section .data.rel.local,\"aw\"\n\t.balign 8\n\t.globl tpck_forward_table\n"
               "\t.hidden tpck_forward_table\ntpck_forward_table:\n")
    out += [f"\t.quad tpck_first_{i}\n" for i in range(len(names))]
    out.append("\t.section .rodata\n")
    out += [f"tpck_name_{i}:\t.asciz \"{name}\"\n" for i, name in enumerate(names)]
    out.append("\t.section .data.rel.ro.local,\"aw\"\n\t.balign 8\n\t.globl tpck_forward_names\n"
               "\t.hidden tpck_forward_names\ntpck_forward_names:\n")
    out += [f"\t.quad tpck_name_{i}\n" for i in range(len(names))]
    out.append("\t.quad 0\n\t.section .note.GNU-stack,\"\",@progbits\n")
    return "".join(out)


def main(argv):
    if len(argv) < 3:
        sys.exit(__doc__)
    verb, paths = argv[1], argv[2:]
    if verb == "exports":
        bodies = [p for p in paths if "/cuda_" in p or "/nccl_" in p]
        sys.stdout.write(HEAD + "\t.text\n" + "".join(stub(n, "tpck_hook_" + n) for n in hooked(bodies))
                         + "\t.section .note.GNU-stack,\"\",@progbits\n")
    elif verb == "map":
        sys.stdout.write(version_script(hooked(paths)))
    elif verb == "forwarder":
        sys.stdout.write(forwarder(symbols(paths[0])))
    elif verb == "forwarder-map":
        sys.stdout.write(version_script(symbols(paths[0])))
    else:
        sys.exit(__doc__)


main(sys.argv)
