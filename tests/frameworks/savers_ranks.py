#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=20s disk
"""Savers of several ranks as their makers publish them, under torchrun and the preload: what they leave is what they leave without
the library; and when one rank is killed, or all of them, or all and the agent, what others find is whole, each pointer behind the
parts of all ranks, and the ranks that begin again have one and the same save, the newest that the job had. No device.

  savers_ranks.py [CASE...]     environment: SEED; without arguments those of USUAL
"""
import filecmp
import os
import random
import re
import subprocess
import sys
import threading
import time

import savers
from savers import HERE, LOOPS, QUIET, SUITES, Looker, ahead_of, as_told, has, tree, wrong_of
from place import WAIT_SEC, Checks, Place, until

ROUNDS = 4
# PyTorch 2.15 gives the ranks that it starts again the store of those that died, and gloo may connect to one of these.
ANEW = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
# By name: the program, whose Python, what it needs, which of its files have times or names of the run in them, ranks, and more of
# its environment.
CASES = {
    "dcp": ("dcp_ranks_save", LOOPS, ["torch", "numpy"], r"\.metadata$", 2, {}),
    "dcp4": ("dcp_ranks_save", LOOPS, ["torch", "numpy"], r"\.metadata$", 4, {}),
    "dcp_process": ("dcp_ranks_save", LOOPS, ["torch", "numpy"], r"\.metadata$", 2, {"PROCESS": "1"}),
    "accelerate": ("accelerate_ranks_save", LOOPS, ["accelerate"], None, 2, {}),
    "trainer": ("trainer_ranks_save", LOOPS, ["transformers", "accelerate"], r"trainer_state.json$|training_args.bin$", 2, {}),
    "zero1": ("deepspeed_ranks_save", SUITES, ["deepspeed"], None, 2, {}),
    "zero3": ("deepspeed_ranks_save", SUITES, ["deepspeed"], None, 2, {"STAGE": "3"}),
}
# By program: its pointer, and what must be there of all ranks before the pointer says so.
PARTS = {
    "dcp_ranks_save": ("latest", "{}/.metadata", "{}/__{rank}_0.distcp"),
    "accelerate_ranks_save": ("latest", "checkpoints/{}/optimizer.bin", "checkpoints/{}/random_states_{rank}.pkl"),
    # DeepSpeed writes its pointer before it waits for the other ranks.
    "deepspeed_ranks_save": ("out/latest", "out/{}/zero_pp_rank_0_mp_rank_00_optim_states.pt"),
}
# Most of the time of a case are imports: five times those of torchrun and of each rank. A case that is named is killed, too.
USUAL = ["dcp"]


class Torchrun:
    """One start of a case in the folder of work of a place."""

    def __init__(self, place, case, last, preloaded=True, restarts=0):
        program, python, _, _, self.ranks, more = CASES[case]
        self.script = os.path.join(HERE, program + ".py")
        self.place = place
        self.errors = place.path("../errors")
        # What is moved into place from the folder for temporary files comes from another file system.
        variables = dict(place.environment if preloaded else place.plain, TMPDIR=place.shm, **QUIET, **ANEW, **more)
        self.mark = f"RANKS_OF={place.root}"
        variables["RANKS_OF"] = place.root
        self.said = open(place.path("../said"), "a+", encoding="utf-8")
        self.since = self.said.seek(0, os.SEEK_END)
        with open(self.errors, "ab") as errors:
            self.process = subprocess.Popen(
                [python, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(self.ranks),
                 "--max-restarts", str(restarts), self.script, str(last)], cwd=place.work, env=variables, stdin=subprocess.DEVNULL,
                stdout=self.said, stderr=errors)

    def lines(self):
        self.said.seek(self.since)
        return self.said.read().splitlines()

    def numbers(self, word):
        return [int(line.split()[-1]) for line in self.lines() if line.startswith(word)]

    def processes(self):
        """All that it has started, with their ranks, but for the agent."""
        found = []
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{int(entry)}/environ", "rb") as f:
                    variables = f.read().decode(errors="replace").split("\0")
                with open(f"/proc/{entry}/comm", encoding="utf-8") as f:
                    agent = f.read().startswith("transpckptd")
                with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as f:
                    main = self.script in f.read().split("\0")
            except (OSError, ValueError):
                continue
            if self.mark in variables and not agent:
                rank = [v[5:] for v in variables if v.startswith("RANK=")]
                found.append((int(entry), int(rank[0]) if rank and main else None))
        return found

    def kill_rank(self, rank):
        pids = [pid for pid, of in self.processes() if of == rank]
        return pids and kill(pids[0])

    def end(self):
        """All at once."""
        while True:
            left = [pid for pid, _ in self.processes()]
            for pid in left:
                kill(pid)
            if self.process.poll() is not None and not left:
                break
            time.sleep(0.01)
        self.said.close()


