#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 memory=2G about=100s minutes=20
"""A trainer that has a twin: killed again and again it goes on without being started anew, with the bytes of a run that was left alone. Whoever
started it sees one process, with the status of the program. What becomes of the twin does not touch the program.

  twin.py [STAGE...]     environment: SEED

Without arguments those of ALWAYS, and three others, other ones each time."""
import ctypes
import glob
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import time

import job
import twins

STEPS = 1200
ALWAYS = ("killed", "anyhow", "ends", "programs", "second")
checks = job.Checks()


def trainer(place, name="gpt", steps=STEPS, *more):
    return job.Job(place, name, "--seed", "7", "--steps", str(steps), "--save-every", "20", *more)


def start_of(this, *under, environment=None, name="start0", options=("--twin",)):
    argv = [*this.runner, *under, os.path.join(this.place.build, "transpckpt"), "run", *options, "--", *this.arguments]
    return job.Start(this.place, argv, this.work, {**this.environment, **(environment or {})}, name)


def said_otherwise(start):
    """What it said, but for takeovers and what is taken of its files."""
    return [line for line in start.said().splitlines() if line.startswith("transpckpt: ") and
            not re.search(r"takes over$|live at step|: learnt: |repeats itself: ", line)]


def ended_equal(this, start, what, status=0, takeovers=None):
    got = start.wait()
    wrong = [] if got == status else [f"status {got}"]
    wrong += job.differences(this.plain, this.out)
    if takeovers is not None and twins.taken_over(start) != takeovers:
        wrong.append(f"{twins.taken_over(start)} takeovers, not {takeovers}")
    checks.ok(not wrong, what, f"{wrong} {start.said()[-800:]}")


def killed_again_and_again(rng):
    """By several signals that nobody sends to end a program, the first as soon as there is a twin."""
    with job.Place() as place:
        this = trainer(place)
        this.run_plain()
        start, killed = start_of(this), 0
        leader = start.process.pid
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGKILL, signal.SIGABRT):
            killed += twins.kill(start, rng.uniform(0, 0.3) if killed else 0, number)
        checks.ok(start.running() and start.process.pid == leader, "the process that was started is the same all the time")
        ended_equal(this, start, f"{killed} kills: the same bytes, and as many takeovers", takeovers=killed)
        checks.ok(not said_otherwise(start), "nothing else is said", said_otherwise(start), start.said()[-2000:], place.agent_log()[-6000:])
        left = [name for name in os.listdir(os.path.join(place.shm, "j")) if name.startswith("twin.")] if os.path.isdir(os.path.join(place.shm, "j")) else []
        checks.ok(not left, "nothing of the twins is left in memory", left)


def killed_anyhow(rng):
    """At moments at which there may be no twin, also while one takes over and while the program goes forward: it is forked once more then."""
    with job.Place() as place:
        this = trainer(place, steps=3000)
        this.run_plain()
        start = start_of(this)
        leader = start.process.pid
        start.until(lambda: this.progress() > 30)
        killed = 0
        for i in range(12):
            # There is no twin right behind a takeover.
            time.sleep(rng.uniform(0, 0.4) if i % 2 == 0 else 0)
            for living in twins.processes(start)[:1]:
                killed += living is not None and job.signal_if_there(living, rng.choice((signal.SIGKILL, signal.SIGSEGV)))
            if not start.running():
                break
            # A guard against programs that die for ever counts those on their way, and those that come no further.
            at = this.progress()
            start.until(lambda: this.progress() > at + 3, 30)  # pylint: disable=cell-var-from-loop
        checks.ok(start.process.pid == leader, "the process that was started is the same all the time")
        ended_equal(this, start, f"killed {killed} times, with a twin or without: the same bytes")
        noted = job.read(os.path.join(place.store, "j", "history")) + job.read(os.path.join(place.shm, "j", "history"))
        checks.ok(re.search(r'"by": ?"supervisor", ?"after": ?"process"', noted), "and the history says so", noted[-600:])
        checks.ok("is forked once more in its place" in start.said(), "without a twin the program is forked once more, and a line says so", start.said()[-1500:])


