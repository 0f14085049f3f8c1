#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=512M disk about=3s
"""Calls that do not wait for what is owed: what lists folders inside of the C library, and links to what is whole. While they are made the
agent is stopped: what is pending stays so, and who waited for it would never come back."""
import json
import os
import select
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import WAIT_SEC, Checks, Place, run_tests, stand_still, until
from view import STEPS, end, go, told

# The C library's own, by the names that a C program links to.
LISTS = """
import ctypes, json
libc = ctypes.CDLL(None, use_errno=True)
def name_of(entry): return ctypes.string_at(entry + 19).decode()
def scandir(path, function="scandir", keep=lambda name: True):
    kept = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda entry: keep(name_of(entry)))
    names = ctypes.POINTER(ctypes.c_void_p)()
    ctypes.set_errno(7)
    count = getattr(libc, function)(path.encode(), ctypes.byref(names), kept, libc.alphasort)
    if count < 0: return ctypes.get_errno()
    return [name_of(names[i]) for i in range(count)] + ([] if ctypes.get_errno() == 7 else [ctypes.get_errno()])
def glob(pattern, function="glob", flags=0):
    found = (ctypes.c_size_t * 16)()
    for i in range(3, 9): found[i] = 0x1234 + i if i > 3 else 0
    result = getattr(libc, function)(pattern.encode(), flags, None, ctypes.byref(found))
    kept = all(found[i] == 0x1234 + i for i in range(4, 9)) and not found[3] & 0xffffffff & 1 << 6
    if result: return result
    paths = ctypes.cast(found[1], ctypes.POINTER(ctypes.c_char_p))
    names = [paths[i].decode() for i in range(found[0])]
    libc.globfree(ctypes.byref(found))
    return names + ([] if kept else ["its structure is another"])
def lists():
    return [scandir("."), scandir(".", "scandir64"), scandir("sub", keep=lambda n: n.startswith("s")), scandir("none"), scandir("s-2.pt"),
            glob("s-*.pt"), glob("s-*.pt", "glob64"), glob("s*/s-?.pt", flags=2), glob("s-2.pt"), glob("s-0.pt"), glob("su*/*"), glob("[ab"), glob("{sub,none}/s-*", flags=1 << 10)]
"""
LISTED = STEPS + LISTS + """
os.mkdir("sub")
def save(name):
    with open(name, "wb") as f: f.write(b"x" * 1000)
for name in ("s-0.pt", "s-1.pt", "sub/s-0.pt"): save(name)
step("first")
for name in ("s-1.pt", "s-2.pt", "sub/s-2.pt", "sub/s-3.pt"): save(name)
os.unlink("s-0.pt")
os.unlink("sub/s-0.pt")
print(json.dumps(lists()), flush=True)
step("seen")
"""


def line_of(program):
    """Who waits for an agent that is stopped says nothing."""
    return program.stdout.readline() if select.select([program.stdout], [], [], WAIT_SEC / 4)[0] else "nothing\n"


def stopped(place):
    pid = place.agent_pid()
    stand_still(pid)
    return pid


def listings(checks):
    with Place() as place, Place() as other:
        program = place.start(LISTED)
        told(program, "first")
        until(lambda: not place.listed())
        agent = stopped(place)
        go(program)
        said = line_of(program)
        outside = place.listing()
        os.kill(agent, signal.SIGCONT)
        told(program, "seen")
        end(program)
        plain = other.start(LISTED, preload=False)
        told(plain, "first")
        go(plain)
        want = plain.stdout.readline()
        told(plain, "seen")
        end(plain)
        checks.ok(said == want and "s-2.pt" in want and outside == ["s-0.pt", "s-1.pt", "sub"] and place.listing() == other.listing(),
                  "scandir and glob of the C library list what the job sees, and wait for nothing", *(json.loads(w) if w[0] == "[" else w for w in (said, want)),
                  outside)


