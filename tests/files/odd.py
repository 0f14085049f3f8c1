#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=1G about=11s disk
"""Hosts that are not as one expects: children that cannot be preloaded, no or little shared memory, no /proc, a root that is
read-only, system calls that are refused, other preloaded libraries. A program saves there what it saves without us."""
import ctypes
import errno
import os
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import WAIT_SEC, Checks, Place, run_tests, until
from view import look

# Saves as a trainer does, reads back, removes; prints what it sees and whether its last file was in memory. It goes on for
# as long as its input is open, so that what is published can be counted.
SAVES = """
import hashlib, os, sys
def save(name, data):
    with open(name, "wb") as f:
        f.write(data)
        shm = os.environ.get("TRANSPCKPT_SHM", "-")
        return "memory" if os.path.exists(shm) and os.fstat(f.fileno()).st_dev == os.stat(shm).st_dev else "disk"
for i in range(4):
    os.makedirs(f"checkpoint-{i}", exist_ok=True)
    save(f"checkpoint-{i}/rng", b"%d" % i)
    where = save(f"checkpoint-{i}/model.pt", b"%d" % i * 300000)
    save("latest.tmp", b"checkpoint-%d" % i)
    os.rename("latest.tmp", "latest")
    if i >= 2:
        os.unlink(f"checkpoint-{i - 2}/model.pt")
    here = os.open(".", os.O_RDONLY)
    os.fsync(here)
    os.close(here)
seen = [(at, sorted(names)) for at, _, names in sorted(os.walk("."))]
hashes = []
for at, names in seen:
    for name in names:
        with open(os.path.join(at, name), "rb") as f:
            hashes.append((name, hashlib.sha256(f.read()).hexdigest()))
print(hashlib.sha256(repr((seen, hashes)).encode()).hexdigest(), flush=True)
print(where, flush=True)
sys.stdin.readline()
"""


class Host:
    """Runs the program as `command` has it, with and without the library."""

    def __init__(self, place, command=(), preload=None, env=(), **more):
        self.place = place
        environment = dict(place.environment, **dict(env))
        if preload:
            environment["LD_PRELOAD"] = preload + ":" + environment["LD_PRELOAD"]
            place.plain = dict(place.plain, LD_PRELOAD=preload)
        self.program = subprocess.Popen([*command, sys.executable, "-c", SAVES], cwd=place.work, env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        self.seen = self.program.stdout.readline().strip()
        self.where = self.program.stdout.readline().strip()
        try:
            self.published = place.published()
        except (subprocess.SubprocessError, ValueError):
            self.published = 0
        self.program.stdin.close()
        self.errors = self.program.stderr.read().splitlines()
        self.status = self.program.wait(WAIT_SEC)


def compare(checks, what, host, taken, lines=0, where=None):
    with Place() as plain:
        plain.plain = host.place.plain
        done = plain.run(SAVES, preload=False, check=False, stdin=subprocess.DEVNULL)
        same = host.seen == done.stdout.split("\n")[0] != "" and look(host.place.work) == look(plain.work)
        errors = [e for e in host.errors if e not in done.stderr.splitlines()]
    checks.ok(host.status == 0 and same, f"{what}: the program and its files are as without the library", host.status, done.stderr,
              *host.errors, host.seen, sorted(look(host.place.work)))
    checks.ok((host.published > 0) == taken and (not where or host.where == where),
              f"{what}: its files are {'taken, ' + (where or 'somewhere') if taken else 'written as ever'}", host.published, host.where,
              *host.errors)
    checks.ok(len(errors) == lines, f"{what}: that is worth {lines} lines", *errors)


CHILD = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void)
{
	FILE *in = fopen("seen.pt", "r"), *out = fopen("child.pt", "w");
	const char *preload = getenv("LD_PRELOAD"), *home = getenv("NOTE");
	char line[64] = "none";
	if (in && !fgets(line, sizeof line, in))
		return 1;
	fprintf(out, "%s %s", preload ? "preload" : "-", home ? home : "-");
	if (fclose(out))
		return 2;
	printf("%s %d", line, (int)geteuid());
	return 0;
}
"""
PARENT = """
import os, subprocess, sys
for i in range(2):
    with open("seen.pt", "w") as f:
        f.write("seen %d" % i)
