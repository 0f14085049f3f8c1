#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.5 memory=3G about=60s
"""Jobs of several ranks that have twins: ranks are killed, and all change over to their twins. Whoever launched them sees no process end, and they end with
the bytes of a run that was left alone.

  twin_ranks.py [STAGE...]     environment: SEED, LAYOUTS=all"""
import os
import re
import shutil
import signal
import socket
import sys
import time

import job
import twins
from ranks import Ranks

checks = job.Checks()
# Kernels of NCCL of a rank: five an iteration, so that of 900 iterations fewer are left than were before.
KERNELS_BEFORE = 2700


class Twins(Ranks):
    def start(self, **more):
        return self.begin(self.work, {**self.place.environment, **more}, os.path.join(self.place.build, "transpckpt") + " run --twin --")

    def supervisors(self, start):
        """By rank: the processes that were launched."""
        found = {}
        for pid in job.children_of(start.process.pid):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    ranks = [v[5:] for v in f.read().split(b"\0") if v.startswith(b"RANK=")]
                found.update({int(ranks[0]): pid} if ranks and job.children_of(pid) else {})
            except OSError:
                pass
        return found

    def covered(self, start):
        """The living ones by rank, where each has a twin that follows; else None."""
        there = {rank: twins.processes(pid) for rank, pid in self.supervisors(start).items()}
        if len(there) < self.ranks or not all(twin and twins.follows(twin) for _, twin in there.values()):
            return None
        return {rank: living for rank, (living, _) in there.items()}

    def kill(self, start, which, after=0.0, number=signal.SIGKILL):
        """Ends the living ones of these ranks once all have twins. False: they ended before."""
        if not start.until(lambda: self.covered(start)):
            return False
        time.sleep(after)
        living = self.covered(start)
        if not living or not start.running():
            return False
        for rank in which:
            job.signal_if_there(living[rank], number)
        return True

    def takeovers(self):
        return [len(job.LIVE.findall(text)) for text in self.said()]

    def changed_over(self, start, times):
        return start.until(lambda: self.takeovers() == [times] * self.ranks)


def ended_equal(this, start, what, takeovers):
    status = start.wait()
    wrong = ([f"status {status}"] if status else []) + this.differences()
    if this.takeovers() != [takeovers] * this.ranks:
        wrong.append(f"takeovers {this.takeovers()}, not {takeovers} of each")
    checks.ok(not wrong, what, *wrong, this.story())


def killed_again_and_again(rng, ranks, *more, steps, kills):
    # Where two are wanted each rank has one.
    with job.Place(TRANSPCKPT_TWIN=rng.choice("12")) as place:
        this = Twins(place, ranks, *more, steps=steps, together=True)
        this.run_plain()
        start, killed, several = this.start(), 0, []
        begun = start.until(lambda: this.covered(start)) and this.supervisors(start)
        for number in kills:
            several += [pid for pid in (begun or {}).values() if len(job.children_of(pid)) > 2]
            killed += this.kill(start, [rng.randrange(ranks)], rng.uniform(0, 0.3) if killed else 0, number)
            if not this.changed_over(start, killed):
                break
        checks.ok(not start.running() or this.supervisors(start) == begun, "the processes that were launched are the same all the time")
        checks.ok(not several, "no rank has two twins", several)
        ended_equal(this, start, f"{ranks} ranks{''.join(' ' + m for m in more)}: {killed} kills, the same bytes", killed)


def killed(rng):
    killed_again_and_again(rng, 2, steps=900, kills=(signal.SIGKILL, signal.SIGSEGV, signal.SIGKILL))


def layouts(rng):
    """Data parallel, a sharded optimizer, tensor and pipeline parallel, and all of them at once; one of these, unless LAYOUTS=all."""
    every = [(4, 400, ["--zero", "--chatty"]), (2, 500, ["--tp 2"]), (2, 500, ["--pp 2"]), (8, 150, ["--tp 2", "--pp 2"])]
    for ranks, steps, more in every if os.environ.get("LAYOUTS") == "all" else rng.sample(every, 1):
        killed_again_and_again(rng, ranks, *more, steps=steps, kills=(signal.SIGKILL, signal.SIGABRT))


