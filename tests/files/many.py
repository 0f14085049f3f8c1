#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.35 memory=1G about=50s disk
"""Many small files that are owed at once, which the agent puts at their paths together: from outside they appear in the order of
closing, each whole, the pointer last, whatever is killed when; each is on the disk before it has its name; and of one that cannot be
put there nothing behind it comes ahead of it. SECONDS bounds the kills, SEED repeats them."""
import ctypes
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from killed import calls_of, tool, whole_lines
from place import Checks, Place, run_tests, stand_still, until

LIMIT_SEC = float(os.environ.get("SECONDS") or 12)
SEED = int(os.environ.get("SEED") or random.randrange(1 << 32))

# Into two folders, by turns of ten; the agent has not begun with them before all are closed, if it is stopped by then.
SAVES = """
import os, sys
count, version = int(sys.argv[1]), sys.argv[2].encode()
for folder in ("a", "b"):
    os.makedirs(folder, exist_ok=True)
for i in range(count):
    with open("%s/%d.pt" % ("ab"[i // 10 % 2], i), "wb") as f:
        f.write(version * (1000 + i))
with open("latest", "wb") as f:
    f.write(version)
print("closed", flush=True)
if len(sys.argv) > 3:
    sys.stdin.readline()
"""


def name_of(i):
    return f"{'ab'[i // 10 % 2]}/{i}.pt"


def found(place, count, version):
    """How many of this version are there, of all that closed before the first that is not; and what should not be."""
    there = [place.content(name_of(i)) for i in range(count)]
    whole = [data == version.encode() * (1000 + i) for i, data in enumerate(there)]
    first = whole.index(False) if False in whole else count
    wrong = [f"{name_of(i)} has {len(data)} bytes" for i, data in enumerate(there) if data is not None and not whole[i] and len(set(data)) != 1]
    wrong += [f"{name_of(i)} is there, {name_of(first)} is not" for i in range(first, count) if whole[i]]
    if place.content("latest") == version.encode() and first < count:
        wrong.append(f"latest is there, {name_of(first)} is not")
    return first, wrong


def in_order(checks):
    """A look at all of them, from the last one to the first: what was there when the later one was looked at is there still."""
    count, wrong, steps = 400, [], set()
    with Place() as place:
        place.run(SAVES, count, "a")
        program = place.start(SAVES, count, "b", "stays")
        assert program.stdout.readline() == "closed\n"
        agent = place.agent_pid()
        while place.content("latest") != b"b":
            # Not at one instant, so no thread of the agent may go on meanwhile.
            stand_still(agent)
            first, now = found(place, count, "b")
            os.kill(agent, signal.SIGCONT)
            steps.add(first)
            wrong += now
            time.sleep(0.001)
        status = program.wait() if not program.stdin.write("\n") or not program.stdin.close() else None
        last, now = found(place, count, "b")
    checks.ok(status == 0 and last == count and not wrong + now, f"{count} files come in the order of closing, seen at {len(steps)} moments", *wrong[:4], *now[:4])