def not_forever():
    """What dies at one place ends there, and nobody begins from the start what cannot go on."""
    with job.Place() as place:
        this = trainer(place, steps=100000)
        start = start_of(this)
        start.until(lambda: this.progress() > 30)
        deaths = 0
        while start.running() and deaths < 30:
            living = job.look_until(lambda: twins.processes(start)[0], 30, 0.001, start.running)
            deaths += living is not None and job.signal_if_there(living)
            job.look_until(lambda: twins.processes(start)[0] != living, 30, 0.001, start.running)  # pylint: disable=cell-var-from-loop
        status = start.wait(30)
        checks.ok(status == -signal.SIGKILL and 2 <= deaths <= 8, f"killed as soon as it is there, {deaths} times: it ends as it died", status, start.said()[-1500:])
        before = this.progress()
        start = start_of(this, name="again")
        checks.ok(start.until(lambda: this.progress() > before), "and the same command goes on", start.said()[-600:])
        start.process.terminate()
        start.wait()


def large_record():
    """Segments of the record that are packed go from the twin's memory, too; it takes over all the same, and so does the next one, which has to unpack them."""
    with job.Place(TRANSPCKPT_LOG_BYTES="64M") as place:
        # Some 370 KiB an iteration.
        this = trainer(place, "gpt", 3500, "--check-zeros")
        this.run_plain()
        start = start_of(this)

        def packs():
            return len(glob.glob(os.path.join(place.store, "j/keep/*/pack.*")))

        def held(pid):
            """MiB of the record that the process has in memory, with and without names."""
            found, counts = 0, False
            for line in job.read(f"/proc/{pid}/smaps").splitlines():
                if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                    counts = "/log." in line
                elif counts and line.startswith("Rss:"):
                    found += int(line.split()[1]) / 1024
            return found
        for number, goal in enumerate((6, 10)):
            start.until(lambda: packs() >= goal and twins.covered(start))  # pylint: disable=cell-var-from-loop
            twin = twins.processes(start)[1]
            # One of those that it has unpacked goes each second.
            spilled = start.until(lambda: held(twin) <= 40 and len(re.findall(r"j/keep/\S+ \(deleted\)", job.read(f"/proc/{twin}/maps"))) >= goal - 3, 30)  # pylint: disable=cell-var-from-loop
            checks.ok(spilled, f"of {16 * goal} MiB of the record that are packed the twin has {held(twin):.0f} in memory", job.read(f"/proc/{twin}/maps")[-3000:])
            twins.kill(start)
            start.until(lambda: twins.taken_over(start) > number)  # pylint: disable=cell-var-from-loop
            # The twin is the living one now.
            back = start.until(lambda: not re.search(r"j/keep/\S+ \(deleted\)", job.read(f"/proc/{twin}/maps")) or not start.running(), 30)  # pylint: disable=cell-var-from-loop
            checks.ok(back and start.running(), "a process that is live has none of it in files", job.read(f"/proc/{twin}/maps")[-3000:])
        ended_equal(this, start, "and takes over with the same bytes", takeovers=2)


