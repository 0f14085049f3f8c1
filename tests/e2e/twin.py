#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=2G about=60s
"""A trainer that has a twin: killed again and again it goes on without being started anew, with the bytes of a run that was left alone. Whoever
started it sees one process, with the status of the program. What becomes of the twin does not touch the program."""
import os
import random
import re
import signal
import sys
import time

import job
import twins

STEPS = 1200
checks = job.Checks()


def trainer(place, name="gpt", steps=STEPS, *more):
    return job.Job(place, name, "--seed", "7", "--steps", str(steps), "--save-every", "20", *more)


def start_of(this, *under, environment=None, name="start0", options=("--twin",)):
    argv = [*this.runner, *under, os.path.join(this.place.build, "transpckpt"), "run", *options, "--", *this.arguments]
    return job.Start(this.place, argv, this.work, {**this.environment, **(environment or {})}, name)


def said_otherwise(start):
    """What it said, but for takeovers and what is taken of its files."""
    return [line for line in start.said().splitlines() if line.startswith("transpckpt: ") and
            not re.search(r"takes over$|live at step|: learnt: ", line)]


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
        checks.ok(not said_otherwise(start), "nothing else is said", said_otherwise(start))
        left = [name for name in os.listdir(os.path.join(place.shm, "j")) if name.startswith("twin.")] if os.path.isdir(os.path.join(place.shm, "j")) else []
        checks.ok(not left, "nothing of the twins is left in memory", left)


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
            checks.ok(start.wait() == -number and not twins.taken_over(start), f"signal {number} to the supervisor ends the program, and both say so",
                      f"{start.process.returncode} {start.said()[-400:]}")
        start = start_of(this, name="twice")
        living = start.until(lambda: twins.covered(start)) and twins.covered(start)
        os.kill(living, signal.SIGTERM)
        checks.ok(start.wait() == -signal.SIGTERM, "SIGTERM to the program itself is no reason to take over", f"{start.process.returncode} {start.said()[-400:]}")
        start = start_of(this, name="leader")
        start.until(lambda: twins.covered(start))
        both = twins.processes(start)
        job.signal_if_there(start.process.pid, signal.SIGKILL)
        start.process.wait()
        gone = job.look_until(lambda: not any(twins.started_at(pid) for pid in both), 30, 0.01)
        checks.ok(gone, "without its supervisor neither program nor twin goes on", both)
        this.arguments += ["--no-such-option"]
        start = start_of(this, name="wrong")
        plain = start_of(this, name="plain", options=())
        checks.ok(start.wait() == plain.wait() != 0, "a status is passed on", f"{start.process.returncode} {plain.process.returncode}")


def main():
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"# SEED={seed}")
    rng = random.Random(seed)
    stages = {"killed": lambda: killed_again_and_again(rng), "agent": agent_dies_too, "hurt": twin_is_hurt, "ends": ends}
    for name in sys.argv[1:] or stages:
        stages[name]()
    checks.end()


if __name__ == "__main__":
    main()
