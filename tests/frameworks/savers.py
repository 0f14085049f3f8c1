#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 memory=4G minutes=20 about=110s disk
"""Savers as their makers publish them, under the preload: what they leave is what they leave without the library,
and what others find when they are killed is old or new, each file whole and no pointer ahead. No device.

  savers.py [PROGRAM...]    environment: KILLS, SEED; `all` is all of them; without names half of them, others each time"""
import filecmp
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "files"))
from place import WAIT_SEC, Checks, Place, until

ROUNDS = 4
KILLS = int(os.environ.get("KILLS", 3))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "transpckpt")
TORCH = os.environ.get("TORCH_PYTHON", os.path.join(CACHE, "torch/bin/python"))
LOOPS = os.path.join(CACHE, "loops/bin/python")
STACKS = os.environ.get("STACKS_PYTHON", os.path.join(CACHE, "stacks/bin/python"))
FRAMEWORKS = os.path.join(CACHE, "frameworks/bin/python")
SUITES = os.path.join(CACHE, "suites/bin/python")
QUIET = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
         "PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
# The program, whose Python, what it needs, and which of its files have times or names of the run in them.
CASES = [
    ("torch_save", TORCH, ["torch"], r"\.pth$"),
    ("safetensors_save", LOOPS, ["torch", "safetensors"], None),
    ("dcp_save", LOOPS, ["torch", "numpy"], r"\.metadata$"),
    ("dcp_process_save", LOOPS, ["torch", "numpy"], r"\.metadata$"),
    ("numpy_save", LOOPS, ["numpy"], None),
    ("trainer_save", LOOPS, ["transformers", "accelerate"], r"trainer_state.json$|training_args.bin$"),
    ("lightning_save", LOOPS, ["lightning"], r"\.ckpt$"),
    ("accelerate_save", LOOPS, ["accelerate"], None),
    ("deepspeed_save", SUITES, ["deepspeed"], None),
    ("orbax_save", FRAMEWORKS, ["orbax.checkpoint", "numpy"], r"."),
    ("hdf5_save", FRAMEWORKS, ["h5py", "numpy"], None),
    ("sqlite_save", sys.executable, ["sqlite3"], None),
]
UNTAKEN = ["sqlite_save"]
# Of each save of safetensors' the two files that it renames itself as well.
LEAST = {"safetensors_save": 2 * ROUNDS}


