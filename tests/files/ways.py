#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 memory=512M disk
"""Other ways to a file than open, write, rename and close by libc's own functions: syscall(), system calls that no library
sees, unnamed files, links."""
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import BARE, Checks, Place, run_tests, until
from view import STEPS, end, go, look, pause, told

# How long a program that should not wait for the agent is let wait.
HOLD_SEC = 15


def hold(place):
    agent = pause(place)
    timer = threading.Timer(HOLD_SEC, os.kill, (agent, signal.SIGCONT))
    timer.daemon = True
    timer.start()
    return agent, timer


def release(held):
    held[1].cancel()
    os.kill(held[0], signal.SIGCONT)


# All by number, as a library does it that has no libc for it. Prints what each call gave.
NUMBERS = STEPS + """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
NR = dict(read=0, open=2, close=3, stat=4, lstat=6, access=21, dup=32, dup2=33, fcntl=72, fsync=74, truncate=76, ftruncate=77,
          rename=82, mkdir=83, creat=85, link=86, unlink=87, symlink=88, readlink=89, chmod=90, setxattr=188, getxattr=191,
          openat=257, unlinkat=263, renameat=264, linkat=265, utimensat=280, dup3=292, renameat2=316, copy_file_range=326,
          statx=332, close_range=436, openat2=437, faccessat2=439)
def call(name, *arguments):
    held = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    result = libc.syscall(NR[name], *held)
    return result if result >= 0 else os.strerror(ctypes.get_errno())
def size(name):
    found = ctypes.create_string_buffer(144)
    got = libc.syscall(NR["stat"], name, found)
    return struct.unpack_from("q", found, 48)[0] if got == 0 else None
W, C, T, AT = os.O_WRONLY, os.O_CREAT, os.O_TRUNC, -100
def put(name, data, how="open"):
    if how == "open":
        fd = call("open", name, W | C | T, 0o640)
    elif how == "creat":
        fd = call("creat", name, 0o640)
    elif how == "openat2":
        fd = libc.syscall(NR["openat2"], AT, name, struct.pack("QQQ", W | C, 0o600, 0), ctypes.c_long(24))
    else:
        fd = call("openat", AT, name, W | C | T, 0o640)
    os.write(fd, data)
    return fd
fd = put(b"a.pt", b"one"); copy = call("dup", fd); call("close", fd); os.write(copy, b"1"); call("close", copy)
print(call("utimensat", AT, b"a.pt", struct.pack("qqqq", 10**9, 0, 10**9, 5), 0), os.stat("a.pt").st_mtime_ns)
step("begun")
fd = put(b"a.pt", b"second")
call("dup2", fd, 70); call("dup3", fd, 71, os.O_CLOEXEC); call("fcntl", fd, 0, 72); call("close", fd); call("close", 70)
os.write(71, b" by 71"); call("close", 71); os.write(72, b" by 72"); call("close_range", 72, 72, 0)
call("close", put(b"b.tmp.pt", b"bb", "openat"))
call("close", put(b"c.pt", b"cc", "creat"))
call("close", put(b"d.pt", b"dd", "openat2"))
call("close", put(b"gone.pt", b"x"))
for way in (lambda: call("renameat2", AT, b"b.tmp.pt", AT, b"b.pt", 1), lambda: call("renameat2", AT, b"c.pt", AT, b"b.pt", 1),
            lambda: call("unlinkat", AT, b"gone.pt", 0), lambda: call("unlink", b"old.pt"), lambda: call("access", b"old.pt", 0),
            lambda: call("truncate", b"c.pt", 1), lambda: call("chmod", b"c.pt", 0o604),
            lambda: call("mkdir", b"c.pt", 0o700), lambda: call("faccessat2", AT, b"b.pt", 4, 0), lambda: call("readlink", b"b.pt", b"x" * 9, 9),
            lambda: [size(n) for n in (b"a.pt", b"b.pt", b"c.pt", b"d.pt", b"old.pt", b"b.tmp.pt")],
            lambda: call("rename", b"d.pt", b"e.pt"), lambda: call("fcntl", 99, 3), lambda: call("open", 0, 0, 0),
            lambda: libc.syscall(39) == os.getpid(), lambda: libc.syscall(9999), lambda: sorted(os.listdir("."))):
    print(way())
step("pending")
"""


def syscalls(checks):
    with Place() as place, Place() as other:
        said = []
        for where, preload in ((place, True), (other, False)):
            with open(where.path("old.pt"), "wb") as f:
                f.write(b"old")
            program = where.start(NUMBERS, preload=preload)
            said.append([program.stdout.readline()])
            told(program, "begun")
            if preload:
                until(lambda: not place.listed())
                agent = hold(place)
            go(program)
            while (line := program.stdout.readline().strip()) not in ("pending", ""):
                said[-1].append(line)
            if preload:
                checks.ok(place.listing() == ["a.pt", "old.pt"] and place.content("a.pt") == b"one1" and
                          {os.path.basename(r["path"]) for r in place.listed()} >= {"a.pt", "b.pt", "c.pt", "e.pt", "old.pt"},
                          "what syscall() does is pending", place.listing(), place.listed())
                release(agent)
            go(program)
            checks.ok(end(program)[0] == 0, "the program ends")
        checks.ok(said[0] == said[1] and len(said[0]) > 10, "and is to the program what it is without the library",
                  *[(a, b) for a, b in zip(*said) if a != b])
        ours, theirs = look(place.work), look(other.work)
        checks.ok(ours.keys() == theirs.keys() and all(ours[n][:6] == theirs[n][:6] for n in ours), "as is what is left",
                  ours, theirs)


