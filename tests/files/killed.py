#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=1G about=38s disk
"""Saves, renames and pointers, with the program, the agent, or both killed at their system calls: from outside and
inside there is the old or the new one, never a part, never out of order. Then the agent's own writes, replayed with
everything dropped that was not synced. SECONDS bounds each part; ALL=1 tries every call."""
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import SKIP, Checks, Place, read, until

BYTES, ROUNDS = 150000, 3
LIMIT_SEC = float(os.environ.get("SECONDS") or 12)
LOOK = """
import os, sys
def look():
    found = []
    for n in sorted(os.listdir(".")):
        with open(n, "rb") as f:
            d = f.read()
        found.append(n + (" " + d.decode() if n == "latest" else " %d %s" % (len(d), "".join(map(chr, sorted(set(d)))))
                          if n.startswith("step") else ""))
    return "\\n".join(found)
"""
# From inside; then a sync of the folder waits until all that is owed is there.
INSIDE = LOOK + """
print(look())
fd = os.open(".", os.O_RDONLY)
os.fsync(fd)
"""


def tool(name):
    path = os.path.join(os.path.abspath(os.environ.get("builddir", ".")), "tests/files", name)
    if not os.path.exists(path):
        print(f"1..0 # SKIP {name} has not been built")
        sys.exit(SKIP)
    return path


def wrong(lines):
    """What is not as it may be, in a listing as LOOK prints it."""
    files = dict(line.split(" ", 1) if " " in line else (line, "") for line in lines.splitlines() if line)
    latest = files.pop("latest", None)
    found = []
    for name, text in files.items():
        number = re.match(r"step-(\d+)\.pt$", name)
        # One that was whole and not renamed yet.
        if name == "step.tmp.pt":
            if not re.match(rf"{BYTES} [b-z]$", text):
                found.append(f"{name} is torn: {text}")
        elif number and text != f"{BYTES} {chr(ord('a') + int(number.group(1)))}":
            found.append(f"{name} is torn: {text}")
        elif not number and not name.startswith(".tpck-"):
            found.append(f"{name} is there")
    steps = [n for n in files if n.startswith("step-")]
    if latest is not None and not (latest.isdigit() and f"step-{latest}.pt" in steps):
        found.append(f"latest says {latest!r}, there is {sorted(files)}")
    if latest is None and len(steps) > 1:
        found.append(f"no latest, but {sorted(files)}")
    return found


def clear(place):
    for name in os.listdir(place.work):
        os.unlink(place.path(name))


def outside(place):
    """The test itself is not preloaded."""
    scope = {}
    here = os.getcwd()
    os.chdir(place.work)
    try:
        exec(LOOK, scope)  # pylint: disable=exec-used
        # Not at one instant: the agent may be publishing. What is the same twice was there in between.
        before = None
        while True:
            try:
                now = scope["look"]()
            except FileNotFoundError:
                continue
            if now == before:
                return now
            before = now
    finally:
        os.chdir(here)


def settled(place):
    """The job is started again; what was owed is made real by it."""
    inside = place.run(INSIDE)
    until(lambda: ".tpck-" not in outside(place))
    return inside, outside(place)


