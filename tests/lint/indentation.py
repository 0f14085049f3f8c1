#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2.0 memory=500M about=10s
"""Lines of C are indented as .clang-format says: clang-format's own text is compared by what each line begins with, as where a line ends, and what
stands in columns behind it, is the writer's choice.

  indentation.py [--write] [FILE...]    without files all that git knows

Lines that clang-format would cut otherwise are held to tabs alone. Of another release than Debian 12's, 14, the last word is not ours: it is skipped.
"""
import concurrent.futures
import difflib
import os
import re
import shutil
import subprocess
import sys

SRC = os.path.realpath(os.environ.get("srcdir") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
RELEASE = "14"
SKIP = 77
# Two spaces deep a line may be in what is no code: comments, and continued lines of macros and texts.
SPACES = re.compile(r" {4,}(?![* ])")


def files():
    try:
        names = subprocess.run(["git", "-C", SRC, "ls-files", "*.c", "*.h", "*.cc", "*.cu"], capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        names = []
    if names:
        return names
    return [os.path.relpath(os.path.join(folder, name), SRC) for folder, _, found in os.walk(SRC) for name in found
            if name.endswith((".c", ".h", ".cc", ".cu")) and "build" not in os.path.relpath(folder, SRC).split(os.sep)]


def words(line):
    return " ".join(line.split())


def begin(line):
    return line[:len(line) - len(line.lstrip())]


def wanted(name):
    """Lines as they are, and as they should be."""
    path = os.path.join(SRC, name)
    with open(path, encoding="utf-8") as text:
        have = text.read().split("\n")
    out = subprocess.run(["clang-format", f"-style=file:{SRC}/.clang-format", path], capture_output=True, text=True, check=True).stdout.split("\n")
    want = have[:]
    same = difflib.SequenceMatcher(None, [words(line) for line in have], [words(line) for line in out], autojunk=False)
    for tag, first, last, other, _ in same.get_opcodes():
        for i in range(first, last):
            if not have[i].strip():
                continue
            if tag == "equal":
                want[i] = begin(out[other + i - first]) + have[i].lstrip()
            elif SPACES.match(have[i]):
                want[i] = begin(have[i]).replace(" " * 4, "\t") + have[i].lstrip()
    return have, want


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    found = subprocess.run(["clang-format", "--version"], capture_output=True, text=True, check=False).stdout if shutil.which("clang-format") else ""
    if not re.search(rf"version {RELEASE}\.", found):
        print(f"1..0 # SKIP clang-format {RELEASE} is not here: {found.strip() or 'none'}")
        sys.exit(SKIP)
    wrong = []
    names = arguments or files()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, (have, want) in zip(names, pool.map(wanted, names)):
            wrong += [f"{name}:{i + 1}: {want[i]!r}" for i in range(len(have)) if have[i] != want[i]]
            if have != want and "--write" in sys.argv[1:]:
                with open(os.path.join(SRC, name), "w", encoding="utf-8") as to:
                    to.write("\n".join(want))
    print(f"{'not ok' if wrong or not names else 'ok'} 1 - lines are indented as .clang-format says (tests/lint/indentation.py --write does so)")
    for line in wrong[:20]:
        print("#  ", line[:150])
    print("1..1")
    sys.exit(bool(wrong or not names))


if __name__ == "__main__":
    main()