def has_second(rng):
    """Two twins: one takes over, and the other one goes on following, so that the next end has a twin, too, however soon it comes."""
    with job.Place(TRANSPCKPT_TWIN="2") as place:
        this = trainer(place, steps=6000)
        this.run_plain()
        start = start_of(this, options=())

        def pair():
            living, there = twins.living_and_twins(start)
            return (living, there) if living and len(there) == 2 else None

        def live():
            return start.said().count("live at step")
        for number in range(2):
            start.until(pair)
            start.until(lambda: this.progress() > 400 * (number + 1))  # pylint: disable=cell-var-from-loop
            living, there = pair() or (None, [])
            told = place.command("show").stdout
            named = re.search(r"twin: process (\d+) has repeated .*; process (\d+) is another twin", told)
            checks.ok(named and sorted(map(int, named.groups())) == sorted(there), "two twins follow, and show names both", there, told[:2000])
            before = live()
            job.signal_if_there(living)
            start.until(lambda: live() > before)  # pylint: disable=cell-var-from-loop
            taker = twins.living_and_twins(start)[0]
            left = [pid for pid in there if pid != taker]
            if number == 0:
                # The process that took over may hold no snapshot of its own yet.
                job.signal_if_there(taker)
                checks.ok(start.until(lambda: live() > before + 1) and twins.living_and_twins(start)[0] == left[0],  # pylint: disable=cell-var-from-loop
                          "the one that took over is killed at once: the other twin takes over", start.said()[-1500:])
            else:
                at = this.progress()
                start.until(lambda: this.progress() > at + 100)  # pylint: disable=cell-var-from-loop
                checks.ok(left[0] in twins.living_and_twins(start)[1], "the other twin follows the one that has taken over", start.said()[-1500:])
                shown = [row["twin"] for row in place.shown() if row["pid"] == taker and row.get("twin")]
                checks.ok(shown and shown[0]["proven"] > at, "as near as the program", at, shown)
                # The one that has begun since does not hide what becomes of that one.
                for pid in twins.living_and_twins(start)[1]:
                    if pid != left[0]:
                        job.signal_if_there(pid)
                before = live()
                job.signal_if_there(taker)
                checks.ok(start.until(lambda: live() > before) and twins.living_and_twins(start)[0] == left[0],  # pylint: disable=cell-var-from-loop
                          "and takes over from it", start.said()[-1500:])
        start.until(pair)
        # While one is on its way the other one has nothing to do with it.
        job.signal_if_there(pair()[0])
        start.until(lambda: twins.taken_over(start) == 4 or start.said().count("takes over") == 5)
        time.sleep(rng.uniform(0, 0.05))
        job.signal_if_there(twins.living_and_twins(start)[0])
        ended_equal(this, start, "one of them is killed as it takes over: the same bytes")
        checks.ok("forked once more" not in start.said(), "and the program is not forked once more in its place", start.said()[-2500:])


def of_shell():
    """What a shell executes in its place."""
    with job.Place() as place:
        this = trainer(place, steps=600)
        this.run_plain()
        this.arguments = ["sh", "-c", 'exec "$0" "$@"', *this.arguments]
        start = start_of(this)
        twins.kill(start)
        ended_equal(this, start, "a program that a shell executes in its place has a twin", takeovers=1)


def agent_dies_too():
    """The agent and the living one at one moment."""
    with job.Place() as place:
        this = trainer(place)
        this.run_plain()
        start = start_of(this)
        start.until(lambda: twins.covered(start) and this.progress() > 20)
        for agent in place.agents():
            job.signal_if_there(agent, signal.SIGKILL)
        twins.kill(start)
        ended_equal(this, start, "the agent is killed with the program: the same bytes", takeovers=1)


def twin_is_hurt():
    with job.Place() as place:
        this = trainer(place, steps=600)
        this.run_plain()
        start = start_of(this)
        start.until(lambda: twins.covered(start))
        first = twins.processes(start)[1]
        job.signal_if_there(first, signal.SIGKILL)
        checks.ok(start.until(lambda: twins.covered(start) and twins.processes(start)[1] != first), "a twin that is killed has a successor")
        os.kill(twins.processes(start)[1], signal.SIGSTOP)
        at = this.progress()
        checks.ok(start.until(lambda: this.progress() > at + 20), "the program goes on beside a twin that is stopped")
        twins.kill(start)
        ended_equal(this, start, "and a stopped one takes over all the same", takeovers=1)


