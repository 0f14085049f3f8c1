#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 minutes=20 about=97s
"""Jobs of several ranks on one node: killed and started again by the same command, they go on at one step, all of them
or none, and end with the bytes of a run that was never killed. Arguments: cases, or none for all.

In some cases the ranks know nothing of each other and drift apart, which is harder for whoever has to find a common step
than ranks that meet in every iteration. In `layouts` they train one model together, by NCCL."""
import os
import re
import shutil
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

LAUNCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../trainers/launch.py")
WHERE = re.compile(r"resuming at step (\d+) of generation (\d+)")


class Ranks:
    """The job and its plain twin. Each rank has a folder, and a seed, of its own; together: they train one model."""

    def __init__(self, place, ranks, *more, steps=300, settings="", together=False):
        self.place, self.ranks, self.starts, self.together, self.steps = place, ranks, 0, together, steps
        self.plain, self.work = (os.path.join(place.root, name) for name in ("plain", "work"))
        self.command = (f'exec %s "{place.trainer("gpt_ranks")}" --seed 3 --steps {steps} --save-every 20 --width 16 '
                        f'--context 16 --bigrams 64 --out out {" ".join(more)}') if together else (f'cd r$RANK && {settings} exec %s "{place.trainer("gpt")}" --seed 5$RANK --steps {steps} '
                        f'--save-every 7 --out out {" ".join(more)}')
        for folder in (self.plain, self.work):
            for rank in range(ranks):
                os.makedirs(os.path.join(folder, f"r{rank}"))

    def begin(self, folder, environment, how):
        self.said_in = os.path.join(folder, f"said{self.starts}")
        self.starts += 1
        return job.Start(self.place, [*self.place.runner, sys.executable, LAUNCH, "--outputs", self.said_in, str(self.ranks),
                                      "sh", "-c", self.command % how], folder, environment, f"start{self.starts}")

    def run_plain(self):
        environment = {k: v for k, v in self.place.environment.items() if not k.startswith("TRANSPCKPT_")}
        begun = time.monotonic()
        status = self.begin(self.plain, environment, "").wait()
        if status != 0:
            raise RuntimeError(f"the plain run ended with {status}: {self.said()}")
        self.took = time.monotonic() - begun

    def start(self):
        return self.begin(self.work, self.place.environment,
                          os.path.join(self.place.build, "transpckpt") + " run --")

    def said(self):
        """What each rank said in the newest start."""
        return [job.read(os.path.join(self.said_in, f"err.{rank:02d}")) for rank in range(self.ranks)]

    def progress(self):
        """Iterations of the slowest rank that says so in the newest start."""
        return (max if self.together else min)(len(re.findall(r"^step ", job.read(os.path.join(self.said_in, f"out.{rank:02d}")), re.M))
                                                for rank in range(self.ranks))

    def at_end(self, of=all):
        """Whether every rank that says so (of: any, one of them) may have made its last step: an ended one has nothing to go on from."""
        said = [re.findall(r"^step (\d+) ", job.read(os.path.join(self.said_in, f"out.{rank:02d}")), re.M) for rank in range(self.ranks)]
        return of(not steps or int(steps[-1]) >= self.steps - 2 for steps in said) and any(said)

    def common(self):
        """Whether a step of all ranks can be had."""
        return any(row["offered"] and row["state"] != "held" for row in self.place.listed())

    def differences(self):
        if self.together:
            return job.differences(os.path.join(self.plain, "out"), os.path.join(self.work, "out"))
        found = []
        for rank in range(self.ranks):
            folders = (os.path.join(folder, f"r{rank}", "out") for folder in (self.plain, self.work))
            found += [f"rank {rank}: {line}" for line in job.differences(*folders)]
        return found

    def one_of_them(self, start, rank):
        """The process of a rank."""
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{int(entry)}/environ", "rb") as f:
                    if f"RANK={rank}".encode() in f.read().split(b"\0") and os.getpgid(int(entry)) == start.process.pid:
                        return int(entry)
            except (OSError, ValueError):
                pass
        return None

    def story(self):
        return "\n".join([f"rank {rank}: {line}" for rank, text in enumerate(self.said()) for line in text.splitlines()] +
                         self.place.agent_log().splitlines()[-40:])


def one_step(checks, this, what):
    """All ranks went on, and at the same step of the same generation."""
    found = [WHERE.search(text) for text in this.said()]
    live = [bool(job.LIVE.search(text)) for text in this.said()]
    return checks.ok(all(found) and all(live) and len({m.groups() for m in found}) == 1,
                     f"{what}: all ranks went on at step {found[0][1] if found[0] else '?'}",
                     *[m and m.groups() for m in found], this.story())


