#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls that do not wait for what is owed: what lists folders inside of the C library, and symbolic links. While they are made the
agent is stopped: what is pending stays so, and who waited for it would never come back."""
import json
import os
import select
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import WAIT_SEC, Checks, Place, until
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


LINKS = STEPS + """
import json
def save(name):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    with open(name, "wb") as f: f.write(name.encode() * 1000)
def point(target, name):
    os.symlink(target, name + ".tmp")
    os.rename(name + ".tmp", name)
def fails(call, *arguments):
    try: call(*arguments)
    except OSError as error: return error.errno
for name in ("step-1.pt", "ckpt-1/model.pt", "ckpt-1/more.pt"): save(name)
point("step-1.pt", "last.ckpt")
point("ckpt-1", "newest")
step("first")
for name in ("step-2.pt", "ckpt-2/model.pt", "ckpt-2/more.pt"): save(name)
point("step-2.pt", "last.ckpt")
point("ckpt-2", "newest")
point("last.ckpt", "again")
os.symlink(os.path.abspath("ckpt-2/more.pt"), "ckpt-1/more")
os.symlink("nothing here", "lock")
os.symlink("step-1.pt", "whole")
os.symlink("step-2.pt", "gone")
os.unlink("gone")
os.symlink("step-2.pt", "moved")
os.rename("moved", "ckpt-1/moved")
said = [os.readlink(n) for n in ("last.ckpt", "newest", "again", "ckpt-1/moved", "lock", "whole")]
said += [os.path.islink(n) for n in ("last.ckpt", "newest", "gone", "moved")]
said += [fails(os.symlink, "step-2.pt", n) for n in ("last.ckpt", "step-2.pt", "step-1.pt", "ckpt-2", "none/link")]
said += [fails(os.readlink, "gone"), fails(os.rmdir, "newest"), fails(os.mkdir, "newest"), fails(os.rename, "ckpt-1/more", "ckpt-2")]
said += sorted((at, sorted((e.name, e.is_symlink()) for e in os.scandir(at))) for at in (".", "ckpt-1"))
print(json.dumps(said), flush=True)
step("linked")
# What follows them waits for them.
said = [open("newest/model.pt").read()[:20], os.path.getsize("again"), sorted(os.listdir("newest")), open("again").read()[:9]]
save("ckpt-3/model.pt")
point("ckpt-3", "newest")
os.chdir("newest")
said += [os.listdir(".")]
os.chdir("..")
save("ckpt-4/model.pt")
point("ckpt-4", "newest")
with open("newest/model.pt", "wb") as f: f.write(b"by its link")
save("step-5.pt")
point("step-5.pt", "last.ckpt")
with open("last.ckpt", "wb") as f: f.write(b"by its link too")
os.unlink("again")
os.symlink("step-5.pt", "again")
said += [fails(os.open, "again", how | os.O_NOFOLLOW) for how in (os.O_RDONLY, os.O_CREAT | os.O_WRONLY, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)]
said += [open("step-5.pt").read(), os.path.islink("last.ckpt"), os.stat("newest").st_ino == os.stat("ckpt-4").st_ino]
print(json.dumps(said), flush=True)
step("followed")
"""
POINTED = STEPS + """
import shutil
step("begin")
for i in range(40):
    os.mkdir(f"ckpt-{i}")
    for part in range(3):
        with open(f"ckpt-{i}/{part}.pt", "wb") as f: f.write(b"%d" % i * 20000)
    os.symlink(f"ckpt-{i}", "latest.tmp")
    os.rename("latest.tmp", "latest")
    if i >= 2: shutil.rmtree(f"ckpt-{i - 2}")
"""


KEPT = STEPS + """
for i in range(5):
    with open(f"step-{i}.pt", "wb") as f: f.write(b"%d" % i * 20000)
    os.symlink(f"step-{i}.pt", f"link-{i}")
    step(f"linked {i}")