def ends():
    """Statuses, and signals that are sent to end a program."""
    with job.Place() as place:
        this = trainer(place, steps=100000)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            start = start_of(this, name=f"by{number}")
            start.until(lambda: twins.covered(start))
            start.process.send_signal(number)
            checks.ok(start.wait() == -number and "takes over" not in start.said(), f"signal {number} to the supervisor ends the program, and both say so",
                      f"{start.process.returncode} {start.said()[-400:]}")
        start = start_of(this, name="twice")
        living = start.until(lambda: twins.covered(start)) and twins.covered(start)
        os.kill(living, signal.SIGTERM)
        checks.ok(start.wait() == -signal.SIGTERM and "takes over" not in start.said(), "SIGTERM to the program itself is no reason to take over", f"{start.process.returncode} {start.said()[-400:]}")
        start = start_of(this, name="leader")
        start.until(lambda: twins.covered(start))
        both = twins.processes(start)
        job.signal_if_there(start.process.pid, signal.SIGKILL)
        start.process.wait()
        gone = job.look_until(lambda: not any(twins.started_at(pid) for pid in both), 30, 0.01)
        checks.ok(gone, "without its supervisor neither program nor twin goes on", both)
        start = start_of(this, name="again")
        checks.ok(start.until(lambda: twins.taken_over(start) == 1 and twins.covered(start)), "the same command goes on where that was, and has a twin", start.said())
        start.process.terminate()
        start.wait()
        begun = this.arguments
        this.arguments = ["sh", "-c", '"$@"; exit $?', "sh", *begun[:begun.index("--steps") + 1], "3", *begun[begun.index("--steps") + 2:]]
        start = start_of(this, name="shell")
        checks.ok(start.wait() == 0 and "has no twin: neither transpckpt run --twin nor a launcher of ranks has started this very process" in start.said(),
                  "a program that a script starts has no twin, and a line says so", start.said())
        this.arguments = [*begun, "--no-such-option"]
        start = start_of(this, name="wrong")
        plain = start_of(this, name="plain", options=())
        checks.ok(start.wait() == plain.wait() != 0, "a status is passed on", f"{start.process.returncode} {plain.process.returncode}")


def errors():
    """What else than a signal a twin takes over after: a device that fails for good; and, where one wants that, any error status, and a program that stands."""
    with job.Place() as place:
        this = trainer(place)
        this.run_plain()
        # A twin launches nothing before it is live: then the device fails again after as many kernels.
        start = start_of(this, environment={"SIMGPU_FAULT": "sticky@120000"})
        status = start.wait()
        times = twins.taken_over(start)
        checks.ok(status == 0 and times and not job.differences(this.plain, this.out), f"a device that fails for good, {times} times: the same bytes",
                  status, start.said()[-1500:])
        checks.ok(times and start.said().count("behind an error of the device; its twin") == times,
                  "and a line says so", start.said()[-1500:])
    with job.Place() as place:
        this = trainer(place)
        this.run_plain()
        gives_up = {"LD_PRELOAD": job.built(place, "gives_up.so", "gives_up.c")}
        start = start_of(this, environment=gives_up, name="given_up")
        start.until(lambda: twins.covered(start))
        os.kill(twins.covered(start), signal.SIGUSR2)
        checks.ok(start.wait() == 3 and not twins.taken_over(start), "an error status is passed on", start.said())
        start = start_of(this, environment={**gives_up, "TRANSPCKPT_TWIN_ON": "status"}, name="status")
        start.until(lambda: twins.covered(start))
        os.kill(twins.covered(start), signal.SIGUSR2)
        ended_equal(this, start, "and is a reason to take over with TRANSPCKPT_TWIN_ON=status: the same bytes")
        checks.ok(re.search(r"process \d+ ended with status 3; its twin, process \d+, takes over", start.said()), "and a line says so", start.said())
    with job.Place() as place:
        this = trainer(place)
        this.run_plain()
        start = start_of(this, environment={"TRANSPCKPT_TWIN_ON": "stall", "TRANSPCKPT_STALL_SEC": "2", "SIMGPU_FAULT": "stall@120000"})
        status = start.wait()
        times = twins.taken_over(start)
        checks.ok(status == 0 and times and not job.differences(this.plain, this.out), f"a program that stands, {times} times: the same bytes with stall",
                  status, start.said()[-1500:])
        checks.ok(times and start.said().count("has ended no iteration for too long") == times, "and a line says so", start.said()[-1500:])


def let_go(folder):
    with open(os.path.join(folder, "go"), "w", encoding="utf-8"):
        pass


