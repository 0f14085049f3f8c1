#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 about=15s disk
"""Which programs' files are recognised: those that save what they have computed, and not those that copy, pack, build, edit or start what others have made.
Programs that are here do their work on checkpoints; for all others a program that writes one has their name."""
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import WAIT_SEC, Checks, Place, run_tests, stand_still, until

# Left alone. What is done with a.pt, which is there, or makes one; None: by its name alone.
TOOLS = {
    "bash": ["bash", "-c", "cat a.pt > b.pt"], "dash": ["dash", "-c", "echo x > b.pt"], "zsh": None, "fish": None, "busybox": None,
    "cp": ["cp", "a.pt", "b.pt"], "mv": ["mv", "a.pt", "b.pt"], "dd": ["dd", "if=a.pt", "of=b.pt", "status=none"], "install": ["install", "a.pt", "b.pt"],
    "split": ["split", "-b", "1000", "--additional-suffix=.pt", "a.pt", "checkpoint-3/"], "sed": ["sed", "-i", "s/a/b/", "a.pt"],
    "sort": ["sort", "-o", "b.pt", "a.pt"], "tee": ["sh", "-c", "tee b.pt < a.pt"], "rsync": None, "scp": None, "curl": ["curl", "-s", "-o", "b.pt", "file://{}/a.pt"],
    "wget": None, "rclone": None, "tar": ["sh", "-c", "tar cf t.tar a.pt && rm a.pt && tar xf t.tar"], "cpio": None, "unzip": None, "gzip": ["sh", "-c", "gzip a.pt && gzip -d a.pt.gz"],
    "xz": ["sh", "-c", "xz -0 a.pt && xz -d a.pt.xz"], "zstd": None, "git": ["sh", "-c", "git init -q . && git add a.pt && rm a.pt && git checkout -q a.pt"],
    "svn": None, "make": ["sh", "-c", "printf 'b.pt: a.pt\\n\\tcp a.pt b.pt\\n' > Makefile && make -s b.pt"], "cmake": ["cmake", "-E", "copy", "a.pt", "b.pt"],
    "ninja": None, "cc1": None, "x86_64-linux-gnu-gcc-12": None, "x86_64-linux-gnu-ld.bfd": None, "rustc": None, "nvcc": None, "dpkg-deb": None, "rpm": None,
    "pacman": None, "vim.basic": None, "nano": None, "ed": None, "sqlite3": ["sqlite3", "model.ckpt", "create table t(x); insert into t values(1)"], "ffmpeg": None, "jq": None,
    "srun": None, "mpirun": ["mpirun", "--version"], "env": ["env", "cp", "a.pt", "b.pt"], "timeout": ["timeout", "5", "cp", "a.pt", "b.pt"],
    "ls": ["ls", "-lR", "."], "du": ["du", "."], "stat": None, "diff": None, "sha256sum": ["sha256sum", "a.pt"],
    "find": ["find", "a.pt", "-exec", "cp", "{}", "b.pt", ";"],
}
# Taken.
SAVE = "open('b.pt', 'wb').write(b'x' * 100000)"
SAVERS = {
    "python3": [sys.executable, "-c", SAVE], "python3, by a shell": ["sh", "-c", f'{sys.executable} -c "{SAVE}"'],
    "python3, by env and timeout": ["env", "A=1", "timeout", "20", sys.executable, "-c", SAVE], "perl": ["perl", "-e", 'open(F, ">b.pt"); print F "x" x 100000; close F'],
    "a script that is called like a tool": ["./cp"], "python3.13": None, "pypy3": None, "julia": None, "R": None, "node": None, "java": None, "lua5.4": None, "ruby3.1": None,
    "octave-cli": None, "trainer": None, "gpt": None, "lammps": None, "gromacs": None, "cp2k": None, "train-tar": None, "make_model": None, "a.out": None,
}


