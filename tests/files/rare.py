#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.3 memory=512M disk about=5s
"""Calls that few programs make, on a file that is pending: each gives what it gives when the file is at its path, which is what the same
program without the library is told, and what it makes is not replaced when the file comes."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import Checks, Place, run_tests, until
from view import STEPS, end, go, pause, told

# Of the C library, and by number. Prints what each call gave.
CALLS = STEPS + """
import ctypes, socket, stat, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments, by=None):
    held = [ctypes.c_char_p(a) if isinstance(a, bytes) else a if isinstance(a, ctypes.Array) else ctypes.c_long(a) for a in arguments]
    function = getattr(libc, name) if by is None else libc.syscall
    function.restype = ctypes.c_long if name in ("pathconf", "syscall") else ctypes.c_int
    ctypes.set_errno(0)
    result = function(*held) if by is None else function(ctypes.c_long(by), *held)
    error = ctypes.get_errno()
    print(name, by or "", result if result >= 0 and not error else os.strerror(error) if error else result, flush=True)
    return result
def save(name, data=b"x" * 1000):
    with open(name, "wb") as f: f.write(data)
AT = -100
"""

NAMES = CALLS + """
import time
save("gone.pt")
step("first")
save("a.pt", b"saved" * 100)
os.unlink("gone.pt")
for name in (b"a.pt", b"./a.pt", os.getcwd().encode() + b"/a.pt"):
    call("mknod", name, stat.S_IFREG | 0o600, 0)
    call("mkfifo", name, 0o600)
call("mknodat", AT, b"a.pt", stat.S_IFREG | 0o600, 0)
call("mkfifoat", AT, b"a.pt", 0o600)
call("mknod", b"a.pt", stat.S_IFREG | 0o600, 0, by=133)
call("mknodat", AT, b"a.pt", stat.S_IFIFO | 0o600, 0, by=259)
call("mkfifo", b"pipe", 0o600)
call("mkfifo", b"none/pipe", 0o600)
def local(name): return struct.pack("H", socket.AF_UNIX) + name
def bind(name, size=None, kind=socket.AF_UNIX, by=None):
    with socket.socket(kind, socket.SOCK_STREAM) as s: call("bind", s.fileno(), local(name), size or 2 + len(name), by=by)