def programs_once():
    """What the program has another one do is not done by the twin, however near it is; what is under way when it takes over is done anew."""
    for waits in (False, True):
        with job.Place() as place:
            this = trainer(place, "gpt", 700)
            this.environment.update(LD_PRELOAD=job.built(place, "gap.so", "gap.c"), GAP="system" if waits else "ahead", GAP_AT="201")
            plain = os.path.dirname(this.plain)
            let_go(plain)
            this.run_plain()
            start = start_of(this)
            calls = os.path.join(this.work, "calls")
            start.until(lambda: os.path.exists(calls) and twins.covered(start))
            time.sleep(0.5)
            before = job.read(calls)
            if not waits:
                let_go(this.work)
                start.until(lambda: this.progress() > 130)
            twins.kill(start)
            if waits:
                start.until(lambda: len(job.read(calls).splitlines()) > 1)
                let_go(this.work)
            ended_equal(this, start, "a program is at work when one takes over" if waits else "a program has ended before one takes over", takeovers=1)
            told = [job.read(os.path.join(folder, "told")) for folder in (plain, this.work)]
            checks.ok(before == "called\n" and len(job.read(calls).splitlines()) == 1 + waits and told[0] == told[1] != "",
                      "the twin has not started it; the one that took over " + ("starts it anew" if waits else "does not either"), before, job.read(calls), *told)


def differs():
    """A program that does not repeat itself, and one that writes more than a twin may take."""
    with job.Place() as place:
        this = trainer(place, "gpt", 900)
        this.environment.update(LD_PRELOAD=job.built(place, "drift.so", "drift.c"), DRIFT_AT="150")
        this.run_plain()
        start = start_of(this)
        ended_equal(this, start, "a program that does not repeat itself ends as ever", takeovers=0)
        checks.ok(re.search(r"the twin of process \d+ ends at step \d+: iteration \d+, .*another call than in the first run; the program is not touched", start.said()),
                  "its twin says where it differs", start.said())
        checks.ok(start.said().count("the twin of process") <= 3, "three times at most", start.said())
    with job.Place(TRANSPCKPT_LOG="warn") as place:
        this = trainer(place, "gpt", 100000)
        this.environment.update(LD_PRELOAD=job.built(place, "drift.so", "drift.c"), DRIFT_AT="150")
        start = start_of(this)
        start.until(lambda: "has no twin from here on" in start.said())
        found = re.findall(r"the twin of process .*", start.said())
        checks.ok(len(found) == 1 and re.search(r"iteration \d+, device operation \d+ of thread \d+ \((a copy to|a launch of) .*\): another call .* Likely behind it: a branch that follows",
                                                found[0]), "which is one line an hour, with the call and what is likely behind it", start.said())
        start.process.terminate()
        start.wait()
    with job.Place() as place:
        this = trainer(place, "gpt", 900)
        this.run_plain()
        start = start_of(this, environment={"TRANSPCKPT_TWIN_BYTES": "4K"})
        ended_equal(this, start, "files beyond TRANSPCKPT_TWIN_BYTES: the program ends as ever", takeovers=0)
        ended = start.said().count("takes more memory than TRANSPCKPT_TWIN_BYTES")
        checks.ok(ended and (ended == 3) == ("has no twin from here on" in start.said()), "its twins end, and the third is the last", start.said())


def damage_newest(place):
    """Changes bytes of the newest committed snapshot in memory, all over its data, as memory that forgets does. Its step."""
    found = []
    for session in glob.glob(os.path.join(place.shm, "j", "g*.r0.o0")):
        for path in glob.glob(os.path.join(session, "image.*")):
            with open(path, "rb") as image:
                header = image.read(64)
            state, step, data = struct.unpack_from("<I", header, 16)[0], struct.unpack_from("<Q", header, 32)[0], struct.unpack_from("<Q", header, 40)[0]
            found += [(step, path, data)] if state == 3 else []
    step, path, data = max(found)
    with open(path, "r+b") as image:
        for at in range(100, data, 4096):
            image.seek((256 << 20) + at)
            byte = image.read(1)
            image.seek((256 << 20) + at)
            image.write(bytes([byte[0] ^ 1]))
    return step


