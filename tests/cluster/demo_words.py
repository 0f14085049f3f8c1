#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.9 memory=1500M about=75s
"""What ./bootstrap.sh demo-cluster runs says and ends with: where nodes can be had, where not, and when bytes differ."""
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import demo

import job

job.build_folder()
checks = job.Checks()


def demonstration(**environment):
    return subprocess.run([sys.executable, "-B", demo.__file__], env={**os.environ, **environment}, capture_output=True, text=True, check=False)


with tempfile.TemporaryDirectory(prefix="tpck-demo.") as folder:
    # Without the programs that make namespaces.
    done = demonstration(PATH=folder)
    checks.ok(done.returncode == job.SKIP and "cannot do so here: " in done.stdout, "where there can be no nodes it says so and ends with 77",
              done.returncode, done.stdout, done.stderr)
    for name, text in (("plain/final_r00.bin", "a" * 99), ("other/final_r00.bin", "a" * 98 + "b")):
        os.makedirs(os.path.dirname(os.path.join(folder, name)))
        with open(os.path.join(folder, name), "w", encoding="ascii") as f:
            f.write(text)
    for other, same in (("plain", True), ("other", False)):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            found = demo.compare(os.path.join(folder, "plain"), os.path.join(folder, other))
        checks.ok(found is same and ("DIFFERENT" in said.getvalue()) is not same and ("The runs differ." in said.getvalue()) is not same,
                  f"{'equal' if same else 'other'} bytes are {'equal' if same else 'different'}", said.getvalue())

done = demonstration()
if done.returncode == job.SKIP:
    print(f"# {done.stdout}")
else:
    text = done.stdout
    checks.ok(done.returncode == 0, "it ends well", done.returncode, text, done.stderr)
    copied, at = (re.search(pattern, text) for pattern in (r"step (\d+) of all ranks is in the memory", r"all ranks went on at step (\d+) "))
    checks.ok(copied and at and int(at[1]) >= int(copied[1]) >= demo.GOAL, "all ranks go on at a step that had copies, or a later one", text)
    rows = re.findall(r"^ +(\d)  (node\w) +(node\w) +(\S.*?\S) +([\d.]+) s +([\d.]+) s +([\d.]+) s$", text, re.M)
    checks.ok([row[:3] for row in rows] == [("0", "nodea", "nodea"), ("1", "nodeb", "nodeb"), ("2", "nodec", "nodee"), ("3", "noded", "noded")],
              "the table has each rank, where it was and is", text)
    checks.ok([row[3] == "its own node's memory" for row in rows] == [True, True, False, True] and
              re.fullmatch(r"a copy(, from node[abd]'s| in nodee's) memory", rows[2][3]), "and where its state came from", text)
    checks.ok(rows and all(float(row[4]) < float(row[6]) for row in rows), "a rank goes on once its state is there", text)
    checks.ok(re.search(r"\d+ iterations? of \d+ had to be computed again", text), "what was lost is counted", text)
    checks.ok(text.count("   equal\n") == 16 and text.count("Every one of the 20 files of both runs is equal") == 2 and "DIFFERENT" not in text,
              "the files are equal, both times", text)
    checks.ok(re.search(r"the ranks that it had begin on nodec\n  all four ranks were live [\d.]+ s later, and the launcher on nodea has the processes that it had", text),
              "the spare node takes over, and a launcher sees no end", text)
checks.end()