def kill(pid):
    try:
        os.kill(pid, 9)
        return True
    except ProcessLookupError:
        return False


def ended(status, place):
    """PyTorch may still have a thread of its own when a rank ends, behind all that was to be done, and is aborted for that, with the
    library and without."""
    with open(place.path("../errors"), encoding="utf-8", errors="replace") as f:
        return status == 0 or "terminate called without an active exception" in f.read()


def same(checks, case):
    program, python, _, varying, _, _ = CASES[case]
    with Place() as ours, Place() as theirs:
        runs = [Torchrun(ours, case, ROUNDS), Torchrun(theirs, case, ROUNDS, preloaded=False)]
        try:
            Looker.look(python, program, ours.work)  # imports meanwhile
            status = [run.process.wait(WAIT_SEC) for run in runs]
            said = [[line for line in run.lines() if line.startswith(("begun", "saved"))] for run in runs]
        finally:
            for run in runs:
                run.end()
        published = ours.recorded() if until(lambda: not ours.agent_pid(), 20) else 0
        names = tree(ours.work), tree(theirs.work)
        different = [n for n in names[0] if n in names[1] and not n.endswith("/") and not re.search(varying or "^$", n) and
                     not filecmp.cmp(ours.path(n), theirs.path(n), shallow=False)]
        found = [Looker.look(python, program, place.work) for place in (ours, theirs)]
        compared = sum(not n.endswith("/") for n in names[0])
        checks.ok(ended(status[0], ours) and ended(status[1], theirs) and said[0] == said[1] and names[0] == names[1] and not different and found[0] == found[1] and
                  found[0] and not wrong_of(found[0]) and published >= ROUNDS,
                  f"{case}: {compared} names of files, and what is in them, are the same as without the library", f"of which {published} were taken",
                  status, set(names[0]) ^ set(names[1]), different, *found, *said, savers.errors_of(ours), savers.errors_of(theirs))