here = os.open(".", os.O_RDONLY)
os.fsync(here)
done = subprocess.run([sys.argv[1]], capture_output=True, text=True, env=dict(os.environ, NOTE="kept"))
print(done.returncode, done.stdout, done.stderr, open("child.pt").read())
"""


def children(checks):
    """A program without a loader, and one whose loader leaves out what is preloaded."""
    for kind, flags, mode, user in (("static", ["-static"], 0o755, None), ("setuid", [], 0o4755, 65534)):
        with Place() as place:
            child = os.path.join(place.root, kind)
            with open(child + ".c", "w", encoding="utf-8") as f:
                f.write(CHILD)
            if subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", child, child + ".c"], capture_output=True, check=False).returncode:
                print(f"# no {kind} program can be made here")
                continue
            os.chmod(child, mode)
            if user:
                if os.geteuid():
                    print("# not root: a setuid program is not tried")
                    continue
                for at in (place.root, place.work, place.shm):
                    os.chown(at, user, user)
                os.chmod(child, mode)
                # The library must be where that user may read it.
                for name in ("libtranspckpt.so", "transpckptd"):
                    source = place.library if name[0] == "l" else place.agent
                    real = os.path.join(os.path.dirname(source), ".libs", name)
                    shutil.copy(real if name[0] == "t" and os.path.exists(real) else os.path.realpath(source), place.root)
                    os.chmod(os.path.join(place.root, name), 0o755)
                place.environment.update(LD_PRELOAD=os.path.join(place.root, "libtranspckpt.so"),
                                         TRANSPCKPT_AGENT=os.path.join(place.root, "transpckptd"))
            more = {"user": user, "group": user, "extra_groups": []} if user else {}
            # One that this user may run.
            python = "/usr/bin/python3" if user else sys.executable
            if not os.path.exists(python):
                print(f"# no {python}: a {kind} program is not tried")
                continue
            done = subprocess.run([python, "-c", PARENT, child], cwd=place.work, env=place.environment, text=True, check=False,
                                  capture_output=True, timeout=WAIT_SEC, **more)
            checks.ok(done.returncode == 0 and done.stdout.strip() == f"0 seen 1 0  {'preload kept' if not user else '- kept'}"
                      and done.stderr == "",
                      f"a {kind} child runs as ever, sees what is at its path, and has its environment", done.stdout, done.stderr)
            checks.ok(until(lambda: place.content("seen.pt") == b"seen 1"), "what its parent saved is there")


def shell(script):
    """In mounts of its own."""
    return ["unshare", "-m", "sh", "-c", script + '\ncd "$PWD" && exec "$@"', "sh"]


def shared_memory(checks):
    with Place() as place:
        host = Host(place, shell(f"mount -t tmpfs -o size=64m none {place.shm} || exit 99; grep -q {place.shm} /proc/mounts || exit 98"))
        # The job's table lies in that mount, where nobody else sees it.
        host.published = 1
        compare(checks, "64 MiB of shared memory", host, True, 1, "disk")
        checks.ok("64 MiB" in "".join(host.errors), "which the line says", *host.errors)
    with Place() as place:
        host = Host(place, shell(f"mount -t tmpfs -o ro none {place.shm} || exit 99"))
        compare(checks, "shared memory that cannot be written to", host, False, 1)
    with Place() as place:
        host = Host(place, env={"TRANSPCKPT_SHM": "/nonexistent/there/is/none"})
        compare(checks, "no shared memory at all", host, False, 1)
        checks.ok(not os.path.exists("/nonexistent"), "and nothing makes that folder")


# Each is as large as the last one of its name, for which there are pages by then. Says what it finds of them before each save.
HUGE = """
import os, time
def pages():
    with open("/proc/meminfo") as f: return next(int(line.split()[1]) for line in f if line.startswith("ShmemHugePages"))
found, data = [], os.urandom(1 << 20) * 24
for i in range(4):
    with open(f"step-{i}.pt", "wb") as f: f.write(data)
    here = os.open(".", os.O_RDONLY)
    os.fsync(here)
    time.sleep(1)
    found.append(pages())
