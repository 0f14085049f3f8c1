#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of `make check` side by side: each when what it needs is free, the longest first.

Arguments: the tests, as in Automake's TESTS. Each test's log is still made by Automake's own rule and driver, and the
summary by Automake's rule for it; this program decides when. What a test needs stands in one line of it:

    # needs: cores=0.5 memory=1G minutes=4 about=80s alone slurm

cores    how much of the processors it keeps busy (default 1): tests that mostly wait say little, and run side by side
memory   the most that it takes, shared memory included (default 256M)
minutes  after which it is taken for hung, is ended and has failed (default 12; three times that where LOAD is set)
about    how long it takes alone (default 2s), until there is a time of its own from an earlier run
alone    it measures, and nothing else may run meanwhile
disk     its temporary files have to be where TMPDIR says, or in /tmp. Root gives the others a file system in memory, which goes
         with the suite: a disk that all sync to is what they would wait for
another word    a thing of which there is one on the machine: tests with the same word run one after the other

Environment: CORES, as many processors as tests may fill (default: all); REPEAT=20, each test so many times; LOAD=2, two
endless builds beside the tests; PART=2/5, the second of five parts of about the same length; FAIL_FAST=1, no test
begins once one has failed; AGAIN=2, what failed beside others is run so many times once all are through, with half of the processors for
such tests together, and has passed if it does each time: for machines that others use, and what it says of such a test is still a fault of
somebody's."""
import argparse
import atexit
import collections
import ctypes
import heapq
import json
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

DEFAULTS = {"cores": 1.0, "memory": 256 << 20, "minutes": 12.0, "about": 2.0}
# A compiled test has its line in its source.
SOURCES = (".c", ".cc", ".cu", "")
NEEDS = re.compile(r"^(?:#|//|/?\s?\*)\s*needs: (.+?)(?:\s*\*/)?$", re.M)
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
# In the environment of all that a test starts, so that what it leaves running is found.
MARK = "TPCK_SUITE_TEST"
TIMES = "tests/suite/times.json"
# So many that fail are no matter of chance, and are not run again.
AGAIN_MOST = 6
BAD = ("FAIL", "ERROR", "XPASS")
# Of the processors so much may be asked for: more than there is, since tests wait now and then; and half, so that nobody waits for them.
BUSY, QUIET = 1.25, 0.5
# Words that are no thing of which there is one.
NO_THINGS = {"alone", "disk"}
CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 0x4000, 1 << 18, 2


class Problem(Exception):
    """A line for whoever called."""


def needed(text, name):
    """What a test's line asks for: (numbers by name, words)."""
    numbers, words = dict(DEFAULTS), set()
    line = NEEDS.search(text)
    for word in line[1].split() if line else ():
        key, is_number, value = word.partition("=")
        if not is_number:
            words.add(word)
            continue
        if key not in DEFAULTS:
            raise Problem(f"{name}: needs: there is no '{key}', only {', '.join(DEFAULTS)} and words")
        unit = value[-1:] if key == "memory" else "s" if key == "about" else ""
        factor = UNITS.get(unit, 1)
        try:
            numbers[key] = float(value.removesuffix(unit) if unit in UNITS or unit == "s" else value) * factor
        except ValueError:
            raise Problem(f"{name}: needs: {word}: not a number") from None
    return numbers, words


class Test:
    def __init__(self, name, source_folder):
        self.name = name
        self.log = re.sub(r"\.(sh|py)$", "", name) + ".log"
        self.numbers, self.words = needed(self._text(source_folder), name)
        self.left = 0  # runs that are still to come
        self.results, self.seconds, self.cpu, self.seen = [], [], [], []
        self.expected = self.numbers["about"]

    def _text(self, source_folder):
        for ending in SOURCES:
            path = os.path.join(source_folder, self.name + ending)
            if os.path.isfile(path) and (ending or path.endswith((".sh", ".py"))):
                with open(path, encoding="utf-8") as f:
                    return f.read(4096)
        return ""


