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
    for row in rows:
        if row.get("findings"):
            parts.append(table((row["case"], "finding", "it says"), [(f.get("what"), f.get("finding"), f.get("text")) for f in row["findings"]]))
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


def of_kills(row):
    """How many, and what they cost."""
    lost = [int(x) for line in row["kills"] for x in re.findall(r"lost (\d+)", line)]
    return f"{len(row['kills'])}, at most {max(lost)} lost" if lost else len(row["kills"])


def of_show(row):
    """What the agent said of the run."""
    notes = (row["show"] or {}).get("notes") or {}
    told = f"{notes.get('captured', 0)} taken, {notes.get('skipped', 0)} skipped, stall at most {notes.get('stall_ns_max', 0) / 1e6:.2f} ms"
    return " ".join([told, *((row["show"] or {}).get(key, "") for key in ("reason", "trouble"))]).strip()


COLUMNS = {
    "seconds": None, "steps": None, "kills": of_kills, "resumed_at": None, "plain_ms": None, "disabled_ms": None, "on_ms": None, "plain_first_step_s": None,
    "on_first_step_s": None, "first_snapshot_s": None, "show": of_show, "forward_s": None, "inject_s": None, "device_free_GiB": None, "shm_GiB": None,
    "state_GiB": None, "repeatable": None, "why": None,
}


def plain(rows):
    """A row for each case. Milliseconds are median, 99th percentile and longest."""
    keys = [key for key in COLUMNS if any(key in row for row in rows)]
    return table(("case", "result", *keys), [(row["case"], row["result"], *((COLUMNS[key] or row.get)(row if COLUMNS[key] else key) if key in row else ""
                                                                           for key in keys)) for row in rows])


def trouble(rows):
    lines = []
    for row in rows:
        if row["result"] in ("failed", "hung", "cut off"):
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
    """The last row of each case."""
    rows = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            try:
                row = json.loads(line)
                rows[row["case"]] = row
            except ValueError:
                pass  # cut off where the machine was
    return list(rows.values())


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