print(max(found) >> 10)
"""


def huge_pages(checks):
    """Where the tmpfs has them, what is made ready for the next file is of them."""
    with Place() as place:
        done = subprocess.run([*shell(f"mount -t tmpfs -o huge=within_size none {place.shm} || exit 99"), sys.executable, "-c", HUGE],
                              cwd=place.work, env=place.environment, capture_output=True, text=True, timeout=WAIT_SEC, check=False)
        if done.returncode == 99:
            checks.ok(True, "huge pages # SKIP the kernel has none for tmpfs")
            return
        # Two MiB at a time: the last two may be too many.
        checks.ok(done.returncode == 0 and int(done.stdout or 0) >= 22, f"a file of 24 MiB: {done.stdout.strip()} MiB are huge pages",
                  done.stderr)


def read_only_root(checks):
    with Place() as place:
        host = Host(place, shell(f"mount --bind {place.work} {place.work} && mount --bind {place.shm} {place.shm} && "
                                 "mount -o remount,bind,ro / || exit 99; ! touch /x 2>/dev/null || exit 98"))
        compare(checks, "a root that is read-only", host, True, 0, "memory")


def no_proc(checks):
    for script in ("umount -l /proc", "mount -t tmpfs none /proc"):
        with Place() as place:
            host = Host(place, shell(script + " || exit 99"))
            compare(checks, f"{script}", host, False, 0)


# Classic BPF: load the number of the system call, compare, return.
def refuse(error, *numbers):
    program = [(0x20, 0, 0, 0)]
    for i, number in enumerate(numbers):
        program.append((0x15, len(numbers) - i, 0, number))
    program += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050000 | error)]
    code = b"".join(struct.pack("HBBI", *p) for p in program)

    def install():
        libc = ctypes.CDLL(None, use_errno=True)
        buffer = ctypes.create_string_buffer(code)
        filters = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(buffer))
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, filters):
            raise OSError(ctypes.get_errno(), "prctl")
    return install


def refused(checks):
    if os.uname().machine != "x86_64":
        print("# the numbers are x86-64's")
        return
    for what, error, numbers in (
            ("io_uring", errno.EPERM, [425, 426, 427]),
            ("pidfd, userfaultfd, kcmp, membarrier, perf, memfd, statx, faccessat2, close_range", errno.EPERM,
             [434, 424, 438, 323, 312, 324, 298, 319]),
            ("what an old kernel lacks", errno.ENOSYS, [425, 434, 438, 324, 326, 436, 439, 316, 277])):
        with Place() as place:
            host = Host(place, preexec_fn=refuse(error, *numbers))
            compare(checks, f"{what}: {errno.errorcode[error]}", host, True, 0, "memory")


def preloaded(checks):
    folder = "/usr/lib/x86_64-linux-gnu"
    asan = subprocess.run([os.environ.get("CC", "cc"), "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    for name in (f"{folder}/libjemalloc.so.2", f"{folder}/libtcmalloc_minimal.so.4", os.path.realpath(asan.stdout.strip() or "-")):
        if not os.path.exists(name):
            print(f"# {name} is not here")
            continue
        for first in (True, False):
            if "asan" in name and not first:
                continue
            with Place() as place:
                more = {"ASAN_OPTIONS": "detect_leaks=0"}
                place.plain.update(more)
                if not first:
                    place.environment["LD_PRELOAD"] += ":" + name
                    place.plain["LD_PRELOAD"] = name
                host = Host(place, preload=name if first else None, env=more)
                compare(checks, f"{os.path.basename(name)} preloaded {'before' if first else 'behind'} it", host, True, 0, "memory")


NAMES = """
import os
def deep(length):
    # Made step by step: no system call takes more than 4095 bytes.
    home, path = os.getcwd(), os.fsencode(os.getcwd())
    while len(path) < length:
        left = length - len(path) - 1
        name = b"d" * (left if left <= 255 else min(255, left - 2))
        try:
            os.mkdir(name)
        except FileExistsError:
            pass
        os.chdir(name)
        path += b"/" + name
    os.chdir(home)
    return path
for folder, names in ((deep(3839), [b"n" * 252 + b".pt"]), (deep(4090), [b"a.pt"]), (deep(4000), [b"a.pt", b"\\xff\\x80" * 20 + b".pt"]),
                      (b".", [b"m" * 252 + b".pt", bytes(range(1, 47)) + bytes(range(48, 256))[:200] + b".pt", b"\\xed\\xa0\\x80.pt", b"a\\nb.pt"])):
    for name in names:
        path = os.path.join(folder, name)
        assert len(path) < 4096 and len(name) < 256
        for i in range(3):
            with open(path, "wb") as f:
                f.write(b"%d" % i * 1000 + name)
            with open(path, "rb") as f:
                assert f.read() == b"%d" % i * 1000 + name
            assert name in os.listdir(folder) and os.path.getsize(path) == 1000 + len(name)
        os.rename(path, path[:-4] + b"c.pt")
        assert not os.path.exists(path)
        with open(path, "wb") as f:
            f.write(b"again")
        os.unlink(path)
try:
    open(b"x" * 253 + b".pt", "wb")
except OSError as e:
    print(e.strerror)
try:
    open(b"./" * 2047 + b"x.pt", "wb")
except OSError as e:
    print(e.strerror)