def damaged():
    """What has been checked when it was committed, and is not what it was when it is put in place, does not go on."""
    with job.Place() as place:
        this = trainer(place)
        this.run_plain()
        start = start_of(this)
        start.until(lambda: twins.covered(start) and this.progress() > 100)
        living = twins.covered(start)
        os.kill(living, signal.SIGSTOP)
        job.look_until(lambda: (rows := [row for row in place.shown() if row["pid"] == living]) and rows[0].get("twin") and
                       rows[0]["twin"]["step"] == rows[0]["held_step"], 30, 0.05)
        step = damage_newest(place)
        job.signal_if_there(living)
        # The supervisor had stopped with the program.
        os.kill(start.process.pid, signal.SIGCONT)
        ended_equal(this, start, "a snapshot that memory has changed since it was checked is not gone on from: the same bytes")
        checks.ok(re.search(rf"cannot resume at step {step}: the block at 0x[0-9a-f]+ of the snapshot is not what the device had; trying once more", start.said()) and
                  len(re.findall(rf"live at step {step} ", start.said())) == 0, "since it is compared once more before the program goes on", start.said()[-1500:])


def shown():
    with job.Place() as place:
        this = trainer(place, steps=100000)
        start = start_of(this)

        def near():
            rows = [row for row in place.shown() if row["running"] and row.get("twin")]
            return rows and rows[0]["twin"]["proven"] > 50 and rows[0]
        row = job.look_until(near, 60, 0.05)
        checks.ok(row and (row["pid"], row["twin"]["pid"]) == twins.processes(start) and row["twin"]["step"] <= row["iterations"] and row["takeovers"] == 0,
                  "show tells who follows whom, and how far", row)
        twins.kill(start)
        row = job.look_until(lambda: (found := near()) and found["takeovers"] == 1 and found, 60, 0.05)
        checks.ok(row and row["pid"] == twins.processes(start)[0] and row["twin"]["lag_ms"] >= 0, "and how often one took over", row)
        row = job.look_until(lambda: (found := near()) and found["uncovered_sec"] == 0 and found, 60, 0.05)
        checks.ok(row and row["step"] == row["iterations"] and row["covered_until"] == row["twin"]["step"], "and up to which step the rank is covered", row)
        living, twin = twins.processes(start)
        checks.ok(start.until(lambda: f"process {living} repeats itself: its twin, process {twin}, has repeated " in start.said()),
                  "a line says how far the program has been seen to repeat itself", start.said()[-800:])
        said = place.command("top", "-n", "1", "j").stdout
        checks.ok(re.search(rf"\n  twin: process {twin} has repeated \d+ iterations, and is \d+ \(.*\) behind; takeovers so far: 1\n", said), "top shows it", said)
        page = os.path.join(place.root, "page.html")
        said = place.command("report", "--job", "j", "-o", page)
        checks.ok("A twin took over once, without a new start." in job.read(page) and "What had failed: process once" in job.read(page) and f"The twin of rank 0: process {twin} has repeated" in job.read(page) and
                  "a twin at step" in job.read(page), "and so does the report", said, job.read(page)[:3000])
        os.kill(twin, signal.SIGSTOP)
        row = job.look_until(lambda: (found := [row for row in place.shown() if row["pid"] == living]) and found[0]["covered_until"] is None and found[0], 60, 0.1)
        said = place.command("top", "-n", "1", "j").stdout
        checks.ok(row and row["uncovered_sec"] != 0 and "; uncovered" in said, "one that is far behind does not count", row, said)
        start.process.terminate()
        start.wait()


def idle_class(pid):
    """Of its reads and writes, by ioprio_get(2)."""
    return ctypes.CDLL(None, use_errno=True).syscall(252, 1, pid) >> 13


def started_with(pid, leader):
    try:
        return os.getpgid(pid) == os.getpgid(leader)
    except OSError:
        return False


