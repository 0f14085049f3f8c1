# SPDX-License-Identifier: Apache-2.0
"""A stage's cases: each is a process group of its own with an alarm, and leaves one line of JSON whatever becomes of it. A hang is
a result, with the stacks of all threads; what does not fit into the stage's time is a result, too."""
import ctypes
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import stacks

MARK = "TPCK_KIT_CASE"
# How much longer than on an idle machine cases may take.
PATIENCE = float(os.environ.get("PATIENCE") or 1)
# Results that stand for something a person should look at.
BAD = ("failed", "hung", "stuck")
PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Processes whose parents end come to this one, so that none is lost sight of."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parents():
    """Process -> parent, of all that can be seen."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = stacks.read(f"/proc/{entry}/stat").rpartition(")")[2].split()
            # One that has ended, but for a thread that cannot, is still there.
            if len(fields) > 17 and (fields[0] not in "ZX" or int(fields[17]) > 1):
                found[int(entry)] = int(fields[1])
    return found


def descendants(root):
    of, found, new = parents(), set(), {root}
    while new:
        found |= new
        new = {pid for pid, parent in of.items() if parent in new} - found
    return found - {os.getpid()}


def marked(mark):
    """Those of this process's descendants that have it in their environment. Orphans are among them: they are adopted."""
    found = set()
    for pid in descendants(os.getpid()):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if f"{MARK}={mark}".encode() in f.read().split(b"\0"):
                    found.add(pid)
        except OSError:
            pass
    return found


def end(pids, seconds=3):
    """Kills them, and returns those that are there all the same."""
    until = time.monotonic() + seconds
    while True:
        left = {pid for pid in pids if pid in parents()}
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except (ProcessLookupError, PermissionError, ChildProcessError):
                pass
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.02)


def stacks_of(pids, seconds=20):
    """By a process of its own: what holds the memory map of a process may hold up who looks at it."""
    with tempfile.TemporaryFile("w+") as out:
        looker = subprocess.Popen([sys.executable, "-B", stacks.__file__, *map(str, pids)], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL,
                                  start_new_session=True)
        try:
            looker.wait(seconds)
        except subprocess.TimeoutExpired:
            looker.kill()
        out.seek(0)
        return [json.loads(line) for line in out if line.endswith("}\n")]


def merged(text):
    """The objects among the lines as one; what comes as "row" is gathered in "rows"."""
    found = {}
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                given = json.loads(line)
            except ValueError:
                continue
            if "row" in given:
                found.setdefault("rows", []).append(given.pop("row"))
            found.update(given)
    return found


def tail(text, size=3000):
    return text if len(text) <= size else "[...]\n" + text[-size:]


class Stage:
    """One stage. `limit` is in seconds; `patterns` are those of the names of the cases that are wanted, or none for all."""

    def __init__(self, name, results, work, limit, patterns=()):
        self.name, self.patterns, self.work = name, patterns, work
        self.begun, self.limit = time.monotonic(), limit
        self.rows, self.lock = [], threading.Lock()
        self.count = 0
        os.makedirs(results, exist_ok=True)
        self.results = open(os.path.join(results, name + ".jsonl"), "a", encoding="utf-8")  # the last line of a case is what counts

    def left(self):
        return self.begun + self.limit - time.monotonic()

    def wanted(self, case):
        return not self.patterns or any(fnmatch.fnmatchcase(case, pattern) for pattern in self.patterns)

    def say(self, case, result, **details):
        row = {"stage": self.name, "case": case, "result": result, **details}
        with self.lock:
            self.results.write(json.dumps(row) + "\n")
            self.results.flush()
            os.fsync(self.results.fileno())
            self.rows.append(row)
            print(f"{result:8} {case}" + (f"  {row['seconds']:.1f} s" if "seconds" in row else ""), flush=True)
        return row

    def run(self, case, argv, seconds, about=1, environment=None, judge=None):
        """Runs one case, unless it is not wanted or there is no time for it: `about` is what it takes at least. `judge` is given the
        exit status and what was printed and said, and returns details, the result among them."""
        if not self.wanted(case):
            return None
        if self.left() < about:
            return self.say(case, "not run", why=f"{self.left():.0f} s were left of the stage's {self.limit:.0f}")
        with self.lock:
            self.count += 1
            mark = f"{os.getpid()}.{self.name}.{self.count}"
        folder = os.path.join(self.work, mark)
        shm = f"/dev/shm/tpck-kit.{mark}"
        for made in (folder, shm):
            os.makedirs(made)
        try:
            return self.run_in(folder, mark, case, argv, seconds, {"TPCK_TEST_SHM": shm, **(environment or {})}, judge)
        finally:
            for made in (folder, shm):
                shutil.rmtree(made, ignore_errors=True)

    def run_in(self, folder, mark, case, argv, seconds, environment, judge):
        env = {**os.environ, "TMPDIR": folder, MARK: mark, **environment}
        out, err = (os.path.join(folder, name) for name in ("out", "err"))
        begun = time.monotonic()
        with open(out, "wb") as to, open(err, "wb") as said:
            try:
                process = subprocess.Popen(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=to, stderr=said, start_new_session=True)
            except OSError as error:
                return self.say(case, "failed", why=f"{argv[0]}: {error}")
        seconds *= PATIENCE
        hung, alarm = None, min(seconds, self.left())
        try:
            status = process.wait(alarm)
        except subprocess.TimeoutExpired:
            status = None
            hung = stacks_of(marked(mark) | descendants(process.pid))
        took = time.monotonic() - begun
        details, left = self.clean_up(process, mark, status)
        printed, said = stacks.read(out), stacks.read(err)
        found = {**merged(printed), **((judge(status, printed, said) or {}) if judge else {})}
        result = found.pop("result", "passed" if status == 0 else "failed")
        if status is None:
            result = "hung" if alarm == seconds else "cut off"  # by the end of the stage's time
            found.update(alarm_s=round(alarm, 1), stacks=hung)
        elif status and result in ("passed", "moved"):
            result = "failed"
        if result in BAD:
            found.setdefault("status", status)
            found.update(printed=tail(printed), said=tail(said))
        if left:
            found["left"] = left
        return self.say(case, result, seconds=round(took, 2), **found, **details)

    @staticmethod
    def clean_up(process, mark, status):
        """Ends what is there of the case. Those that end by themselves when it ends have a moment for it."""
        family = lambda: marked(mark) | (descendants(process.pid) if process.poll() is None else set())
        until = time.monotonic() + (1 if status is not None else 0)
        while family() and time.monotonic() < until:
            time.sleep(0.02)
        pids = family()
        left = sorted({stacks.read(f"/proc/{pid}/comm").strip() for pid in pids}) if status is not None else []
        stay = set()
        for _ in range(3):  # one that was just being started may have been missed
            stay = end(family())
        process.poll()
        return ({"not_killable": sorted(stay)} if stay else {}), left

    def close(self):
        """Ends what is left of all cases. Returns whether none of them was bad."""
        self.results.close()
        end(descendants(os.getpid()))
        counts = {}
        for row in self.rows:
            counts[row["result"]] = counts.get(row["result"], 0) + 1
        print(f"\n{self.name}: " + ", ".join(f"{count} {result}" for result, count in sorted(counts.items())) +
              f" ({time.monotonic() - self.begun:.0f} s)")
        return not any(row["result"] in BAD for row in self.rows)
