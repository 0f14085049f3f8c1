#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of doc/inference.md: what is found in recorded launch sequences.

  inference_table.py --write BUILD-FOLDER FILE...    measures and puts the table into the page
  inference_table.py --check BUILD-FOLDER FILE...    compares the rows of these files with the page's, but for times"""
import os
import subprocess
import sys

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inference.md")
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


def measured(build, files, *options):
    out = subprocess.run([os.path.join(build, "tests/unit/infer_traces"), *options, *files], capture_output=True,
                         text=True, check=False).stdout
    return {row[0]: row for row in (line.split() for line in out.splitlines()[1:])}


def rows(build, files):
    both, hidden = measured(build, files), measured(build, files, "--no-names")
    for path in files:
        name = os.path.basename(path)
        _, ops, true, found, wrong, start, sure, _, ns = both[name]
        _, _, _, hidden_found, hidden_wrong, _, hidden_sure, _, hidden_ns = hidden[name]
        yield (f"| {name.removesuffix('.gz').removesuffix('.tsv')} | {ops} | {true} | {found} | {wrong} | {start} | {sure} | "
               f"{hidden_found} | {hidden_wrong} | {hidden_sure} | ", f"{float(ns):.0f} | {float(hidden_ns):.0f} |\n")


def main():
    mode, build, *files = sys.argv[1:]
    with open(PAGE, encoding="utf-8") as f:
        page = f.read()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    if mode == "--write":
        head = ("| sequence | operations | ends | found | wrong | all from end | first told at operation | found, names hidden | "
                "wrong | first told at operation | ns an operation | names hidden |\n" + "| --- " * 12 + "|\n")
        table = head + "".join(a + b for a, b in rows(build, sorted(files, key=os.path.basename)))
        with open(PAGE, "w", encoding="utf-8") as f:
            f.write(page[:begin] + table + page[end:])
        return 0
    missing = [a for a, _ in rows(build, files) if "\n" + a not in page[begin:end]]
    for row in missing:
        print("not in the page:", row)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
