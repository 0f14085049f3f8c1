#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CPython's own tests of files and processes: each has the same outcome with the preload as without it, be it that the usual
files are taken or every one. Arguments name suites: `cpython.py test_os`."""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../files"))
from place import SKIP, Checks, Place

SUITES = ["test_fileio", "test_os", "test_shutil", "test_tempfile", "test_mmap", "test_posix", "test_pathlib", "test_glob",
          "test_fcntl", "test_io", "test_subprocess"]
# Parts of names of tests that are left out for their time, half of all: they wait for alarms, sleep, fight for a lock of the
# interpreter, or do with pipes and standard streams again what others do.
SLOW = ["SignalsTest.", ".test_daemon_threads_", ".test_threads", "timeout", ".test_communicate_repeated_call_", "_dead", "NoPoll.",
        "_swap_std_fds_", "leaking_fds"]
# Left out because it may be otherwise: a child `tar` says that a folder changed as it read it, and ends with 1, where files are
# put into it meanwhile (doc/files.md).
OTHERWISE = ["test_tarfile_vs_tar"]
# Every file is taken, which shows most; beside it the usual ones, where a suite writes files by many names.
GLOBS = {"test_os": ["auto", "*"], "test_shutil": ["auto", "*"]}
MOST_SEC = 200

RUNNER = """
import json, sys, unittest
class Result(unittest.TextTestResult):
    seen = {}
    def put(self, test, what):
        if self.seen.get(test.id(), "ok") == "ok":
            self.seen[test.id()] = what
    def addSuccess(self, test):
        super().addSuccess(test); self.put(test, "ok")
    def addError(self, test, error):
        super().addError(test, error); self.put(test, "error")
    def addFailure(self, test, error):
        super().addFailure(test, error); self.put(test, "fail")
    def addSkip(self, test, reason):
        super().addSkip(test, reason); self.put(test, "skip")
    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error); self.put(test, "expected failure")
    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test); self.put(test, "unexpected success")
    def addSubTest(self, test, part, error):
        super().addSubTest(test, part, error)
        if error:
            self.put(test, "fail")
out, slow, names = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
def chosen(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            kept = unittest.TestSuite(chosen(test))
            if kept.countTestCases():
                yield kept
        elif not any(word in test.id() for word in slow):
            yield test
load = unittest.defaultTestLoader.loadTestsFromName
suite = unittest.TestSuite(chosen([load("test." + name) for name in names]))
unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Result).run(suite)
json.dump(Result.seen, open(out, "w"))
"""


def interpreter():
    """A Python that has its tests: Debian's have a package of their own."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", "import test.test_io, test.test_os"], check=False,
                                                     capture_output=True).returncode == 0:
            return python
    print("1..0 # SKIP no Python here has its tests (libpython3-testsuite)")
    sys.exit(SKIP)


def outcomes(python, suite, glob):
    """Of each test of the suite, in new folders; and the end of what was said. `glob` None: without the preload."""
    with Place() as place, tempfile.TemporaryDirectory() as folder:
        environment = dict(place.plain if glob is None else place.environment, TMPDIR=place.work)
        if glob is not None:
            environment["TRANSPCKPT_FILES"] = glob
        out = os.path.join(folder, "outcomes")
        try:
            done = subprocess.run([python, "-B", "-c", RUNNER, out, json.dumps(SLOW + OTHERWISE), suite], cwd=place.work, env=environment,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=MOST_SEC,
                                  check=False, encoding="utf-8", errors="replace")
            said = done.stdout
        except subprocess.TimeoutExpired as hung:
            said = (hung.stdout or b"").decode(errors="replace") + "\nit hung\n"
        try:
            with open(out, encoding="utf-8") as f:
                return json.load(f), said
        except FileNotFoundError:
            return {}, said


def main():
    checks = Checks()
    python = interpreter()
    for suite in sys.argv[1:] or SUITES:
        begun = time.monotonic()
        globs = GLOBS.get(suite, ["*"])
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(lambda glob, suite=suite: outcomes(python, suite, glob), [None, *globs]))
        plain, said = runs[0]
        # A run that tests nothing has no other outcomes either.
        if checks.ok("ok" in plain.values(), f"{suite} runs", said[-2000:]):
            for glob, (seen, said) in zip(globs, runs[1:]):
                other = [f"{test}: {plain.get(test)}, preloaded {seen.get(test)}" for test in sorted({*plain, *seen})
                         if plain.get(test) != seen.get(test)]
                checks.ok(not other, f"{suite}: {len(plain)} tests, TRANSPCKPT_FILES={glob}", *other[:20], said[-6000:])
        print(f"# {suite}: {time.monotonic() - begun:.1f} s")
    checks.end()


if __name__ == "__main__":
    main()
