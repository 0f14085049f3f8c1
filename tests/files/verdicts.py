#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 memory=1G minutes=10 about=25s disk
"""What calls on paths say, over a table of calls, kinds of files and forms of paths, and what they leave: without the library, with it, with
every file taken, and on files that are pending, closed or still open. All say the same. The errors are those of pjdfstest's families."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import Checks, Place, run_tests

# Arguments: prepare or run, how names end, whether files stay open, the table. `prepare` makes what is there before. Prints a line for each case.
PROGRAM = r"""
import ctypes, errno, os, socket, stat, struct, sys
phase, suffix, hold, table, step, whole = sys.argv[1], sys.argv[2], sys.argv[3] == "open", sys.argv[4], int(sys.argv[5]), sys.argv[6].split()
libc = ctypes.CDLL(None, use_errno=True)
AT, NOWHERE = -100, ctypes.c_void_p(1)
O = {name[2:]: getattr(os, name) for name in dir(os) if name.startswith("O_")}
held = []

def call(name, *arguments, pointer=False):
    function = getattr(libc, name)
    function.restype = ctypes.c_void_p if pointer else ctypes.c_long if name in ("pathconf", "readlink", "getxattr") else ctypes.c_int
    ctypes.set_errno(0)
    result = function(*[ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    error = ctypes.get_errno()
    if result is None or (result < 0 and not pointer):
        return errno.errorcode.get(error, str(error)), None
    return ("ok", result) if not error else (f"ok, but errno {errno.errorcode.get(error, error)}", result)

def opens(path, flags, at=AT):
    said, fd = call("openat", at, path, flags | O["NONBLOCK"], 0o644)
    if fd is not None:
        os.close(fd)
    return said

def streams(path, mode):
    # Opening a pipe waits for the other end.
    if os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
        return "a pipe"
    said, stream = call("fopen", path, mode, pointer=True)
    if stream is not None:
        libc.fclose(ctypes.c_void_p(stream))
    return said

def lists(path):
    said, stream = call("opendir", path, pointer=True)
    if stream is not None:
        libc.closedir(ctypes.c_void_p(stream))
    return said

def goes(path, by="chdir"):
    here = os.open(".", O["RDONLY"] | O["DIRECTORY"])
    said = call(by, path)[0]
    os.fchdir(here)
    os.close(here)
    return said

def sockets(name, path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        return call(name, s.fileno(), struct.pack("H", socket.AF_UNIX) + path, 2 + len(path))[0]

def named(path):
    buffer = ctypes.create_string_buffer(4096)
    said, at = call("realpath", path, buffer, pointer=True)
    return said if at is None else f"ok {os.path.basename(buffer.value.decode())}"

def reads_link(path):
    buffer = ctypes.create_string_buffer(4096)
    said, got = call("readlink", path, buffer, 4095)
    return said if got is None else f"{said} {buffer.value[:got].decode()}"

def save(name, data=b"saved"):
    fd = os.open(name, O["WRONLY"] | O["CREAT"] | O["TRUNC"], 0o644)
    os.write(fd, data)
    if hold:
        held.append(fd)
    else:
        os.close(fd)

def release():
    while held:
        os.close(held.pop())

def look(name):
    # What is there, as the program sees it.
    try:
        found = os.lstat(name)
    except OSError as error:
        return errno.errorcode[error.errno]
    kind = stat.filemode(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        return f"{kind} {os.readlink(name)}"
    if stat.S_ISDIR(found.st_mode):
        return f"{kind} {len(os.listdir(name))}"
    return f"{kind} {found.st_size}"

buffer = ctypes.create_string_buffer(4096)
past = (ctypes.c_long * 4)(1000000000, 0, 1000000000, 0)
# Each gets the path, and names of a file, a folder and of nothing.
CALLS = {f"open {flags}": (lambda flags: lambda p, f, d, n: opens(p, eval("|".join(f"O['{w}']" for w in flags.split()))))(flags) for flags in (
    "RDONLY", "WRONLY", "RDWR", "WRONLY CREAT", "WRONLY CREAT EXCL", "WRONLY CREAT TRUNC", "RDONLY CREAT", "RDONLY TRUNC", "RDONLY DIRECTORY",
    "WRONLY NOFOLLOW", "RDONLY NOFOLLOW", "PATH", "PATH NOFOLLOW", "RDWR TMPFILE", "WRONLY APPEND CREAT", "RDWR CREAT NOFOLLOW", "WRONLY DIRECTORY TRUNC")}
CALLS |= {
    "fopen r": lambda p, f, d, n: streams(p, b"r"), "fopen w": lambda p, f, d, n: streams(p, b"w"), "fopen a": lambda p, f, d, n: streams(p, b"a"),
    "fopen r+": lambda p, f, d, n: streams(p, b"r+"), "fopen wx": lambda p, f, d, n: streams(p, b"wx"),
    "unlink": lambda p, f, d, n: call("unlink", p)[0], "rmdir": lambda p, f, d, n: call("rmdir", p)[0], "remove": lambda p, f, d, n: call("remove", p)[0],
    "unlinkat": lambda p, f, d, n: call("unlinkat", AT, p, 0x200)[0], "unlinkat flags": lambda p, f, d, n: call("unlinkat", AT, p, 0x4000)[0],
    "mkdir": lambda p, f, d, n: call("mkdir", p, 0o755)[0], "mkfifo": lambda p, f, d, n: call("mkfifo", p, 0o644)[0],
    "mknod": lambda p, f, d, n: call("mknod", p, 0o100644, 0)[0],
    "symlink": lambda p, f, d, n: call("symlink", b"anything", p)[0], "symlink to nothing": lambda p, f, d, n: call("symlink", b"", p)[0],
    "link from": lambda p, f, d, n: call("link", p, n)[0], "link to": lambda p, f, d, n: call("link", f, p)[0],
    "link folder to": lambda p, f, d, n: call("link", d, p)[0], "link nothing to": lambda p, f, d, n: call("link", n, p)[0],
    "link itself": lambda p, f, d, n: call("link", p, p)[0],
    "linkat from": lambda p, f, d, n: call("linkat", AT, p, AT, n, 0x400)[0], "linkat flags": lambda p, f, d, n: call("linkat", AT, p, AT, n, 1)[0],
    "rename from": lambda p, f, d, n: call("rename", p, n)[0], "rename file to": lambda p, f, d, n: call("rename", f, p)[0],
    "rename folder to": lambda p, f, d, n: call("rename", d, p)[0], "rename nothing to": lambda p, f, d, n: call("rename", n, p)[0],
    "rename itself": lambda p, f, d, n: call("rename", p, p)[0], "rename into": lambda p, f, d, n: call("rename", p, d + b"/in")[0],
    "rename from into folder": lambda p, f, d, n: call("rename", p, n + b"/")[0], "rename onto folder": lambda p, f, d, n: call("rename", p, d)[0],
    "rename below itself": lambda p, f, d, n: call("rename", p, p.rstrip(b"/") + b"/below")[0],
    "renameat2 new": lambda p, f, d, n: call("renameat2", AT, f, AT, p, 1)[0], "renameat2 exchanges": lambda p, f, d, n: call("renameat2", AT, p, AT, f, 2)[0],
    "renameat2 exchanges folder": lambda p, f, d, n: call("renameat2", AT, p, AT, d, 2)[0], "renameat2 flags": lambda p, f, d, n: call("renameat2", AT, p, AT, n, 64)[0],
    "chmod": lambda p, f, d, n: call("chmod", p, 0o640)[0], "fchmodat": lambda p, f, d, n: call("fchmodat", AT, p, 0o640, 0)[0],
    "chown": lambda p, f, d, n: call("chown", p, -1, -1)[0], "lchown": lambda p, f, d, n: call("lchown", p, -1, -1)[0],
    "truncate": lambda p, f, d, n: call("truncate", p, 3)[0], "truncate below 0": lambda p, f, d, n: call("truncate", p, -1)[0],
    "utimensat": lambda p, f, d, n: call("utimensat", AT, p, past, 0)[0], "utimensat link": lambda p, f, d, n: call("utimensat", AT, p, past, 0x100)[0],
    "access": lambda p, f, d, n: call("access", p, 0)[0], "access rw": lambda p, f, d, n: call("access", p, 6)[0], "access wrong": lambda p, f, d, n: call("access", p, 64)[0],
    "faccessat": lambda p, f, d, n: call("faccessat", AT, p, 4, 0x100)[0], "stat": lambda p, f, d, n: call("stat", p, buffer)[0],
    "lstat": lambda p, f, d, n: call("lstat", p, buffer)[0], "statx": lambda p, f, d, n: call("statx", AT, p, 0, 0x7ff, buffer)[0],
    "statx link": lambda p, f, d, n: call("statx", AT, p, 0x100, 0x7ff, buffer)[0], "readlink": lambda p, f, d, n: reads_link(p), "realpath": lambda p, f, d, n: named(p),
    "chdir": lambda p, f, d, n: goes(p), "opendir": lambda p, f, d, n: lists(p), "statfs": lambda p, f, d, n: call("statfs", p, buffer)[0],
    "pathconf": lambda p, f, d, n: call("pathconf", p, 3)[0], "getxattr": lambda p, f, d, n: call("getxattr", p, b"user.none", buffer, 100)[0],
    "setxattr": lambda p, f, d, n: call("setxattr", p, b"user.tpck", b"v", 1, 0)[0], "bind": lambda p, f, d, n: sockets("bind", p), "connect": lambda p, f, d, n: sockets("connect", p),
}
KINDS = ("nothing", "file", "gone", "folder", "full", "link", "dangling", "loop", "link to folder", "pipe", "socket")
FORMS = {"%s": "", "%s/": "/", "%s/.": "/.", "%s/..": "/..", "%s/x": "/x", "%s/x/y": "/x/y", "%s/x/": "/x/"}

def make(kind, name):
    if kind == "file":
        save(name)
    elif kind == "gone" and phase == "prepare":
        save(name, b"before")
    elif kind == "gone":
        os.unlink(name)
    elif kind in ("folder", "full", "link to folder"):
        at = name if kind != "link to folder" else "to." + name
        os.mkdir(at)
        if kind == "full":
            save(f"{at}/x{suffix}")
        if kind == "link to folder":
            os.symlink(at, name)
    elif kind == "link":
        save("to." + name)
        os.symlink("to." + name, name)
    elif kind in ("dangling", "loop"):
        os.symlink(name if kind == "loop" else "to." + name, name)
    elif kind == "pipe":
        os.mkfifo(name)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(name)

def cases():
    n = 0
    for c, what in enumerate(CALLS):
        for k, kind in enumerate(KINDS):
            for f, form in enumerate(FORMS):
                # Other kinds than a file's are the kernel's, whatever the form.
                if f > 1 and kind in ("pipe", "socket", "loop", "dangling", "full") and c % 4 != k % 4:
                    continue
                # Of kinds that are not asked for as a whole each so many-th case.
                n += 1
                if kind not in whole and n % step:
                    continue
                yield what, kind, form, f"{c}-{k}-{f}"

def paths():
    for what, kind, form, at in cases():
        name, file, folder, none = (f"{w}.{at}{suffix}" for w in ("o", "f", "d", "n"))
        if phase == "prepare":
            if kind == "gone":
                make(kind, name)
            continue
        make(kind, name)
        save(file)
        os.mkdir(folder)
        said = CALLS[what]((form % name).encode(), file.encode(), folder.encode(), none.encode())
        print(f"{what}, {kind}, {form % 'NAME'}:", said, *(f"{w} {look(n)}" for w, n in zip(("NAME", "to", "file", "folder", "none"), (name, "to." + name, file, folder, none))), sep=" | ")
        release()

# ---- the other errors: what cannot be read, is too long, goes round, is not allowed, is elsewhere, runs, is no folder's descriptor

def forked(who, do):
    # What another user is told.
    at, to = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(who)
        os.setuid(who)
        os.write(to, do().encode())
        os._exit(0)
    os.close(to)
    said = os.read(at, 4096).decode()
    os.close(at)
    os.waitpid(pid, 0)
    return said

def each(what, path, *names):
    for name, do in CALLS.items():
        file, folder, none = (f"{w}.{what}.{name.replace(' ', '-')}{suffix}".encode() for w in "fdn")
        if phase == "run":
            save(file)
            os.mkdir(folder)
            print(f"{what}, {name}:", do(path, file, folder, none), *(look(n) for n in (file, folder, *names)), sep=" | ")
            release()

def errors():
    root = not os.geteuid()
    # What is mounted goes with the process.
    mounts = root and not libc.unshare(0x20000) and call("mount", b"none", b"/", None, 0x44000, None)[1] == 0
    if phase == "prepare":
        save(f"gone{suffix}", b"before")
        for n in range(45):
            os.symlink(f"chain{n + 1}{suffix}" if n < 44 else f"end{suffix}", f"chain{n}{suffix}")
        os.makedirs("others"), os.makedirs("sticky"), os.makedirs("closed")
        for folder in ("others", "sticky", "closed"):
            save(f"{folder}/there{suffix}", b"theirs")
        os.chmod("sticky", 0o1777)
        os.chmod("others", 0o755)
        os.chmod("closed", 0o700)
        return
    save(f"end{suffix}")
    long = b"x" * (256 - len(suffix)) + suffix.encode()
    for n in (4, 5, 6):
        each(f"links {n}", f"chain{n}{suffix}".encode())
    each("component", long)
    each("component of a pending file", f"end{suffix}/".encode() + long)
    each("path", b"./" * 2047 + f"p{suffix}".encode())
    each("path that fits", b"./" * 2040 + f"p{suffix}".encode())
    for name in ("open", "unlink", "rmdir", "mkdir", "mkfifo", "chmod", "truncate", "access", "chdir", "remove", "creat"):
        for bad in (NOWHERE, ctypes.c_void_p(0)):
            print(name, bad.value, call(name, bad, 0, 0)[0])
    for name in ("rename", "link", "symlink", "stat", "lstat", "readlink"):
        print(name, call(name, NOWHERE, f"end{suffix}".encode(), 100, 0)[0], call(name, f"end{suffix}".encode(), NOWHERE, 100, 0)[0])
    # A descriptor of a file that is pending, and what is none, as folders.
    fd = os.open(f"as{suffix}", O["WRONLY"] | O["CREAT"] | O["TRUNC"], 0o644)
    for at in (fd, 987):
        for name, more in (("openat", (0,)), ("mkdirat", (0o755,)), ("unlinkat", (0,)), ("fchmodat", (0o644, 0)), ("faccessat", (0, 0)), ("mkfifoat", (0o644,)), ("utimensat", (past, 0))):
            print(name, at == fd, call(name, at, b"x", *more)[0], call(name, at, f"end{suffix}".encode(), *more)[0])
        print("renameat", call("renameat", at, b"x", AT, b"y")[0], call("renameat", AT, f"end{suffix}".encode(), at, b"y")[0])
    print("by descriptor", call("ftruncate", fd, -1)[0], call("ftruncate", fd, 5)[0], call("fchmod", fd, 0o600)[0], call("fchdir", fd)[0], call("futimens", fd, past)[0],
          call("futimens", fd, (ctypes.c_long * 4)(0, 1000000000, 0, 0))[0])
    print("is there", look(f"as{suffix}"))
    name = f"two{suffix}".encode()
    print("linkat by number", call("linkat", AT, b"/proc/self/fd/%d" % fd, AT, name, 0x400)[0], look(name))
    os.write(fd, b"more")
    print("both", look(name), look(f"as{suffix}"))
    os.close(fd)
    print("one file", os.stat(name).st_nlink, look(name), look(f"as{suffix}"))
    bad = (ctypes.c_long * 4)(0, 1000000000, 0, 0)
    print("times", call("utimensat", AT, f"end{suffix}".encode(), bad, 0)[0], call("utimensat", AT, f"end{suffix}".encode(), past, 64)[0])
    # Elsewhere.
    other = f"/dev/shm/tpck-verdicts.{os.getpid()}"
    os.mkdir(other)
    for what in ("rename", "link"):
        save(f"end{suffix}")
        print(what, "elsewhere", call(what, f"end{suffix}".encode(), f"{other}/x{suffix}".encode())[0], look(f"end{suffix}"), os.listdir(other))
    os.rmdir(other)
    # A program that runs.
    save(f"program{suffix}", open("/bin/sleep", "rb").read())
    release()
    os.chmod(f"program{suffix}", 0o755)
    pid = os.posix_spawn(f"program{suffix}", ["sleep", "100"], {})
    name = f"program{suffix}".encode()
    print("runs", *(opens(name, O[w]) for w in ("RDONLY", "WRONLY", "RDWR")), call("truncate", name, 0)[0])
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    print("execve", *(call("execve", n.encode(), (ctypes.c_char_p * 2)(b"x", None), (ctypes.c_char_p * 1)(None))[0] for n in (f"end{suffix}", f"end{suffix}/x", f"end{suffix}/", "none")))
    if not root:
        return
    # A file system that is read-only, where a file was saved before it was.
    os.makedirs("mounted")
    if mounts and call("mount", b"none", b"mounted", b"tmpfs", 0, None)[1] == 0:
        save(f"mounted/there{suffix}")
        release()
        os.mkdir("mounted/folder")
        at = os.open("mounted", O["RDONLY"] | O["DIRECTORY"])
        os.fsync(at)
        os.close(at)
        print("read-only", call("mount", b"none", b"mounted", b"tmpfs", 33, None)[0])
        for target in ("there", "new", "folder"):
            for what, do in CALLS.items():
                f, d, n = (f"mounted/{w}{suffix}" for w in ("there", "folder", "none"))
                print("read-only", target, what, do(f"mounted/{target}{suffix}".encode(), f.encode(), b"mounted/folder", n.encode()), look(f"mounted/{target}{suffix}"), sep=" | ")
        f = open(f"beside{suffix}", "wb")
        print("read-only", *(call(name, f"beside{suffix}".encode(), f"mounted/x{suffix}".encode(), 0)[0] for name in ("rename", "link")))
        f.close()
        call("umount2", b"mounted", 2)
    # Another user.
    os.unlink(f"gone{suffix}")
    save(f"sticky/mine{suffix}")
    for folder in ("others", "sticky", "closed"):
        for target in ("there", "new"):
            for what, do in CALLS.items():
                def tries():
                    f, d, n = (f"sticky/{w}.{folder}.{target}.{what.replace(' ', '-')}{suffix}" for w in "fdn")
                    os.chdir(".")
                    save(f)
                    os.mkdir(d)
                    return do(f"{folder}/{target}{suffix}".encode(), f.encode(), d.encode(), n.encode()) + " " + look(f"{folder}/{target}{suffix}")
                print(folder, target, what, forked(12345, tries), sep=" | ")

{"paths": paths, "errors": errors}[table]()
"""


def said(place, arguments, preload):
    """What each case says and leaves."""
    place.run(PROGRAM, "prepare", arguments[0], "closed", *arguments[2:], preload=False)
    os.chmod(place.root, 0o755)
    return place.run(PROGRAM, "run", *arguments, preload=preload).splitlines()


def left(place):
    """What is at the paths at the end, for everybody."""
    return sorted(f"{name} {os.lstat(place.path(name)).st_mode:o} {os.lstat(place.path(name)).st_nlink}" for name in place.listing())


# All cases of all kinds, by hand.
WHOLE = os.environ.get("WHOLE")


def compare(checks, table, suffix="", hold="closed", whole="", **settings):
    arguments = (suffix, hold, table, "1" if WHOLE else "9", whole)
    with Place() as plain, Place(**settings) as place:
        expected, got = said(plain, arguments, False), said(place, arguments, True)
        differ = [f"{a}  ->  {b}" for a, b in zip(expected, got) if a != b]
        what = f"{len(expected)} {table}, names with {suffix or 'no end'}, files {hold}, {settings or 'as by default'}"
        checks.ok(len(expected) == len(got) > 100 and not differ, f"{what}: each says and shows what it does without the library", *differ)
        a, b = left(plain), left(place)
        checks.ok(a == b, f"{what}: and leaves the same", *sorted(set(a) ^ set(b)))


def test_paths(checks):
    compare(checks, "paths")


def test_pending(checks):
    compare(checks, "paths", ".pt", whole="file gone")


def test_open(checks):
    compare(checks, "paths", ".pt", "open", whole="file")


def test_all(checks):
    compare(checks, "paths", TRANSPCKPT_FILES="*")


def test_errors(checks):
    compare(checks, "errors")


def test_errors_pending(checks):
    compare(checks, "errors", ".pt")


def test_errors_open(checks):
    compare(checks, "errors", ".pt", "open")


def test_errors_all(checks):
    compare(checks, "errors", TRANSPCKPT_FILES="*")


if __name__ == "__main__":
    run_tests(Checks(), [test_paths, test_pending, test_open, test_all, test_errors, test_errors_pending, test_errors_open, test_errors_all])