bind(b"a.pt")
bind(b"a.pt", 2 + 5)
bind(os.getcwd().encode() + b"/a.pt")
bind(b"a.pt", by=49)
bind(b"a.pt", kind=socket.AF_INET)
bind(b"socket")
bind(b"socket")
bind(bytes(1) + b"tpck" + str(os.getpid()).encode())
bind(b"x" * 200)
call("chdir", b"a.pt")
call("chdir", b"a.pt/")
call("chdir", b"none")
call("chdir", b"a.pt", by=80)
for name in range(0, 21): call("pathconf", b"a.pt", name)
call("pathconf", b"none", 3)
call("futimesat", AT, b"a.pt", struct.pack("qqqq", 10**9, 5, 10**9, 6))
print(os.stat("a.pt").st_mtime_ns)
call("utimes", b"a.pt", struct.pack("qqqq", 10**9, 5, 10**9, 7), by=235)
print(os.stat("a.pt").st_mtime_ns)
call("utime", b"a.pt", struct.pack("qq", 10**9, 10**9 + 8), by=132)
print(os.stat("a.pt").st_mtime_ns)
print(sorted(os.listdir(".")), stat.S_ISREG(os.stat("a.pt").st_mode), flush=True)
step("made")
call("mkfifo", b"gone.pt", 0o600)
step("again")
"""


# The paths by which the kernel names a descriptor. What is written by another one of the file belongs to it.
NUMBERED = CALLS + """
libc.fopen.restype = ctypes.c_void_p
f = os.open("a.pt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
os.write(f, b"first")
for path in (f"/proc/self/fd/{f}", f"/proc/{os.getpid()}/fd/{f}", f"/proc/thread-self/fd/{f}", f"/dev/fd/{f}"):
    print("readlink", os.readlink(path), os.path.realpath(path), os.stat(path).st_size, os.path.samestat(os.stat(path), os.fstat(f)))
    with open(path, "rb") as g: print("read", g.read())
print("short", call("readlink", f"/proc/self/fd/{f}".encode(), ctypes.create_string_buffer(9), 4) if sys.argv[1:] else 4)
print("other", os.readlink(f"/proc/self/fd/{os.open('/', os.O_RDONLY)}"), os.path.exists("/proc/self/fd/999"))
os.rename("a.pt", "b.pt")
print("renamed", os.readlink(f"/proc/self/fd/{f}"))
more = [os.open(f"/proc/self/fd/{f}", os.O_WRONLY), os.open(f"/dev/fd/{f}", os.O_RDWR | os.O_APPEND)]
stream = libc.fopen(f"/proc/self/fd/{f}".encode(), b"a")
os.close(f)
os.pwrite(more[0], b"SECOND", 5)
os.write(more[1], b"third")
os.close(more[0])
os.close(more[1])
save("behind.pt")
step("first")
libc.fputs(b"fourth", ctypes.c_void_p(stream))
libc.fclose(ctypes.c_void_p(stream))
step("closed")
"""


def numbered(checks):
    with Place() as place, Place() as other:
        program, plain = place.start(NUMBERED, "short"), other.start(NUMBERED, "short", preload=False)
        want = [line.replace(other.work, "").replace(str(plain.pid), "") for line in said(plain, "first")]
        got = [line.replace(place.work, "").replace(str(program.pid), "") for line in said(program, "first")]
        checks.ok(want == got, "the paths of a descriptor of a file that is pending", *differences(want, got))
        until(lambda: place.content("behind.pt"))
        checks.ok(place.content("b.pt") is None, "it is not whole while a descriptor that was opened by such a path writes it", place.content("b.pt"))
        for process in (plain, program):
            go(process)
            told(process, "closed")
            end(process)
        until(lambda: not place.listed())
        checks.ok(place.content("b.pt") == b"firstSECONDthirdfourth" == other.content("b.pt"), "and then holds what was written by all",
                  place.content("b.pt"), other.content("b.pt"))


# What a file in memory cannot do. The second file of a name is one.
BLOCKS = CALLS + """
import fcntl
PAGE = 4096
for i in range(8): save(f"s-{i}.pt", bytes([65 + i]) * 8 * PAGE)
step("first")
def begin(name):
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
    for i in range(8): os.write(fd, bytes([97 + i]) * PAGE)
    return fd
for i, mode in enumerate((0x8, 0x20, 0x10, 0x11, 0x3, 0x40, 0x1, 0x200)):
    fd = begin(f"s-{i}.pt")
    call("fallocate", fd, mode, 2 * PAGE, 3 * PAGE)
    print(mode, os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_CUR), [os.pread(fd, 1, p * PAGE) for p in range(12)], flush=True)
    os.write(fd, b"behind")
    os.close(fd)
    os.rename(f"s-{i}.pt", f"d-{i}.pt")
fd = begin("s-0.pt")
call("fallocate", fd, 0x8, 0, PAGE, by=285)
os.close(fd)
# Where its blocks are, its flags, and those of one that is no file.
for request, size in ((0xc020660b, 32 + 56 * 8), (0x80086601, 8), (0x801c581f, 28)):
    fd = begin("s-1.pt")
    asked = ctypes.create_string_buffer(struct.pack("QQIIII", 0, 1 << 40, 1, 0, 8, 0) if size > 100 else bytes(size), size)
    call("ioctl", fd, request, asked)
    print(struct.unpack_from("I", asked, 20)[0] > 0 if size > 100 else asked.raw[:8], flush=True)
    os.close(fd)