def standing(pid):
    """What a process is given, all its threads and those that it has made in its group: nice, I/O class, who is ended first where memory is short, group."""
    found = set()
    for process in [pid, *(child for child in job.children_of(pid) if started_with(child, pid))]:
        group = re.search(r"^0::(.*)$", job.read(f"/proc/{process}/cgroup"), re.M)
        try:
            for thread in os.listdir(f"/proc/{process}/task"):
                found.add((os.getpriority(os.PRIO_PROCESS, int(thread)), idle_class(int(thread)), int(job.read(f"/proc/{process}/oom_score_adj")), group and group[1]))
        except (OSError, ValueError):  # it has just ended
            pass
    return found


def manners():
    """A twin is the first that goes without, and what takes over is as the program was."""
    mounts = [line.split()[1] for line in job.read("/proc/mounts").splitlines() if line.split()[2] == "cgroup2"]
    own = re.search(r"^0::(.*)$", job.read("/proc/self/cgroup"), re.M)
    group = None
    with job.Place() as place:
        try:
            group = os.path.join(mounts[0], f"tpck-twin-{os.getpid()}") if own else None
            os.mkdir(group)
        except (OSError, IndexError, TypeError):
            print("# no control group can be made here")
            group = None
        this = trainer(place, steps=100000)
        start = start_of(this, environment={"TRANSPCKPT_TWIN_CGROUP": group} if group else None)
        start.until(lambda: twins.covered(start))
        living, twin = twins.processes(start)
        as_it_was = standing(living)
        [(nice, _, oom, where)] = as_it_was
        wanted = (min(nice + 10, 19), 3, 1000, "/" + os.path.basename(group) if group else where)
        # A thread that is just ending has no class of the disk any more.
        checks.ok(start.until(lambda: standing(twin) == {wanted}), "a twin has low priority, the idle class, and the group that is named; and it is ended first where memory is short", standing(twin), wanted)
        twins.kill(start)
        start.until(lambda: twins.taken_over(start) == 1)
        checks.ok(start.process.poll() is None and standing(twin) == as_it_was, "what took over is as the program was, with all its threads", standing(twin), as_it_was)
        start.process.terminate()
        start.wait()
        start = start_of(this, environment={"TRANSPCKPT_TWIN_CGROUP": place.root}, name="none")
        checks.ok(start.until(lambda: f"TRANSPCKPT_TWIN_CGROUP={place.root} is no folder of a control group of version 2: the twin is where the program is" in start.said()),
                  "a group that is none is one line", start.said())
        start.process.terminate()
        start.wait()
        less = ["setpriv", "--bounding-set=-sys_nice,-sys_resource", "prlimit", "--nice=0:0"]
        if os.geteuid() == 0 and not subprocess.run([*less, "true"], capture_output=True, check=False).returncode:
            start = start_of(this, *less, name="less")
            start.until(lambda: twins.covered(start))
            living, twin = twins.processes(start)
            checks.ok(standing(twin) == {(nice, 3, 1000, where)}, "a priority that could not be taken back is not given away", standing(twin))
            before = twins.taken_over(start)
            twins.kill(start)
            start.until(lambda: twins.taken_over(start) > before)
            checks.ok(standing(twin) == as_it_was, "and the rest comes back without privileges", standing(twin), start.said()[-500:])
            start.process.terminate()
            start.wait()
    if group:
        checks.ok(job.look_until(lambda: not job.read(os.path.join(group, "cgroup.procs")), 20, 0.05), "nobody is left in the group", job.read(os.path.join(group, "cgroup.procs")))
        os.rmdir(group)


