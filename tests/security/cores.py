#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1 memory=1G minutes=5 about=5s
"""What is in snapshots and records does not come into core files: neither the trainer's nor the agent's has those mappings."""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import job

STATE = re.compile(r"/(image|log|behind|stash)[^ ]*$")


def mappings(place, pid):
    """Of the memory tier's files with state in them: path -> whether a core file leaves it out."""
    found, path = {}, None
    for line in job.read(f"/proc/{pid}/smaps").splitlines():
        head = re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(.*)$", line)
        if head:
            path = head[1].replace(" (deleted)", "")
        elif line.startswith("VmFlags:") and path and path.startswith(place.shm) and STATE.search(path[len(place.shm):]):
            found[path] = found.get(path, True) and "dd" in line.split()
    return found


def main():
    checks = job.Checks()
    with job.Place() as place:
        work = os.path.join(place.root, "work")
        os.mkdir(work)
        preload = os.path.join(place.build, ".libs/libtranspckpt.so")
        start = job.Start(place, [*place.runner, place.trainer("gpt"), "--seed", "5", "--steps", "100000", "--save-every", "7", "--out", "out"], work,
                          {**place.environment, "LD_PRELOAD": preload}, "run")
        try:
            def mapped():
                trainer = mappings(place, start.process.pid)
                agent = {path: out for pid in place.agents() for path, out in mappings(place, pid).items()}
                names = " ".join(map(os.path.basename, trainer))
                return (trainer, agent) if "image" in names and "log" in names and agent else None

            trainer, agent = job.look_until(mapped, job.WAIT_SEC, 0.05, start.running) or ({}, {})
            checks.ok(trainer and agent, "snapshots and a record are mapped", start.said(), place.agent_log())
            for who, found in (("trainer", trainer), ("agent", agent)):
                dumped = [path for path, out in found.items() if not out]
                checks.ok(not dumped, f"the {who}'s core file has none of them", *dumped)
        finally:
            start.kill()
    checks.end()


main()
