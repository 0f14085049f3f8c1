#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""doc/inference.tsv: what is found in recorded launch sequences.

  inference_table.py --write BUILD-FOLDER FILE...    measures, and writes the rows of these files that say something else
                                                     than before, and the sums of all rows into doc/inference.md
  inference_table.py --check BUILD-FOLDER FILE...    compares the rows of these files with the file's, but for times"""
import os
import re
import subprocess
import sys

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inference.tsv")
HEAD = "# What is found in recorded launch sequences (doc/inference.md). Made by inference_table.py.\n" + "\t".join((
    "sequence", "operations", "ends", "found", "wrong", "all from end", "first told at operation", "found, names hidden", "wrong, names hidden",
    "first told at operation, names hidden", "ns an operation", "ns an operation, names hidden")) + "\n"


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
        yield ("\t".join((name.removesuffix(".gz").removesuffix(".tsv"), ops, true, found, wrong, start, sure, hidden_found, hidden_wrong, hidden_sure)) +
               "\t", f"{float(ns):.0f}\t{float(hidden_ns):.0f}\n")


def sums(table):
    """The rows of the table in doc/inference.md."""
    found = [row.split("\t") for row in table.splitlines()[2:]]

    def total(column):
        return sum(int(row[column]) for row in found)

    return [f"| ends found, of {total(2)} | {total(3)} | {total(7)} |", f"| ends told that are none | {total(4)} | {total(8)} |",
            f"| sequences of which something is found, of {len(found)} | {sum(row[3] != '0' for row in found)} | {sum(row[7] != '0' for row in found)} |",
            f"| sequences of which every end from the second on is found | {sum(row[5] == '2' for row in found)} | |"]


def put_sums(table):
    """Each in place of the row that begins as it does, but for its numbers."""
    page_path = TABLE.removesuffix("tsv") + "md"
    with open(page_path, encoding="utf-8") as f:
        page = f.read()
    for row in sums(table):
        begin = re.sub(r"\d+", r"\\d+", re.escape(row.split(" |")[0]))
        page = re.sub(rf"^{begin} \|.*$", lambda _, row=row: row, page, flags=re.M)
    with open(page_path, "w", encoding="utf-8") as f:
        f.write(page)


def main():
    mode, build, *files = sys.argv[1:]
    with open(TABLE, encoding="utf-8") as f:
        table = f.read()
    if mode == "--write":
        lines = {row.split("\t")[0]: row for row in table.splitlines(True)[2:]}
        for what, times in rows(build, files):
            name = what.split("\t")[0]
            if not lines.get(name, "").startswith(what):
                lines[name] = what + times
        written = HEAD + "".join(lines[name] for name in sorted(lines))
        with open(TABLE, "w", encoding="utf-8") as f:
            f.write(written)
        put_sums(written)
        return 0
    missing = [a for a, _ in rows(build, files) if "\n" + a not in table]
    for row in missing:
        print("not in doc/inference.tsv:", row)
    with open(TABLE.removesuffix("tsv") + "md", encoding="utf-8") as f:
        page = f.read()
    for row in sums(table):
        if row + "\n" not in page:
            print("not in doc/inference.md:", row)
            missing.append(row)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