LINKS = STEPS + """
for folder in ("whole", "part", "part/below"): os.mkdir(folder)
def save(name):
    with open(name, "wb") as f: f.write(b"x" * 1000)
for name in ("s-0.pt", "part/below/s-0.pt"): save(name)
step("first")
for name in ("s-1.pt", "part/below/s-1.pt"): save(name)
for target in ("s-0.pt", "nowhere", "whole", "../elsewhere", "whole/none"): os.symlink(target, "to-" + target.replace("/", "-"))
os.symlink("../s-0.pt", "whole/up")
print(sorted(n for n in os.listdir(".") if os.path.islink(n)), os.path.exists("whole/up"), flush=True)
step("made")
os.symlink(sys.argv[1], "last")
print(os.path.exists("last"), flush=True)
step("last")
"""


def links(checks):
    """A link to what is whole, or to nothing, is made at once; one that others would see ahead of what it names waits."""
    for target in ("s-1.pt", "part", "part/below/s-1.pt", "to-whole/../s-1.pt", "part/below/.."):
        with Place() as place:
            program = place.start(LINKS, target)
            told(program, "first")
            until(lambda: not place.listed())
            agent = stopped(place)
            go(program)
            said = line_of(program)
            want = "['to-..-elsewhere', 'to-nowhere', 'to-s-0.pt', 'to-whole', 'to-whole-none'] True\n"
            checks.ok(said == want, "links to what is whole, and to nothing, wait for nothing", said)
            told(program, "made")
            go(program)
            early = select.select([program.stdout], [], [], 0.5)[0] or os.path.lexists(place.path("last"))
            os.kill(agent, signal.SIGCONT)
            told(program, "True")
            checks.ok(not early and os.path.exists(place.path("last")), f"one to {target}, which is owed, waits until that is there")
            told(program, "last")
            end(program)


SYNCS = STEPS + """
def save(i):
    with open(f"s-{i}.pt", "wb") as f:
        f.write(b"x" * 1000)
        f.flush()
        os.fsync(f.fileno())
for i in range(5): save(i)
step("some")
for i in range(5, 30): save(i)
step("many")
"""


def descriptors(checks):
    """An agent lives as long as the job: what it opens for a save it closes."""
    with Place() as place:
        program = place.start(SYNCS)
        told(program, "some")
        until(lambda: not place.listed())
        open_files = f"/proc/{place.agent_pid()}/fd"
        some = len(os.listdir(open_files))
        go(program)
        told(program, "many")
        closed = until(lambda: not place.listed() and len(os.listdir(open_files)) <= some, WAIT_SEC / 24)
        checks.ok(closed, "after many syncs the agent has no more open than after some", some, os.listdir(open_files))
        go(program)
        end(program)


# Many files, and what came of each; then some more, once the table is free again.
SAVES = STEPS + """
import time
def save(name):
    with open(name, "wb") as f: f.write(name.encode() * 100)
save("first.pt")
step("first")
begun = time.monotonic()
for i in range(30): save(f"held-{i}.pt")
print(f"{time.monotonic() - begun:.3f}", flush=True)
step("saved")
for i in range(5): save(f"free-{i}.pt")
step("free")
"""


def held(checks):
    """Somebody was stopped while holding the table of files, as an agent may be: the program waits for a second, once, and writes as without the library."""
    holds = os.path.join(os.path.abspath(os.environ.get("builddir", ".")), "tests/files/holds")
    with Place() as place:
        program = place.start(SAVES)
        told(program, "first")
        until(lambda: not place.listed())
        holder = subprocess.Popen([holds, place.job_folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        has = holder.stdout.readline() == "held\n"
        go(program)
        took = line_of(program).strip()
        saved = took != "nothing" and program.stdout.readline().strip() == "saved"
        there = [place.content(f"held-{i}.pt") == f"held-{i}.pt".encode() * 100 for i in range(30)]
        still = holder.poll() is None
        holder.communicate()
        stand_still(place.agent_pid())
        go(program)
        told(program, "free")
        waits = not os.path.exists(place.path("free-4.pt"))
        os.kill(place.agent_pid(), signal.SIGCONT)
        came = until(lambda: all(place.content(f"free-{i}.pt") == f"free-{i}.pt".encode() * 100 for i in range(5)))
        said = end(program)
    checks.ok(has and saved and still and all(there), "the table of files is held: the program does not wait for it, and writes by itself", has, took, there)
    checks.ok(waits and came, "and once it is free files are taken as ever", waits, came, said)


def main():
    checks = Checks()
    run_tests(checks, [listings, links, descriptors, held])


if __name__ == "__main__":
    main()
