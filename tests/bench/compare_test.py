#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the bench says of its rows beside the committed ones, and what it does when a group fails."""
import io
import json
import os
import signal
import sys
import tempfile
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e")]
import bench
import compare
import job
import table

checks = job.Checks()


def row(name, ratio, ratios=(), tolerance=None, group="g"):
    shown = [ratio, *ratios] if ratio is not None else [None]
    return {"group": group, "name": name, "figure": 1.0, "baseline": None, "unit": "s", "ratio": ratio, "low": min(shown), "high": max(shown),
            "rounds": len(ratios), "tolerance": tolerance}


def compared(new, old, groups=("g",)):
    found = compare.Comparison(new, {"groups": {}, "rows": old}, groups)
    return [len(found.moved), len(found.new), len(found.gone), found.same]


def moved(new, old):
    return compared([new], [old])[0] == 1


FIVE = (1.00, 1.02, 1.04, 1.06, 1.08)
was = row("a", 1.04, FIVE)
checks.ok(not moved(row("a", 1.04, FIVE), was), "the same rounds have not moved")
checks.ok(not moved(row("a", 1.12, (1.07, 1.1, 1.12, 1.14, 1.16)), was), "rounds that overlap have not moved")
checks.ok(moved(row("a", 1.12, (1.09, 1.1, 1.12, 1.14, 1.16)), was), "rounds that are all above have moved")
checks.ok(moved(row("a", 0.95, (0.91, 0.93, 0.95, 0.97, 0.99)), was), "rounds that are all below have moved")
checks.ok(not moved(row("a", 1.09), row("a", 1.0)) and moved(row("a", 1.11), row("a", 1.0)) and moved(row("a", 0.89), row("a", 1.0)),
          "without rounds a tenth is nothing, and more than a tenth has moved")
checks.ok(not moved(row("a", 1.11), row("a", 1.05, (1.04, 1.05, 1.06))) and moved(row("a", 1.17), row("a", 1.05, (1.04, 1.05, 1.06))),
          "three rounds are no spread")
checks.ok(moved(row("a", 1.02, tolerance=0.01), row("a", 1.0, tolerance=0.01)) and not moved(row("a", 1.005), row("a", 1.0, tolerance=0.01)),
          "a row's own tolerance is asked first")
checks.ok(not moved(row("a", None), row("a", None)) and moved(row("a", 1.0), row("a", None)), "what has no ratio is not compared, what has lost it has moved")
checks.ok(compared([row("a", 1.0), row("b", 1.0)], [row("a", 1.0), row("c", 1.0)]) == [0, 1, 1, 1], "one row is new, one is gone")
checks.ok(compared([row("a", 1.0)], [row("a", 1.0, group="h")]) == [0, 1, 0, 0], "what was not measured is not gone, and the other group's row is another")
lines = list(compare.Comparison([row("a", 1.3), row("b", 1.0)], {"groups": {}, "rows": [was, row("c", 2.0)]}, ("g",)).lines())
checks.ok(lines == ["0 rows as before, 1 moved, 1 new, 1 gone", "moved: a: 1.040 (1.000 to 1.080) -> 1.300", "new: b: 1.000", "gone: c: 2.000"],
          "each is named, with old and new", *lines)

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "last.json")

    def complaint(text):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        try:
            compare.load(path)
        except ValueError as error:
            return str(error)
        return ""

    checks.ok(compare.load(path) == compare.nothing(), "no file is nothing to compare with")
    for text, said in (('{"groups": {}, "rows": [', "is no JSON"), ("[]", "no object with groups and rows"), ('{"groups": {}}', "no object with groups and rows"),
                       ('{"groups": {}, "rows": [{"group": "g"}]}', "row 1 has no name"), ('{"groups": {}, "rows": [1]}', "row 1 has no group")):
        checks.ok(said in complaint(text), f"broken: {said}", complaint(text))
    broken = json.dumps({"groups": {}, "rows": [{**was, "low": None}]})
    checks.ok("row 1 has no ratio that is a number" in complaint(broken), "broken: a spread without an end")
    both = {"groups": {"g": {"seconds": 1}, "h": {"seconds": 2}, "no more": {"seconds": 3}}, "rows": [was, row("b", 2.0, group="h"), row("c", 1.0, group="no more")]}
    compare.save(path, compare.merged(both, {"groups": {"h": {"seconds": 5}}, "rows": [row("d", 3.0, group="h")]}, ["h"], ["h", "g"]))
    found = compare.load(path)
    checks.ok(found == {"groups": {"h": {"seconds": 5}, "g": {"seconds": 1}}, "rows": [row("d", 3.0, group="h"), was]},
              "an update replaces the groups that were measured", found)

# ---- groups ----
checks.ok(bench.chosen([""]) == bench.chosen([]) == list(bench.GROUPS), "no names are all groups")
checks.ok(bench.chosen([" flush,calls  flush, "]) == bench.chosen(["flush", "calls"]) == ["flush", "calls"], "names have commas or spaces between them")
try:
    refused = bench.chosen(["calls,nonsense"])
except SystemExit as end:
    refused = str(end.code)
checks.ok(refused == f"bench: there is no group nonsense; there are {', '.join(bench.GROUPS)}", "an unknown group is refused, with those that there are", refused)
out, err = io.StringIO(), io.StringIO()
names = ["good", "bad", "absent", "skipped", "slow", "half", "last"]
run = table.Table({"groups": {"good": {"seconds": 42}}, "rows": [row("a", 1.0, group="good"), row("z", 1.0, group="bad")]}, names, names, out, err)


def bad():
    raise KeyError("no such field")


def absent():
    raise table.LeftOut("there is no tool")


def half():
    run.row("there", 1)
    run.failed("the other one", "it broke")


for name, function in (("good", lambda: run.row("a", 3, 2, "s", ratios=[1.5, 1.4])), ("bad", bad), ("absent", absent), ("skipped", lambda: job.skip("why")),
                       ("slow", lambda: time.sleep(30)), ("half", half), ("last", lambda: run.row("b", 1, 1))):
    run.measure(name, "what it is about", function, limit=0.3)
status = run.end("last.json")
said = out.getvalue()
checks.ok({name: group["state"] for name, group in run.groups.items()} == {"good": "measured", "bad": "failed", "absent": "left out", "skipped": "left out",
          "slow": "failed", "half": "failed", "last": "measured"}, "each group has its end, and the others go on", run.groups)
checks.ok(status == 1 and said.count("# failed: bad: KeyError: 'no such field'\n") == 2, "what failed is said where it did and at the end, and by the status", said)
checks.ok("# left out: absent: there is no tool" in said and "# failed: slow: TimeoutError: not done after 0.3 s" in said, "why is said", said)
checks.ok("   1.500*" in said and "moved: a: 1.000 -> 1.500 (1.400 to 1.500)" in said, "the row that moved has a mark", said)
checks.ok("gone" not in said.replace("0 gone", ""), "rows of a group that failed are not gone", said)
checks.ok("bench: 1 of 7: good: what it is about; about 42 s" in err.getvalue() and "SKIP why" in err.getvalue(), "progress is told apart from the table",
          err.getvalue())
checks.ok(run.whole() == ["good", "last"] and 0 <= table.processors_busy(0.05) <= 1, "whole groups may be committed")
alone = table.Table(compare.nothing(), ["good"], ["good"], out, err)
alone.measure("good", "", lambda: alone.row("a", 1, 1))
checks.ok(alone.end("last.json") == 0 and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL, "a run in which all went well ends well")
checks.end()