def prepared(place, name):
    """A folder with a checkpoint in it, made by somebody else."""
    folder = os.path.join(place.work, name.replace(" ", "_"))
    os.makedirs(os.path.join(folder, "checkpoint-3"))
    with open(os.path.join(folder, "a.pt"), "wb") as f:
        f.write(b"a line\n" * 10000)
    script = os.path.join(folder, "cp")
    with open(script, "w", encoding="utf-8") as f:
        f.write(f"#!{sys.executable}\n{SAVE}\n")
    os.chmod(script, 0o755)
    return folder


def takes(place, name, command):
    """Whether anything was taken, which an agent of the job's is there for; and what went wrong."""
    folder, job = prepared(place, name), f"j{len(os.listdir(place.work))}"
    if command is None:
        program = os.path.join(folder, name)
        shutil.copy(os.path.join(os.environ.get("builddir", "."), "tests/files/writer"), program)
        command = [program, "b.pt"]
    done = subprocess.run([word.replace("{}", folder) if "://" in word else word for word in command], cwd=folder, capture_output=True, text=True, check=False,
                          env={**place.environment, "TRANSPCKPT_JOB": job}, timeout=60)
    return os.path.exists(os.path.join(place.shm, job)), [done.returncode, done.stdout, done.stderr] if done.returncode else []


def here(command):
    return command is None or shutil.which(command[0]) or command[0].startswith("./")


def test_tools(checks):
    with Place() as place:
        found = {name: takes(place, name, command if here(command) else None) for name, command in TOOLS.items()}
        checks.ok(not any(taken or wrong for taken, wrong in found.values()), f"{len(TOOLS)} tools: none of their files is taken",
                  *(f"{name}: {result}" for name, result in found.items() if result[0] or result[1]))


def test_savers(checks):
    with Place() as place:
        found = {name: takes(place, name, command) for name, command in SAVERS.items() if here(command)}
        checks.ok(len(found) >= 20 and all(taken and not wrong for taken, wrong in found.values()), f"{len(found)} savers: the files of all are taken",
                  *(f"{name}: {result}" for name, result in found.items() if not result[0] or result[1]))


def test_asked(checks):
    with Place(TRANSPCKPT_FILES="auto:*.pt") as place:
        checks.ok(takes(place, "cp", TOOLS["cp"])[0], "what a glob of the user's asks for is taken, whoever writes it")
    with Place() as place:
        checks.ok(takes(place, "sh", ["sh", "-c", "echo checkpoint-3 > latest"])[0], "so is what says that others are whole")


# Each look at a.pt is told before and behind it, and what opens it waits until it may: by files in a folder that STEPS names.
SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static int concerns(const char *path)
{
	return path && strlen(path) >= 4 && strcmp(path + strlen(path) - 4, "a.pt") == 0;
}
static const char *in(const char *name)
{
	static char path[4096];
	snprintf(path, sizeof path, "%s/%s", getenv("STEPS"), name);
	return path;
}
static void tell(const char *path, const char *what)
{
	if (concerns(path))
		syscall(SYS_close, syscall(SYS_openat, -100, in(what), 0101, 0600));
}
static void wait_for(const char *path)
{
	while (concerns(path) && syscall(SYS_faccessat, -100, in("go"), F_OK))
		usleep(1000);
}
#define OPEN(name) int name(const char *path, int flags, int mode) { wait_for(path); return ((int (*)(const char *, int, int))dlsym(RTLD_NEXT, #name))(path, flags, mode); }
#define OPENAT(name) int name(int at, const char *path, int flags, int mode) { wait_for(path); return ((int (*)(int, const char *, int, int))dlsym(RTLD_NEXT, #name))(at, path, flags, mode); }
#define LOOK(name, parameters, ...) int name parameters { int result; tell(path, "looking"); result = ((int (*) parameters)dlsym(RTLD_NEXT, #name))(__VA_ARGS__); tell(path, "looked"); return result; }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64) OPEN(__open_2) OPEN(__open64_2) OPENAT(__openat_2) OPENAT(__openat64_2)
LOOK(stat, (const char *path, void *found), path, found) LOOK(stat64, (const char *path, void *found), path, found)
LOOK(lstat, (const char *path, void *found), path, found) LOOK(lstat64, (const char *path, void *found), path, found)
LOOK(fstatat, (int at, const char *path, void *found, int flags), at, path, found, flags)
LOOK(fstatat64, (int at, const char *path, void *found, int flags), at, path, found, flags)
LOOK(statx, (int at, const char *path, int flags, unsigned mask, void *found), at, path, flags, mask, found)
LOOK(__xstat, (int version, const char *path, void *found), version, path, found) LOOK(__xstat64, (int version, const char *path, void *found), version, path, found)
LOOK(__lxstat, (int version, const char *path, void *found), version, path, found) LOOK(__lxstat64, (int version, const char *path, void *found), version, path, found)
LOOK(__fxstatat, (int version, int at, const char *path, void *found, int flags), version, at, path, found, flags)
LOOK(__fxstatat64, (int version, int at, const char *path, void *found, int flags), version, at, path, found, flags)
"""
# From its second time on a file is written in memory.
COPIES = """
import os, sys
def save(count):
    with open("a.pt", "wb") as f: f.write(b"x" * count)
    print("saved", flush=True)
    sys.stdin.readline()
