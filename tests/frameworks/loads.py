#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 memory=4G minutes=20 about=15s disk
"""Loaders of checkpoints as published, of files that have rotted: what they load is what was saved, from the copy in memory, or
they say that it cannot be read. No device."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "files"))
from digests import MIB, rot_cached
from place import WAIT_SEC, Checks, Place, until
from savers import LOOPS, QUIET

# Two saves by each name: the first one goes beside its target. The number of the save is in every value.
SAVE = """
import sys, numpy, torch
from safetensors.torch import save_file
for i in range(1, 3):
    tensors = {k: torch.full((1 << 20,), float(i)) for k in ("a", "b")}
    torch.save(tensors, f"model-{i}.pt")
    numpy.full(1 << 20, i, dtype=numpy.float32).tofile(f"array-{i}.pt")
    numpy.savez(f"arrays-{i}.npz", a=numpy.full(1 << 20, i, dtype=numpy.float32))
    save_file(tensors, f"model-{i}.safetensors")
print("saved", flush=True)
sys.stdin.read()
"""
LOAD = """
import sys, numpy, torch
from safetensors import safe_open
from safetensors.torch import load_file
def tensors_open(path):
    with safe_open(path, "pt") as f: return {k: f.get_tensor(k) for k in f.keys()}
LOADERS = {
    "torch.load": ("model-%d.pt", torch.load),
    "torch.load, mapped": ("model-%d.pt", lambda p: torch.load(p, mmap=True)),
    "numpy.memmap": ("array-%d.pt", lambda p: {"a": numpy.memmap(p, numpy.float32, "r")}),
    "numpy.load": ("arrays-%d.npz", lambda p: dict(numpy.load(p))),
    "safe_open": ("model-%d.safetensors", tensors_open),
    "load_file": ("model-%d.safetensors", load_file),
}
if sys.argv[1:] == ["--list"]:
    for name, (path, _) in LOADERS.items(): print(name, path, sep="=")
for word in sys.argv[1:]:
    name, _, i = word.partition("=")
    if name not in LOADERS: continue
    path, load = LOADERS[name]
    try:
        loaded = load(path % int(i))
        print(name, sorted({float(v) for x in loaded.values() for v in (x.min(), x.max())}), sep="=")
    except Exception as e:
        # safetensors calls whatever is wrong with an opening so.
        refused = "[Errno 5]" in str(e) or "Input/output" in str(e) or ("safetensors" in path and "No such file" in str(e))
        print(name, "refused" if refused else f"{type(e).__name__}: {e}", sep="=")
"""


def run(place, text, *words):
    done = subprocess.run([LOOPS, "-c", text, *words], cwd=place.work, env=dict(place.environment, **QUIET), capture_output=True, text=True,
                          check=False, timeout=WAIT_SEC)
    return [line.split("=", 1) for line in done.stdout.splitlines() if "=" in line], \
        [line for line in done.stderr.splitlines() if line.startswith("transpckpt")] or done.stderr[-500:]


def kept(place):
    """How many copies there are in memory."""
    try:
        return sum(n.startswith("kept.") for n in os.listdir(os.path.join(place.job_folder, "files")))
    except FileNotFoundError:
        return 0


def rotten(place, loaders, i):
    """The files of these loaders, which rot."""
    paths = sorted({place.path(path % i) for _, path in loaders})
    for path in paths:
        rot_cached(path, 2 * MIB + 5)
    return paths


def judge(checks, loaders, what, wanted, paths, got, said):
    for (name, _), (_, value) in zip(loaders, got):
        checks.ok(value == wanted, f"{name} of {what}: {wanted}", got, said)
    checks.ok(len(got) == len(loaders) and len(said) == len(paths) and all(os.path.basename(path) in " ".join(said) for path in paths),
              "each file is said once", got, said)


def main():
    checks = Checks()
    if not os.path.exists(LOOPS):
        print("1..0 # SKIP there is no Python with torch, numpy and safetensors")
        sys.exit(77)
    with Place() as place:
        with subprocess.Popen([LOOPS, "-c", SAVE], cwd=place.work, env=dict(place.environment, **QUIET), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True) as saver:
            saved = saver.stdout.readline()
            loaders, said = run(place, LOAD, "--list")
            if saved != "saved\n" or not loaders:
                print("1..0 # SKIP torch, numpy or safetensors is not there")
                sys.exit(77)
            until(lambda: place.recorded() >= 8 and not place.listed(), 60)
            checks.ok(until(lambda: kept(place) == 8, 60), "each of them has a copy in memory", kept(place))
            got, said = run(place, LOAD, *(f"{name}={i}" for name, _ in loaders for i in (1, 2)))
            checks.ok([v for _, v in got] == ["[1.0]", "[2.0]"] * len(loaders), "what was saved is loaded", got, said)
            # One loader of a file at a time.
            seen = set()
            second = [loader for loader in loaders if loader[1] in seen or seen.add(loader[1])]
            first = [loader for loader in loaders if loader not in second]
            for several, i in ((first, 2), (second, 2), (first, 1)):
                paths = rotten(place, several, i)
                got, said = run(place, LOAD, *(f"{name}={i}" for name, _ in several))
                judge(checks, several, f"save {i}, which has rotted", f"[{i}.0]", paths, got, said)
                back = until(lambda: not place.listed() and kept(place) == 8, 60)
                checks.ok(back, "and has a copy again", kept(place), place.listed())
            saver.stdin.close()
        checks.ok(until(lambda: not place.agent_pid(), 60), "the agent ends, and the copies with it")
        paths = rotten(place, loaders, 1)
        got, said = run(place, LOAD, *(f"{name}=1" for name, _ in loaders))
        judge(checks, loaders, "save 1, which has rotted and has no copy", "refused", paths, got, said)
    checks.end()


if __name__ == "__main__":
    main()