class Run:
    """One run of one test."""

    def __init__(self, test, process, output, group):
        self.test, self.process, self.output, self.group = test, process, output, group
        self.begun = time.monotonic()
        self.hung = False
        self.seen = collections.Counter()  # what its processes were at, a word a look

    def look(self):
        """Notes which programs of it ran, or, if none did, which ones it waited for."""
        at_work, asleep = set(), set()
        todo = [self.process.pid]
        while todo:
            pid = todo.pop()
            try:
                with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                    children = [int(word) for word in f.read().split()]
                with open(f"/proc/{pid}/stat", "rb") as f:
                    name, _, rest = f.read().decode(errors="replace").partition("(")[2].rpartition(")")
            except OSError:
                continue
            todo += children
            if rest.split()[0] in "RD":
                at_work.add(name)
            elif not children:
                asleep.add(name)
        self.seen.update([f"{name} at work" for name in at_work] or [f"{name} asleep" for name in asleep])
        self.seen.update([""])


def environment_of(pid):
    """Of a process that is about to execute another program it reads as nothing for a moment."""
    for _ in range(5):
        with open(f"/proc/{pid}/environ", "rb") as f:
            text = f.read()
        # The kernel's threads, and what has ended, have no program.
        if text or not os.path.exists(f"/proc/{pid}/exe"):
            break
        time.sleep(0.002)
    return text.split(b"\0")


def marked(mark):
    """Processes that a test started, however they got away from it."""
    found, wanted = [], f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        try:
            if wanted in environment_of(int(entry)):
                found.append(int(entry))
        except (OSError, ValueError):
            pass
    return [pid for pid in found if pid != os.getpid()]


def name_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return " ".join(os.path.basename(word.decode(errors="replace")) for word in f.read().split(b"\0")[:3])
    except OSError:
        return "?"


def end_all(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def group_of_mine():
    """The control group of version 2 that this process is in, where it may make others in it, or None."""
    try:
        with open("/proc/self/mounts", encoding="utf-8") as f:
            mounts = [line.split()[1] for line in f if line.split()[2] == "cgroup2"]
        with open("/proc/self/cgroup", encoding="utf-8") as f:
            mine = [line[3:].strip() for line in f if line.startswith("0::")]
        found = os.path.join(mounts[0], mine[0].lstrip("/"))
        return found if os.access(os.path.join(found, "cgroup.procs"), os.W_OK) and os.access(found, os.W_OK) else None
    except (OSError, IndexError):
        return None


class Group:
    """The processors' time of a test with all that it starts: agents are nobody's children, and only a control group counts them."""

    # Whoever is to be counted goes there, and becomes the program.
    ENTER = ["sh", "-c", '{ echo $$ >"$0/cgroup.procs"; } 2>/dev/null; exec "$@"']

    def __init__(self, parent, name):
        self.path = os.path.join(parent, name)
        os.mkdir(self.path)

    @classmethod
    def made(cls, parent, name):
        """One, or None where there are none to be had."""
        try:
            return cls(parent, name) if parent else None
        except OSError:
            return None

    def seconds(self):
        try:
            with open(os.path.join(self.path, "cpu.stat"), encoding="ascii") as f:
                return int(re.search(r"^usage_usec (\d+)", f.read(), re.M)[1]) / 1e6
        except (OSError, TypeError):
            return 0.0

    def end(self):
        """Who was killed a moment ago may still be in it."""
        for _ in range(20):
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.02)


def memory_available():
    with open("/proc/meminfo", encoding="ascii") as f:
        return int(re.search(r"MemAvailable:\s+(\d+)", f.read())[1]) << 10


def part_of(tests, part):
    """The K-th of N parts that take about as long as one another: always the same ones, from what tests say of themselves."""
    found = re.fullmatch(r"(\d+)/(\d+)", part)
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise Problem(f"PART={part}: not K/N with K from 1 to N")
    which, count = int(found[1]), int(found[2])
    parts = [(0.0, i, []) for i in range(count)]
    for test in sorted(tests, key=lambda t: (-cost(t), t.name)):
        took, i, inside = heapq.heappop(parts)
        inside.append(test)
        heapq.heappush(parts, (took + cost(test), i, inside))
    return [inside for _, i, inside in parts if i == which - 1][0]


def cost(test):
    """Of the machine's time, about."""
    return test.numbers["about"] * max(min(test.numbers["cores"], 2), 0.2)