class Watch(threading.Thread):
    """Looks without a pause whether what the pointer names is there: names only, which takes no time."""

    def __init__(self, place, program, ranks):
        super().__init__(daemon=True)
        self.place = place
        pointer, *self.parts = PARTS.get(program, [None])
        self.pointer = pointer and place.path(pointer)
        self.ranks, self.wrong, self.looks, self.over = ranks, [], 0, False

    def pointed(self):
        try:
            with open(self.pointer, encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return None

    def run(self):
        while not self.over and self.pointer:
            name = self.pointed()
            parts = [part.format(name, rank=rank) for part in self.parts for rank in range(self.ranks)] if name else []
            missing = [part for part in parts if not os.path.exists(self.place.path(part))]
            if missing and self.pointed() == name:
                self.wrong.append(("watched", f"the pointer says {name}", *missing))
            self.looks += 1
            time.sleep(0.0005)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.join()


class Killed:
    """The kills of a case, and what others see meanwhile."""

    def __init__(self, case, chance, place):
        self.case, self.chance, self.place = case, chance, place
        self.program, self.python = CASES[case][:2]
        self.ranks = CASES[case][4]
        self.wrong, self.looks, self.newest = [], 0, 0

    def look(self, when):
        found = Looker.look(self.python, self.program, self.place.work)
        self.looks += 1
        self.wrong += [(when, *w) for w in wrong_of(found)]
        return found

    def goes_on(self, run, saves):
        """Until it has saved so often since, looked at all the while, and some more."""
        before = len(run.numbers("saved"))
        end = time.monotonic() + WAIT_SEC
        while len(run.numbers("saved")) < before + saves:
            if time.monotonic() > end or run.process.poll() is not None:
                raise RuntimeError(f"it does not go on: {run.lines()[-3:]}")
            self.look("running")
            time.sleep(0.05)
        end = time.monotonic() + self.chance.uniform(0, 0.5)
        while time.monotonic() < end:
            self.look("running")

    def begun(self, run, when):
        """What the job had when it was killed is what it begins with, on all ranks."""
        behind = run.numbers("begun behind")[-1]
        if behind < self.newest:
            self.wrong.append((when, f"it has begun behind {behind}, and had saved {self.newest}"))

    def settle(self, when):
        until(lambda: not self.place.listed())
        found = self.look(when)
        self.wrong += [(when, *w) for w in ahead_of(found)]
        return max((number for what, number in found if ": " in what and isinstance(number, int)), default=0)

    def one(self):
        run = Torchrun(self.place, self.case, 1 << 20, restarts=3)
        try:
            self.goes_on(run, 2)
            self.newest = run.numbers("saved")[-1]
            if not run.kill_rank(self.chance.randrange(self.ranks)):
                raise RuntimeError("there is no such rank")
            starts = len(run.numbers("begun behind"))
            self.newest = max(self.newest, *run.numbers("saved"))
            while len(run.numbers("begun behind")) == starts:
                self.look("one rank was killed")
                time.sleep(0.1)
                if run.process.poll() is not None:
                    raise RuntimeError("torchrun does not begin again")
            self.begun(run, "one rank was killed")
            self.goes_on(run, 1)
        finally:
            run.end()
        self.newest = max(run_numbers(self.place, "saved"))
        self.look("all were killed")
        pointed = self.settle("all were killed, settled")
        if self.case != "trainer" and pointed < self.newest:
            self.wrong.append(("settled", f"the pointer says {pointed}, and {self.newest} was saved"))

    def all_and_agent(self):
        run = Torchrun(self.place, self.case, 1 << 20)
        try:
            self.goes_on(run, 1)
            self.begun(run, "all were killed")
            self.place.kill_agent()
        finally:
            run.end()
            self.place.kill_agent()
        self.newest = max(run_numbers(self.place, "saved"))
        self.look("all and the agent were killed")

    def to_the_end(self):
        run = Torchrun(self.place, self.case, self.newest + 2)
        try:
            status = run.process.wait(WAIT_SEC)
            self.begun(run, "all and the agent were killed")
        finally:
            run.end()
        self.settle("ended")
        if status or self.place.listed():
            self.wrong.append(("ended", status, self.place.listed()))
        if [n for n in tree(self.place.work) if ".tpck-" in n]:
            self.wrong.append(("left", tree(self.place.work)))


def run_numbers(place, word):
    with open(place.path("../said"), encoding="utf-8") as f:
        return [int(line.split()[-1]) for line in f if line.startswith(word)]


def killed(checks, case, chance):
    with Place() as place:
        seen = Killed(case, chance, place)
        with Watch(place, seen.program, seen.ranks) as watch:
            try:
                seen.one()
                seen.all_and_agent()
                seen.to_the_end()
            except RuntimeError as error:
                seen.wrong.append(("ended too early", error))
        seen.wrong += watch.wrong[:3]
        checks.ok(not seen.wrong and seen.looks > 10, f"{case}: a rank, all ranks, all and the agent were killed, and what others find is "
                  f"whole ({seen.looks} looks, {watch.looks} at names, {len(run_numbers(place, 'saved'))} saves of {seen.ranks} ranks)", *seen.wrong[:6],
                  savers.errors_of(place))


def main():
    checks = Checks()
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print(f"# SEED={seed}")
    for case in sys.argv[1:] or USUAL:
        program, python, needs, _, ranks, more = CASES[case]
        begun = time.monotonic()
        if not has(python, needs):
            checks.count += 1
            print(f"ok {checks.count} # SKIP {case}: no {' or '.join(needs)} in {python}")
            continue
        os.environ.update(RANKS=str(ranks), **more)
        as_told(checks, program, python)
        same(checks, case)
        if sys.argv[1:]:
            killed(checks, case, random.Random(f"{seed} {case}"))
        Looker.end()
        for name in more:
            del os.environ[name]
        print(f"# {case}: {time.monotonic() - begun:.1f} s", flush=True)
    checks.end()


if __name__ == "__main__":
    main()