with open("other", "w+b") as f: f.write(b"x" * PAGE); f.flush(); fd = begin("s-2.pt"); call("ioctl", fd, 0x40049409, f.fileno()); os.close(fd)
call("ioctl", 999, 0xc020660b, 0)
call("ioctl", 0, 0x5401, ctypes.create_string_buffer(100))
step("done")
"""


def after_first(place, *programs):
    """Both go on once what they did first is at its paths."""
    for program in programs:
        told(program, "first")
    until(lambda: not place.listed())
    for program in programs:
        go(program)


def blocks(checks):
    with Place() as place, Place() as other:
        program, plain = place.start(BLOCKS), other.start(BLOCKS, preload=False)
        after_first(place, program, plain)
        want, got = said(plain, "done"), said(program, "done")
        checks.ok(want == got, f"what {len(want)} lines say of a file's blocks", *differences(want, got))
        for process in (program, plain):
            end(process)
        until(lambda: not place.listed())
        names = other.listing()
        checks.ok(names == place.listing() and all(place.content(n) == other.content(n) for n in names), "the files are the same in the end",
                  names, place.listing(), [n for n in names if place.content(n) != other.content(n)])


# Run as soon as it has been written, by every way that libc has. `old.pt` goes, and may not be run then; `open.pt` is being written.
RUNS = CALLS + """
import signal
libc.execve.restype = ctypes.c_int
def script(name, mode, close=True):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    os.write(fd, b"#!/bin/sh\\necho ran $0 $1 $WORD\\n")
    return os.close(fd) if close else fd