class Looker:
    """One process per Python that looks from outside: it is not preloaded."""
    all = {}

    def __init__(self, python):
        self.process = subprocess.Popen([python, os.path.join(HERE, "saver.py")], text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=dict(environment(), **QUIET))

    @classmethod
    def ask(cls, python, *words):
        if python not in cls.all:
            cls.all[python] = Looker(python)
        process = cls.all[python].process
        try:
            process.stdin.write(" ".join(map(str, words)) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                if line.startswith("seen "):
                    return json.loads(line[5:])
        except BrokenPipeError:
            pass
        del cls.all[python]
        return [["all", "the one who looks has died"]]

    @classmethod
    def look(cls, python, program, folder):
        return cls.ask(python, "look", program, folder)

    @classmethod
    def end(cls):
        for looker in cls.all.values():
            looker.process.stdin.close()
            looker.process.wait(WAIT_SEC)
        cls.all.clear()


def environment():
    return {k: v for k, v in os.environ.items() if "TRANSPCKPT_" not in k and k != "LD_PRELOAD"}


def has(python, modules):
    """Without importing them."""
    text = "import importlib.util as u, sys; sys.exit(any(u.find_spec(m.split('.')[0]) is None for m in sys.argv[1:]))"
    try:
        return subprocess.run([python, "-c", text, *modules], check=False, timeout=WAIT_SEC, env=environment()).returncode == 0
    except OSError:
        return False


def told():
    """The table of doc/files.md: the package and the begin of the version that it names, by program."""
    with open(os.path.join(HERE, "../../doc/files.md"), encoding="utf-8") as f:
        return {m[1]: (m[2], m[3]) for m in re.finditer(r"^\| (\w+_save) \| ([\w-]+) ?([\d.]*) \|", f.read(), re.M)}


def as_told(checks, program, python):
    package, version = told().get(program, ("", ""))
    text = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    there = "" if not version else subprocess.run([python, "-c", text, package], check=False, timeout=WAIT_SEC, env=environment(),
                                                  capture_output=True, text=True).stdout.strip()
    checks.ok(package and (there + ".").startswith(version + "." if version else ""), f"{program}: {package} {there} is what doc/files.md names",
              version)


def start(place, python, program, *numbers):
    """Preloaded. What is moved into place from the folder for temporary files comes from another file system."""
    with open(place.path("../errors"), "ab") as errors:
        return subprocess.Popen([python, os.path.join(HERE, program + ".py"), *map(str, numbers)], cwd=place.work, text=True,
                                env=dict(place.environment, TMPDIR=place.shm, **QUIET), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=errors)


def errors_of(place):
    with open(place.path("../errors"), encoding="utf-8", errors="replace") as f:
        return f.read()[-3000:] + place.log()[-1000:]


def tree(folder):
    """All names; random ones are as good as each other, and how many of them there are differs from run to run."""
    return sorted({re.sub(r"[0-9a-f]{32}", "*", os.path.relpath(os.path.join(at, name), folder)) + end
                   for at, folders, files in os.walk(folder) for names, end in ((files, ""), (folders, "/")) for name in names})


def wrong_of(found):
    """What is not whole, or not what its name says. The first number of a name is the save's."""
    wrong = []
    for what, number in found:
        named = re.search(r"(?:[-=_]|iter|step)(\d+)", what)
        if isinstance(number, str) or (named and int(named[1]) != number):
            wrong.append((what, number))
    return wrong


def ahead_of(found):
    """When nothing moves any more: what is saved before the pointer is as new as it."""
    pointers = [number for what, number in found if ": " in what]
    plain = [(what, number) for what, number in found if not re.search(r"\d", what)]
    return [(what, number, pointers) for what, number in plain if pointers and not max(pointers) <= number <= max(pointers) + 1]


def same(checks, program, python, varying):
    with Place() as ours, Place() as theirs:
        process = start(ours, python, program, 1, ROUNDS)
        status = [Looker.ask(python, "run", program, theirs.work, 1, ROUNDS)]
        status.append(process.wait(WAIT_SEC))
        # What is taken has digests, also when its agent has gone.
        published = ours.recorded() if until(lambda: not ours.agent_pid(), 20) else 0
        names = tree(ours.work), tree(theirs.work)
        different = [n for n in names[0] if n in names[1] and not n.endswith("/") and not re.search(varying or "^$", n) and
                     not filecmp.cmp(ours.path(n), theirs.path(n), shallow=False)]
        found = [Looker.look(python, program, place.work) for place in (ours, theirs)]
        compared = sum(not n.endswith("/") for n in names[0])
        checks.ok(status == [0, 0] and names[0] == names[1] and not different and found[0] == found[1] and found[0] and
                  not wrong_of(found[0]) and (not published if program in UNTAKEN else published >= LEAST.get(program, 1)),
                  f"{program}: {compared} names of files, and what is in them, are the same as without the library", f"of which {published} were taken",
                  status, set(names[0]) ^ set(names[1]), different, *found, errors_of(ours))


def begin(python, program):
    place = Place()
    return place, start(place, python, program)


def expect(process, word):
    for line in process.stdout:
        if line.startswith(word):
            return line.split()
    raise RuntimeError(f"it ended before it said {word!r}")


def killed(checks, program, python, chance, zygote, place):
    wrong, looks, complete, seconds = [], 0, set(), 1.0

    def look(when):
        nonlocal looks
        found = Looker.look(python, program, place.work)
        looks += 1
        wrong.extend((when, *w) for w in wrong_of(found))
        complete.update(number for _, number in found if isinstance(number, int))
        return found

    expect(zygote, "ready")
    for turn in range(KILLS):
        # The last time it is the program itself and its agent: the next process of the job has it finished.
        both = turn == KILLS - 1
        zygote.stdin.write(f"{'here' if both else 'fork'} {turn * 1000 + 1} {turn * 1000 + 999}\n")
        zygote.stdin.flush()
        pid = int(expect(zygote, "begun")[1])
        at = time.monotonic() + chance.uniform(0.02, seconds)
        end = time.monotonic() + WAIT_SEC
        before = len(complete)
        # Once at any time, else behind something that is new.
        while turn and len(complete) == before and time.monotonic() < end:
            look("running")
            time.sleep(0.03)
            at = time.monotonic() + chance.uniform(0, seconds)
        while time.monotonic() < at:
            look("running")
            time.sleep(chance.uniform(0, 0.1))
        if both:
            place.kill_agent()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            wrong.append(("the program had ended by itself", errors_of(place)))
            break
        if both:
            zygote.wait(WAIT_SEC)
        elif zygote.stdout.readline().strip() != "ended":
            wrong.append(("ended", errors_of(place)))
        look("killed")
        if both:
            place.run("import os; print(os.listdir('.'))")
        until(lambda: not place.listed())
        wrong.extend(("settled", *w) for w in ahead_of(look("settled")))
    if [n for n in tree(place.work) if ".tpck-" in n]:
        wrong.append(("left", tree(place.work)))
    checks.ok(not wrong and looks > 2 * KILLS and len(complete) >= KILLS - 1, f"{program}: killed {KILLS} times, what others find is whole "
              f"({looks} looks, {len(complete)} saves)", *wrong[:6], errors_of(place))


def main():
    checks = Checks()
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print(f"# SEED={seed}")
    names = [case[0] for case in CASES]
    chosen = names if sys.argv[1:] == ["all"] else sys.argv[1:] or random.Random(seed).sample(names, len(names) // 2)
    cases = []
    for case in CASES:
        if case[0] not in chosen:
            continue
        if has(*case[1:3]):
            cases.append(case)
        else:
            checks.count += 1
            print(f"ok {checks.count} # SKIP {case[0]}: no {' or '.join(case[2])} in {case[1]}")
    ahead = None
    try:
        for n, (program, python, _, varying) in enumerate(cases):
            begun = time.monotonic()
            place, zygote = ahead or begin(python, program)
            # A program's imports take longest.
            ahead = begin(*reversed(cases[n + 1][:2])) if n + 1 < len(cases) else None
            with place:
                try:
                    as_told(checks, program, python)
                    same(checks, program, python, varying)
                    killed(checks, program, python, random.Random(f"{seed} {program}"), zygote, place)
                except RuntimeError as error:
                    checks.ok(False, f"{program}: runs", error, errors_of(place))
                finally:
                    zygote.kill()
                    zygote.wait()
            print(f"# {program}: {time.monotonic() - begun:.1f} s", flush=True)
    finally:
        if ahead:
            ahead[1].kill()
            ahead[1].wait()
            ahead[0].__exit__()
    Looker.end()
    checks.end()


if __name__ == "__main__":
    main()