"""


def line_of(program):
    """Who waits for an agent that is stopped says nothing."""
    if not select.select([program.stdout], [], [], WAIT_SEC / 4)[0]:
        program.kill()
        raise RuntimeError("it waits for the agent")
    return program.stdout.readline()


def stopped(place):
    pid = place.agent_pid()
    os.kill(pid, signal.SIGSTOP)
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


def links(checks):
    with Place() as place, Place() as other:
        program = place.start(LINKS)
        told(program, "first")
        until(lambda: not place.listed())
        agent = stopped(place)
        go(program)
        said = [line_of(program)]
        told(program, "linked")
        names = [n for n in sorted(os.listdir(place.work)) if os.path.islink(place.path(n)) and not n.startswith(".tpck-")]
        outside = [names, *(os.readlink(place.path(n)) for n in ("last.ckpt", "newest")), [row["where"] for row in place.listed()].count("link")]
        os.kill(agent, signal.SIGCONT)
        go(program)
        said.append(line_of(program))
        told(program, "followed")
        end(program)
        plain = other.start(LINKS, preload=False)
        want = []
        for word in ("first", "linked", "followed"):
            if want or word != "first":
                want.append(plain.stdout.readline())
            told(plain, word)
            go(plain)
        plain.wait()
        both = [[line.replace(p.root, "") for line in lines] for p, lines in ((place, said), (other, want))]
        checks.ok(both[0] == both[1], "a link to what is pending is what the job makes of it, and who makes it does not wait", *both[0], *both[1])
        checks.ok(outside == [["last.ckpt", "lock", "newest", "whole"], "step-1.pt", "ckpt-1", 5],
                  "others see it once what it names is there; a link to what is whole, or nowhere, is there at once", outside)
        trees = [{n: os.readlink(p.path(n)).replace(p.root, "") if os.path.islink(p.path(n)) else os.path.isdir(p.path(n)) or p.content(n)
                  for at, folders, files in os.walk(p.work) for n in (os.path.relpath(os.path.join(at, f), p.work) for f in folders + files)}
                 for p in (place, other)]
        checks.ok(trees[0] == trees[1] and len(trees[0]) > 15, "in the end all links and files are as without the library", trees)


def pointed(checks):
    with Place() as place:
        program = place.start(POINTED)
        told(program, "begin")
        go(program)
        looks, wrong, seen = 0, [], set()
        while program.poll() is None or place.listed():
            name = "latest.tmp" if looks % 2 else "latest"
            looks += 1
            try:
                latest = os.readlink(place.path(name))
                parts = [place.content(f"{latest}/{part}.pt") for part in range(3)]
                if os.readlink(place.path(name)) != latest:
                    continue
            except FileNotFoundError:
                continue
            if parts != [latest[5:].encode() * 20000] * 3:
                wrong.append((latest, [part and len(part) for part in parts]))
            seen.add(latest)
        checks.ok(program.returncode == 0 and not wrong and looks > 10 and len(seen) > 3 and place.listing() == ["ckpt-38", "ckpt-39", "latest"],
                  f"a link is never there before what it names ({looks} looks, {len(seen)} links)", wrong[:5], place.listing())


def kept(checks):
    """Other nodes keep files for a lost one, and no links: these are there when they have been made."""
    with Place(TRANSPCKPT_FSYNC="replicated") as place:
        program, found = place.start(KEPT), []
        for i in range(5):
            told(program, f"linked {i}")
            try:
                found.append(os.readlink(place.path(f"link-{i}")) == f"step-{i}.pt" and place.content(f"link-{i}") == b"%d" % i * 20000)
            except FileNotFoundError:
                found.append(None)
            go(program)
        end(program)
        checks.ok(found == [True] * 5, "with TRANSPCKPT_FSYNC=replicated a link waits for what it names", found)


def main():
    checks = Checks()
    for test in [listings, links, pointed, kept]:
        if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
            begun = time.monotonic()
            test(checks)
            print(f"# {test.__name__}: {time.monotonic() - begun:.1f} s")
    checks.end()


if __name__ == "__main__":
    main()
