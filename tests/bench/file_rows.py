# SPDX-License-Identifier: Apache-2.0
"""The rows `saves` and `commands` of bench.py: what the program's own files, and programs that have none, cost."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "../e2e"), os.path.join(HERE, "../torch")]
import job
import scripts
from table import LeftOut

LIBRARY = ".libs/libtranspckpt.so"
median = statistics.median


def find_python():
    """One with safetensors beside PyTorch, or with PyTorch alone."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    both = os.path.join(cache, "transpckpt", "loops", "bin", "python")
    return both if os.access(both, os.X_OK) else scripts.find_python()


class Measured:
    """Processes of saves.py in one place."""

    def __init__(self, place, python):
        self.place, self.python = place, python

    def __call__(self, preload, what, mib, folder=None, **settings):
        environment = {k: v for k, v in self.place.environment.items() if preload or not k.startswith("TRANSPCKPT_")}
        environment.update(settings)
        if preload:
            environment["LD_PRELOAD"] = os.path.join(self.place.build, LIBRARY)
        folder = folder or os.path.join(self.place.root, f"{what}-{mib}-{preload}")
        os.makedirs(folder, exist_ok=True)
        done = subprocess.run([self.python, os.path.join(HERE, "saves.py"), what, str(mib), folder], env=environment,
                              capture_output=True, text=True, check=True, timeout=900)
        return json.loads(done.stdout)


def one_size(table, of, mib):
    def beside(what, figures, baselines, **more):
        table.row(what, median(figures), median(baselines), "s", ratios=[figure / median(baselines) for figure in figures], **more)

    table.step(f"{mib} MiB: what bounds a save")
    null, warm, fresh = (of(False, what, mib, of.place.shm) for what in ("null", "warm", "fresh"))
    least = median(null) + median(warm)
    table.step(f"{mib} MiB: torch.save")
    disk, ours = of(False, "saves", mib), of(True, "saves", mib)
    stall = ours["stall"]
    beside(f"torch.save, {mib} MiB: stall, beside /dev/null + a warm copy", stall, [least], aim="<= 1.25",
           note=f"{median(null):.3f} + {median(warm):.3f}; {', '.join(f'{t:.3f}' for t in stall)}")
    beside(f"torch.save, {mib} MiB: stall, beside a fresh tmpfs file", stall, fresh, aim="<= 0.7")
    beside(f"torch.save, {mib} MiB: stall, beside save + fsync", stall, disk["durable"], aim="<= 0.5")
    beside(f"torch.save, {mib} MiB: until durable, beside save + fsync", ours["durable"], disk["durable"], aim="<= 1.1")
    table.step(f"{mib} MiB: DCP, safetensors")
    beside(f"torch.save, {mib} MiB: stall, beside DCP async_save's own", stall, of(False, "dcp", mib)["stall"])
    for what, named in (("safetensors", "safetensors' save_file"), ("dcp_save", "DCP save")):
        plain, ours = of(False, what, mib), of(True, what, mib)
        if plain["stall"]:
            beside(f"{named}, {mib} MiB: stall, beside save + fsync", ours["stall"], plain["durable"])
        else:
            table.left_out(f"{named}, {mib} MiB", "it is not installed beside PyTorch")
    table.step(f"{mib} MiB: reads")
    plain, ours = of(False, "load", mib), of(True, "load", mib)
    beside(f"read of {mib} MiB: plain, from the page cache, beside ours", plain["seconds"], ours["seconds"], aim=">= 0.9",
           note=f"{ours['in memory']} of {len(ours['seconds'])} from the memory tier")
    plain, ours = of(False, "cold", mib), of(True, "cold", mib)
    beside(f"read of {mib} MiB that the page cache has lost: ours, beside plain, from the disk", ours["seconds"], plain["seconds"],
           note=f"{ours['in memory']} of {len(ours['seconds'])} from the memory tier, compared with their digests")