save(90000)
save(100000)
os.environ["LD_PRELOAD"] = sys.argv[1] + ":" + os.environ["LD_PRELOAD"]
os.execvp(sys.argv[2], sys.argv[2:])
"""


def sleeps(pid):
    """How often a process has given up the processor to wait for something."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        return int(next(line for line in f if line.startswith("voluntary_ctxt_switches")).split()[1])


def has_looked(steps, pid):
    """The first look at the file has ended, or waits for the agent: time and again, where nothing else is to be waited for."""
    slept = sleeps(pid)
    return until(lambda: os.path.exists(os.path.join(steps, "looked")) or sleeps(pid) > slept + 3)


def test_copied(checks):
    """A file that was saved a moment ago, and comes to its path between two looks at it: the agent stands still until the first look has
    been, or waits, and the file is not opened before it is at its path."""
    for tool in (["cp", "a.pt", "b.pt"], ["tar", "cf", "b.tar", "a.pt"], ["install", "a.pt", "b.pt"]):
        with Place() as place:
            slow, steps = os.path.join(place.root, "slow.so"), os.path.join(place.shm, "steps")
            os.mkdir(steps)
            subprocess.run([*os.environ.get("CC", "cc").split(), "-x", "c", "-w", "-shared", "-fPIC", "-fno-builtin", "-o", slow, "-", "-ldl"], input=SLOW, text=True, check=True)
            place.environment["STEPS"] = steps
            program = place.start(COPIES, slow, *tool, stderr=subprocess.PIPE)
            program.stdout.readline()
            until(lambda: not place.listed())  # pylint: disable=cell-var-from-loop
            agent = place.agent_pid()
            stand_still(agent)
            program.stdin.write("\n")
            program.stdin.flush()
            program.stdout.readline()
            pending = len(place.content("a.pt")) == 90000
            program.stdin.write("\n")
            program.stdin.flush()
            looks = until(lambda: os.path.exists(os.path.join(steps, "looking"))) and has_looked(steps, program.pid)  # pylint: disable=cell-var-from-loop
            os.kill(agent, signal.SIGCONT)
            there = until(lambda: len(place.content("a.pt")) == 100000 and not place.listed())  # pylint: disable=cell-var-from-loop
            with open(os.path.join(steps, "go"), "wb"):
                pass
            said = program.communicate(timeout=WAIT_SEC)[1]
            checks.ok(pending and looks and there and program.returncode == 0 and not said, f"{tool[0]}: copies what was saved a moment ago", pending, looks, there,
                      program.returncode, said)


if __name__ == "__main__":
    run_tests(Checks(), [test_tools, test_savers, test_asked, test_copied])