def begin_killing(this, rng, kind):
    """One start that is killed in this way at a random moment after it came to something. False: it ended by itself."""
    start = this.start()
    start.until(lambda: this.progress() >= 3)
    start.until(this.common)
    time.sleep(rng.random() * this.took / 8)
    if not start.running():
        return False
    if kind == "rank":
        pid = this.one_of_them(start, rng.randrange(this.ranks))
        if pid:
            job.signal_if_there(pid)
        return start.wait() != 0 and not this.at_end()
    if kind == "agent":
        # The next one adopts what is there while the ranks go on; then everything dies.
        this.place.signal_agents()
        time.sleep(rng.random() * 0.6)
    if kind == "node":
        # The node's memory is gone: what is durable is what there is.
        start.until(lambda: any(row["state"] == "durable" and row["offered"] for row in this.place.listed()))
        this.place.signal_agents()
    try:
        start.kill()
    except ProcessLookupError:
        start.process.wait()
    if kind == "node":
        this.place.signal_agents()
        shutil.rmtree(os.path.join(this.place.shm, "j"), ignore_errors=True)
    return start.process.returncode != 0 and not this.at_end()


def kills(checks, rng, ranks, kinds, *more, steps=300, **options):
    """A machine that is busy may come to the end before there is anything to kill: then with more steps."""
    for times in (1, 3, 9):
        if kills_within(checks, rng, ranks, kinds, *more, steps=steps * times, last=times == 9, **options):
            break


def kills_within(checks, rng, ranks, kinds, *more, steps, last, together=False, **settings):
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="0.3s", **settings) as place:
        this = Ranks(place, ranks, *more, steps=steps, together=together)
        this.run_plain()
        what = ", ".join([f"{ranks} ranks", *more, *(f"{k[11:].lower()} {v}" for k, v in settings.items() if k.startswith("TRANSPCKPT_"))])
        for i, kind in enumerate(kinds):
            killed = begin_killing(this, rng, kind)
            if not killed and not last:
                return False
            if i:
                one_step(checks, this, f"{what}: after death of {kinds[i - 1]}")
            if not checks.ok(killed, f"{what}: death of {kind}", this.story()):
                return True
        start = this.start()
        status = start.wait()
        one_step(checks, this, f"{what}: after death of {kinds[-1]}")
        # A part of a file that was being written when the node's memory went is nobody's any more.
        lines = [line for line in this.differences() if ".part should not" not in line or "node" not in kinds]
        checks.ok(status == 0 and not lines, f"{what}: {len(kinds)} deaths, the same bytes", f"status {status}", *lines, this.story())
        return True


def every_step(checks, rng):
    kinds = ["rank", "job", "agent", "node"]
    rng.shuffle(kinds)
    kills(checks, rng, 3, kinds)


def layouts(checks, rng):
    """Data parallel, a sharded optimizer, tensor and pipeline parallel, and all of them at once; two of these, unless LAYOUTS=all."""
    every = [(2, 400, []), (4, 200, ["--zero", "--chatty"]), (2, 200, ["--tp 2"]), (2, 250, ["--pp 2"]), (8, 60, ["--tp 2", "--pp 2"])]
    for ranks, steps, more in every if os.environ.get("LAYOUTS") == "all" else rng.sample(every, 2):
        kills(checks, rng, ranks, rng.sample(["rank", "job", "agent", "node"], 1 if ranks > 4 else 2), *more, steps=steps,
              together=True)


def by_the_clock(checks, rng):
    """Where clocks decide when a snapshot is due, ranks would never take the same step by themselves. One of two ways, unless LAYOUTS=all."""
    every = [{"TRANSPCKPT_INTERVAL": "auto", "TRANSPCKPT_OVERHEAD": "20"}, {"TRANSPCKPT_INTERVAL": "0.05s"}]
    # Steps that take long and cost little: where they are short a run is over before a snapshot is due, and another one has more of them.
    for settings in every if os.environ.get("LAYOUTS") == "all" else rng.sample(every, 1):
        kills(checks, rng, 2, ["job", "rank"], **settings, SIMGPU_KERNEL_US="60", SIMGPU_TOGETHER_US="4000")


def seldom(checks, rng):
    """A rank that has no image free leaves a step out: then nobody has it, and the ones before stay."""
    kills(checks, rng, 2, ["job", "job"], TRANSPCKPT_INTERVAL="3")


def diverges(checks, _):
    """What one rank reads is no longer what it was: both try once more, start over, and end like a plain run of it. A rank that
    begins late on a busy machine may find the other one at its end: then with more steps."""
    for steps in (300, 900, 2700):
        if diverges_within(checks, steps):
            return
    checks.ok(False, "one rank differs: killed before a rank had ended")


