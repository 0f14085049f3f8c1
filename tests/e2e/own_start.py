#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A start has two ways to go on: from a snapshot, or from a checkpoint that the trainer saved itself. Which it takes, what it says of it, and that
nothing of the other way is lost."""
import glob
import json
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job
import ranks

TRAINER = ["gpt", "--seed", "5", "--steps", "60", "--save-every", "7", "--resume"]
FROM = "gpt: .*, from step "


def trainer(place, *more, settings=None):
    this = job.Job(place, *TRAINER, *more, environment=settings)
    this.run_plain()
    return this


def begins_at(start):
    """The step of the trainer's own that it says it begins with; None: it does not say."""
    found = re.search(FROM + r"(\d+)", start.printed())
    return int(found[1]) if found else None


def said(start, what):
    return [line for line in start.said().splitlines() if re.search(what, line)]


def ends_alike(checks, this, start, what):
    status = start.wait()
    lines = this.differences(printed_too=False)
    checks.ok(status == 0 and not lines, what, f"status {status}", *lines, this.story())


def told_own(checks):
    """TRANSPCKPT_RESUME=own."""
    # What it reads back to save is more than the record holds: going forward needs what lies beside it.
    with job.Place(TRANSPCKPT_LOG_BYTES="16M") as place:
        this = trainer(place, "--save-every", "2")
        this.killed_at(30)
        # Without a snapshot of its own.
        own = this.start(environment={"TRANSPCKPT_RESUME": "own", "TRANSPCKPT_INTERVAL": "1000"})
        own.slowly_until(lambda: own.printed().count("\nstep ") >= 9)
        own.kill()
        checks.ok(begins_at(own) in range(28, 36) and not this.resumed_at(own), "told so, a start begins with the trainer's own checkpoint", this.story())
        lines = said(own, "not resuming at step")
        checks.ok(len(lines) == 1 and "TRANSPCKPT_RESUME=own" in lines[0] and "of generation 1" in lines[0], f"and one line says what is there: {lines}")
        # What the own start saved and wrote is taken back.
        forward = this.start(environment={"TRANSPCKPT_RESUME": "forward", "TRANSPCKPT_FORWARD_MAX_SEC": "0.001"})
        ends_alike(checks, this, forward, "what was there is there: the next start goes forward, and ends with the same bytes")
        checks.ok(this.resumed_at(forward) and said(forward, "resuming at step .* of generation 1"), "from the first run's snapshot, however long that is",
                  this.story())
    with job.Place() as place:
        this = trainer(place)
        this.killed_at(30)
        own = this.start(environment={"TRANSPCKPT_RESUME": "own"})
        ends_alike(checks, this, own, "a start with its own checkpoint that is not killed ends with the same bytes")
        checks.ok(begins_at(own), "which it began with", this.story())


def told_badly(checks):
    with job.Place() as place:
        this = job.Job(place, *TRAINER, environment={"TRANSPCKPT_RESUME": "onwards", "TRANSPCKPT_FORWARD_MAX_SEC": "never"})
        start = this.start()
        checks.ok(start.wait() == 0 and said(start, "onwards is not auto, forward, own, never, must or a step; using auto") and
                  said(start, "FORWARD_MAX_SEC"), "settings that are none are said", start.said())


def known(place):
    """What the store has of the program's own way to go on; of ranks the first one's."""
    for path in glob.glob(os.path.join(place.store, "j", "programs", "*.state")):
        found = json.loads(job.read(path) or "{}").get("own", {})
        if found.get("saves"):
            return found
    return {}


def settles(place, out):
    """All that has been saved is at its path, and known; it is written down a second later."""
    def there():
        if [row for row in json.loads(place.command("ls", "--files", "--json").stdout or "[]") if "path" in row]:
            return False
        done = {os.path.basename(path) for path in glob.glob(os.path.join(out, "DONE_*"))}
        return done and done <= {os.path.basename(row[0]) for row in known(place).get("saves", [])}
    return job.look_until(there, 30, 0.05)