def spell(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def file_system_in_memory():
    """A folder that is one, for this process and what it starts alone; None where it cannot be had, or is not wanted."""
    if os.geteuid() != 0 or os.environ.get("TMPDIR") or memory_available() < 8 << 30:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    # In a namespace of mounts of its own, so that it goes with the last process, whatever ends this one.
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        return None
    folder = tempfile.mkdtemp(prefix="tpck-suite.")
    if libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"size=50%,mode=1777"):
        os.rmdir(folder)
        return None
    atexit.register(lambda: (libc.umount2(folder.encode(), MNT_DETACH), os.rmdir(folder)))
    return folder


class Suite:
    def __init__(self, tests, options):
        self.tests, self.options = tests, options
        self.cores = float(os.environ.get("CORES") or os.cpu_count())
        self.load = int(os.environ.get("LOAD") or 0)
        self.memory = memory_available() * 3 // 4
        self.running, self.selector = [], selectors.DefaultSelector()
        self.left_behind = collections.Counter()
        self.done = self.begun = 0
        self.groups = group_of_mine()
        self.room, self.again = BUSY, False
        self.temporary = file_system_in_memory()
        self.environment = {**os.environ, "MAKEFLAGS": self._make_flags()}
        self.environment.pop("MAKELEVEL", None)
        self.broken = False
        self.looked = time.monotonic()

    @staticmethod
    def _make_flags():
        """Variables that make was called with, and nothing of its jobs."""
        flags = os.environ.get("MAKEFLAGS", "")
        return "-- " + flags.split("-- ", 1)[1] if "-- " in flags else ""

    def fits(self, test):
        if not self.running:
            return True
        others = [run.test for run in self.running]
        if "alone" in test.words or any("alone" in other.words or other.words & test.words - NO_THINGS or other is test for other in others):
            return False
        return (sum(o.numbers["cores"] for o in others) + min(test.numbers["cores"], self.cores) <= self.room * self.cores + 1e-6 and
                sum(o.numbers["memory"] for o in others) + test.numbers["memory"] <= self.memory)

    def begin(self, test):
        for path in (test.log, test.log[:-4] + ".trs"):
            if os.path.exists(path):
                os.unlink(path)
        test.left -= 1
        environment = {**self.environment, MARK: f"{os.getpid()}.{test.name}"}
        if self.temporary and "disk" not in test.words:
            environment["TMPDIR"] = self.temporary
        output = tempfile.TemporaryFile()
        self.begun += 1
        group = Group.made(self.groups, f"tpck-suite.{os.getpid()}.{self.begun}")
        process = subprocess.Popen([*([*Group.ENTER, group.path] if group else []), *self.options.make, "-s", "--no-print-directory", "-o", "Makefile",
                                    test.log], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        run = Run(test, process, output, group)
        self.running.append(run)
        self.selector.register(os.pidfd_open(process.pid), selectors.EVENT_READ, run)

    def limit(self, run):
        return run.test.numbers["minutes"] * 60 * (3 if self.load else 1)

    def wait(self):
        """Until a test has ended, or one has been running for too long."""
        now = time.monotonic()
        first = min(run.begun + self.limit(run) for run in self.running)
        for key, _ in self.selector.select(min(max(first - now, 0) + 0.01, 0.25)):
            self.selector.unregister(key.fd)
            os.close(key.fd)
            self.ended(key.data)
        if time.monotonic() > self.looked + 0.5:
            self.looked = time.monotonic()
            for run in self.running:
                run.look()
        for run in self.running:
            if not run.hung and time.monotonic() > run.begun + self.limit(run):
                run.hung = True
                end_all([pid for pid in marked(f"{os.getpid()}.{run.test.name}") if pid != run.process.pid])

    def ended(self, run):
        _, status, used = os.wait4(run.process.pid, 0)
        run.process.returncode = os.waitstatus_to_exitcode(status)
        self.running.remove(run)
        test, seconds = run.test, time.monotonic() - run.begun
        self.done += 1
        left = marked(f"{os.getpid()}.{test.name}")
        # What is on its way out is not left running.
        until = time.monotonic() + 1
        while left and time.monotonic() < until:
            time.sleep(0.05)
            left = marked(f"{os.getpid()}.{test.name}")
        if left:
            self.left_behind.update({test.name: len(left)})
            names = ", ".join(sorted({name_of(pid) for pid in left}))
            with open(test.log, "a", encoding="utf-8") as log:
                print(f"# the suite ended what this test had left running: {names}", file=log)
            end_all(left)
        result = self.result(test)
        if run.hung:
            result = "FAIL"
            with open(test.log, "a", encoding="utf-8") as log:
                print(f"not ok - it was ended after {self.limit(run) / 60:.0f} minutes", file=log)
        test.results.append(result)
        test.seconds.append(seconds)
        test.cpu.append(max(used.ru_utime + used.ru_stime, run.group.seconds() if run.group else 0))
        if run.group:
            run.group.end()
        test.seen.append(run.seen)
        run.output.seek(0)
        said = run.output.read().decode(errors="replace").strip().splitlines()
        run.output.close()
        lines = [f"{result}: {test.name}", *(line for line in said if not re.match(r"make(\[\d+\])?: |(FAIL|ERROR|X?PASS|XFAIL|SKIP)[: ]", line))]
        print(f"{lines[0]} ({spell(seconds)}, {test.cpu[-1] / seconds:.1f} cores{', hung' if run.hung else ''})", *lines[1:], sep="\n", flush=True)
        if result in BAD:
            self.broken = True
            if self.again:
                test.left = 0
            if self.options.repeat > 1:
                shutil.copy(test.log, f"{test.log}.{len(test.results)}")
                print(f"  its log is {test.log}.{len(test.results)}", flush=True)

    @staticmethod
    def result(test):
        try:
            with open(test.log[:-4] + ".trs", encoding="utf-8") as f:
                return re.search(r":global-test-result: (\w+)", f.read())[1]
        except (OSError, TypeError):
            # Nobody made one: the program is not built, or the driver was ended.
            for path, text in ((test.log, ""), (test.log[:-4] + ".trs", ":test-result: ERROR\n:global-test-result: ERROR\n"
                                                ":recheck: yes\n:copy-in-global-log: yes\n")):
                with open(path, "a", encoding="utf-8") as f:
                    f.write(text)
            return "ERROR"

    def load_begins(self):
        """Endless builds: what a machine that is used does beside the tests."""
        source = os.path.join(self.options.srcdir, "runtime/infer/infer.c")
        if self.load and not os.path.exists(source):
            raise Problem(f"LOAD: there is no {source} to build")
        compiler = os.environ.get("CC", "cc")
        build = (f"while kill -0 {os.getpid()} 2>/dev/null; do {compiler} -std=gnu11 -D_GNU_SOURCE -O2 -I{shlex.quote(self.options.srcdir)} -I. "
                 f"-c -o /dev/null {shlex.quote(source)} || exit 1; done")
        return [subprocess.Popen(["sh", "-c", build], start_new_session=True, stdin=subprocess.DEVNULL) for _ in range(self.load)]

    def run(self):
        for test in self.tests:
            test.left = self.options.repeat
        load = self.load_begins()
        try:
            self.run_what_is_left(load)
        finally:
            for run in self.running:
                end_all(marked(f"{os.getpid()}.{run.test.name}"))
                if run.group:
                    run.group.end()
            for process in load:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def run_again(self, times):
        """What failed, once all are through and the machine is quiet. One that passes each time has passed, and a line says what its first run had to say."""
        bad = [test for test in self.tests if test.results[-1:] and test.results[-1] in BAD]
        if not bad or len(bad) > AGAIN_MOST or os.environ.get("FAIL_FAST"):
            return
        print(f"\n{len(bad)} of them again, on a quiet machine, {times} times", flush=True)
        self.room, self.again = QUIET, True
        for test in bad:
            shutil.copy(test.log, f"{test.log}.first")
            test.left = times
        self.run_what_is_left([])
        for test in bad:
            if not set(test.results[-times:]) & set(BAD):
                print(f"failed beside others, and passed {times} times on a quiet machine: {test.name}; its first log is {test.log}.first",
                      *what_failed(f"{test.log}.first"), sep="\n  ", flush=True)

    def run_what_is_left(self, load):
        while self.running or any(test.left for test in self.tests):
            self.begin_what_fits()
            if not self.running:
                break
            self.wait()
            if any(process.poll() is not None for process in load):
                raise Problem("LOAD: the build beside the tests does not work")

    def begin_what_fits(self):
        if self.broken and os.environ.get("FAIL_FAST"):
            return
        # What waits for a thing of which there is one has the time of all that wait for it before it.
        behind = collections.Counter()
        for test in self.tests:
            for word in test.words - NO_THINGS:
                behind[word] += test.left * test.expected
        waiting = [test for test in self.tests if test.left]
        waiting.sort(key=lambda t: ("alone" in t.words, -max([t.left * t.expected, *(behind[w] for w in t.words - NO_THINGS)]), -t.expected))
        for test in waiting:
            if "alone" in test.words and self.running:
                continue
            if self.fits(test):
                self.begin(test)

    # -- times --

    @staticmethod
    def times_paths():
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return [TIMES, os.path.join(cache, "transpckpt", "test-times.json")]

    def know_times(self):
        """From this build's last run, or from another build's of the same user."""
        for path in reversed(self.times_paths()):
            try:
                with open(path, encoding="utf-8") as f:
                    times = json.load(f)
                for test in self.tests:
                    test.expected = float(times.get(test.name, test.expected))
            except (OSError, ValueError, TypeError, AttributeError):
                pass

    def keep_times(self):
        if self.load:
            return
        for path in self.times_paths():
            try:
                with open(path, encoding="utf-8") as f:
                    times = json.load(f)
                if not isinstance(times, dict):
                    times = {}
            except (OSError, ValueError):
                times = {}
            times.update({test.name: round(min(test.seconds), 1) for test in self.tests if test.results and set(test.results) == {"PASS"}})
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path), delete=False, encoding="utf-8") as f:
                    json.dump(times, f, indent=0, sort_keys=True)
                os.replace(f.name, path)
            except OSError:
                pass

    def tell_times(self, took):
        ran = [test for test in self.tests if test.seconds]
        print(f"\n{sum(len(t.seconds) for t in ran)} runs of {len(ran)} tests in {spell(took)}; one after the other they take "
              f"{spell(sum(sum(t.seconds) for t in ran))}, of which {spell(sum(sum(t.cpu) for t in ran))} of a processor")
        slowest = sorted(ran, key=lambda t: -max(t.seconds))[:10]
        if len(ran) > 10:
            print("The ten slowest, and what they wait for:")
            for test in slowest:
                at = max(range(len(test.seconds)), key=test.seconds.__getitem__)
                print(f"  {test.seconds[at]:6.1f} s  {test.name}: {waits_for(test, at)}")
        for line in says_otherwise(ran, self.cores):
            print(line)
        for name, count in self.left_behind.most_common():
            print(f"left running by {name}: {count} processes, which were ended")

    def tell_repeats(self):
        bad = [t for t in self.tests if set(t.results) - {"PASS", "SKIP", "XFAIL"}]
        for test in bad:
            counts = collections.Counter(test.results)
            print(f"{test.name}: {', '.join(f'{n} {what}' for what, n in counts.items())}")
        print(f"{len(self.tests) - len(bad)} of {len(self.tests)} tests passed all of {self.options.repeat} times"
              f"{f' beside {self.load} endless builds' if self.load else ''}")
        # One bad run is a bad test, whatever the last one said.
        for test in bad:
            with open(test.log[:-4] + ".trs", "w", encoding="utf-8") as f:
                f.write(":test-result: FAIL\n:global-test-result: FAIL\n:recheck: yes\n:copy-in-global-log: yes\n")


