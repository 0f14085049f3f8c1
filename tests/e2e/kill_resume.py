#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainers are killed at random moments and started again by the same command, and must end with the bytes of a run
that was never killed. Arguments: CASE[=KILLS]..., or none for a list of the cases.

Lost work is judged too: at most the iteration under way and the one being copied, once snapshots are taken and none
was skipped."""
import json
import os
import re
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

GPT = ["gpt", "--seed", "5", "--steps", "60", "--save-every", "7"]
CLASSIFIER = ["classifier", "--steps", "60", "--save-every", "9"]
RANKS = ["gpt_ranks", "--seed", "5", "--steps", "60", "--save-every", "7"]
GAN = ["gan", "--seed", "5", "--steps", "120", "--save-every", "9"]

CASES = {
    "gpt": GPT,
    # Slow copies: most kills hit a snapshot that is being taken, or put in place.
    "gpt-slow-copies": [*GPT, "--steps", "30"],
    "gpt-fused": [*GPT, "--fused"],
    "gpt-graph": [*GPT, "--graph"],
    "gpt-async-loss": [*GPT, "--async-loss"],
    "gpt-varlen": [*GPT, "--varlen"],
    "gpt-log-append": [*GPT, "--log-append"],
    "gpt-overwrite": [*GPT, "--overwrite"],
    "gpt-rename": [*GPT, "--overwrite", "--rename"],
    "gpt-save-best": [*GPT, "--save-best", "--eval-every", "5"],
    # What it reads back to save is more than the record holds; the agent, which brings it into the store, is killed too.
    "gpt-save-much": [*GPT, "--save-every", "2"],
    "gpt-own-resume": [*GPT, "--resume"],
    "gpt-accum": [*GPT, "--accum", "4", "--eval-every", "6"],
    "classifier": [*CLASSIFIER, "--seed", "5"],
    "classifier-drawn-seed": CLASSIFIER,
    "classifier-loader-thread": [*CLASSIFIER, "--seed", "5", "--loader-thread"],
    "classifier-churn": [*CLASSIFIER, "--seed", "5", "--churn"],
    # Device memory that the program maps itself, at the start and in between.
    "gpt-mapped": [*GPT, "--steps", "120"],
    "classifier-mapped-churn": [*CLASSIFIER, "--seed", "5", "--churn"],
    # Another thread takes and frees device memory.
    "gpt-freeing": [*GPT, "--steps", "120", "--async-loss"],
    # Another thread saves what the device copied to pinned memory, and gives that back.
    "gpt-pinned": [*GPT, "--steps", "120", "--async-loss"],
    # NCCL, with communicators of one rank.
    "ranks": RANKS,
    "ranks-chatty": [*RANKS, "--chatty"],
    "ranks-zero": [*RANKS, "--zero", "--chatty", "--accum", "3"],
    "gan": GAN,
    "gan-long-growth": [*GAN, "--growth", "20"],
    # Two extensions with a variable on the device of the same name each.
    "gan-extensions": [*GAN, "--augment", "augment.so", "--augment", "augment-too.so"],
}
WITNESSES = ("names", "pattern")


def own_checkpoint(this):
    """Leaves the trainer's own checkpoint of iteration 14 for both runs to begin with."""
    arguments = [a for a in this.arguments if a != "--resume"]
    for folder in (this.work, os.path.dirname(this.plain)):
        start = job.Start(this.place, [*this.runner, *arguments, "--stop-at", "14"], folder,
                          {k: v for k, v in this.environment.items() if not k.startswith("TRANSPCKPT_")}, "first")
        assert start.wait() == 0, start.said()
    this.base = 14


def forget_best(this):
    """The trainer says whether there was a best.bin when it made its own. A start without a snapshot begins anew, and
    finds the one of the start before, with the library and without."""
    if not any(kill.capturing for kill in this.kills):
        for _ in range(1000):
            if not [r for r in json.loads(this.place.command("ls", "--files", "--json").stdout or "[]") if "path" in r]:
                break
            time.sleep(0.01)
        try:
            os.unlink(os.path.join(this.out, "best.bin"))
        except FileNotFoundError:
            pass


def same_seed(this):
    """The seed that the first start drew is the one that the last one went on with; the plain run gets it."""
    seeds = re.findall(r"^seed (\d+)", job.read(os.path.join(this.out, "log.txt")), re.M)
    if len(seeds) == 1:
        this.run_plain("--seed", seeds[0])
    return len(seeds) == 1


