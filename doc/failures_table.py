#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of failures of doc/cluster.md from runtime/wire/failures.def.

  failures_table.py TREE            prints it
  failures_table.py TREE --check    compares it with doc/cluster.md
  failures_table.py TREE --write    puts it there"""
import os
import re
import sys

TREE = sys.argv[1]
MODE = sys.argv[2] if len(sys.argv) > 2 else "--print"
MARK = "<!-- made by doc/failures_table.py -->\n"


def text(path):
    with open(os.path.join(TREE, path), encoding="utf-8") as f:
        return f.read()


found = re.findall(r'^TPCK_FAILURE\((\w+),((?:\s*"(?:[^"])*",?)+)\)', text("runtime/wire/failures.def"), re.M)
rows = [re.findall(r'"([^"]*)"', values) for _, values in found]
if not rows or any(len(row) != 5 for row in rows):
    sys.exit("runtime/wire/failures.def: a row has not five texts")
table = MARK + "| class | what fails | who notices | within | what is done |\n| --- | --- | --- | --- | --- |\n"
table += "".join("| " + " | ".join(re.sub(r"(TRANSPCKPT_\w+(?:=\w+)?)", r"`\1`", cell) for cell in row) + " |\n" for row in rows) + MARK
page = text("doc/cluster.md")
before, old, after = (page.split(MARK) + ["", ""])[:3]
if MODE == "--print":
    print(table, end="")
elif MODE == "--check" and MARK + old + MARK != table:
    sys.exit("doc/cluster.md: its table of failures is not that of runtime/wire/failures.def; doc/failures_table.py . --write puts it there")
elif MODE == "--write":
    with open(os.path.join(TREE, "doc/cluster.md"), "w", encoding="utf-8") as f:
        f.write(before + table + after)