def killed(this, iteration, ready=lambda: True, **environment):
    start = this.killed_at(iteration, ready=ready, environment={f"TRANSPCKPT_{name}": value for name, value in environment.items()})
    settles(this.place, this.out)
    return start


FIGURES = r"going forward takes some ([\d.]+) (?:m?s|min); the program's own checkpoint of step (\d+) \(\S+\) would take some ([\d.]+) s"
TAKEN = r"not resuming at step (\d+) of generation (\d+): going forward takes some ([\d.]+) s(.*); the program begins with its own checkpoint of step " \
        r"(\d+) \(\S+\), which takes some ([\d.]+) s$"


def chosen(checks):
    """The cheaper way, once a start was seen to load what an earlier one had saved."""
    with job.Place() as place:
        # Iterations that the device takes long for, and that run forward at once.
        this = trainer(place, "--steps", "400", "--save-every", "20", settings={"SIMGPU_KERNEL_US": "100"})
        killed(this, 30)
        first = killed(this, 30)
        checks.ok(this.resumed_at(first) and not said(first, "own checkpoint"), "a program that was never seen to load its own goes forward", this.story())
        own = killed(this, 60, ready=lambda: known(place).get("loads"), RESUME="own")
        checks.ok(begins_at(own), "told so, it begins with its own", this.story())
        # Forward was measured in the first timeline: it is the cheaper way.
        saved = {row[0]: os.stat(row[0]).st_mtime_ns for row in known(place)["saves"] if os.path.exists(row[0])}
        forward = killed(this, 15)
        kept = [path for path, when in saved.items() if os.path.exists(path) and os.stat(path).st_mtime_ns == when]
        checks.ok(kept, "what is right already keeps its time", saved)
        lines = said(forward, "resuming at step .*" + FIGURES)
        checks.ok(this.resumed_at(forward) and len(lines) == 1, f"forward is taken where it is cheaper: {lines}", this.story())
        figures = re.search(FIGURES, lines[0]) if lines else None
        checks.ok(figures and float(figures[1]) < float(figures[3]), "by the figures that it says")
        # As long as it may take is less.
        short = killed(this, 15, FORWARD_MAX_SEC="0.0001")
        lines = said(short, TAKEN)
        checks.ok(begins_at(short) and len(lines) == 1 and "and TRANSPCKPT_FORWARD_MAX_SEC is 0.0001" in lines[0],
                  f"the program's own is taken where forward may not take so long: {lines}", this.story())
        last = this.start(environment={"TRANSPCKPT_RESUME": "forward", "TRANSPCKPT_FORWARD_MAX_SEC": "0.0001"})
        ends_alike(checks, this, last, "and whatever was taken, the end is the same")
        checks.ok(this.resumed_at(last), "told to go forward, it does", this.story())
    with job.Place() as place:
        this = trainer(place, "--steps", "600", "--save-every", "5")
        killed(this, 20)
        # At once, as long as what it saved is owed still.
        this.killed_at(200, ready=lambda: known(place).get("loads"), environment={"TRANSPCKPT_RESUME": "own"})
        # Nobody has gone forward yet: it counts as the first run's time.
        cheaper = killed(this, 30)
        lines = said(cheaper, TAKEN)
        found = re.search(TAKEN, lines[0]) if len(lines) == 1 else None
        checks.ok(begins_at(cheaper) and not this.resumed_at(cheaper) and found and found[2] == "2" and float(found[6]) < float(found[3]),
                  f"the program's own is taken where it is cheaper: {lines}", this.story())
        # The checkpoint may be newer than the snapshot.
        checks.ok(found and int(found[1]) - int(found[5]) <= 6, f"it is the newest, by its step: {lines}")
        for _ in range(2):
            early = this.start()
            early.slowly_until(lambda early=early: said(early, "resuming at step"))
            early.kill()
            checks.ok(said(early, TAKEN) and not early.printed().count("\nstep "), "it is tried once more where a start does not get anywhere", early.said())
        last = this.start()
        ends_alike(checks, this, last, "and the end is the same")
        checks.ok(this.resumed_at(last) and not said(last, "own checkpoint"), "but not for ever: the next one goes forward", this.story())


