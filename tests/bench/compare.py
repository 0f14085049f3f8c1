# SPDX-License-Identifier: Apache-2.0
"""What of the bench's results has moved since the committed ones. A row's ratio is compared, never a figure: figures are a machine's."""
import json
import os

# How much a row of no or few rounds may differ, as a part of its ratio; a row may bring its own.
TOLERANCE = 0.10
# Fewer rounds than these are no spread: two draws of three from the same source lie apart once in ten times.
ENOUGH_ROUNDS = 5
ROW_KEYS = ("group", "name", "figure", "baseline", "unit", "ratio", "low", "high", "rounds", "tolerance")


def key(row):
    return row["group"], row["name"]


def may_be(old):
    """Between which ratios the committed row lies: its rounds' lowest and highest, or what the tolerance makes of it."""
    low, high = old["low"], old["high"]
    if old["rounds"] < ENOUGH_ROUNDS or old["tolerance"] is not None:
        tolerance = TOLERANCE if old["tolerance"] is None else old["tolerance"]
        low, high = min(low, old["ratio"] * (1 - tolerance)), max(high, old["ratio"] * (1 + tolerance))
    return low, high


def has_moved(row, old):
    """Whether all that the new rounds show lies beside all that the committed row may be."""
    if row["ratio"] is None or old["ratio"] is None:
        return (row["ratio"] is None) != (old["ratio"] is None)
    low, high = may_be(old)
    return row["high"] < low or row["low"] > high


class Comparison:
    """Of the rows of the groups that were measured whole."""

    def __init__(self, rows, reference, groups):
        before = {key(row): row for row in reference["rows"]}
        there = {key(row) for row in rows}
        self.moved = [(row, before[key(row)]) for row in rows if key(row) in before and has_moved(row, before[key(row)])]
        self.new = [row for row in rows if key(row) not in before]
        self.gone = [row for row in before.values() if row["group"] in groups and key(row) not in there]
        self.same = len(rows) - len(self.moved) - len(self.new)

    def lines(self):
        yield f"{self.same} rows as before, {len(self.moved)} moved, {len(self.new)} new, {len(self.gone)} gone"
        for row, old in self.moved:
            yield f"moved: {row['name']}: {told(old)} -> {told(row)}"
        for row in self.new:
            yield f"new: {row['name']}: {told(row)}"
        for row in self.gone:
            yield f"gone: {row['name']}: {told(row)}"


def told(row):
    if row["ratio"] is None:
        return "no ratio"
    return f"{row['ratio']:.3f}" + (f" ({row['low']:.3f} to {row['high']:.3f})" if row["rounds"] > 1 else "")


def nothing():
    return {"groups": {}, "rows": []}


def load(path):
    """The committed results; none where there is no file. ValueError says what is wrong with one that cannot be used."""
    if not os.path.exists(path):
        return nothing()
    try:
        with open(path, encoding="utf-8") as f:
            found = json.load(f)
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("groups"), dict) or not isinstance(found.get("rows"), list):
        raise ValueError(f"{path} is no result of this bench: there is no object with groups and rows")
    for number, row in enumerate(found["rows"], 1):
        lacking = [name for name in ROW_KEYS if name not in row] if isinstance(row, dict) else ROW_KEYS
        if lacking:
            raise ValueError(f"{path} is no result of this bench: row {number} has no {lacking[0]}")
        if any(not isinstance(row[name], (int, float)) for name in ("ratio", "low", "high") if row["ratio"] is not None) or not isinstance(row["rounds"], int):
            raise ValueError(f"{path} is no result of this bench: row {number} has no ratio that is a number")
    return found


def merged(reference, found, groups, order):
    """The committed results with those of `groups` in place of theirs; groups that are not in `order` are no more."""
    at = {name: (found if name in groups else reference)["groups"][name] for name in order if name in groups or name in reference["groups"]}
    rows = {name: [row for row in (found if name in groups else reference)["rows"] if row["group"] == name] for name in at}
    return {"groups": at, "rows": [row for name in at for row in rows[name]]}


def save(path, results):
    """Whole or not at all. Notes belong to one run: they are not kept. Nor are digits that no row repeats."""
    rows = [{name: float(f"{row[name]:.5g}") if isinstance(row[name], float) else row[name] for name in ROW_KEYS} for row in results["rows"]]
    text = ",\n".join("  " + json.dumps(row) for row in rows)
    groups = ",\n".join(f"  {json.dumps(name)}: {json.dumps(group)}" for name, group in results["groups"].items())
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(f'{{\n "groups": {{\n{groups}\n }},\n "rows": [\n{text}\n ]\n}}\n')
    os.replace(path + ".new", path)
