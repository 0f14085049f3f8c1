#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 about=15s disk
"""Which programs' files are recognised: those that save what they have computed, and not those that copy, pack, build, edit or start what others have made.
Programs that are here do their work on checkpoints; for all others a program that writes one has their name."""
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import Checks, Place, run_tests

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


# Before a.pt is opened a while passes.
SLOW = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
static void wait_for(const char *path)
{
	if (path && strlen(path) >= 4 && strcmp(path + strlen(path) - 4, "a.pt") == 0)
		sleep(2);
}
#define OPEN(name) int name(const char *path, int flags, int mode) { wait_for(path); return ((int (*)(const char *, int, int))dlsym(RTLD_NEXT, #name))(path, flags, mode); }
#define OPENAT(name) int name(int at, const char *path, int flags, int mode) { wait_for(path); return ((int (*)(int, const char *, int, int))dlsym(RTLD_NEXT, #name))(at, path, flags, mode); }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)
"""


def test_copied(checks):
    """A file that was saved a moment ago, and comes to its path between two looks at it."""
    for tool in (["cp", "a.pt", "b.pt"], ["tar", "cf", "b.tar", "a.pt"], ["install", "a.pt", "b.pt"]):
        with Place() as place:
            slow = os.path.join(place.root, "slow.so")
            subprocess.run([*os.environ.get("CC", "cc").split(), "-x", "c", "-w", "-shared", "-fPIC", "-o", slow, "-", "-ldl"], input=SLOW, text=True, check=True)
            # From its second time on a file is written in memory. The agent stands still until the copier has looked at the path once.
            # From its second time on a file is written in memory. The agent stands still until the copier has looked at the path once.
            save = ("import os, signal, subprocess, time; open('a.pt', 'wb').write(b'x' * 90000); time.sleep(0.3)\n"
                    f"agent = int(open({os.path.join(place.shm, 'j', 'agent.lock')!r}).read())\n"
                    "subprocess.Popen(['sh', '-c', f'sleep 0.7; kill -CONT {agent}']); os.kill(agent, signal.SIGSTOP)\n"
                    "open('a.pt', 'wb').write(b'x' * 100000)\n"
                    f"os.environ['LD_PRELOAD'] = {slow!r} + ':' + os.environ['LD_PRELOAD']; os.execvp({tool[0]!r}, {tool!r})")
            done = subprocess.run([sys.executable, "-c", save], cwd=place.work, capture_output=True, text=True, check=False, env=place.environment, timeout=120)
            checks.ok(done.returncode == 0 and not done.stderr, f"{tool[0]}: copies what was saved a moment ago", done.returncode, done.stderr)


if __name__ == "__main__":
    run_tests(Checks(), [test_tools, test_savers, test_asked, test_copied])
