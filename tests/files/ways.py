#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other ways to a file than open, write, rename and close by libc's own functions: syscall(), system calls that no library
sees, unnamed files, links."""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import BARE, Checks, Place, until
from view import STEPS, end, go, look, pause, told

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
                agent = pause(place)
            go(program)
            while (line := program.stdout.readline().strip()) not in ("pending", ""):
                said[-1].append(line)
            if preload:
                checks.ok(place.listing() == ["a.pt", "old.pt"] and place.content("a.pt") == b"one1" and
                          {os.path.basename(r["path"]) for r in place.listed()} >= {"a.pt", "b.pt", "c.pt", "e.pt", "old.pt"},
                          "what syscall() does is pending", place.listing(), place.listed())
                os.kill(agent, signal.SIGCONT)
            go(program)
            checks.ok(end(program)[0] == 0, "the program ends")
        checks.ok(said[0] == said[1] and len(said[0]) > 10, "and is to the program what it is without the library",
                  *[(a, b) for a, b in zip(*said) if a != b])
        ours, theirs = look(place.work), look(other.work)
        checks.ok(ours.keys() == theirs.keys() and all(ours[n][:6] == theirs[n][:6] for n in ours), "as is what is left",
                  ours, theirs)


def main():
    checks = Checks()
    tests = [syscalls]
    for test in tests:
        if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
            begun = time.monotonic()
            test(checks)
            print(f"# {test.__name__}: {time.monotonic() - begun:.1f} s")
    checks.end()


if __name__ == "__main__":
    main()