def huge(table, python, mib):
    """The same in a mount namespace, with the memory tier on a tmpfs that has huge pages."""
    argv = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o huge=within_size none /mnt && exec "$@"', "sh", sys.executable, __file__]
    done = subprocess.run([*argv, python, str(mib)], capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        table.left_out("torch.save, huge pages", f"no tmpfs with huge pages: {done.stderr.strip()[-200:]}")
        return
    found = json.loads(done.stdout)
    least = found["null"] + found["warm"]
    table.row(f"torch.save, {mib} MiB, huge pages: beside /dev/null + warm copy", median(found["stall"]), least, "s",
        ratios=[t / least for t in found["stall"]], aim="<= 1.25", note=f"{found['huge'] >> 10} MiB in huge pages; " + ", ".join(f"{t:.3f}" for t in found["stall"]))


def huge_inside(python, mib):
    with job.Place() as place:
        of = Measured(place, python)
        of(False, "fresh", mib, "/mnt")
        null, warm = (median(of(False, what, mib, "/mnt")) for what in ("null", "warm"))
        found = of(True, "saves", mib, None, TRANSPCKPT_SHM="/mnt")
        place.agent_settles()
    print(json.dumps({"stall": found["stall"], "null": null, "warm": warm, "huge": found["huge"]}))


def saves(table):
    """The program's own saves, beside what bounds them and what is done today."""
    python = find_python()
    if not python:
        raise LeftOut("there is no Python with PyTorch: ./bootstrap.sh torch installs one")
    sizes = [int(n) for n in os.environ.get("SAVES_MIB", "256").split()]
    for mib in sizes:
        with job.Place() as place:
            one_size(table, Measured(place, python), mib)
    table.step("huge pages")
    huge(table, python, min(2048, max(sizes)))
    table.step("files that are not taken")
    with job.Place() as place:
        of = Measured(place, python)
        plain, ours = of(False, "calls", 1), of(True, "calls", 1)
    for what, figure in ours.items():
        table.row(f"file that is not taken: {what}", figure, plain[what], "ns", aim="<= 200 ns more", note=f"{figure - plain[what]:+.0f} ns")


# Single starts differ by more than what is looked for: a round is the median of so many that there are five.
BATCHES = 5


def alternately(rounds, *runs):
    """Medians of the seconds that each takes, one for each batch of rounds; one after the other so that all meet the same noise."""
    times = [[[] for _ in range(BATCHES)] for _ in runs]
    for number in range(rounds):
        for i, (argv, environment, cwd) in enumerate(runs):
            begun = time.perf_counter()
            subprocess.run(argv, env=environment, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            times[i][number * BATCHES // rounds].append(time.perf_counter() - begun)
    return [[median(batch) for batch in batches] for batches in times]


def make_tree(path, files):
    """A git repository with so many files, 25 in a folder."""
    subprocess.run(["git", "init", "-q", path], check=True)
    for i in range(files):
        os.makedirs(os.path.join(path, str(i // 25)), exist_ok=True)
        with open(os.path.join(path, str(i // 25), str(i)), "w", encoding="ascii") as f:
            f.write(str(i))
    subprocess.run(["git", "add", "."], cwd=path, check=True)


def commands(table):
    """Programs that save nothing."""
    with job.Place() as place:
        with open(os.path.join(place.root, "empty.c"), "w", encoding="ascii") as f:
            f.write("void nothing(void);\nvoid nothing(void) {}\n")
        with open(os.path.join(place.root, "some.c"), "w", encoding="ascii") as f:
            f.write("".join(f"#include <{name}.h>\n" for name in ("stdio", "stdlib", "string", "sys/stat")) + "int main(void) { return puts(\"\"); }\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", "empty.so", "empty.c"], cwd=place.root, check=True)
        make_tree(os.path.join(place.root, "empty"), 0)
        make_tree(os.path.join(place.root, "tree"), 1000)
        plain = {k: v for k, v in place.environment.items() if not k.startswith("TRANSPCKPT_")}
        empty = {**plain, "LD_PRELOAD": os.path.join(place.root, "empty.so")}
        ours = {**place.environment, "LD_PRELOAD": os.path.join(place.build, LIBRARY)}
        for what, argv, cwd, rounds in (
                ("`true`", ["true"], place.root, 1000), ("`git status` without files", ["git", "status"], os.path.join(place.root, "empty"), 300),
                ("`git status` of 1,000 files", ["git", "status"], os.path.join(place.root, "tree"), 300)):
            table.step(what)
            bases, figures = alternately(rounds, (argv, empty, cwd), (argv, ours, cwd))
            base, figure = median(bases), median(figures)
            table.row(f"{what}, beside preloading an empty library", figure * 1e6, base * 1e6, "us",
                ratios=[a / b for a, b in zip(figures, bases)], aim="<= 100 us more", note=f"{(figure - base) * 1e6:+.0f} us")
        python = find_python()
        source = os.path.abspath(os.path.join(HERE, "../.."))
        large = os.path.join(source, "runtime/files/descriptors.c")
        with open(large, encoding="utf-8") as f:
            lines = len(f.readlines())
        for what, argv, rounds in (("compiling a C file", ["cc", "-O2", "-c", "-o", "some.o", "some.c"], 40),
                                   ("compiling a long C file",
                                    ["cc", "-std=gnu11", "-O2", "-I", place.build, "-I", source, "-c", "-o", "large.o", large], 10),
                                   ("importing torch", [python, "-c", "import torch"], 10)):
            if not argv[0]:
                table.left_out(what, "there is no Python with PyTorch: ./bootstrap.sh torch installs one")
                continue
            table.step(what)
            bases, figures = alternately(rounds, (argv, plain, place.root), (argv, ours, place.root))
            table.row(what, median(figures), median(bases), "s", ratios=[a / b for a, b in zip(figures, bases)], aim="<= 1.02",
                note=f"{lines} lines" if "long" in what else "")


# Calls a round, and rounds.
STREAM_CALLS, STREAM_ROUNDS = 100000, 7


def streams(table):
    """Calls that write by a stream of libc's, of a program and of a forked child of it, of which it is noted how much it appends."""
    with job.Place() as place:
        argv = [os.path.join(place.root, "streams"), "rows", str(STREAM_CALLS), str(STREAM_ROUNDS)]
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", argv[0], os.path.join(HERE, "streams.c")], check=True)
        plain = {k: v for k, v in place.environment.items() if not k.startswith("TRANSPCKPT_")}
        found = []
        for environment in (plain, {**place.environment, "LD_PRELOAD": os.path.join(place.build, LIBRARY)}):
            said = subprocess.run(argv, env=environment, cwd=place.root, capture_output=True, text=True, check=True).stdout
            found.append({})
            for line in said.splitlines():
                who, call, ns = line.split()
                found[-1].setdefault((who, call), []).append(float(ns))
        for (who, call), bases in found[0].items():
            figures = found[1][who, call]
            base, figure = median(bases), median(figures)
            table.row(f"stream, {'a program' if who == 'program' else 'a followed child'}: {call}", figure, base, "ns", ratios=[a / b for a, b in zip(figures, bases)],
                aim="<= 20 ns more" if who == "program" and call != "flushed" else "", note=f"{figure - base:+.0f} ns")


SMALL_FILES, SMALL_ROUNDS = 4000, 5
# Each works in a folder of its own, beside source/, source.tar, and repository/ with source/ in it.
SMALL = {"tar x": "tar xf ../source.tar", "cp -a": "cp -a ../source copy", "rm -rf": "rm -rf there", "ls -lR": "ls -lR ../source",
         "rsync -a": "rsync -a ../source copy", "git clone": "git clone -q --no-hardlinks ../repository copy"}
# Until the last close, and then, plain, one sync of the file system. What is measured is what they print.
SMALL_PROGRAM = """
import ctypes, os, shutil, sys, time
what, count, step, sync = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "sync"
begun = time.perf_counter()
if what == "copytree":
    shutil.copytree("../source", "copy")
else:
    os.mkdir("made")
    for i in range(count):
        with open(f"made/{i}." + ("txt" if i % step else "pt"), "wb") as f:
            f.write(b"x" * 3000)
closed = time.perf_counter()
if sync:
    ctypes.CDLL(None).syncfs(os.open(".", os.O_RDONLY))
print(closed - begun, time.perf_counter() - closed, time.monotonic(), flush=True)
"""


class SmallFiles:
    """Programs in folders of their own, of which none is removed before the end: ext4 looks past names of inodes that were removed within
    the last seconds, which takes ten times as long as making one."""

    def __init__(self, place):
        self.place, self.count = place, 0
        self.plain = {k: v for k, v in place.environment.items() if not k.startswith("TRANSPCKPT_")}
        self.ours = {**place.environment, "LD_PRELOAD": os.path.join(place.build, LIBRARY)}

    def folder(self):
        self.count += 1
        path = os.path.join(self.place.root, f"round-{self.count}")
        os.mkdir(path)
        return path

    def command(self, what, preload):
        folder = self.folder()
        if what == "rm -rf":
            subprocess.run(["cp", "-a", "../source", "there"], cwd=folder, check=True)
        os.sync()
        begun = time.perf_counter()
        subprocess.run(["sh", "-c", SMALL[what]], cwd=folder, env=self.ours if preload else self.plain, stdout=subprocess.DEVNULL, check=True)
        seconds = time.perf_counter() - begun
        self.place.agent_settles(5)
        return seconds

    def program(self, preload, what, count=SMALL_FILES, step=4, **settings):
        """Until the last close, and the wait behind it: until one syncfs() is done, or until the process has ended."""
        folder = self.folder()
        os.sync()
        done = subprocess.run([sys.executable, "-c", SMALL_PROGRAM, what, str(count), str(step), "" if preload else "sync"], cwd=folder,
                              env={**self.ours, **settings} if preload else self.plain, capture_output=True, text=True, check=True)
        ended = time.monotonic()
        closed, waited, printed = map(float, done.stdout.split())
        self.place.agent_settles(5)
        return closed, ended - printed if preload else waited


def small_rows(table, files, what, *arguments, rounds=SMALL_ROUNDS, named, aim, **settings):
    table.step(named)
    plain, ours = [], []
    for _ in range(rounds):
        plain.append(files.program(False, what, *arguments))
        ours.append(files.program(True, what, *arguments, **settings))
    closed, waited = ([median(run[i] for run in ours) for i in (0, 1)], [median(run[i] for run in plain) for i in (0, 1)])
    table.row(f"{named}, until the last close", closed[0], waited[0], "s", ratios=[a[0] / b[0] for a, b in zip(ours, plain)], aim=aim)
    table.row(f"{named}, the wait at its end, beside one syncfs()", closed[1], waited[1], "s", ratios=[a[1] / b[1] for a, b in zip(ours, plain)],
              note=f"until all is durable {sum(closed):.2f}, plain {sum(waited):.2f}: {sum(closed) / sum(waited):.2f}")


def small(table):
    """Programs that pass many small files along, a quarter of them called .pt, and programs that save many."""
    with job.Place() as place:
        source = os.path.join(place.root, "source")
        for i in range(SMALL_FILES):
            folder = os.path.join(source, str(i % 40))
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, f"{i}.{'txt' if i % 4 else 'pt'}"), "wb") as f:
                f.write(b"x" * 3000)
        subprocess.run(["tar", "cf", "source.tar", "source"], cwd=place.root, check=True)
        subprocess.run("git init -q repository && cp -a source repository && cd repository && git add . && git -c user.name=n -c user.email=e commit -qm all",
                       shell=True, cwd=place.root, check=True)
        files = SmallFiles(place)
        for what in SMALL:
            if not shutil.which(what.split()[0]):
                table.left_out(f"{SMALL_FILES:,} small files: {what}", "it is not installed")
                continue
            table.step(what)
            times = {True: [], False: []}
            for number in range(2 * SMALL_ROUNDS):
                times[number % 2 == 1].append(files.command(what, number % 2 == 1))
            table.row(f"{SMALL_FILES:,} small files: {what}", median(times[True]), median(times[False]), "s",
                      ratios=[a / b for a, b in zip(times[True], times[False])], aim="<= 1.1")
        small_rows(table, files, "copytree", named=f"{SMALL_FILES:,} small files: copytree", aim="<= 1.1")
        small_rows(table, files, "loop", named=f"{SMALL_FILES:,} small files: a Python loop", aim="<= 1.1")
        small_rows(table, files, "loop", named=f"{SMALL_FILES:,} small files: a Python loop, every file taken", aim="<= 1.5", TRANSPCKPT_FILES="*")
        small_rows(table, files, "loop", 1000, 1, named="1,000 small checkpoints: a Python loop", aim="<= 1.5")
        small_rows(table, files, "loop", 20000, 1, rounds=3, named="20,000 small checkpoints: a Python loop", aim="<= 1.5")


if __name__ == "__main__":
    huge_inside(sys.argv[1], int(sys.argv[2]))