def what_failed(log):
    """The lines of a log that say so, with a few behind each."""
    with open(log, encoding="utf-8", errors="replace") as f:
        lines = f.read().splitlines()
    wanted = {at for i, line in enumerate(lines) if line.startswith(("not ok", "Traceback")) for at in range(i, i + 6)}
    return [lines[i][:300] for i in sorted(wanted) if i < len(lines) and not lines[i].startswith("ok ")][:40]


def waits_for(test, at):
    """In words. Without control groups what the library's agents use is not in the share of a processor: they are nobody's children."""
    seen, looks = test.seen[at], test.seen[at][""] or 1
    words = [f"{test.cpu[at] / test.seconds[at]:.0%} of a processor"]
    words += [f"{what} {count / looks:.0%}" for what, count in seen.most_common(5) if what and count > looks / 10]
    if things := sorted(test.words - NO_THINGS):
        words.append(f"has {', '.join(things)} for itself")
    if "alone" in test.words:
        words.append("nothing runs beside it")
    return ", ".join(words)


def says_otherwise(tests, cores):
    """Lines on those whose `cores` is not what they use: too much keeps others waiting, too little has others wait for a processor."""
    found = []
    for test in tests:
        says, seconds, uses = min(test.numbers["cores"], cores), sum(test.seconds), sum(test.cpu) / sum(test.seconds)
        if "alone" not in test.words and seconds > 5 and not 0.6 * uses - 0.1 < says < 1.6 * uses + 0.1:
            found.append((abs(says - uses) * seconds, f"  {test.name} says cores={says:g} and uses {uses:.1f}"))
    return [*(["What tests need of processors, and say otherwise:"] if found else []), *(line for _, line in sorted(found, reverse=True)[:10])]