def array(*words): return (ctypes.c_char_p * (len(words) + 1))(*words, None)
def run(name, *arguments):
    pid = os.fork()
    if not pid:
        signal.alarm(30)
        ctypes.set_errno(0)
        getattr(libc, name)(*arguments)
        print(name, os.strerror(ctypes.get_errno()), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
def spawn(name, path):
    pid, log = ctypes.c_int(), ctypes.c_int()
    error = getattr(libc, name)(ctypes.byref(pid), path, None, None, array(b"x", b"one"), array(b"WORD=w", b"PATH=/bin:/usr/bin"))
    if error: print(name, os.strerror(error), flush=True)
    else: os.waitpid(pid.value, 0)
script("old.pt", 0o750)
step("first")
os.environ["PATH"] = os.getcwd() + ":" + os.environ["PATH"]
os.environ["WORD"] = "inherited"
libc.setenv(b"PATH", os.environ["PATH"].encode(), 1)
words, variables = array(b"x", b"one"), array(b"WORD=w")
ways = [("execve", words, variables), ("execv", words), ("execvp", words), ("execvpe", words, variables), ("execl", b"x", b"one", None),
        ("execlp", b"x", b"one", None), ("execle", b"x", b"one", None, variables)]
for i, (name, *rest) in enumerate(ways):
    script(f"s-{i}.pt", 0o750)
    run(name, f"./s-{i}.pt".encode(), *rest)
for i, name in enumerate(("execvp", "execlp", "execvpe")):
    script(f"p-{i}.pt", 0o750)
    run(name, f"p-{i}.pt".encode(), *dict((n, r) for n, *r in ways)[name])
script("e.pt", 0o750); run("execveat", AT, b"e.pt", words, variables, 0)
script("n.pt", 0o750); run("syscall", ctypes.c_long(59), b"n.pt", words, variables)
for name in ("posix_spawn", "posix_spawnp"):
    script(name + ".pt", 0o750); spawn(name, f"./{name}.pt".encode())
    spawn(name, b"./none.pt")
script("plain.pt", 0o640); run("execv", b"./plain.pt", words)
fd = script("open.pt", 0o750, False); run("execv", b"./open.pt", words); spawn("posix_spawn", b"./open.pt"); os.close(fd)
save("behind.pt"); os.unlink("old.pt"); run("execv", b"./old.pt", words)
for name in (b"none.pt", b"./none.pt", b"", b"x" * 300): run("execvp", name, words)
with open("noexec", "w") as f: f.write("echo shell $0 $1\\n")
os.chmod("noexec", 0o755); run("execvp", b"noexec", words); run("execv", b"./noexec", words); run("execlp", b"./noexec", b"x", None)
run("execvp", b"true", array(b"true"))
step("done")
"""


def runs(checks):
    with Place() as place, Place() as other:
        program, plain = place.start(RUNS), other.start(RUNS, preload=False)
        after_first(place, program, plain)
        want = [line.replace(other.work, "") for line in said(plain, "done")]
        got = [line.replace(place.work, "") for line in said(program, "done")]
        checks.ok(want == got and sum("ran" in w for w in want) == 14, f"{len(want)} ways to run a program that is pending", *differences(want, got))
        for process in (program, plain):
            end(process)


# A root of its own, with a /proc of its own where it may be mounted.
ROOTS = CALLS + """
os.makedirs("jail/w"); os.makedirs("jail/proc")
open_file = open("kept.pt", "wb")
open_file.write(b"kept")
save("first.pt")
call("chroot", b"first.pt")
call("chroot", b"none")
call("chroot", b"/")
save("jail/w/before.pt")
mounted = libc.mount(b"proc", b"jail/proc", b"proc", 0, None) == 0
call("chroot", b"jail")
os.chdir("/w")
save("x.pt", b"x" * 5000)
save("x.pt", b"y" * 5000)
os.rename("x.pt", "y.pt")
save("z.pt", b"z" * 5000)
open_file.write(b" on")
open_file.close()
print(mounted, sorted(os.listdir(".")), os.path.getsize("y.pt"), os.path.exists("before.pt"), open("y.pt", "rb").read(3))
step("rooted")
"""


def roots(checks):
    if os.geteuid():
        print("# roots: needs root")
        return
    with Place() as place, Place() as other:
        said_by = {}
        for at, preload in ((other, False), (place, True)):
            # Mounts in a namespace of its own: nothing of it is left.
            program = at.start("import os, sys; os.unshare(0x20000) if hasattr(os, 'unshare') else None\n" + ROOTS, preload=preload)
            said_by[preload] = said(program, "rooted")
            inside = sorted(os.listdir(at.path("jail/w")))
            go(program)
            end(program)
            checks.ok([n for n in inside if n != "before.pt"] == ["y.pt", "z.pt"], "what is saved below another root is there as ever", inside)
            os.system(f"umount {at.path('jail/proc')} 2>/dev/null")
        checks.ok(said_by[True] == said_by[False], "it sees what it has saved", *differences(said_by[False], said_by[True]))
        until(lambda: not place.listed())
        checks.ok(place.content("kept.pt") == b"kept on" and place.content("jail/w/before.pt") == b"x" * 1000 and place.listing() == other.listing(),
                  "what was saved before is at its path", place.listing())


# A program with another root is started by one that has files of the job: whatever it is run by, it has the library, the agent and the memory
# tier, and its paths are no names for the agent.
JAILED = STEPS + """
import ctypes, subprocess
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x44000, None): print("none", ctypes.get_errno(), flush=True)
jail = os.path.abspath("jail")
for folder in sys.argv[2:]:
    if not os.path.isdir(folder): continue
    os.makedirs(jail + folder, exist_ok=True)
    if libc.mount(folder.encode(), (jail + folder).encode(), None, 0x5000, None): print("none", ctypes.get_errno(), flush=True)