def start(place, when, program, *arguments):
    return subprocess.Popen([tool("killer"), str(when), program, *arguments], cwd=place.work, env=place.environment,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def agent_alone(place, when):
    """An agent whose system calls are counted, and the program that it serves."""
    environment = dict(place.environment)
    del environment["LD_PRELOAD"]
    agent = subprocess.Popen([tool("killer"), str(when), place.agent, "--job", "j", "--foreground"], cwd=place.work,
                             env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until(lambda: os.path.exists(os.path.join(place.job_folder, "agent.sock")) or agent.poll() is not None)
    program = start(place, 0, tool("sequence"), str(ROUNDS))
    status = program.wait(120)
    program.stderr.close()
    return agent, status


def calls_of(process):
    found = re.search(r"calls (\d+)", process.communicate(timeout=120)[1])
    return int(found.group(1)) if found else 0


def moments(count, generator):
    chosen = list(range(1, count + 1))
    generator.shuffle(chosen)
    return chosen


def kill_program(checks, both, generator):
    tried, problems = 0, []
    with Place() as place:
        count = calls_of(start(place, 0, tool("sequence"), str(ROUNDS)))
        begun = time.monotonic()
        for when in moments(count, generator):
            if tried > 10 and time.monotonic() - begun > LIMIT_SEC and not os.environ.get("ALL"):
                break
            clear(place)
            start(place, when, tool("sequence"), str(ROUNDS)).communicate(timeout=120)
            if both:
                place.kill_agent()
            at_once = outside(place)
            inside, after = settled(place)
            tried += 1
            for where, listing in (("at once", at_once), ("inside", inside), ("after", after)):
                problems += [f"call {when}, {where}: {p}" for p in wrong(listing)]
            if len(problems) > 5:
                break
    checks.ok(count > 40 and tried > 10 and not problems,
              f"{'program and agent' if both else 'the program'} killed at {tried} of {count} system calls", *problems[:8])
    return tried


def kill_agent(checks, generator):
    tried, problems = 0, []
    with Place() as place:
        agent, _ = agent_alone(place, 0)
        place.kill_agent(signal.SIGTERM)
        count = calls_of(agent)
        begun = time.monotonic()
        for when in moments(count, generator):
            if tried > 10 and time.monotonic() - begun > LIMIT_SEC and not os.environ.get("ALL"):
                break
            clear(place)
            agent, status = agent_alone(place, when)
            at_once = outside(place)
            inside, after = settled(place)
            place.kill_agent(signal.SIGTERM)
            agent.communicate(timeout=120)
            shutil.rmtree(place.job_folder, ignore_errors=True)
            tried += 1
            if status:
                problems.append(f"call {when}: the program ended with status {status}")
            for where, listing in (("at once", at_once), ("inside", inside), ("after", after)):
                problems += [f"call {when}, {where}: {p}" for p in wrong(listing)]
            if f"latest {ROUNDS}" not in after.splitlines():
                problems.append(f"call {when}: at the end there is {after}")
            if len(problems) > 5:
                break
    checks.ok(count > 100 and tried > 10 and not problems, f"the agent killed at {tried} of {count} system calls", *problems[:8])
    return tried


TAKES_AWAY = """
import os
with open("step2.pt", "wb") as f:
    f.write(b"x" * 3000000)
input()
os.unlink("step2.pt")
print("gone")
input()
"""


def take_away_once():
    """What was left when the agent was killed, what is there after its next one, and whether the latter cleared up."""
    with Place() as place:
        # Of how large a file gets the library goes by the last one of its name, but for digits.
        place.run("open('step1.pt', 'wb').write(b'1' * 3000000)")
        until(lambda: place.content("step1.pt") is not None)
        agent = place.agent_pid()
        # Each of the agent's opens takes a while: between that of what it copies and that of the copy the file is taken away.
        killer = subprocess.Popen(["strace", "-f", "-qq", "-o", os.path.join(place.root, "trace"), "-e", "trace=openat,fsync,fdatasync",
                                   "-e", "inject=openat:delay_exit=700000", "-e", "inject=fsync,fdatasync:signal=KILL:when=1",
                                   "-p", str(agent)], stderr=subprocess.DEVNULL)
        until(lambda: re.search(r"TracerPid:\t[1-9]", read(f"/proc/{agent}/status")))

        def copies():
            try:
                opened = [os.readlink(f"/proc/{agent}/fd/{fd}") for fd in os.listdir(f"/proc/{agent}/fd")]
            except OSError:
                return False
            return any(re.search(r"/j/files/[0-9a-f]{16}$", name) for name in opened)
        program = place.start(TAKES_AWAY)
        until(copies, 15)
        print("\n", end="", file=program.stdin, flush=True)
        program.stdout.readline()
        left = []

        # The next agent clears up before it can be asked for its number.
        def another():
            nonlocal left
            found = [n for n in os.listdir(place.work) if n.startswith(".tpck-")]
            left = found or left
            return place.agent_pid() != agent
        until(another, 15)
        # By itself it does not always see the end of what was killed while it was delayed.
        killer.kill()
        killer.wait()
        print("\n", end="", file=program.stdin, flush=True)
        program.wait()
        place.run("open('next.pt', 'wb').write(b'2')")
        until(lambda: place.content("next.pt") == b"2")
        gone = until(lambda: not any(n.startswith(".tpck-") for n in os.listdir(place.work)), 20)
        return left, place.listing(), gone


def take_away(checks):
    """A file is taken away when the agent is about to copy it, which is killed once it has begun: nothing of the file stays."""
    if not shutil.which("strace"):
        print("# no strace: a file that is taken away from a killed agent is not tried")
        return 0
    for _ in range(12):
        left, found, gone = take_away_once()
        # On a busy machine the copy may have been there before.
        if left:
            break
    checks.ok(len(left) == 1 and gone and found == ["next.pt", "step1.pt"], "a file is taken away while a killed agent copies it: nothing of it stays", left, found)
    return 1


# ---- a machine that loses what was not synced ------------------------------------------------------

CALL = re.compile(r"^(?:\d+ +)?([\d.]+) (\w+)\((.*)\) += (-?\d+)")
OF_FD = re.compile(r"^\d+<([^>]*)>")


BEGUN = re.compile(r"^(\d+) +[\d.]+ (.*) <unfinished \.\.\.>$")
ENDED = re.compile(r"^(\d+) +([\d.]+) <\.\.\. \w+ resumed>(.*)$")


def whole_lines(trace):
    """A call during which another thread made one has two lines; what counts is when it ended."""
    begun = {}
    for line in trace.splitlines():
        first, second = BEGUN.match(line), ENDED.match(line)
        if first:
            begun[first.group(1)] = first.group(2)
        elif second and second.group(1) in begun:
            yield f"{second.group(1)} {second.group(2)} {begun.pop(second.group(1))}{second.group(3)}"
        else:
            yield line


def operations(traces, folder):
    """What the agent and the program did to the folder: (what, name, ...) in order."""
    done = []
    calls = [call for trace in traces for call in map(CALL.match, whole_lines(trace)) if call]
    for call in sorted(calls, key=lambda c: float(c.group(1))):
        if int(call.group(4)) < 0:
            continue
        what, text = call.group(2), call.group(3)
        names = [n.encode().decode("unicode_escape") for n in re.findall(r'"((?:[^"\\]|\\.)*)"', text)]
        at = OF_FD.match(text)
        at = at.group(1) if at else ""
        if what == "openat" and "O_CREAT" in text and at == folder:
            done.append(("create", names[0]))
        elif what in ("pwrite64", "write") and at.startswith(folder + "/"):
            done.append(("write", at[len(folder) + 1:], int(call.group(4))))
        elif what in ("fsync", "fdatasync") and at.startswith(folder + "/"):
            done.append(("sync", at[len(folder) + 1:]))
        elif what in ("fsync", "fdatasync") and at == folder:
            done.append(("sync folder",))
        elif what in ("renameat", "renameat2") and (at == folder or "/" not in names[0]):
            done.append(("rename", names[0], names[1]))
        elif what == "unlinkat" and (at == folder or "/" not in names[0]):
            done.append(("unlink", names[0]))
    return done


def crashes(done):
    """All that may be there after a loss of power: names on the disk, and of each whether its bytes are."""
    for end in range(len(done) + 1):
        durable, waiting, whole = {}, [], {}
        identity = {}
        for number, step in enumerate(done[:end]):
            if step[0] == "create":
                identity[step[1]] = number
                whole[number] = False
                waiting.append(("put", step[1], number))
            elif step[0] == "write":
                whole[identity[step[1]]] = False
            elif step[0] == "sync":
                whole[identity[step[1]]] = True
            elif step[0] == "rename" and step[1] in identity:
                identity[step[2]] = identity.pop(step[1])
                waiting.append(("rename", step[1], step[2], identity[step[2]]))
            elif step[0] == "unlink":
                identity.pop(step[1], None)
                waiting.append(("remove", step[1]))
            elif step[0] == "sync folder":
                apply(durable, waiting)
                waiting = []
        # Any of what waits may have come to the disk, and any not.
        for mask in range(1 << min(len(waiting), 10)):
            state = dict(durable)
            apply(state, [w for i, w in enumerate(waiting) if mask >> i & 1])
            yield end, state, whole


def apply(state, steps):
    for step in steps:
        if step[0] == "put":
            state[step[1]] = step[2]
        elif step[0] == "rename":
            state.pop(step[1], None)
            state[step[2]] = step[3]
        else:
            state.pop(step[1], None)


def power(checks):
    if not shutil.which("strace"):
        print("# no strace: the loss of power is not tried")
        return 0
    with Place() as place:
        environment = dict(place.environment)
        del environment["LD_PRELOAD"]
        trace = os.path.join(place.root, "trace")
        strace = ["strace", "-f", "-y", "-ttt", "-qq", "-s", "300", "-e",
                  "trace=openat,pwrite64,write,fsync,fdatasync,renameat,renameat2,unlinkat", "-o"]
        agent = subprocess.Popen([*strace, trace, place.agent, "--job", "j", "--foreground"], cwd=place.work, env=environment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: os.path.exists(os.path.join(place.job_folder, "agent.sock")))
        # The second run goes through memory, whose bytes are all the agent's writing.
        for _ in range(2):
            for name in os.listdir(place.work):
                os.unlink(place.path(name))
            begun = os.path.getsize(trace)
            subprocess.run([*strace, trace + ".program", "-E", "LD_PRELOAD=" + place.library, tool("sequence"), str(ROUNDS)],
                           cwd=place.work, env=environment, check=True, timeout=120)
        place.kill_agent(signal.SIGTERM)
        agent.wait(60)
        with open(trace, encoding="utf-8", errors="replace") as f:
            f.seek(begun)
            traces = [f.read()]
        with open(trace + ".program", encoding="utf-8", errors="replace") as f:
            traces.append(f.read())
        done = operations(traces, os.path.realpath(place.work))
    # Which version of `latest` or of a step an identity is: by its rename's turn.
    numbers, turn = {}, 0
    identity = {}
    for number, step in enumerate(done):
        if step[0] == "create":
            identity[step[1]] = number
        elif step[0] == "rename":
            made = identity.pop(step[1])
            identity[step[2]] = made
            if step[2] == "latest":
                turn += 1
                numbers[made] = turn
    tried, problems = 0, []
    for end, state, whole in crashes(done):
        tried += 1
        for name, made in state.items():
            if not name.startswith(".tpck-") and not whole.get(made):
                problems.append(f"after {done[end - 1]}: {name} is torn")
        if "latest" in state and f"step-{numbers[state['latest']]}.pt" not in state:
            problems.append(f"after {done[end - 1]}: latest is {numbers[state['latest']]}, there is {sorted(state)}")
    checks.ok(turn == ROUNDS and tried > 30 and not problems, f"power lost in {tried} ways: old or new, in order", *problems[:8])
    return tried


def main():
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"# SEED={seed}")
    generator = random.Random(seed)
    checks = Checks()
    parts = {"program": lambda: kill_program(checks, False, generator), "both": lambda: kill_program(checks, True, generator),
             "agent": lambda: kill_agent(checks, generator), "away": lambda: take_away(checks), "power": lambda: power(checks)}
    tried = sum(part() for name, part in parts.items() if len(sys.argv) < 2 or name in sys.argv[1:])
    print(f"# {tried} crash points")
    checks.end()


if __name__ == "__main__":
    main()
