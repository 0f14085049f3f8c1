# SPDX-License-Identifier: Apache-2.0
"""One script of PyTorch, as a process of its own: plain, with the library switched off and on, and killed and started again. What is
found is printed at once, as lines of JSON: script_case.py SPECIFICATION (JSON; see main)."""
import json
import os
import re
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "torch"), os.path.join(HERE, "..", "..", "e2e")]
import job
import scripts

STEP = re.compile(r"(rank \d+ .*)?(step|iter) (\d+)")
WARM = 10  # steps that are not judged
OTHER = "it printed something else"
TRIED, LEAST, MOST = 30, 60, 30000  # steps of the first run, and of the others


def say(**found):
    print(json.dumps(found), flush=True)


def spread(times):
    """Median, 99th percentile and longest of the steps' milliseconds, or nothing."""
    steps = sorted((b - a) * 1e3 for a, b in zip(times[WARM:], times[WARM + 1:]))
    return [round(steps[int(len(steps) * part)], 3) for part in (0.5, 0.99)] + [round(steps[-1], 3)] if steps else None


def mean(times):
    """Milliseconds of a step, or nothing. Steps that are short come in crowds, and their median says little."""
    steps = len(times) - 1 - WARM
    return round((times[-1] - times[WARM]) * 1e3 / steps, 3) if steps > 0 else None