"""


def tree(folder):
    """By descriptors: the paths may be longer than a system call takes."""
    found = {}
    for at, _, names, fd in os.fwalk(os.fsencode(folder)):
        for name in names:
            with open(os.open(name, os.O_RDONLY, dir_fd=fd), "rb") as f:
                found[os.path.relpath(os.path.join(at, name), os.fsencode(folder))] = f.read()
    return found


def names(checks):
    with Place() as place, Place() as other:
        # As long as each other, whatever was drawn.
        done, plain = place.run(NAMES, check=False), other.run(NAMES, preload=False, check=False)
        ours, theirs = tree(place.work), tree(other.work)
        checks.ok(done.returncode == plain.returncode == 0 and (done.stdout, done.stderr) == (plain.stdout, plain.stderr),
                  "names of 255 bytes, paths of 4095, names that are no text: all calls say the same", done.stdout, done.stderr,
                  plain.stdout, plain.stderr)
        checks.ok(ours == theirs and len(ours) == 8, "and the files are the same", len(ours), len(theirs),
                  [n[-60:] for n in set(ours) ^ set(theirs)])


CLOCK = r"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
/* An hour back each time somebody looks. */
static _Atomic long back;
int clock_gettime(clockid_t clock, struct timespec *now)
{
	long result = syscall(SYS_clock_gettime, clock, now);
	if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec -= 3600 * back++;
	return (int)result;
}
time_t time(time_t *to)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	if (to)
		*to = now.tv_sec;
	return now.tv_sec;
}
int gettimeofday(struct timeval *restrict to, void *restrict zone)
{
	struct timespec now;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	*to = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
	return 0;
}
"""


def clock(checks):
    """For the program and the agent."""
    with Place() as place:
        shim = os.path.join(place.root, "clock.so")
        with open(shim[:-3] + ".c", "w", encoding="utf-8") as f:
            f.write(CLOCK)
        if subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-o", shim, shim[:-3] + ".c"], check=False).returncode:
            print("# no compiler: the clock stays")
            return
        agent = os.path.join(place.root, "agent")
        with open(agent, "w", encoding="utf-8") as f:
            f.write(f'#!/bin/sh\nLD_PRELOAD={shim} exec {place.agent} "$@"\n')
        os.chmod(agent, 0o755)
        compare(checks, "a clock that goes backwards", Host(place, preload=shim, env={"TRANSPCKPT_AGENT": agent}), True, 0, "memory")


# What it has saved as root is pending when it becomes another user.
ANOTHER_USER = """
import os
def tries(what):
    try: print(what, eval(what))
    except OSError as error: print(what, error)
os.mkdir("open"); os.chmod("open", 0o777)
for name in ("a.pt", "open/b.pt", "open/c.pt"):
    with open(name, "wb") as f: f.write(b"of root")
os.setuid(65534)
for name in ("a.pt", "open/b.pt"):
    for call in ("open('%s', 'rb').read()", "open('%s', 'wb')", "open('%s', 'r+b')", "os.truncate('%s', 3)", "os.chmod('%s', 0o777)",
                 "os.path.getsize('%s')"):
        tries(call % name)
for call in ("os.unlink('a.pt')", "os.rename('a.pt', 'z.pt')", "os.rename('a.pt', 'open/z.pt')", "os.rename('open/b.pt', 'z.pt')",
             "os.unlink('open/b.pt')", "os.rename('open/c.pt', 'open/d.pt')", "open('open/own.pt', 'wb').write(b'mine')",
             "open('own.pt', 'wb')", "os.stat('open/own.pt').st_uid", "os.listdir('.')", "sorted(os.listdir('open'))"):
    tries(call)
"""


def another_user(checks):
    """A process that gives up its rights: it may do no more to what it has saved than the kernel lets it."""
    if os.geteuid():
        print("# not root: a process that becomes another user is not tried")
        return
    said, left = [], []
    for preload in (False, True):
        with Place() as place:
            os.chmod(place.work, 0o755)
            os.chmod(os.path.dirname(place.work), 0o755)
            said.append(place.run(ANOTHER_USER, preload=preload))
            left.append(sorted((name, place.content(name)) for name in ("a.pt", "open/b.pt", "open/c.pt", "open/d.pt", "open/own.pt")))
    checks.ok(said[0] == said[1] and left[0] == left[1] and "Permission denied" in said[0],
              "who becomes another user may do what it may without the library", *said, *left)


def main():
    checks = Checks()
    mounts = [shared_memory, huge_pages, read_only_root, no_proc]
    tests = [children, refused, preloaded, names, clock, another_user, *mounts]
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode:
        print("# no mount namespace:", *[test.__name__ for test in mounts], "are not tried")
        tests = [test for test in tests if test not in mounts]
    run_tests(checks, tests)


if __name__ == "__main__":
    main()
