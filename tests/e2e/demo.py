#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the small GPT plain, then under `transpckpt run` with kills, and prints what happened and whether both ended
with the same bytes. Environment: builddir."""
import hashlib
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

TIMES = int(os.environ.get("TPCK_TEST_TIMES") or 1)  # on hardware an iteration is short
STEPS = 150 * TIMES
# When each start is killed: at an iteration, or while it runs forward.
PLAN = [("at iteration", 12 * TIMES), ("at iteration", 45 * TIMES), ("while running forward", 0), ("at iteration", 80 * TIMES),
        ("while it saves", 100 * TIMES), ("at iteration", 140 * TIMES)]


def until_moment(this, start, how, goal):
    if how == "while running forward":
        start.until(lambda: this.is_resuming(start))
        time.sleep(0.005)
        return
    start.until(lambda: this.is_far_enough(start, goal))
    if how == "while it saves":
        first = set(os.listdir(this.out))
        start.until(lambda: set(os.listdir(this.out)) - first)


def resume_times(start, live_at):
    """Seconds of start, forward and inject."""
    said = job.LIVE.search(start.said())
    if not said:
        return None
    forward, inject = float(said[2]), float(said[3])
    return max(live_at - start.begun - forward - inject, 0), forward, inject


def watch_live(start):
    """When it went live, as exactly as one can look from outside."""
    start.until(lambda: "live at" in start.said() or start.printed())
    return time.monotonic()


def ms(seconds):
    return f"{seconds * 1e3:.0f} ms"


def row(*cells):
    print("  {:>5}  {:<22} {:>9} {:>10} {:>8} {:>6}   {}".format(*cells), flush=True)


def describe_start(this, start, live_at):
    times = resume_times(start, live_at)
    at = this.resumed_at(start)
    if times:
        return f"at {at}: start {ms(times[0])}, forward {ms(times[1])}, inject {ms(times[2])}"
    return "from the beginning" if start.printed() else "killed before it went on"


def main():
    begun = time.monotonic()
    print("A small GPT (character level, AdamW, dropout, gradient clipping) is trained on licence texts, on "
          f"{'a GPU' if job.HARDWARE else 'a software device'}:\n"
          "first left alone, then under `transpckpt run` and killed with SIGKILL again and again. The same command\n"
          "starts it each time. The trainer knows nothing of all this.\n")
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="20") as place:
        this = job.Job(place, "gpt", "--seed", "7", "--steps", str(STEPS), "--save-every", str(20 * TIMES))
        this.run_plain()
        print(f"plain run: {STEPS} iterations in {this.plain_sec:.1f} s\n")
        print(f"$ TRANSPCKPT_INTERVAL=1 transpckpt run -- {' '.join(['gpt', *this.arguments[1:]])}")
        row("start", "killed", "iteration", "snapshots", "stall", "lost", "went on")
        stories = []
        for number, (how, goal) in enumerate([*PLAN, (None, 0)], 1):
            start = this.start()
            live_at = 0 if how == "while running forward" else watch_live(start)
            if how:
                until_moment(this, start, how, goal)
                start.kill()
                this.after_start(start)
                kill = this.after_kill(how)
                this.kills.append(kill)
            else:
                status = start.wait()
                this.after_start(start)
                kill = None
            # What it took snapshots of, if it came so far.
            new = kill and kill.generation not in [k.generation for k in this.kills[:-1]]
            shown = new and max((r for r in place.shown() if "pid" in r), key=lambda r: r["generation"], default=None)
            notes = shown["notes"] if shown else {"captured": 0, "stall_ns_max": 0}
            stories.append((number, how or "ended by itself", kill, notes, describe_start(this, start, live_at)))
        for number, how, kill, notes, went_on in stories:
            stall = f"{notes['stall_ns_max'] / 1e3:.0f} us" if notes["captured"] else "-"
            row(number, how, kill.at if kill else STEPS, notes["captured"] or "-", stall,
                kill.lost if kill and kill.lost is not None else "-", went_on)
        print("\n  stall: longest time that the trainer's thread spent in the library at an iteration's end\n"
              "  lost: iterations that the next start had to compute again\n"
              "  start, forward, inject: to the resume's begin; the program's CPU side without the device; state put back\n")
        lines = this.differences(printed_too=False)
        for name in ("final.bin", "log.txt"):
            with open(os.path.join(this.plain, name), "rb") as f:
                digest = hashlib.sha256(f.read()).hexdigest()[:16]
            other = not status and os.path.exists(os.path.join(this.out, name))
            if other:
                with open(os.path.join(this.out, name), "rb") as f:
                    other = hashlib.sha256(f.read()).hexdigest()[:16]
            print(f"  {name:10} plain {digest}   killed {len(this.kills)} times {other}   "
                  f"{'equal' if other == digest else 'DIFFERENT'}")
        for line in lines:
            print(f"  {line}")
        same = status == 0 and not lines
        print(f"\n{'Every file of both runs is equal, byte for byte.' if same else 'The runs differ.'} "
              f"({time.monotonic() - begun:.0f} s)")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