os.makedirs("jail/w/step-1")
open("jail/w/old.pt", "wb").write(b"old")
open("first.pt", "wb").write(b"first")
step("first")
SAVES = "import os; open('/w/new.pt', 'wb').write(b'new'); open('/w/old.pt', 'wb').write(b'newer'); open('/w/step-1/any', 'wb').write(b'any'); os.rename('/w/new.pt', '/w/last.pt'); print(sorted(os.listdir('/w')))"
print(subprocess.run(["chroot", jail, sys.argv[1], "-c", SAVES], capture_output=True, text=True), flush=True)
step("saved")
"""


def jailed(checks):
    if os.geteuid():
        print("# jailed: needs root")
        return
    with Place(TRANSPCKPT_LOG="info") as place:
        folders = dict.fromkeys(["/usr", "/bin", "/lib", "/lib64", "/proc", "/dev", os.path.dirname(place.agent), os.path.realpath(sys.prefix)])
        program = place.start(JAILED, os.path.realpath(sys.executable), *folders)
        line = program.stdout.readline().strip()
        if line != "first":
            print(f"# jailed: mounts are not allowed: {line}")
            program.kill()
            return
        until(lambda: not place.listed())
        go(program)
        ran, *_ = said(program, "saved")
        until(lambda: not place.listed())
        got = {name: place.content(f"jail/w/{name}") for name in ("last.pt", "new.pt", "old.pt", "step-1/any")}
        checks.ok("returncode=0" in ran and "['last.pt', 'old.pt', 'step-1']" in ran and "has another root folder" in ran and
                  got == {"last.pt": b"new", "new.pt": None, "old.pt": b"newer", "step-1/any": b"any"},
                  "what a program saves that was started with another root is at its paths", ran, got, place.log()[-500:])
        end(program)


# Where a file will be: its one name, and its file system; the second file of a name is in memory.
PLACES = CALLS + """
libc.realpath.restype = libc.canonicalize_file_name.restype = libc.__realpath_chk.restype = ctypes.c_char_p
os.mkdir("sub")
save("s-0.pt")
step("first")
f = open("s-1.pt", "wb")
f.write(b"x" * 1000)
os.symlink("nowhere", "dangling")
step("open")
for path in (b"s-1.pt", b"sub/../s-1.pt", b"./sub/.././/s-1.pt", b"none", b"sub", b".", f"/proc/self/fd/{f.fileno()}".encode(), b"", b"dangling"):
    room = ctypes.create_string_buffer(4096)
    ctypes.set_errno(0)
    print(path[:11], libc.realpath(path, None), libc.realpath(path, room), libc.canonicalize_file_name(path),
          libc.__realpath_chk(path, room, ctypes.c_size_t(4096)) or os.strerror(ctypes.get_errno()), flush=True)
for name in ("fstatfs", "fstatfs64", "fstatvfs", "fstatvfs64"):
    found = ctypes.create_string_buffer(200)
    call(name, f.fileno(), found)
    at = found.raw[:8] if "vfs" not in name else found.raw[72:88]
    print(at, found.raw[:200] == bytes(200), flush=True)
found = ctypes.create_string_buffer(200)
call("fstatfs", f.fileno(), found, by=138)
print(found.raw[:8], os.fstatvfs(f.fileno()).f_blocks == os.statvfs(".").f_blocks, os.fstatvfs(0).f_namemax, flush=True)
call("fstatfs", 999, found)
f.close()
step("done")
"""


def places(checks):
    with Place() as place, Place() as other:
        program, plain = place.start(PLACES), other.start(PLACES, preload=False)
        for process in (program, plain):
            told(process, "first")
        until(lambda: not place.listed())
        for process in (program, plain):
            go(process)
            told(process, "open")
        memory = [r for r in place.listed() if r["where"] != "disk"]
        for process in (program, plain):
            go(process)
        want = [line.replace(other.work, "").replace(str(plain.pid), "") for line in said(plain, "done")]
        got = [line.replace(place.work, "").replace(str(program.pid), "") for line in said(program, "done")]
        checks.ok(want == got and memory, f"where a file in memory will be, by {len(want)} lines", memory, *differences(want, got))
        for process in (program, plain):
            end(process)


def said(program, until_line):
    lines = []
    while not lines or lines[-1] != until_line:
        lines.append(program.stdout.readline().strip())
        if not lines[-1]:
            raise RuntimeError("\n".join(lines))
    return lines


def differences(want, got):
    return [f"{w}; preloaded: {g}" for w, g in zip(want, got) if w != g] + ([] if len(want) == len(got) else [len(want), len(got)])


def names(checks):
    """The agent stands still: what is pending stays so."""
    with Place() as place, Place() as other:
        program, plain = place.start(NAMES), other.start(NAMES, preload=False)
        for at, process in ((place, program), (other, plain)):
            told(process, "first")
            until(lambda at=at: "gone.pt" in at.listing())
        until(lambda: not place.listed())
        agent = pause(place)
        go(program)
        got = [line.replace(place.work, "") for line in said(program, "made")]
        pending = "a.pt" not in place.listing()
        os.kill(agent, signal.SIGCONT)
        go(plain)
        want = [line.replace(other.work, "") for line in said(plain, "made")]
        checks.ok(want == got and pending, f"what {len(want)} calls say of a file that is pending", pending, *differences(want, got))
        go(program)
        go(plain)
        want, got = said(plain, "again"), said(program, "again")
        checks.ok(want == got and not os.path.isfile(place.path("gone.pt")), "a name that is about to go goes before its next is made", want, got)
        end(program)
        end(plain)
        until(lambda: not place.listed())
        checks.ok(place.content("a.pt") == b"saved" * 100 and place.listing() == other.listing(), "all is there in the end", place.listing())


# Files that are open still change places with others: beside their targets, in memory, over an old one; with what is there, with a folder, with
# each other, with themselves.
EXCHANGES = CALLS + """
def look():
    return [(n, open(n, "rb").read() if os.path.isfile(n) else sorted(os.listdir(n))) for n in sorted(os.listdir("."))]