def check(checks, rng, case, kills, tries=3):
    name, _, witness = case.partition(":")
    settings = {"TRANSPCKPT_INFER": witness} if witness else {}
    if name.endswith("slow-copies"):
        settings["SIMGPU_COPY_GBPS"] = "0.1"
    # Where it went on is judged: by a snapshot.
    if name == "gpt-own-resume":
        settings["TRANSPCKPT_RESUME"] = "forward"
    if name == "gpt-save-much":
        settings["TRANSPCKPT_LOG_BYTES"] = "16M"
    drawn = name == "classifier-drawn-seed"
    with job.Place(**settings) as place:
        # A kill wants some iterations before and after it.
        arguments = [*CASES[name], "--steps", str(10 * kills)] if kills > 8 else CASES[name]
        arguments = [place.trainer(a) if a.endswith(".so") else a for a in job.scaled(arguments)]
        this = job.Job(place, *arguments)
        for habit in ("mapped", "freeing", "pinned"):
            if f"-{habit}" in name:
                this.environment["LD_PRELOAD"] = job.built(place, f"{habit}.so", f"{habit}.c")
        if name == "gpt-own-resume":
            own_checkpoint(this)
        if not drawn:
            this.run_plain()
        else:
            this.plain_sec = 2.0
        plan = this.kill_plan(rng, kills)
        agent_too = (lambda: rng.random() < 0.5) if name == "gpt-save-much" else None
        status = this.run_killed(plan, agent_too, between=forget_best if name == "gpt-save-best" else None)
        # On a machine whose memory is slow just now all may have come before the first snapshot: that shows nothing.
        if tries > 1 and witness != "pattern" and status == 0 and len(this.kills) > 2 and not any(k.capturing for k in this.kills):
            print(f"# {case}: no kill found a snapshot; once more")
            return check(checks, rng, case, kills, tries - 1)
        if drawn and not checks.ok(same_seed(this), f"{case}: the seed is drawn once", this.story()):
            return
        # A run that began anew drew another seed, and its output is another; one with a checkpoint of its own says
        # where it begins.
        lines = this.differences(printed_too=not drawn, but="gpt: .*, from step " if this.base else None)
        this.tell()
        good = checks.ok(status == 0 and not lines, f"{case}: {len(this.kills)} kills, the same bytes",
                         f"status {status}", *lines, this.story())
        if witness == "pattern":
            return told_why(checks, this, case)
        refused = [line for start in this.starts for line in start.said().splitlines() if "cannot resume" in line]
        checks.ok(not refused, f"{case}: no start was refused", *refused)
        judged = [k for k in this.kills if k.judged]
        if good and len(this.kills) > 2:
            checks.ok(any(k.resumed for k in this.kills), f"{case}: it went on at a snapshot", this.story())
        if good and kills > 8:  # else the bound below might be no bound for any of them
            checks.ok(judged, f"{case}: {len(judged)} kills where no boundary was passed over", this.story())
        worst = max((k.lost for k in judged), default=0)
        checks.ok(worst <= 2, f"{case}: at most {worst} iterations lost to a kill", this.story())
    return None


def told_why(checks, this, case):
    """With names removed, either snapshots are taken, or `show` says why not, once it had iterations to learn from."""
    listed, reasons = len(this.place.listed()), []
    if not listed:
        # The program is not to end before what it says has been seen, on a busy machine either.
        start = this.start(arguments=[*this.arguments, "--steps", "5000"])
        start.until(lambda: start.printed().count("\nstep ") >= 30)

        def told():
            reasons[:] = [row["reason"] for row in this.place.shown() if row["running"]]
            return any(reasons) or this.place.listed()
        start.until(told, 60)
        listed = len(this.place.listed())
        start.kill()
    checks.ok(listed or any(reasons), f"{case}: snapshots, or the reason why not ({listed} listed, said: {reasons})",
              this.story())


def main():
    wanted = sys.argv[1:]
    if not wanted:
        print("\n".join(CASES))
        return
    checks, rng = job.Checks(), job.drawn_from()
    for one in wanted:
        case, _, kills = one.partition("=")
        check(checks, rng, case, int(kills or os.environ.get("KILLS") or 4))
    checks.end()


if __name__ == "__main__":
    main()