def not_there(checks):
    """What was removed, changed or never loaded is not gone by."""
    with job.Place() as place:
        this = trainer(place, "--steps", "600", "--save-every", "5")
        killed(this, 20)
        killed(this, 200, ready=lambda: known(place).get("loads"), RESUME="own")
        for path in glob.glob(os.path.join(this.out, "*_*")):
            with open(path, "ab") as f:
                f.write(b"x")
        start = killed(this, 10)
        checks.ok(this.resumed_at(start) and not said(start, "own checkpoint"), "what somebody has changed is not what was saved", this.story())
    with job.Place() as place:
        this = job.Job(place, *[word for word in TRAINER if word != "--resume"], "--steps", "600", "--save-every", "5")
        killed(this, 20)
        own = killed(this, 150, ready=lambda: known(place).get("begin_sec"), RESUME="own")
        checks.ok(begins_at(own) == 0 and not known(place)["loads"], "a program that loads nothing is seen to load nothing", this.story())
        start = killed(this, 10)
        checks.ok(this.resumed_at(start) and not said(start, "own checkpoint"), "and goes forward, though that counts as the first run's time", this.story())


def of_ranks(checks):
    """All choose alike."""
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="0.3s") as place:
        # The ranks know nothing of each other, and one may run far ahead of the other.
        this = ranks.Ranks(place, 2, "--resume", "--save-every", "5", steps=20000)

        def kill(iterations, ready=lambda: True, **environment):
            before = dict(place.environment)
            place.environment.update({f"TRANSPCKPT_{name}": value for name, value in environment.items()})
            start = this.start()
            place.environment = before
            start.until(lambda: this.progress() >= iterations and this.common() and ready())
            if not start.running():
                print(f"# it ended by itself with {start.process.returncode}, at {this.progress()} iterations")
            start.kill()
            for rank in range(2):
                settles(place, os.path.join(this.work, f"r{rank}", "out"))
            begun = [re.search(FROM + r"(\d+)", job.read(os.path.join(this.said_in, f"out.{rank:02d}"))) for rank in range(2)]
            return [int(found[1]) if found else None for found in begun]

        kill(30)
        begun = kill(200, ready=lambda: known(place).get("loads"), RESUME="own")
        checks.ok(all(begun) and sum("TRANSPCKPT_RESUME=own" in text for text in this.said()) == 1,
                  f"two ranks that are told so begin with their own, steps {begun}, and one of them says so", this.story())
        begun = kill(60)
        checks.ok(all(begun) and sum(len(re.findall(TAKEN, text, re.M)) for text in this.said()) == 1 and not any(map(job.LIVE.search, this.said())),
                  f"both choose their own where it is cheaper, steps {begun}, and one of them says so", this.story())
        kill(20, RESUME="forward")
        ranks.one_step(checks, this, "told to go forward")
        kill(20, FORWARD_MAX_SEC="1000")
        live = {bool(job.LIVE.search(text)) for text in this.said()}
        checks.ok(len(live) == 1 and any(re.search(f"{FIGURES}|{TAKEN}", text, re.M) for text in this.said()),
                  "once both ways are measured they choose alike, and say by what", this.story())


CASES = {"told_own": told_own, "told_badly": told_badly, "chosen": chosen, "not_there": not_there, "of_ranks": of_ranks}


def main():
    checks = job.Checks()
    for case in sys.argv[1:] or CASES:
        CASES[case](checks)
    checks.end()


if __name__ == "__main__":
    main()