class Case:
    def __init__(self, place, spec):
        self.place, self.spec = place, spec
        repeatable = [] if spec.get("own") else [os.path.join(HERE, "..", "scripts", "repeatable.py")]
        self.script = [spec["python"], "-W", "ignore", *repeatable, *spec["script"]]
        self.argv = [*self.script, "--steps", str(TRIED)]
        self.run = [os.path.join(place.build, "transpckpt"), "run", "--"]
        self.environment = {**place.environment, **scripts.caches(os.path.join(place.root, "caches")), **spec.get("environment", {})}
        self.remarks, self.found, self.shown = [], {}, None

    def settings(self, name, **more):
        return {**self.environment, "TRANSPCKPT_JOB": name, **more}

    def folder(self, name):
        made = os.path.join(self.place.root, name)
        os.makedirs(made, exist_ok=True)
        return made

    def timed(self, name, argv, environment, beside=None):
        """Runs it to its end, with the time of each line that is printed."""
        begun, times, lines = time.monotonic(), [], []
        with open(os.path.join(self.place.root, name + ".err"), "wb") as said:
            process = subprocess.Popen(argv, cwd=self.folder(name), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, text=True)
        watcher = beside and threading.Thread(target=beside, args=(process, begun))
        if watcher:
            watcher.start()
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if STEP.match(line):
                times.append(time.monotonic())
        status = process.wait()
        if watcher:
            watcher.join()
        err = job.read(os.path.join(self.place.root, name + ".err"))
        self.remember(err)
        found = {f"{name}_ms": spread(times), f"{name}_mean_ms": mean(times), f"{name}_first_step_s": round(times[0] - begun, 2) if times else None,
                 f"{name}_s": round(time.monotonic() - begun, 2)}
        if status:
            found.update({f"{name}_status": status, f"{name}_said": err[-2000:]})
        say(**found)
        self.found.update(found)
        return status, lines

    def remember(self, said):
        for line in said.splitlines():
            if line.startswith("transpckpt: ") and line not in self.remarks and len(self.remarks) < 60:
                self.remarks.append(line)
        say(remarks=self.remarks)

    def choose_steps(self):
        """As many as take the time that was given, by a run of a few. Its status."""
        if os.environ.get("STEPS"):
            self.argv = [*self.script, "--steps", os.environ["STEPS"]]
            return 0
        status, _ = self.plain("tried")
        mean = self.found.get("tried_mean_ms")
        steps = max(LEAST, min(MOST, int(self.spec["seconds"] * 1e3 / max(mean, 1e-3)))) if mean else LEAST
        self.argv = [*self.script, "--steps", str(steps)]
        say(steps=steps)
        return status

    def plain(self, name="plain"):
        return self.timed(name, self.argv, {k: v for k, v in self.environment.items() if not k.startswith("TRANSPCKPT_")})

    def disabled(self):
        return self.timed("disabled", self.run + self.argv, self.settings("disabled", TRANSPCKPT_DISABLE="1"))

    def rows(self, name, *command):
        try:
            return json.loads(self.place.command(*command, "--json", TRANSPCKPT_JOB=name).stdout or "[]")
        except ValueError:
            return []

    def on(self):
        def watch(process, begun):
            first, last = None, None
            while process.poll() is None:
                if first is None and any(row["offered"] for row in self.rows("on", "ls")):
                    first = time.monotonic() - begun
                    say(first_snapshot_s=round(first, 2))
                last = next((row for row in self.rows("on", "show") if row.get("running")), last)
                time.sleep(0.15)
            self.shown = last
            say(show=last)
        # As users have it, not as often as tests do.
        environment = self.settings("on")
        for name in ("TRANSPCKPT_INTERVAL", "TRANSPCKPT_DURABLE_INTERVAL"):
            if name not in self.spec.get("settings", {}):
                del environment[name]
        return self.timed("on", self.run + self.argv, environment, watch)

    def killed(self, lines):
        """Killed once it has got half way and there is something to go on from, and started again. Returns status, what both printed,
        and where it went on."""
        goal, starts = max(len(lines) // 2, 5), []
        for i in range(2):
            starts.append(job.Start(self.place, self.run + self.argv, self.folder("killed"), self.settings("killed", **self.spec.get("killed", {})), f"start{i}"))
            if i == 0:
                starts[0].until(lambda: starts[0].printed().count("\n") >= goal and
                                any(row["offered"] and row["resumable"] for row in self.rows("killed", "ls")), 120)
                say(killed_at=starts[0].printed().count("\n"), ended_before=not starts[0].running())
                starts[0].kill()
        status = starts[1].wait()
        live = job.LIVE.search(starts[1].said())
        for start in starts:
            self.remember(start.said())
        say(resumed_at=int(live[1]) if live else None, forward_s=float(live[2]) if live else None, inject_s=float(live[3]) if live else None)
        if status:
            say(killed_status=status, killed_said=starts[1].said()[-2000:])
        return status, "".join(start.printed() for start in starts), bool(live)


def judge(this, spec):
    """What is wrong, or nothing; None where nothing can be said."""
    status = this.choose_steps()
    wanted = []
    if not status:
        status, wanted = this.plain()
    if status:
        say(result="refused", why=f"it does not run here without the library: status {status}")
        return None
    wrong = []
    if "disabled" in spec["phases"]:
        status, lines = this.disabled()
        wrong += [f"disabled: status {status}"] if status else [f"disabled: {OTHER}"] if lines != wanted else []
    if "on" in spec["phases"]:
        status, lines = this.on()
        wrong += [f"on: status {status}"] if status else [f"on: {OTHER}"] if lines != wanted else []
        wrong += [] if this.shown else ["on: no agent knew of it"]
    if "killed" in spec["phases"]:
        status, printed, resumed = this.killed(wanted)
        wrong += [f"killed: status {status}"] if status else []
        wrong += [] if resumed else ["killed: it did not go on at a snapshot"]
        lines, first = job.each_once(printed), job.each_once("\n".join(wanted))
        if not status and lines != first:
            wrong.append(f"killed: {OTHER}")
            say(printed_else=[line for line in lines if line not in first][:5])
    if any(OTHER in line for line in wrong):
        again = this.plain("again")[1]
        say(repeatable=again == wanted)
        if again != wanted and all(OTHER in line for line in wrong):
            say(result="unsure", why="two runs without the library differ, too")
            return None
    return "; ".join(wrong)


def main():
    """The specification: python, script (with its arguments), phases (disabled, on, killed), seconds that a run's steps are to take, and
    maybe environment, settings, those of the phase killed beside, and whether it is not one of PyTorch's (own)."""
    spec = json.loads(sys.argv[1])
    with job.Place(**spec.get("settings", {})) as place:
        wrong = judge(Case(place, spec), spec)
    if wrong is not None:
        say(result="failed" if wrong else "passed", **({"why": wrong} if wrong else {}))


main()