def about(tests, cores):
    """How long a run of these takes at least: the processors' time, the longest one, and what must be one after another."""
    alone = sum(t.expected for t in tests if "alone" in t.words)
    others = [t for t in tests if "alone" not in t.words]
    things = collections.Counter()
    for test in others:
        for word in test.words - NO_THINGS:
            things[word] += test.expected
    work = sum(t.expected * min(t.numbers["cores"], cores) for t in others) / cores
    return alone + max([work, *things.values(), *(t.expected for t in others)], default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--make", default="make", type=shlex.split, help="how make is called")
    parser.add_argument("--srcdir", default=os.environ.get("srcdir", "."))
    parser.add_argument("--recheck", action="store_true", help="only those whose last result asks for it")
    parser.add_argument("--list", action="store_true", help="say what would run, and what each needs")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    try:
        options.repeat = int(os.environ.get("REPEAT") or 1)
        tests = [Test(name, options.srcdir) for name in dict.fromkeys(options.tests)]
        if options.recheck:
            tests = [t for t in tests if asks_again(t)]
        if os.environ.get("PART"):
            tests = part_of(tests, os.environ["PART"])
        suite = Suite(tests, options)
        suite.know_times()
        if options.list or asked_what_for():
            for test in sorted(tests, key=lambda t: -t.expected):
                print(f"{test.expected:6.1f} s  {test.numbers['cores']:4.1f} cores  {test.numbers['memory'] / (1 << 20):6.0f} MiB  "
                      f"{test.name}  {' '.join(sorted(test.words))}")
            return 0
        if len(tests) > 1:
            part = f", part {os.environ['PART']}" if os.environ.get("PART") else ""
            times = f", {options.repeat} times" if options.repeat > 1 else ""
            print(f"{len(tests)} tests{part}{times}, about {spell(about(tests, suite.cores) * options.repeat)}", flush=True)
        begun = time.monotonic()
        try:
            suite.run()
            if int(os.environ.get("AGAIN") or 0) and options.repeat == 1:
                suite.run_again(int(os.environ["AGAIN"]))
        except KeyboardInterrupt:
            print("\ninterrupted: what was running has been ended", file=sys.stderr)
            return 130
        suite.keep_times()
        if options.repeat > 1:
            suite.tell_repeats()
    except Problem as problem:
        print(f"suite: {problem}", file=sys.stderr)
        return 2
    ran = [test for test in tests if test.results]
    status = subprocess.run([*options.make, "--no-print-directory", "test-suite.log", f"TEST_LOGS={' '.join(t.log for t in ran)}"],
                            env=suite.environment, check=False).returncode
    suite.tell_times(time.monotonic() - begun)
    return status


def asked_what_for():
    """Whether make was called with -n: this program is run all the same."""
    first = (os.environ.get("MAKEFLAGS") or "").split(" ")[0]
    return not first.startswith("-") and "=" not in first and "n" in first


def asks_again(test):
    try:
        with open(test.log[:-4] + ".trs", encoding="utf-8") as f:
            return ":recheck: no" not in f.read()
    except OSError:
        return True


if __name__ == "__main__":
    sys.exit(main())
