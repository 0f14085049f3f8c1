#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 about=5s
"""What comes to NCCL of a trainer that is killed and goes on: communicators are made anew, and no collective, transfer or
group of the iterations before the snapshot is made again. The counts in the snapshot's index are those of the calls."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

# With --zero: buckets' reductions, one sum for the norm, buckets' gathers, the loss, and its way round in a group.
ARGUMENTS = ["gpt_ranks", "--seed", "5", "--steps", "60", "--zero", "--chatty"]


def taken(path):
    """What has been written, and the file is away: its name is a part of the program's environment."""
    text = job.read(path)
    os.unlink(path)
    return text


def main():
    checks = job.Checks()
    with job.Place() as place:
        tool = job.built(place, "nccl_calls.so", "nccl_calls.c", "-I" + os.path.join(os.environ.get("srcdir", "."), "tests/sim"))
        calls = os.path.join(place.root, "calls")
        this = job.Job(place, *ARGUMENTS, environment={"LD_PRELOAD": tool, "NCCL_CALLS": calls})
        this.run_plain()
        plain = taken(calls)
        this.killed_at(30)
        kept = [row for row in place.shown("--state") if row.get("state_of_snapshot")]
        before = taken(calls)
        second = this.start()
        status = second.wait()
        after = taken(calls)
        at = this.resumed_at(second)
        checks.ok(status == 0 and at and not this.differences(), "it went on at a snapshot, with the same bytes", status,
                  second.said())
        begin = "[I]"
        per_step = (len(plain) - len(begin) - 1) // 60  # at the end there is a barrier
        checks.ok(per_step > 8 and len(plain) == len(begin) + 60 * per_step + 1, f"a step has {per_step} calls",
                  plain[-2 * per_step:])
        checks.ok(plain.startswith(before[:per_step * 25]), "before the kill they are the plain run's")
        # The program asks for it in a group of its own while it runs forward, and nothing of that comes to NCCL.
        checks.ok(after.startswith("I") and after.count("I") == 1, "the communicator is made anew, by itself", after[:20])
        after = after[1:]
        checks.ok(plain.endswith(after), "then come the plain run's last ones", plain[:3 * per_step], after[:3 * per_step])
        left = len(plain) - len(begin) - len(after)  # not made again
        checks.ok(at and (at - 1) * per_step < left <= (at + 1) * per_step,
                  f"those of {at} iterations, {left} calls, are not made again")
        if checks.ok(len(kept) == 1 and "communicators" in kept[0]["state_of_snapshot"], "the snapshot lists communicators", kept):
            listed = kept[0]["state_of_snapshot"]["communicators"]
            step = kept[0]["held_step"]
            whole = sum(map(plain[:len(begin) + per_step].count, "arg"))
            checks.ok(len(listed) == 1 and listed[0]["size"] == 1 and listed[0]["rank"] == 0 and
                      (step - 1) * whole < listed[0]["collectives"] <= (step + 1) * whole,
                      f"{whole} collectives an iteration, step {step}", listed)
            peers = listed[0]["peers"] if listed else []
            checks.ok(len(peers) == 1 and peers[0]["peer"] == 0 and peers[0]["sends"] == peers[0]["receives"] and
                      abs(peers[0]["sends"] - step) <= 1, "and a transfer each", peers)
    own(checks)
    graph(checks, sum(map(plain[:len(begin) + per_step].count, "arg")))
    trouble(checks)
    checks.end()


def own(checks):
    """Where programs have NCCL's own handles a communicator is made when it is asked for, running forward too."""
    with job.Place() as place:
        tool = job.built(place, "nccl_calls.so", "nccl_calls.c", "-DNEWER", "-I" + os.path.join(os.environ.get("srcdir", "."), "tests/sim"))
        calls = os.path.join(place.root, "calls")
        this = job.Job(place, *ARGUMENTS, environment={"LD_PRELOAD": tool, "NCCL_CALLS": calls})
        this.run_plain()
        this.killed_at(30)
        taken(calls)
        second = this.start()
        status = second.wait()
        after = taken(calls)
        checks.ok(status == 0 and this.resumed_at(second) and not this.differences(), "NCCL's own handles: it went on at a snapshot, with the same bytes",
                  status, second.said())
        checks.ok(after.startswith("[I]") and after.count("I") == 1, "and the communicator is made when the program asks for it", after[:20])


def graph(checks, whole):
    """What is captured into a graph is counted at each launch, running forward too."""
    with job.Place() as place:
        this = job.Job(place, *ARGUMENTS, "--graph")
        this.run_plain()
        this.killed_at(30)
        kept = [row for row in place.shown("--state") if row.get("state_of_snapshot")]
        second = this.start()
        status = second.wait()
        checks.ok(status == 0 and this.resumed_at(second) and not this.differences(), "a graph: it went on at a snapshot, with the same bytes",
                  status, second.said())
        listed = kept[0]["state_of_snapshot"].get("communicators") if kept else None
        if checks.ok(listed and listed[0]["peers"] and kept[0]["held_step"] > 15, "it was held late enough for a call each to show", kept):
            step, peer = kept[0]["held_step"], listed[0]["peers"][0]
            checks.ok((step - 1) * whole < listed[0]["collectives"] <= (step + 1) * whole and abs(peer["sends"] - step) <= 1 and
                      peer["sends"] == peer["receives"], f"{whole} collectives and a transfer an iteration, step {step}", listed)


def trouble(checks):
    """An error of NCCL's is one line of the library's, and what `show` says of the process afterwards."""
    with job.Place(SIMGPU_FAULT="nccl_error@300", TRANSPCKPT_LINGER_SEC="60") as place:
        this = job.Job(place, *ARGUMENTS, "--watch")
        start = this.start()
        seen = []
        start.until(lambda: seen.extend(row["trouble"] for row in place.shown() if row.get("trouble")) or seen)
        status = start.wait()
        lines = [line for line in start.said().splitlines() if "NCCL" in line]
        wanted = "NCCL on rank 0 of communicator 0, of 1 ranks: unhandled system error"
        checks.ok(status == 4 and lines == ["transpckpt: " + wanted], "an error is one line", status, start.said())
        seen += [row["trouble"] for row in place.shown() if row.get("trouble")]
        checks.ok(wanted in seen, "and show has it", seen, place.command("show").stdout)


main()