def begin(name, data):
    f = open(name, "wb", buffering=0)
    f.write(data)
    return f
save("m-0.pt")
step("first")
cases = [(one, other, way) for one in ("n.pt", "m-1.pt", "old.pt") for other in ("real.pt", "real", "d", "d/", "d/in.pt", "o.pt", "m-2.pt", "none.pt", "none/x.pt", one) for way in (0, 1)]
for number, (one, other, way) in enumerate(cases):
    os.mkdir("c")
    os.chdir("c")
    os.mkdir("d")
    for name in ("m-0.pt", "old.pt", "real.pt", "real", "d/in.pt"): save(name, name.encode())
    before = open("d/before.pt", "wb", buffering=0)
    before.write(b"before")
    f = begin(one, b"1" * 10)
    g = begin(other, b"2" * 20) if other in ("o.pt", "m-2.pt") else None
    print(one, other, way, flush=True)
    call("renameat2", AT, (one, other)[way].encode(), AT, (other, one)[way].encode(), 2)
    print(look(), flush=True)
    f.write(b"more")
    for file in (f, g, before):
        if file: file.close()
    print(look(), flush=True)
    os.chdir("..")
    os.rename("c", f"c-{number}")
step("done")
"""


def tree(place):
    """All that is there for everybody."""
    found = {}
    for folder, _, files in os.walk(place.work):
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), place.work)
            found[path] = place.content(path)
    return found


def exchanges(checks):
    with Place() as place, Place() as other:
        program, plain = place.start(EXCHANGES), other.start(EXCHANGES, preload=False)
        after_first(place, program, plain)
        want, got = said(plain, "done"), said(program, "done")
        checks.ok(want == got and len(want) > 200, f"files that are open still change places with others: {len(want)} lines", *differences(want, got))
        for process in (program, plain):
            end(process)
        until(lambda: not place.listed())
        want, got = tree(other), tree(place)
        checks.ok(want == got, "and are where they are without the library", *sorted(name for name in want.keys() | got.keys() if want.get(name) != got.get(name)))
    with Place() as place:
        program = place.start(EXCHANGED)
        while program.stdout.readline().strip() != "exchanged":
            pass
        early = place.content("new.pt"), place.content("real.pt")
        program.kill()
        program.communicate()
        until(lambda: not place.listed())
        checks.ok(early == (b"real", None) and place.listing() == ["new.pt"] and place.content("new.pt") == b"real",
                  "others see what is whole by its new name, and nothing of the other when its process is killed", early, place.listing())


# What others see meanwhile.
EXCHANGED = CALLS + """
save("real.pt", b"real")
f = open("new.pt", "wb", buffering=0)
f.write(b"new")
assert not call("renameat2", AT, b"new.pt", AT, b"real.pt", 2)
assert open("real.pt", "rb").read() == b"new"
step("exchanged")
"""


def main():
    run_tests(Checks(), [names, numbered, blocks, runs, roots, jailed, places, exchanges])


if __name__ == "__main__":
    main()