def diverges_within(checks, steps):
    with job.Place() as place:
        this = Ranks(place, 2, "--data data.txt", steps=steps)
        for folder in (this.plain, this.work):
            for rank in range(2):
                with open(os.path.join(folder, f"r{rank}", "data.txt"), "wb") as f:
                    f.write(b"some text that is learnt from, again and again. " * 1000)
        start = this.start()
        start.slowly_until(lambda: this.progress() >= 30 and this.common())
        start.kill()
        if this.at_end(any):
            return False
        for folder in (this.plain, this.work):
            path = os.path.join(folder, "r1", "data.txt")
            found = os.stat(os.path.join(this.work, "r1", "data.txt"))
            with open(path, "r+b") as f:
                f.seek(9000)
                f.write(b"#" * 20000)
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
        this.run_plain()
        status = this.start().wait()
        lines = this.differences()
        checks.ok(status == 0 and not lines, "one rank differs: both end like a plain run", f"status {status}", *lines, this.story())
        refused = [[line for line in text.splitlines() if "cannot resume" in line] for text in this.said()]
        checks.ok([len(r) for r in refused] == [2, 2] and all("another rank" in line for line in refused[0]) and
                  all("iteration" in line for line in refused[1]) and all(r[0].endswith("trying once more") for r in refused),
                  f"each says why, and again when it was tried once more: {refused}", this.story())
        return True


def elsewhere(checks, _):
    """Ranks on other nodes are out of this agent's sight: one line, and no snapshot."""
    with job.Place() as place:
        this = Ranks(place, 2, steps=40, settings="export LOCAL_WORLD_SIZE=1;")
        this.run_plain()
        status = this.start().wait()
        lines = this.differences()
        checks.ok(status == 0 and not lines and not place.listed(), "ranks on other nodes: trained, no snapshot",
                  f"status {status}", *lines, this.story())
        checks.ok(all(text.count("on other nodes") == 1 for text in this.said()), "and one line a rank", this.story())


SINCE = r"no iteration has ended since [\d:]{8}: "


def waiting(checks, _):
    """Ranks that do not get on: it is said which one the others wait for, or that none is behind, and that they go on."""
    def told():
        return sorted({row["waiting"] for row in place.shown() if row.get("waiting")})

    def shows(start, pattern, what):
        wanted = re.compile(SINCE + pattern + "$")
        found = start.until(lambda: any(wanted.match(text) for text in told()), 60)
        now = told()
        checks.ok(found and len(now) == 1, what, now, this.story())
        checks.ok(now and now[0] in place.command("top", "-n", "1").stdout, "and top shows it", now)

    queued = r" has not queued collective \d+ of communicator 0(, ncclAllReduce of \d+ elements)?; rank 0 queued it"
    with job.Place(TRANSPCKPT_STALL_SEC="1") as place:
        this = Ranks(place, 2, "--late 1:150:8", together=True)
        this.run_plain()
        start = this.start()
        shows(start, "rank 1" + queued, "a rank whose data do not come")
        start.until(lambda: this.progress() > 151)
        pid = this.one_of_them(start, 1)
        if not checks.ok(pid, "it goes on", this.story()):
            return
        os.kill(pid, signal.SIGSTOP)
        stopped = rf"rank 1 \(process {pid}, which is stopped\)"
        shows(start, f"{stopped}({queued}| may hold up the others; every rank has queued the same collectives)", "one that is stopped")
        os.kill(pid, signal.SIGCONT)
        status = start.wait()
        log = place.agent_log()
        checks.ok(status == 0 and not this.differences() and log.count("no iteration has ended") >= 2 and
                  log.count("no iteration has ended") == log.count("the ranks go on after"), "they go on, and it is said", status, this.story())
    with job.Place(TRANSPCKPT_STALL_SEC="1", SIMGPU_FAULT="nccl_stall@200:6000/1") as place:
        this = Ranks(place, 2, together=True)
        start = this.start()
        shows(start, r"every rank has queued the same collectives; the first to call NCCL no more was rank [01], after nccl\w+ of \d+ "
              "elements on communicator 0", "a device that does not get on")
        checks.ok(start.wait() == 0, "and does", this.story())


CASES = {"every_step": every_step, "layouts": layouts, "by_the_clock": by_the_clock, "seldom": seldom, "diverges": diverges, "waiting": waiting, "elsewhere": elsewhere}


def main():
    checks, rng = job.Checks(), job.drawn_from()
    for name in sys.argv[1:] or CASES:
        CASES[name](checks, rng)
    checks.end()


if __name__ == "__main__":
    main()
