# SPDX-License-Identifier: Apache-2.0
"""Pages that people read, of what the stages wrote down: one at the end of each stage, and all tables as Markdown."""
import glob
import json
import os
import re

import stacks

# What the library says where all goes well.
FINE = re.compile(r"transpckpt: (resuming at|live at) ")
STAGES = ("probes", "trainers", "pytorch", "nccl", "large", "self")


def table(head, rows):
    if not rows:
        return ""
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def named(rows, case):
    return next((row for row in rows if row["case"] == case), {})


def cell(row):
    if row["result"] == "moved":
        return f"moved, {row.get('longest_ms', 0):.0f} ms"
    if row["result"] == "stuck":
        told = f"STUCK in {row.get('program_in') or '-'} / {row.get('copier_in') or '-'}"
        return told + (", a store releases it" if row.get("released_by_store") else "")
    if row["result"] == "refused":
        return f"refused: {row.get('call')} {row.get('error')}"
    return row["result"]


def hazards(rows):
    cells = [row for row in rows if "cell" in row]
    columns = sorted({(r["cell"]["connections"], r["cell"]["streams"]) for r in cells})
    lines = []
    for key in dict.fromkeys((r["cell"]["fence"], r["cell"]["action"]) for r in cells):
        found = {(r["cell"]["connections"], r["cell"]["streams"]): cell(r) for r in cells if (r["cell"]["fence"], r["cell"]["action"]) == key}
        lines.append((*key, *(found.get(column, "not run") for column in columns)))
    return table(("fence", "program does", *(f"{c} connections, {s} streams" for c, s in columns)), lines)


def probes(rows):
    device, machine = named(rows, "device"), named(rows, "machine")
    parts = [table(("what", "is"), [(key, found[key]) for found in (device, machine) for key in
                                    ("name", "memory_GiB", "capability", "driver_version", "nvidia_smi", "kernel", "glibc", "cores", "shm_free_GiB",
                                     "memory_available_GiB", "nvcc", "exported") if key in found])]
    if machine.get("unknown_to_us"):
        parts.append(f"Functions of the driver that the forwarder does not list: {', '.join(machine['unknown_to_us'])}\n")
    parts.append(hazards(rows))
    addresses = [row for row in rows if row["case"].startswith("address-")]
    if addresses:
        parts.append(f"Arena's range given: {sum(row['result'] == 'passed' for row in addresses)} of {len(addresses)} processes. " +
                     " ".join(f"{r['case']}: {r['result']} {r.get('got', r.get('error', ''))}." for r in addresses if r["result"] != "passed") + "\n")
    costs = named(rows, "vmm").get("rows", [])
    parts.append(table(list(costs[0]) if costs else (), [list(row.values()) for row in costs]))
    skip = {"stage", "case", "result", "seconds", "rows", "printed", "said", "status"}
    for case in ("vmm", "names", "digest", "tmpfs"):
        row = named(rows, case)
        parts.append(table((case, row.get("result")), [(key, value) for key, value in row.items() if key not in skip]))
    return "\n".join(part for part in parts if part)


def plain(rows):
    """A row for each case."""
    keys = [key for key in ("seconds", "steps", "kills", "resumed_at", "plain_ms", "disabled_ms", "on_ms", "first_snapshot_s", "state_GiB", "repeatable", "why")
            if any(key in row for row in rows)]
    return table(("case", "result", *keys), [(row["case"], row["result"], *(row.get(key, "") for key in keys)) for row in rows])


def trouble(rows):
    lines = []
    for row in rows:
        if row["result"] in ("failed", "hung"):
            lines.append(f"{row['case']}: {row['result']} {row.get('why', '')}")
            for part in ("said", "printed"):
                lines += ["    " + line[:300] for line in str(row.get(part, "")).splitlines()[-12:]]
            lines += ["    " + line for line in stacks.text(row.get("stacks") or [])[:60]]
        for key in ("left", "not_killable"):
            if row.get(key):
                lines.append(f"{row['case']}: {key.replace('_', ' ')}: {row[key]}")
    return "\n".join(lines)


def marks(rows):
    lines = []
    for row in rows:
        lines += [(row["case"], line) for line in row.get("remarks", []) if not FINE.match(line)]
    return table(("case", "the library said"), lines)


def tables(name, rows):
    return probes(rows) if name == "probes" else "\n".join(part for part in (plain(rows), marks(rows)) if part)


def page(name, rows):
    return "\n".join(part for part in (tables(name, rows), trouble(rows)) if part)


def load(path):
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            try:
                rows.append(json.loads(line))
            except ValueError:
                pass  # cut off where the machine was
    return rows


def document(results):
    found = {os.path.basename(p)[:-6]: load(p) for p in glob.glob(os.path.join(results, "*.jsonl"))}
    device = named(found.get("probes", []), "device").get("name", "a device without a name")
    parts = [f"## On {device}"]
    for name in STAGES:
        if name in found:
            parts.append(f"### {name}\n\n{tables(name, found[name])}")
            bad = trouble(found[name])
            if bad:
                parts.append("```\n" + bad + "\n```")
    return "\n\n".join(parts)