def dies_at_one_place():
    """A program that dies again and again at one place is not taken over for ever: each start takes one snapshot early, and none for long then."""
    with job.Place(TRANSPCKPT_INTERVAL="120s") as place:
        this = trainer(place, steps=400)
        this.environment.update(LD_PRELOAD=job.built(place, "paused.so", "paused.c"))

        def may(steps):
            for folder in (this.work, os.path.dirname(this.plain)):
                os.makedirs(folder, exist_ok=True)
                with open(os.path.join(folder, "steps.new"), "w", encoding="ascii") as f:
                    f.write(str(steps))
                os.replace(os.path.join(folder, "steps.new"), os.path.join(folder, "steps"))
        may(100000)
        this.run_plain()
        may(300)
        start, before, died = start_of(this), [], []

        def stands():
            """The program waits at that place, and a twin would take over."""
            living = twins.covered(start)
            before.append([row["iterations"] for row in place.shown() if row["pid"] == living and row.get("twin")])
            return before[-1] and before[-1] == before[-5:][0] and living
        for _ in range(3):
            living = job.look_until(stands, 60, 0.1)
            if not living:
                break
            died += before[-1]
            before.clear()
            job.signal_if_there(living)
            start.until(lambda: twins.taken_over(start) == len(died) or not start.running())
        status = start.wait(20)
        checks.ok(len(died) == 3 and max(died) - min(died) <= 1 and status == -signal.SIGKILL and twins.taken_over(start) == 2 and
                  "the program has died 3 times in a row within an iteration of step" in start.said(),
                  "the third death at one place is the end, and a line says so", died, status, start.said()[-1200:])
        may(100000)
        start = start_of(this, name="again")
        ended_equal(this, start, "the same command goes on")


def executes_another():
    """The program executes another one in its place, as one does that begins anew: that is not the twin's."""
    with job.Place() as place:
        this = trainer(place, steps=100000)
        os.makedirs(this.work, exist_ok=True)
        this.environment.update(LD_PRELOAD=job.built(place, "leaves.so", "leaves.c"), LEAVES_AT="200")
        start = start_of(this)
        status = start.wait(120)
        checks.ok(status == -signal.SIGSEGV and job.read(os.path.join(this.work, "left")) == "left\n" and not twins.taken_over(start),
                  "a program that another one has taken the place of ends, and no twin goes on", status, start.said())


def at_a_terminal():
    """Keys that interrupt and stop."""
    with job.Place() as place:
        this = trainer(place, steps=100000)
        argv = [*this.runner, os.path.join(place.build, "transpckpt"), "run", "--twin", "--", *this.arguments]
        pid, tty = pty.fork()
        if pid == 0:
            os.chdir(this.work)
            os.execvpe(argv[0], argv, this.environment)

        class Start:
            process = type("", (), {"pid": pid})

        def until(condition, seconds=60):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if condition():
                    return True
                try:
                    if select.select([tty], [], [], 0.01)[0]:
                        os.read(tty, 65536)
                except OSError:  # nobody has the other end any more
                    time.sleep(0.01)
            return False
        until(lambda: twins.covered(Start))
        os.write(tty, b"\x1a")
        stopped = until(lambda: os.waitpid(pid, os.WNOHANG | os.WUNTRACED)[0] == pid, 20)
        at = this.progress()
        until(lambda: False, 0.5)
        checks.ok(stopped and this.progress() == at, "the key that stops stops the program, and whoever started it is told", f"{stopped} {at} {this.progress()}")
        os.kill(pid, signal.SIGCONT)
        checks.ok(until(lambda: this.progress() > at), "and it goes on when it is told to")
        os.write(tty, b"\x03")
        ended = []
        until(lambda: ended.append(os.waitpid(pid, os.WNOHANG)) or ended[-1][0] == pid, 20)
        checks.ok(ended[-1][0] == pid and os.WIFSIGNALED(ended[-1][1]) and os.WTERMSIG(ended[-1][1]) == signal.SIGINT, "the key that interrupts ends both", ended[-1])
        os.close(tty)


def main():
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"# SEED={seed}")
    # Whoever runs this in the background may have it ignore what a terminal's key sends.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    rng = random.Random(seed)
    stages = {"killed": lambda: killed_again_and_again(rng), "anyhow": lambda: killed_anyhow(rng), "forever": not_forever, "second": lambda: has_second(rng), "record": large_record, "shell": of_shell, "agent": agent_dies_too, "hurt": twin_is_hurt, "ends": ends, "errors": errors, "programs": programs_once,
              "differs": differs, "damaged": damaged, "manners": manners, "place": dies_at_one_place, "shown": shown, "executes": executes_another, "terminal": at_a_terminal}
    for name in sys.argv[1:] or [*ALWAYS, *rng.sample(sorted(set(stages) - set(ALWAYS)), 3)]:
        stages[name]()
    checks.end()


if __name__ == "__main__":
    main()