def anyhow(rng):
    """Ranks die at moments at which not all have twins, also while they change over or go forward: all are forked once more then."""
    with job.Place() as place:
        this = Twins(place, 2, steps=1500, together=True)
        this.run_plain()
        start = this.start()
        begun = start.until(lambda: this.covered(start)) and this.supervisors(start)
        killed = 0
        for i in range(8):
            # There are no twins right behind a change.
            time.sleep(rng.uniform(0, 0.4) if i % 2 == 0 else 0)
            living = twins.processes(begun[rng.randrange(2)])[0] if start.running() else None
            killed += living is not None and job.signal_if_there(living)
            at = max([row["step"] for row in place.shown()], default=0)

            def further():
                steps = [row["step"] for row in place.shown() if row["running"]]
                return len(steps) == 2 and min(steps) > at + 3  # pylint: disable=cell-var-from-loop
            start.until(further, 30)
        checks.ok(not start.running() or this.supervisors(start) == begun, "the processes that were launched are the same all the time")
        status = start.wait()
        wrong = ([f"status {status}"] if status else []) + this.differences()
        checks.ok(not wrong, f"killed {killed} times, with twins or without: the same bytes", *wrong, this.story())
        checks.ok("is forked once more in its place" in "".join(this.said()), "where not all have twins all are forked once more", this.story())


def mpirun(rng):
    """Ranks that mpirun has started, of a program that does not call MPI."""
    if not shutil.which("mpirun"):
        checks.ok(True, "mpirun # SKIP it is not installed")
        return
    with job.Place() as place:
        this = Twins(place, 2, steps=900, together=True)
        this.run_plain()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        # As root, and on fewer cores than ranks, as on a machine that builds.
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
        start = job.Start(place, ["mpirun", "--bind-to", "none", "-n", "2", *place.runner, os.path.join(place.build, "transpckpt"), "run", "--twin", "--", "sh", "-c", this.command % ""],
                          this.work, {**place.environment, **allowed, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}, "mpirun")
        begun, killed = None, 0
        for _ in range(2):
            start.until(lambda: twins.all_covered([start.process.pid], 2))
            living = twins.all_covered([start.process.pid], 2)
            if not checks.ok(living, "both ranks of mpirun have twins", start.said()[-2000:]):
                break
            begun = begun or twins.supervisors([start.process.pid])
            killed += job.signal_if_there(living[rng.randrange(2)])
            start.until(lambda: len(job.LIVE.findall(start.said())) >= 2 * killed)  # pylint: disable=cell-var-from-loop
        checks.ok(not start.running() or twins.supervisors([start.process.pid]) == begun, "mpirun has the processes that it had")
        status = start.wait()
        wrong = ([f"status {status}"] if status else []) + this.differences()
        checks.ok(not wrong and len(job.LIVE.findall(start.said())) == 2 * killed, f"{killed} kills, and the same bytes", *wrong, start.said()[-3000:])


def together(_):
    """All ranks at one moment; and a rank that ends with an error of its own as another one is killed, before that one's supervisor knows of it."""
    with job.Place() as place:
        this = Twins(place, 2, steps=900, together=True)
        this.run_plain()
        start = this.start(LD_PRELOAD=job.built(place, "gives_up.so", "gives_up.c"))
        this.kill(start, [0, 1])
        this.changed_over(start, 1)
        start.until(lambda: this.covered(start))
        supervisor, living = this.supervisors(start).get(0), this.covered(start)
        if not checks.ok(supervisor and living, "two ranks are killed at one moment: both have twins again", this.story()):
            return
        os.kill(supervisor, signal.SIGSTOP)
        job.signal_if_there(living[0])
        os.kill(living[1], signal.SIGUSR2)
        gone = start.until(lambda: twins.started_at(living[1]) is None)
        time.sleep(0.2)
        checks.ok(gone and start.running(), "who ends as another one is being killed waits for what is decided")
        os.kill(supervisor, signal.SIGCONT)
        ended_equal(this, start, "and the same bytes", 2)
        start = this.start(LD_PRELOAD=os.path.join(place.root, "gives_up.so"))
        start.until(lambda: this.covered(start))
        os.kill(this.covered(start)[1], signal.SIGUSR2)
        checks.ok(start.wait() == 3 and this.takeovers() == [0, 0], "who ends with an error while the others live ends the job", this.story())