def killed(checks):
    """The agent is killed at one of its system calls, once all are owed; the next start finishes."""
    count, tried, wrong = 30, 0, []
    generator = random.Random(SEED)
    with Place() as place:
        environment = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD"}

        def clear():
            for name in ("a", "b"):
                shutil.rmtree(place.path(name), ignore_errors=True)
            if os.path.exists(place.path("latest")):
                os.unlink(place.path("latest"))

        def begin(when):
            agent = subprocess.Popen([tool("killer"), str(when), place.agent, "--job", "j", "--foreground"], cwd=place.work, env=environment,
                                     stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            until(lambda: os.path.exists(os.path.join(place.job_folder, "agent.sock")) or agent.poll() is not None)
            return agent

        def end(agent):
            place.kill_agent(signal.SIGTERM)
            calls = calls_of(agent)
            shutil.rmtree(place.job_folder, ignore_errors=True)
            return calls
        agent = begin(0)
        place.run(SAVES, count, "k")
        calls, begun = end(agent), time.monotonic()
        while (tried < 10 or time.monotonic() - begun < LIMIT_SEC) and not wrong:
            when = generator.randrange(calls // 4, calls)
            clear()
            agent = begin(when)
            # The program's end waits for another agent, where this one is killed.
            program = place.start(SAVES, count, "k", "stays")
            program.stdout.readline()
            until(lambda agent=agent: agent.poll() is not None or place.content("latest") == b"k")
            at_once = found(place, count, "k")[1]
            program.communicate("\n", timeout=120)
            last, after = found(place, count, "k")
            end(agent)
            left = [n for folder in ("a", "b", ".") for n in os.listdir(place.path(folder)) if n.startswith(".tpck-")]
            tried += 1
            wrong += [f"call {when}: {w}" for w in at_once + after + left + ([] if last == count else [f"{last} of {count} came"])]
    checks.ok(calls > 200 and tried >= 10 and not wrong, f"the agent killed at {tried} of {calls} calls (SEED={SEED})", *wrong[:6])


def no_io_uring():
    """In the child: io_uring_setup is a call that this kernel does not know."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7fff0000)]
    filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
    program = Program(len(code), ctypes.addressof(filters))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        os._exit(99)


RENAME = re.compile(r'renameat\(\d+<([^>]*)>, "([^"]*)", \d+<([^>]*)>, "([^"]*)"\) = 0')
SYNC = re.compile(r"f(?:data)?sync\(\d+<([^>]*)>\) += 0")
CREATE = re.compile(r'openat\(\d+<([^>]*)>, "([^"]*)", [^)]*O_CREAT[^)]*\) = ')


def power(checks):
    """By the agent's own calls: what is lost if power is, before any of them."""
    if not shutil.which("strace"):
        print("# no strace: the loss of power is not tried")
        return
    count, wrong, names, runs = 60, [], [], 0
    with Place() as place:
        environment = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD"}
        trace = os.path.join(place.root, "trace")
        agent = subprocess.Popen(["strace", "-f", "-y", "-ttt", "-qq", "-s", "300", "-e", "trace=openat,fsync,fdatasync,renameat,io_uring_setup",
                                  "-o", trace, place.agent, "--job", "j", "--foreground"], cwd=place.work, env=environment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=no_io_uring)
        until(lambda: os.path.exists(os.path.join(place.job_folder, "agent.sock")) or agent.poll() is not None)
        # The second time their bytes are in memory, and the agent makes the parts.
        place.run(SAVES, count, "a")
        before = os.path.getsize(trace)
        place.run(SAVES, count, "b")
        place.kill_agent(signal.SIGTERM)
        agent.wait(60)
        with open(trace, encoding="utf-8", errors="replace") as f:
            f.seek(before)
            text = f.read()
        work = os.path.realpath(place.work)
    synced, folder_waits, open_names = set(), None, 0
    for line in whole_lines(text):
        renamed, sync, made = RENAME.search(line), SYNC.search(line), CREATE.search(line)
        if made:
            synced.discard(os.path.join(*made.groups()))
        elif sync and sync.group(1).startswith(work):
            synced.add(sync.group(1))
            if sync.group(1) == folder_waits:
                folder_waits = None
        elif renamed and renamed.group(3).startswith(work):
            part, name = os.path.join(*renamed.groups()[:2]), os.path.join(*renamed.groups()[2:])
            if part not in synced:
                wrong.append(f"{name} had its name before its bytes were on the disk")
            if folder_waits and (folder_waits != renamed.group(3) or name.endswith("latest")):
                wrong.append(f"{name} had its name before names in {folder_waits} were on the disk")
            runs += folder_waits is None
            folder_waits = renamed.group(3)
            names.append(name[len(work) + 1:])
    expected = [name_of(i) for i in range(count)] + ["latest"]
    checks.ok(names == expected and not wrong and "io_uring_setup" in text, f"power lost before any of {len(names)} names: in {runs} steps, whole and in order",
              *wrong[:6], [n for n, e in zip(names, expected) if n != e][:4])


FAILS = """
import os, sys
os.makedirs("d", exist_ok=True)
for i in range(40):
    with open(f"d/{i}.{sys.argv[2]}", "wb") as f:
        f.write(sys.argv[1].encode() * 2000)
print("closed", flush=True)
sys.stdin.readline()
"""


def fails(checks):
    """One of them cannot get its name: what closed before it comes, what closed behind it waits, and all come once it can."""
    with Place(TRANSPCKPT_EXIT_WAIT_SEC="60") as place:
        place.run("with open('first.pt', 'wb') as f: f.write(b'1')")
        agent = place.agent_pid()
        stand_still(agent)
        program = place.start(FAILS, "f", "pt")
        program.stdout.readline()
        os.makedirs(place.path("d/17.pt"))
        os.kill(agent, signal.SIGCONT)
        waits = until(lambda: any(row.get("error") for row in place.listed()))
        there = sorted((n for n in os.listdir(place.path("d")) if re.fullmatch(r"\d+\.pt", n)), key=lambda n: int(n[:-3]))
        rows = place.listed()
        os.rmdir(place.path("d/17.pt"))
        program.communicate("\n", timeout=120)
        came = until(lambda: all(place.content(f"d/{i}.pt") == b"f" * 2000 for i in range(40)), 60)
        said = place.log().count("is not at its path yet")
        left = [n for n in os.listdir(place.path("d")) if n.startswith(".tpck-")]
    checks.ok(waits and there == [f"{i}.pt" for i in range(18)] and len(rows) == 23 and came and said == 1 and not left,
              "one that cannot be put at its path: those before it are there, those behind it wait, and come", there, len(rows), came, said, left)


def loses(checks):
    """A sync of one of them fails, of a part that the program wrote: the next sync of it may say that all is well, so it is made anew."""
    if not shutil.which("strace"):
        print("# no strace: a sync that fails is not tried")
        return
    with Place(TRANSPCKPT_FILES="*") as place:
        environment = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD"}
        agent = subprocess.Popen(["strace", "-f", "-qq", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=12", "-o", "/dev/null",
                                  place.agent, "--job", "j", "--foreground"], cwd=place.work, env=environment, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, preexec_fn=no_io_uring)
        until(lambda: os.path.exists(os.path.join(place.job_folder, "agent.sock")) or agent.poll() is not None)
        place.run("with open('first', 'wb') as f: f.write(b'1')")
        pid = place.agent_pid()
        stand_still(pid)
        program = place.start(FAILS, "l", "x")
        program.stdout.readline()
        parts = sorted(n for n in os.listdir(place.path("d")) if n.startswith(".tpck-"))
        before = [os.stat(place.path(f"d/{n}")).st_ino for n in parts]
        os.kill(pid, signal.SIGCONT)
        program.communicate("\n", timeout=120)
        came = until(lambda: all(place.content(f"d/{i}.x") == b"l" * 2000 for i in range(40)), 60)
        after = [os.stat(place.path(f"d/{i}.x")).st_ino for i in range(40)] if came else []
        left = [n for n in os.listdir(place.path("d")) if n.startswith(".tpck-")]
        place.kill_agent(signal.SIGTERM)
        agent.wait(60)
    anew = [i for i, (a, b) in enumerate(zip(before, after)) if a != b]
    checks.ok(came and len(parts) == 40 and len(anew) == 1 and not left, f"one whose sync fails is made anew ({anew}), the others are as they were",
              came, len(parts), anew, left)


# The program's end is a kill: nothing waits.
LOOP = """
import os, signal, sys
os.mkdir("made")
for i in range(int(sys.argv[1])):
    with open(f"made/{i}.{sys.argv[2]}", "wb") as f:
        f.write(b"x" * 3000)
os.kill(os.getpid(), signal.SIGKILL)
"""
# System calls for each small file beyond those of the plain program: of one that is left alone, beside others that are pending; that is
# taken, beside its target; and that is taken into memory.
MOST_CALLS = {"txt": 4, "dat": 16, "pt": 19}


def few_calls(checks):
    """What a file costs is what more files cost more."""
    few, many = 200, 600
    for name, most in MOST_CALLS.items():
        settings = {"TRANSPCKPT_FILES": "*"} if name == "dat" else {}
        with Place(**settings) as place:
            other = place.start("import sys; open('other.pt', 'wb'); f = open('open.pt', 'wb'); print('open', flush=True); sys.stdin.readline()")
            other.stdout.readline()
            plain, ours = [], []
            for count in (few, many):
                for calls, environment in ((plain, place.plain), (ours, place.environment)):
                    shutil.rmtree(place.path("made"), ignore_errors=True)
                    program = subprocess.Popen([tool("killer"), "0", sys.executable, "-c", LOOP, str(count), name], cwd=place.work, env=environment,
                                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                    calls.append(calls_of(program))
                until(lambda: len(place.listed()) <= 1)  # pylint: disable=cell-var-from-loop
            other.communicate("\n")
        a, b = ((calls[1] - calls[0]) / (many - few) for calls in (plain, ours))
        checks.ok(a > 3 and b - a <= most, f"a small file, {name}: {b - a:.1f} system calls beyond the {a:.1f} of the plain program")


# As LOOP; what is copied is made by one that is not counted.
COPIES = """
import os, shutil, signal, sys
shutil.copytree("../source" + sys.argv[1], "made")
os.kill(os.getpid(), signal.SIGKILL)
"""
# Of each file that a program has looked at, copies, and gives times and mode: plain, 20 calls.
MOST_CALLS_COPIED = 16


def calls_copied():
    """System calls for each of the files: of the plain program, and of ours."""
    few, many = 200, 600
    with Place() as place:
        for count in (few, many):
            os.makedirs(os.path.join(place.root, f"source{count}"))
            for i in range(count):
                with open(os.path.join(place.root, f"source{count}", f"{i}.txt"), "wb") as f:
                    f.write(b"x" * 3000)
        plain, ours = [], []
        for count in (few, many):
            for calls, environment in ((plain, place.plain), (ours, place.environment)):
                shutil.rmtree(place.path("made"), ignore_errors=True)
                program = subprocess.Popen([tool("killer"), "0", sys.executable, "-c", COPIES, str(count)], cwd=place.work, env=environment,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                calls.append(calls_of(program))
    return ((calls[1] - calls[0]) / (many - few) for calls in (plain, ours))


def few_calls_copied(checks):
    # What waits for a busy machine adds calls: the quietest of three counts.
    for _ in range(3):
        a, b = calls_copied()
        if b - a <= MOST_CALLS_COPIED:
            break
    checks.ok(a > 10 and b - a <= MOST_CALLS_COPIED, f"a small file that is copied: {b - a:.1f} system calls beyond the {a:.1f} of the plain program")


def ahead(checks):
    """The agent is started before the job's table is there, which takes a millisecond: the first save waits for both at once."""
    if not shutil.which("strace"):
        print("# no strace: when the agent is started is not looked at")
        return
    with Place() as place:
        environment = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD"}
        trace = os.path.join(place.root, "trace")
        subprocess.run(["strace", "-f", "-qq", "-s", "300", "-e", "trace=execve,linkat", "-o", trace, "-E", "LD_PRELOAD=" + place.environment["LD_PRELOAD"],
                        sys.executable, "-c", "open('first.pt', 'wb').write(b'1')"], cwd=place.work, env=environment, check=True)
        with open(trace, encoding="utf-8", errors="replace") as f:
            lines = f.read().splitlines()
        came = until(lambda: place.content("first.pt") == b"1")
    starts = [i for i, line in enumerate(lines) if "execve" in line and "transpckptd" in line]
    tables = [i for i, line in enumerate(lines) if "linkat" in line and '"table"' in line]
    checks.ok(came and len(starts) == 1 and len(tables) == 1 and starts[0] < tables[0], "the agent is started, once, before the table is made", starts, tables)


# The longest time between two closings, in seconds, and when the last one was.
QUICKLY = """
import os, sys, time
for name in sys.argv[2:]:
    os.mkdir(name)
    last, longest = time.monotonic(), 0
    for i in range(int(sys.argv[1])):
        with open(f"{name}/{i}.x", "wb") as f:
            f.write(b"x" * 2000)
        now = time.monotonic()
        last, longest = now, max(longest, now - last)
    print(longest, last, flush=True)
    sys.stdin.readline()
"""


def gathered(checks):
    """What is closed in quick succession waits for the last of it, the first of all too: at five times when it was quick."""
    count, tries, quick, early, came = 400, 0, 0, [], True
    with Place(TRANSPCKPT_FILES="*") as place:
        program = place.start(QUICKLY, count, *(f"t{n}" for n in range(15)))
        while quick < 5 and tries < 15:
            longest, last = map(float, program.stdout.readline().split())
            there = [name for name in os.listdir(place.path(f"t{tries}")) if name.endswith(".x")]
            if max(longest, time.monotonic() - last) < 0.008:
                quick += 1
                early += there
            came = came and until(lambda: sum(name.endswith(".x") for name in os.listdir(place.path(f"t{tries}"))) == count)  # pylint: disable=cell-var-from-loop
            until(lambda: not place.listed())
            program.stdin.write("\n")
            program.stdin.flush()
            tries += 1
        program.kill()
        program.communicate()
    print(f"# {quick} of {tries} times quick enough")
    checks.ok(came and not early, f"{count} files that are closed in quick succession are at their paths behind the last one", came, early)


if __name__ == "__main__":
    run_tests(Checks(), [in_order, killed, power, fails, loses, few_calls, few_calls_copied, ahead, gathered])
