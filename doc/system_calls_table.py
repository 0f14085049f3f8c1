#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of system calls of doc/interception.md from hooks/system_calls.txt.

  system_calls_table.py TREE            prints it
  system_calls_table.py TREE --check    compares it with doc/interception.md
  system_calls_table.py TREE --write    puts it there

Fails if the kernel's header (asm/unistd_64.h as $CC finds it) has a call that the list has not, or if a call is followed in the
list and not by the hooks, or by the hooks and not in the list."""
import os
import re
import shlex
import subprocess
import sys
import textwrap

TREE = sys.argv[1]
MODE = sys.argv[2] if len(sys.argv) > 2 else "--print"
MARK = "<!-- made by doc/system_calls_table.py -->\n"
STATES = ("followed", "passed on", "no file")
# What libc calls them.
LIBC = {"pwrite64": "pwrite", "newfstatat": "fstatat", "getdents64": "readdir", "exit_group": "_exit", "syslog": "klogctl"}


def text(path):
    with open(os.path.join(TREE, path), encoding="utf-8") as f:
        return f.read()


def groups():
    """(state, why, names) of each group of the list."""
    found = []
    for line in text("hooks/system_calls.txt").splitlines():
        if line.startswith("## "):
            state, why = line[3:].split(": ", 1)
            assert state in STATES, line
            found.append((state, why, []))
        elif line and not line.startswith("#"):
            found[-1][2].extend(line.split())
    return found


def header():
    """The names that the kernel's header has; none where there is no such header."""
    done = subprocess.run(shlex.split(os.environ.get("CC", "cc")) + ["-E", "-dM", "-"], input="#include <asm/unistd_64.h>\n", text=True,
                          capture_output=True, check=False)
    return re.findall(r"^#define __NR_(\w+) \d+$", done.stdout, re.M) if not done.returncode else []


listed = groups()
names = [name for _, _, group in listed for name in group]
numbers = {n.lower() for n in re.findall(r"\[(?:SYS|NR)_(\w+)\] = 1", text("hooks/libc_syscall.c"))}
exports = set(re.findall(r"^TPCK_HOOK_EXPORT\((\w+),", text("hooks/libc.def"), re.M))
bad = [f"{n} is twice in hooks/system_calls.txt" for n in sorted({n for n in names if names.count(n) > 1})]
bad += [f"{n} is a system call of the kernel's header that hooks/system_calls.txt has not" for n in header() if n not in names]
for state, _, group in listed:
    for n in group:
        hooked = n in numbers or LIBC.get(n, n) in exports
        if hooked != (state == "followed"):
            bad.append(f"{n} is {state} by hooks/system_calls.txt, and there is {'a' if hooked else 'no'} hook of it")
bad += [f"{n} has a hook, and hooks/system_calls.txt has it not" for n in sorted(numbers - set(names))]

out = []
for wanted in STATES:
    for state, why, group in listed:
        if state != wanted:
            continue
        alone = [n for n in group if state == "followed" and n not in numbers]
        both = [n for n in group if n not in alone]
        out.append(textwrap.fill(f"**{state}**: {why}", 110, break_long_words=False, break_on_hyphens=False) + "\n```\n")
        if both:
            out.append(textwrap.fill(" ".join(both), 108, break_on_hyphens=False) + "\n")
        if alone:
            out.append(textwrap.fill("not by syscall(): " + " ".join(alone), 108, break_on_hyphens=False) + "\n")
        out.append("```\n")
table = "".join(out)
page = text("doc/interception.md")
head, _, rest = page.partition(MARK)
between, _, tail = rest.partition(MARK)
if MODE == "--print":
    print(table)
elif MODE == "--write":
    with open(os.path.join(TREE, "doc/interception.md"), "w", encoding="utf-8") as page_file:
        page_file.write(head + MARK + table + MARK + tail)
elif between != table:
    bad.append("doc/interception.md is not what hooks/system_calls.txt says: doc/system_calls_table.py . --write")
for fault in bad:
    print(fault, file=sys.stderr)
sys.exit(bool(bad))
