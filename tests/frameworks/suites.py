#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=90s disk
"""What the makers of CPython, PyTorch and safetensors test of files: each test has the same outcome with the preload as
without it, be it that the usual files are taken or every one. Arguments name suites: `suites.py test_os`. ALL=1 leaves
nothing out for its time."""
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../files"))
from place import SKIP, Checks, Place

CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "transpckpt")
PACKAGES = os.path.join(CACHE, "suites/bin/python")
# Every file is taken, which shows most; beside it the usual ones, where a suite writes files by many names.
BOTH = ["auto", "*"]
# The makers, a suite of theirs, its modules and classes, and which files are taken.
SUITES = [
    ("cpython", "test_fileio", ["test.test_fileio"], ["*"]),
    ("cpython", "test_os", ["test.test_os"], BOTH),
    ("cpython", "test_shutil", ["test.test_shutil"], BOTH),
    ("cpython", "test_tempfile", ["test.test_tempfile"], ["*"]),
    ("cpython", "test_mmap", ["test.test_mmap"], ["*"]),
    ("cpython", "test_posix", ["test.test_posix"], ["*"]),
    ("cpython", "test_pathlib", ["test.test_pathlib"], ["*"]),
    ("cpython", "test_glob", ["test.test_glob"], ["*"]),
    ("cpython", "test_fcntl", ["test.test_fcntl"], ["*"]),
    ("cpython", "test_io", ["test.test_io"], ["*"]),
    ("cpython", "test_subprocess", ["test.test_subprocess"], ["*"]),
    ("torch", "torch.save, jit.save, torch.package, DCP", [
        "test_serialization", "jit.test_save_load", "test_package", "distributed.checkpoint.test_planner",
        "distributed.checkpoint.test_file_system_checkpoint_cpu.TestDistributedStateDictSaveLoad"], ["*"]),
    ("safetensors", "safetensors", ["tests.test_" + name for name in (
        "handle", "multithreaded", "pread_backend", "pt_comparison", "pt_model", "simple", "threadable")], ["*"]),
]
# Parts of names of tests that are left out for their time. Of CPython it is half of all: they wait for alarms, sleep, fight
# for a lock of the interpreter, or do with pipes and standard streams again what others do. Of PyTorch: files of 2 GiB.
SLOW = {
    "cpython": ["SignalsTest.", ".test_daemon_threads_", ".test_threads", "timeout", ".test_communicate_repeated_call_", "_dead",
                "NoPoll.", "_swap_std_fds_", "leaking_fds"],
    "torch": ["test_serialization_2gb_file", "OldSerialization.test_serialization_offset", "_njt_weights_only_should_import"],
}
# Left out because it may be otherwise: a child `tar` says that a folder changed as it read it, and ends with 1, where files are
# put into it meanwhile (doc/files.md).
OTHERWISE = ["test_tarfile_vs_tar"]
QUIET = {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
MOST_SEC = 400 if os.environ.get("ALL") else 200

RUNNER = """
import importlib, inspect, json, sys, types, unittest
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
def load(name):
    # Functions too, as pytest finds them.
    yield unittest.defaultTestLoader.loadTestsFromName(name)
    try:
        module = vars(importlib.import_module(name))
    except ImportError:
        return
    yield unittest.TestSuite(unittest.FunctionTestCase(f) for n, f in module.items() if n.startswith("test_") and
                             isinstance(f, types.FunctionType) and not inspect.signature(f).parameters)
sys.path.insert(0, "")
suite = unittest.TestSuite(chosen([found for name in names for found in load(name)]))
unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Result).run(suite)
json.dump(Result.seen, open(out, "w"))
"""


def cpython():
    """A Python that has its tests: Debian's have a package of their own."""
    for python in (sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", "import test.test_io, test.test_os"], check=False,
                                                     capture_output=True).returncode == 0:
            return python, None
    return None, "no Python here has its tests (libpython3-testsuite)"


def sources(maker):
    """A Python that has the package, and the tests, which are no part of it."""
    folder = os.path.join(CACHE, "suites", maker)
    if os.path.exists(PACKAGES) and os.path.isdir(folder):
        return PACKAGES, folder
    return None, f"no tests in {folder}"


def outcomes(python, folder, names, left_out, glob):
    """Of each test, in new folders; the end of what was said; how many files were taken. `glob` None: without the preload."""
    with Place() as place, tempfile.TemporaryDirectory() as aside:
        environment = dict(place.plain if glob is None else place.environment, TMPDIR=place.work, **(QUIET if folder else {}))
        if glob is not None:
            environment["TRANSPCKPT_FILES"] = glob
        if folder:
            shutil.copytree(folder, place.work, dirs_exist_ok=True)
        out = os.path.join(aside, "outcomes")
        taken = 0
        with open(os.path.join(aside, "said"), "w+", encoding="utf-8", errors="replace") as said:
            process = subprocess.Popen([python, "-B", "-c", RUNNER, out, json.dumps(left_out), *names], cwd=place.work, env=environment,
                                       stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
            end = time.monotonic() + MOST_SEC
            while process.poll() is None and time.monotonic() < end:
                taken = max(taken, place.published()) if glob else 0
                time.sleep(0.05)
            hung = process.poll() is None
            if hung:
                process.kill()
                process.wait()
            said.seek(0)
            text = said.read() + ("\nit hung\n" if hung else "")
        try:
            with open(out, encoding="utf-8") as f:
                return json.load(f), text, taken
        except FileNotFoundError:
            return {}, text, taken


def check(checks, python, folder, suite):
    """How many files were taken in the run that takes every one. A short suite ends before anybody has counted."""
    maker, name, names, globs = suite
    left_out = OTHERWISE + (SLOW.get(maker, []) if not os.environ.get("ALL") else [])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda glob: outcomes(python, folder, names, left_out, glob), [None, *globs]))
    plain, said, _ = runs[0]
    # A run that tests nothing has no other outcomes either.
    if not checks.ok("ok" in plain.values() and "_FailedTest" not in " ".join(plain), f"{name} runs", said[-2000:]):
        return 0
    for glob, (seen, said, taken) in zip(globs, runs[1:]):
        other = [f"{test}: {plain.get(test)}, preloaded {seen.get(test)}" for test in sorted({*plain, *seen})
                 if plain.get(test) != seen.get(test)]
        checks.ok(not other, f"{name}: {len(plain)} tests, TRANSPCKPT_FILES={glob}, {taken} files taken",
                  *other[:20], said[-6000:])
    return sum(taken for glob, (_, _, taken) in zip(globs, runs[1:]) if glob == "*")


def main():
    checks = Checks()
    makers = {"cpython": cpython(), **{maker: sources(maker) for maker in ("torch", "safetensors")}}
    if not any(python for python, _ in makers.values()):
        print("1..0 # SKIP " + "; ".join(why for _, why in makers.values()))
        sys.exit(SKIP)
    taken = {}
    for suite in SUITES:
        if sys.argv[1:] and not {*suite[:2]} & {*sys.argv[1:]}:
            continue
        begun = time.monotonic()
        python, folder = makers[suite[0]]
        if python:
            taken[suite[0]] = taken.get(suite[0], 0) + check(checks, python, folder, suite)
        else:
            checks.count += 1
            print(f"ok {checks.count} # SKIP {suite[1]}: {folder}")
        print(f"# {suite[1]}: {time.monotonic() - begun:.1f} s", flush=True)
    for maker, files in taken.items():
        checks.ok(files, f"{maker}: {files} files taken")
    checks.end()


if __name__ == "__main__":
    main()