def twin_is_hurt(_):
    """Where a rank's twin ends all do, and there are new ones."""
    with job.Place() as place:
        this = Twins(place, 2, steps=900, together=True)
        this.run_plain()
        start = this.start()
        start.until(lambda: this.covered(start))
        first = {rank: twins.processes(pid)[1] for rank, pid in this.supervisors(start).items()}
        job.signal_if_there(first.get(1))

        def others():
            return this.covered(start) and all(twins.processes(pid)[1] != first[rank] for rank, pid in this.supervisors(start).items())
        checks.ok(start.until(others), "the twin of one rank is killed: all have others", this.story())
        this.place.signal_agents()
        this.kill(start, [1])
        ended_equal(this, start, "and take over, with a new agent", 1)


def ends(_):
    with job.Place() as place:
        this = Twins(place, 2, steps=100000, together=True)
        start = this.start()
        start.until(lambda: this.covered(start))
        supervisors = this.supervisors(start)
        os.kill(supervisors[0], signal.SIGTERM)
        status = start.wait()
        checks.ok(status == 128 + signal.SIGTERM and this.takeovers() == [0, 0], "a rank that is told to end ends, and so does the job", status, this.story())
        left = [pid for pid in supervisors.values() if twins.started_at(pid)]
        checks.ok(not left, "nothing is left of it", left)


def differs(_):
    """A rank that does not repeat itself."""
    with job.Place() as place:
        drift = f'LD_PRELOAD={job.built(place, "drift.so", "drift.c")} DRIFT_AT=150'
        this = Twins(place, 2, steps=700, settings=f'[ $RANK = 0 ] || export {drift};')
        start = this.start()
        status = start.wait()
        checks.ok(status == 0 and this.takeovers() == [0, 0], "a rank that does not repeat itself: the job ends as ever", status, this.story())
        said = this.said()
        checks.ok(re.search(r"the twin of process \d+ ends at step \d+: iteration \d+, .*; the program is not touched", said[1]) and "ends at step" not in said[0],
                  "its twin says where it differs, and the other rank's says nothing", this.story())


def communicator_fails(_):
    """NCCL fails, as where a network does, and the program gives up for that: no signal, and no other rank's end, is behind it."""
    for where, which in (("/1", "one rank"), ("", "both ranks")):
        with job.Place() as place:
            this = Twins(place, 2, "--watch", steps=640, together=True)
            this.run_plain()
            # A twin counts its own kernels, and makes none before it is live: the error, which comes behind some 500 iterations, does not come again.
            start = this.start(SIMGPU_FAULT=f"nccl_error@{KERNELS_BEFORE}{where}")
            begun = start.until(lambda: this.covered(start)) and this.supervisors(start)
            checks.ok(begun, f"{which}: there are twins before NCCL fails", this.story())
            start.until(lambda: max(this.takeovers()))
            checks.ok(not start.running() or this.supervisors(start) == begun, "the processes that were launched are the same all the time")
            ended_equal(this, start, f"NCCL fails on {which}: all change over, and the same bytes", 1)
            said = "".join(this.said())
            checks.ok(re.search(r"process \d+ ended with status 4 behind an error of NCCL; its twin, process \d+, takes over", said), "and a line says so", this.story())
            noted = job.read(os.path.join(place.store, "j", "history")) + job.read(os.path.join(place.shm, "j", "history"))
            checks.ok(re.search(r'"by": ?"twin", ?"after": ?"communicator"', noted), "the history names that class of failure", noted[-600:])


STAGES = {"communicator": communicator_fails, "killed": killed, "mpirun": mpirun, "anyhow": anyhow, "layouts": layouts, "together": together, "hurt": twin_is_hurt, "ends": ends, "differs": differs}


def main():
    rng = job.drawn_from()
    for name in sys.argv[1:] or STAGES:
        STAGES[name](rng)
    checks.end()


if __name__ == "__main__":
    main()
