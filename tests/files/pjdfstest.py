#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pjdfstest (github.com/pjd/pjdfstest), whose sources PJDFSTEST names: what it says of system calls on files is the same without the
library, with it, and with every file taken, on the disk of TMPDIR and on a tmpfs. Arguments name families (rename), or files of one
(rename/00); FILE_SYSTEMS=disk leaves the tmpfs out."""
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import Checks, Place
from job import skip

MODES = {"plain": None, "default": {}, "all": {"TRANSPCKPT_FILES": "*"}}
VERDICT = re.compile(r"^(not ok|ok) (\d+)")
SECONDS = 600


def ready(root):
    """The sources copied and built."""
    sources = os.environ.get("PJDFSTEST")
    if not sources or not os.path.exists(os.path.join(sources, "pjdfstest.c")):
        skip("PJDFSTEST names no folder with the sources of pjdfstest")
    if os.geteuid():
        skip("pjdfstest needs root")
    if not shutil.which("openssl"):
        skip("pjdfstest needs openssl")
    built = os.path.join(root, "pjdfstest")
    shutil.copytree(sources, built, ignore=shutil.ignore_patterns(".git"))
    for command in ("autoreconf -ifs", "./configure", "make pjdfstest"):
        done = subprocess.run(command.split(), cwd=built, capture_output=True, text=True, check=False)
        if done.returncode:
            skip(f"pjdfstest does not build: {command}: {done.stderr.strip()[-200:]}")
    return built


def tests_of(built):
    every = sorted(os.path.relpath(path, os.path.join(built, "tests"))[:-2] for path in glob.glob(os.path.join(built, "tests/*/*.t")))
    return [name for name in every if not sys.argv[1:] or name in sys.argv[1:] or os.path.dirname(name) in sys.argv[1:]]


def verdicts(place, built, name, preload):
    """What one file of it says: number and verdict of each test, and all text."""
    folder = tempfile.mkdtemp(dir=place.work)
    os.chmod(folder, 0o755)
    done = subprocess.run(["sh", os.path.join(built, "tests", name + ".t")], cwd=folder, env=place.environment if preload else place.plain,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False, timeout=SECONDS)
    found = {int(m[2]): m[1] for m in map(VERDICT.match, done.stdout.splitlines()) if m}
    return found, done.stdout


def run_all(built, at, names, settings):
    with Place(at, **(settings or {})) as place:
        for folder in (place.root, place.work):
            os.chmod(folder, 0o755)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            seen = dict(zip(names, pool.map(lambda name: verdicts(place, built, name, settings is not None), names)))
        return seen, place.recorded()


def line_of(text, number):
    return next((line for line in text.splitlines() if re.match(rf"^(not )?ok {number}\b", line)), "")


def compare(checks, built, names, kind, at):
    seen, taken = {}, {}
    for mode, settings in MODES.items():
        seen[mode], taken[mode] = run_all(built, os.path.join(at, mode), names, settings)
    plain = seen["plain"]
    count, good = sum(len(found) for found, _ in plain.values()), sum(list(found.values()).count("ok") for found, _ in plain.values())
    for mode in ("default", "all"):
        differ = [f"{name} {number}: plain {plain[name][0].get(number)}, with the library: {line_of(text, number) or 'nothing'}"
                  for name, (found, text) in seen[mode].items() for number in sorted(set(found) | set(plain[name][0])) if found.get(number) != plain[name][0].get(number)]
        checks.ok(count and not differ and (mode != "all" or taken[mode]),
                  f"{kind}, {mode}: {count} verdicts of {len(names)} files are those without the library, of which {good} are good; digests of {taken[mode]} files were kept",
                  *differ)


def main():
    checks = Checks()
    root = tempfile.mkdtemp(prefix="tpck-pjdfstest.")
    os.chmod(root, 0o755)
    try:
        built = ready(root)
        names = tests_of(built)
        for kind in os.environ.get("FILE_SYSTEMS", "disk tmpfs").split():
            at = os.path.join(root, kind)
            os.mkdir(at)
            os.chmod(at, 0o755)
            # In a mount namespace of its own: nothing of it is left.
            if kind == "tmpfs" and subprocess.run(["mount", "-t", "tmpfs", "none", at], check=False).returncode:
                print("# tmpfs: mounting is not allowed")
                continue
            compare(checks, built, names, kind, at)
            if kind == "tmpfs":
                subprocess.run(["umount", "-l", at], check=False)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    checks.end()


if __name__ == "__main__":
    if not os.geteuid() and shutil.which("unshare") and not os.environ.get("TPCK_OWN_MOUNTS") and \
       not subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        os.environ["TPCK_OWN_MOUNTS"] = "1"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, "-B", os.path.abspath(sys.argv[0]), *sys.argv[1:]])
    main()
