# SPDX-License-Identifier: Apache-2.0
"""The rows of the bench as they come: a table on standard output, and on standard error what is about to be measured."""
import contextlib
import os
import signal
import sys
import time

import compare

# A group that hangs is one that failed.
LIMIT_SEC = int(os.environ.get("LIMIT_SEC") or 600)
# What others take of the processors before it is said.
BUSY = 0.25


class LeftOut(Exception):
    """What a group needs is not here; the text says what."""


def number(x):
    return "" if x is None else f"{x:.0f}" if abs(x) >= 1000 else f"{x:.3g}"


def seconds_told(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def processors_busy(seconds=0.3):
    """The part of all processors' time that somebody uses while the bench does nothing."""
    def read():
        with open("/proc/stat", encoding="ascii") as f:
            fields = [int(n) for n in f.readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    all_before, idle_before = read()
    time.sleep(seconds)
    all_after, idle_after = read()
    return 1 - (idle_after - idle_before) / max(all_after - all_before, 1)


class Table:
    """Rows and groups of one run of the bench, beside the committed ones."""

    def __init__(self, reference, names, known, out=None, tell=None):
        self.reference, self.names, self.known = reference, names, known
        self.before = {compare.key(row): row for row in reference["rows"]}
        self.out, self.err = out or sys.stdout, tell or sys.stderr
        self.rows, self.groups, self.problems = [], {}, []
        self.group = None
        print(f"{'what':70} {'figure':>8} {'baseline':>9} {'unit':7} {'ratio':>8}   {'aim':16}", file=self.out, flush=True)

    def row(self, name, figure, baseline=None, unit="", ratio=None, ratios=(), tolerance=None, aim="", note=""):
        """`ratios` are those of the rounds. Without rounds, `tolerance` is what the ratio may differ by from run to run."""
        if ratio is None and baseline:
            ratio = figure / baseline
        # The median of one list by that of another may lie outside of what pairs show.
        shown = [ratio, *ratios] if ratio is not None else [None]
        this = {"group": self.group, "name": name, "figure": figure, "baseline": baseline, "unit": unit, "ratio": ratio, "low": min(shown),
                "high": max(shown), "rounds": len(ratios), "tolerance": tolerance, "aim": aim, "note": note}
        if compare.key(this) in map(compare.key, self.rows):
            raise ValueError(f"two rows {name}")
        self.rows.append(this)
        old = self.before.get(compare.key(this))
        mark = "*" if old and compare.has_moved(this, old) else " "
        print(f"{name:70} {number(figure):>8} {number(baseline):>9} {unit:7} {'' if ratio is None else f'{ratio:.3f}':>8}{mark}  {aim:16} {note}",
              file=self.out, flush=True)

    def say(self, text):
        print(f"bench: {text}", file=self.err, flush=True)

    def step(self, what):
        """A part of the group begins."""
        self.say(f"    {self.group}: {what}")

    def left_out(self, what, why):
        """A part of the group cannot be measured here."""
        self.problem("left out", what, why)

    def failed(self, what, why):
        """A part of the group should have been measured, and was not."""
        self.problem("failed", what, why)

    def problem(self, kind, what, why):
        self.problems.append((kind, what, why))
        group = self.groups[self.group]
        if group["state"] != "failed":
            group["state"] = kind
        print(f"# {kind}: {what}: {why}", file=self.out, flush=True)

    def measure(self, name, what, function, limit=LIMIT_SEC):
        """One group. Whatever goes wrong in it ends with it."""
        self.group, busy = name, processors_busy()
        group = self.groups[name] = {"state": "begun", "seconds": None, "busy": round(busy, 2)}
        took = self.reference["groups"].get(name, {}).get("seconds")
        self.say(f"{self.names.index(name) + 1} of {len(self.names)}: {name}: {what}" + (f"; about {seconds_told(took)}" if took else "")
                 + (f"; other work takes {busy:.0%} of the processors" if busy > BUSY else ""))
        begun = time.monotonic()

        def too_long(*_):
            raise TimeoutError(f"not done after {limit} s")

        before = signal.signal(signal.SIGALRM, too_long)
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            # What a test's own code prints is no row.
            with contextlib.redirect_stdout(self.err):
                function()
            if group["state"] == "begun":
                group["state"] = "measured"
        except LeftOut as why:
            self.left_out(name, why)
        except SystemExit as end:
            (self.left_out if end.code == 77 else self.failed)(name, f"it ended with {end.code}")
        except Exception as error:  # pylint: disable=broad-exception-caught
            self.failed(name, f"{type(error).__name__}: {error} {(getattr(error, 'stderr', '') or '').strip()[-500:]}".strip())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            group["seconds"] = round(time.monotonic() - begun, 1)

    def whole(self):
        """The groups of which nothing is lacking, and those that are no more."""
        gone = [name for name in self.reference["groups"] if name not in self.known]
        return [name for name, group in self.groups.items() if group["state"] == "measured"] + gone

    def results(self):
        return {"groups": self.groups, "rows": self.rows}

    def end(self, where):
        """What has moved, what failed, and what took how long. `where` names the committed results. Returns the exit status."""
        print(file=self.out)
        if self.before:
            for line in compare.Comparison(self.rows, self.reference, self.whole()).lines():
                print(f"# beside {where}: {line}" if line[0].isdigit() else f"# {line}", file=self.out)
        else:
            print(f"# {where} has nothing to compare with", file=self.out)
        for kind, what, why in self.problems:
            print(f"# {kind}: {what}: {why}", file=self.out)
        took = sorted(self.groups.items(), key=lambda item: -item[1]["seconds"])
        print(f"# {seconds_told(sum(group['seconds'] for _, group in took))}: " + ", ".join(f"{name} {group['seconds']:.0f} s" for name, group in took),
              file=self.out)
        return 1 if any(kind == "failed" for kind, _, _ in self.problems) else 0