PAST = STEPS + BARE + """
with open("model.safetensors", "wb") as f:
    f.write(b"before")
step("begun")
with open("first.pt", "wb") as f:
    f.write(b"first")
for name in (b".tmpAbC12x", b".tmpAbC12y"):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, b"whole")
    bare(264, -100, name, -100, b"d/model.safetensors" if name[-1] == ord("y") else b"model.safetensors")
    os.close(fd)
with open("latest", "w") as f:
    f.write("model")
print(sorted(os.listdir(".")), os.listdir("d"), open("model.safetensors").read(), os.path.getsize("d/model.safetensors"))
step("past")
"""


def past(checks):
    """As Rust's tempfile does it: opened and closed by libc, renamed by an instruction of its own."""
    with Place() as place:
        os.mkdir(place.path("d"))
        # What is owed in the folder when such a file is made is waited for: here it is not in that folder.
        program = place.start(PAST.replace('"first.pt"', '"e/first.pt"').replace('step("begun")', 'step("begun"); os.mkdir("e")'))
        told(program, "begun")
        until(lambda: not place.listed())
        agent = hold(place)
        go(program)
        seen = program.stdout.readline().strip()
        checks.ok(seen == "['d', 'e', 'latest', 'model.safetensors'] ['model.safetensors'] whole 5", "the job sees it, once", seen)
        told(program, "past")
        rows = [os.path.relpath(r["path"], place.work) for r in place.listed()]
        checks.ok(rows == ["e/first.pt", "model.safetensors", "d/model.safetensors", "latest"] and
                  place.content("model.safetensors") == b"whole" and place.content("latest") is None,
                  "it is at its path at once, and owed to the disk before what closed behind it", rows)
        trace = os.path.join(place.root, "trace")
        strace = None
        if shutil.which("strace"):
            strace = subprocess.Popen(["strace", "-f", "-y", "-qq", "-e", "trace=fsync,renameat", "-o", trace, "-p", str(agent[0])],
                                      stderr=subprocess.DEVNULL)
            until(lambda: os.path.exists(trace))
            time.sleep(0.3)
        release(agent)
        checks.ok(until(lambda: not place.listed()), "nothing of it stays owed", place.listed(), place.log())
        if strace:
            strace.terminate()
            strace.wait(20)
            with open(trace, encoding="utf-8") as f:
                calls = f.read()
            at = [calls.find("/d/model.safetensors>)"), calls.find('"latest"')]
            checks.ok(0 < at[0] < at[1], "it is synced before the pointer is there", at, calls)
        go(program)
        checks.ok(end(program)[0] == 0, "the program ends")


LINKS = STEPS + """
def put(name, data):
    with open(name, "wb") as f:
        f.write(data)
put("old.pt", b"old"); put("last.pt", b"last"); put("prev.pt", b"prev"); put("more.pt", b"more")
step("begun")
here = os.open(".", os.O_RDONLY)
def unnamed(name, data):
    fd = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o644)
    os.write(fd, data)
    os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=here, follow_symlinks=True)
    os.close(fd)
def tries(call, *names):
    try:
        print(call(*names))
    except OSError as e:
        print(e.strerror)
put("first.pt", b"first")
os.link("old.pt", "best.pt")
os.rename("last.pt", "prev.pt")
put("last.pt", b"newer")
unnamed("unnamed.pt", b"no name")
put("latest", b"unnamed")
tries(os.link, "old.pt", "best.pt"); tries(os.link, "old.pt", "prev.pt"); tries(unnamed, "unnamed.pt", b"other")
tries(os.link, "none.pt", "some.pt"); tries(os.rename, "none.pt", "some.pt")
os.link("more.pt", "gone.pt"); os.unlink("gone.pt")
os.rename("more.pt", "moved.pt"); os.rename("moved.pt", "again.pt")
print([(n, open(n).read(), os.stat(n).st_nlink > 1) for n in sorted(os.listdir("."))])
step("linked")
"""


def links(checks):
    """Names of files that are whole already wait for nobody and take their turn; a file that has no name until it is linked."""
    with Place() as place, Place() as other:
        said = []
        for where, preload in ((place, True), (other, False)):
            program = where.start(LINKS, preload=preload)
            told(program, "begun")
            if preload:
                until(lambda: not place.listed())
                agent = hold(place)
            go(program)
            said.append([])
            while (line := program.stdout.readline().strip()) not in ("linked", ""):
                said[-1].append(line)
            if preload:
                checks.ok(place.listing() == ["last.pt", "more.pt", "old.pt", "prev.pt"] and place.content("prev.pt") == b"prev" and
                          place.content("last.pt") == b"last", "nobody else sees it", place.listing())
                rows = [os.path.basename(r["path"]) for r in place.listed()]
                checks.ok(rows[:6] == ["first.pt", "best.pt", "prev.pt", "last.pt", "last.pt", "unnamed.pt"], "all in its turn", rows)
                release(agent)
                checks.ok(until(lambda: not place.listed()), "and comes", place.listed(), place.log())
            go(program)
            checks.ok(end(program)[0] == 0, "the program ends")
        # A file that is about to lose a name has both for a moment.
        said = [[line.replace("True", "False") for line in lines] for lines in said]
        checks.ok(said[0] == said[1] and len(said[0]) == 6, "to the program it is as without the library", *zip(*said))
        ours, theirs = look(place.work), look(other.work)
        checks.ok(ours.keys() == theirs.keys() and all(ours[n][:6] == theirs[n][:6] for n in ours), "and so is what is left",
                  ours, theirs)


def main():
    checks = Checks()
    run_tests(checks, [syscalls, past, links])


if __name__ == "__main__":
    main()
