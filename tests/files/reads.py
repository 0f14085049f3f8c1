#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.1 memory=1G minutes=20 about=55s disk
"""What the job reads of what it has saved: a file that has rotted is read from the copy in memory, which replaces it, or not at
all; what somebody has changed on purpose, and what others read, is as it is."""
import hashlib
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from digests import MIB, keep_cached, rot, rot_cached
from place import Checks, Place, run_tests, until

# The first of a name goes beside its target; its copy in memory is made when there is time. It stays until it is told to end.
SAVER = """
import sys
CHUNK = 700001
def save(i):
    with open(f"step-{i}.pt", "wb") as f:
        for part in range(4): f.write(b"%9d." % (i * 10 + part) * (CHUNK // 10))
for i in range(int(sys.argv[1]), int(sys.argv[2])): save(i)
print("saved", flush=True)
for line in sys.stdin: save(int(line))
"""
# The same on a clock by which all of it takes no time: files of one pattern that were saved ten seconds apart are two checkpoints, and a
# busy machine takes longer than that.
SAVER_AT_ONCE = SAVER.replace("import sys", "import os, sys, time").replace("(CHUNK // 10))\n", """(CHUNK // 10))
        f.flush()
        os.utime(f.fileno(), (1000000000 + time.time() % 86400 / 86400,) * 2)
""")
# Each way to the bytes of a file; the digest of what it got, or the errno.
READER = """
import ctypes, hashlib, mmap, os, sys
def plain(path):
    with open(path, "rb") as f: return f.read()
def descriptor(path):
    fd = os.open(path, os.O_RDONLY)
    parts = []
    while part := os.read(fd, 1 << 20): parts.append(part)
    os.close(fd)
    return b"".join(parts)
def mapped(path):
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m: return m[:]
def stream(path):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fopen.restype = ctypes.c_void_p
    libc.fread.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    libc.fclose.argtypes = [ctypes.c_void_p]
    f = libc.fopen(path.encode(), b"r")
    if not f: raise OSError(ctypes.get_errno(), "fopen")
    size = os.stat(path).st_size
    room = ctypes.create_string_buffer(size)
    got = libc.fread(room, 1, size, f)
    libc.fclose(f)
    return room.raw[:got]
def memmap(path):
    import numpy
    return numpy.memmap(path, mode="r").tobytes()
def memmap_updated(path):
    import numpy
    return numpy.memmap(path).tobytes()
def at_folder(path):
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    fd = os.open(os.path.basename(path), os.O_RDONLY, dir_fd=folder)
    return os.fdopen(fd, "rb").read()
def updated(path):
    with open(path, "r+b") as f: return f.read()
def changed(path):
    with open(path, "r+b") as f:
        f.write(b"changed")
        f.seek(0)
        return f.read()
for word in sys.argv[1:]:
    way, path = word.split("=")
    try: print(hashlib.sha1(globals()[way](path)).hexdigest())
    except OSError as e: print("errno", e.errno)
"""
WAYS = ["plain", "descriptor", "mapped", "stream", "at_folder", "updated"]
try:
    import numpy  # pylint: disable=unused-import
    WAYS += ["memmap", "memmap_updated"]
except ImportError:
    pass


def content_of(i):
    return b"".join(b"%9d." % (i * 10 + part) * 70000 for part in range(4))


def digest_of(content):
    return hashlib.sha1(content).hexdigest()


def read(place, *words):
    """What a program of the job gets, and what is said."""
    done = place.run(READER, *words, check=False)
    return done.stdout.splitlines(), [line for line in done.stderr.splitlines() if line.startswith("transpckpt")] or done.stderr


def saved(place, first, behind, program=SAVER):
    """A saver that has saved these, which are published; it goes on."""
    saver = place.start(program, first, behind)
    assert saver.stdout.readline() == "saved\n"
    assert until(lambda: all(place.content(f"step-{i}.pt") == content_of(i) for i in range(first, behind)), 60)
    assert until(lambda: place.recorded() >= behind - first, 60)
    return saver


def end(place, saver):
    """The saver ends, and the agent behind it."""
    saver.communicate(timeout=60)
    return until(lambda: not place.agent_pid(), 60)


def kept(place):
    try:
        return [n for n in os.listdir(os.path.join(place.job_folder, "files")) if n.startswith("kept.")]
    except FileNotFoundError:
        return []


def memory(checks):
    """From the copy in memory, by each way."""
    with Place() as place:
        saver = saved(place, 0, len(WAYS) + 2, SAVER_AT_ONCE)
        until(lambda: len(kept(place)) == len(WAYS) + 2)
        checks.ok(len(kept(place)) == len(WAYS) + 2, "what was published has a copy in memory, the first one too", kept(place))
        for i, way in enumerate(WAYS, 1):
            name = f"step-{i}.pt"
            rot_cached(place.path(name), MIB + i)
            bad = place.content(name)
            got, said = read(place, f"{way}={name}")
            checks.ok(bad != content_of(i) and got == [digest_of(content_of(i))], f"a file that has rotted is read as it was saved: {way}", got, said)
            checks.ok(len(said) == 1 and f"{name}: bytes {MIB} to {2 * MIB - 1} on disk are not what was saved" in said[0] and
                      place.path(name) + ".tpck-bad" in said[0] and "copy in memory" in said[0], "one line says file, place and bytes", said)
            back = until(lambda path=name, i=i: place.content(path) == content_of(i))
            checks.ok(back and place.content(name + ".tpck-bad") == bad, "it is as it was saved for everybody, and the bad one is set aside")
        until(lambda: len(kept(place)) == len(WAYS) + 2)
        got, said = read(place, *(f"plain=step-{i}.pt" for i in range(len(WAYS) + 2)))
        checks.ok(got == [digest_of(content_of(i)) for i in range(len(WAYS) + 2)] and not said, "nothing is said of what is good", got, said)
        # Twice the same.
        rot_cached(place.path("step-1.pt"), 0)
        got, said = read(place, "plain=step-1.pt", "plain=step-1.pt")
        checks.ok(got == [digest_of(content_of(1))] * 2 and len(said) == 1 and "step-1.pt.tpck-bad.1" in said[0],
                  "what was put back has a copy too, and the next bad one a name of its own", got, said)
        until(lambda: place.content("step-1.pt") == content_of(1) and len(kept(place)) == len(WAYS) + 2)
        before = set(kept(place))
        place.run(SAVER_AT_ONCE + "import os; os.unlink('step-2.pt')", 1, 2, input="1\n")
        gone = until(lambda: len(before - set(kept(place))) == 2 and len(kept(place)) == len(WAYS) + 1)
        checks.ok(gone, "what is saved again and what is removed lose their copies", before, kept(place))
        checks.ok(end(place, saver) and not os.path.exists(place.job_folder), "no copy outlives the agent")


# The first of a name, with a mode, a time and holes of its own; and one that is at its path by a rename.
PAST = """
import os, sys
def save(name, part):
    with open(name, "wb") as f:
        f.write(part * 1500000)
        f.seek(5 << 20, 1)
        f.write(part)
    os.chmod(name, 0o640)
    os.utime(name, (1000000000, 1000000000))
save("first.pt", b"f")
with open("raw.tmp", "wb") as f: f.write(b"r" * 1500000)
os.rename("raw.tmp", "raw.safetensors")
print("saved", flush=True)
sys.stdin.readline()
"""


def beside(checks):
    """What was never in memory, once and again."""
    with Place() as place:
        saver = place.start(PAST)
        saver.stdout.readline()
        until(lambda: len(kept(place)) == 2)
        checks.ok(len(kept(place)) == 2, "what was never in memory gets a copy there", kept(place))
        good, before = place.content("first.pt"), os.stat(place.path("first.pt"))
        held = sum(os.stat(os.path.join(place.job_folder, "files", n)).st_blocks * 512 for n in kept(place))
        checks.ok(3000000 <= held < 5 * MIB, "with its holes", held)
        for turn in range(2):
            rot_cached(place.path("first.pt"), MIB)
            got, said = read(place, "plain=first.pt")
            back = until(lambda: place.content("first.pt") == good)
            after = os.stat(place.path("first.pt"))
            checks.ok(got == [digest_of(good)] and len(said) == 1 and back and
                      (after.st_mode, after.st_mtime_ns, after.st_gid) == (before.st_mode, before.st_mtime_ns, before.st_gid),
                      f"it is read from there and put back as it was, with mode and time: {turn}", got, said, after)
            until(lambda: len(kept(place)) == 2)
        # What somebody changes while there is no time yet for its copy has none.
        with open(place.path("first.pt"), "r+b") as f:
            f.write(b"x")
        got, said = read(place, "plain=first.pt")
        checks.ok(got == [digest_of(b"x" + good[1:])] and not said, "what is changed on purpose is as it is", got, said)
        checks.ok(not [n for n in os.listdir(os.path.join(place.job_folder, "files")) if n.startswith("spare.second")], "nothing half made is left")
        end(place, saver)


def in_place(checks):
    """Who changes it changes the file at the path, which is as it was saved by then."""
    with Place() as place:
        saver = saved(place, 0, 2)
        until(lambda: len(kept(place)) == 2)
        rot_cached(place.path("step-1.pt"), MIB)
        want = b"changed" + content_of(1)[7:]
        got, said = read(place, "changed=step-1.pt")
        checks.ok(got == [digest_of(want)] and len(said) == 1 and place.content("step-1.pt") == want,
                  "a file that has rotted is changed in place as it was saved", got, said)
        got, said = read(place, "plain=step-1.pt", "updated=step-1.pt")
        checks.ok(got == [digest_of(want)] * 2 and not said, "and is what it was changed to", got, said)
        end(place, saver)


def nothing_left(checks):
    """The agent has ended: there is the file alone."""
    with Place() as place:
        end(place, saved(place, 0, 1))
        end(place, saved(place, 1, len(WAYS) + 4))
        names = os.listdir(os.path.join(place.root, "store/j"))
        checks.ok(names == ["files.sums"], "a store that no snapshot was written to has digests alone, whoever begins after another", names)
        for i in range(len(WAYS)):
            rot_cached(place.path(f"step-{i}.pt"), i * MIB // 2)
        for i, way in enumerate(WAYS):
            name, first = f"step-{i}.pt", i // 2 * MIB
            got, said = read(place, f"{way}={name}", f"{way}={name}")
            last = min(first + MIB, len(content_of(i))) - 1
            checks.ok(got == ["errno 5"] * 2, f"a bad file that has no other copy cannot be read: {way}", got, said)
            checks.ok(len(said) == 1 and f"{name} cannot be read: bytes {first} to {last} on disk are not what was saved, and there is no copy in memory" in said[0],
                      "one line says file, place and bytes", said)
        name = place.path("step-0.pt")
        seen = subprocess.run(["cat", name], capture_output=True, check=True, env=place.plain).stdout
        checks.ok(seen != content_of(0) and len(seen) == len(content_of(0)), "who is not preloaded sees the file as it is")
        done = subprocess.run([os.path.join(os.path.dirname(place.agent), "transpckpt"), "verify", "--files", name], env=place.environment,
                              capture_output=True, text=True, check=False)
        checks.ok(done.returncode == 1 and f"bytes 0 to {MIB - 1} are not what was saved" in done.stdout and not done.stderr,
                  "so does the command, even where it is preloaded", done.stdout, done.stderr)
        place.environment["TRANSPCKPT_FILES_VERIFY"] = "off"
        got, said = read(place, "plain=step-0.pt")
        checks.ok(got == [digest_of(seen)] and not said, "so does the job where nothing is to be verified", got, said)
        del place.environment["TRANSPCKPT_FILES_VERIFY"]
        # The name does not matter, nor does what was changed on purpose.
        os.makedirs(place.path("other"))
        os.rename(name, place.path("other/renamed"))
        os.symlink("other/renamed", place.path("link"))
        got, said = read(place, "plain=link", "plain=other/renamed")
        checks.ok(got == ["errno 5"] * 2, "a file is known by any name", got, said)
        last = len(WAYS)
        with open(place.path(f"step-{last}.pt"), "r+b") as f:
            f.write(b"changed")
        with open(place.path(f"step-{last + 1}.pt"), "wb") as f:
            f.write(b"another one")
        wanted = [digest_of(b"changed" + content_of(last)[7:]), digest_of(b"another one"), digest_of(content_of(last + 2))]
        got, said = read(place, *(f"plain=step-{last + i}.pt" for i in range(3)))
        checks.ok(got == wanted and not said, "what was changed on purpose is read as it is", got, said)


def bad_copies(checks):
    """An agent that was killed has left the copies; one of them is bad too."""
    with Place() as place:
        saver = saved(place, 0, 4)
        until(lambda: len(kept(place)) == 4)
        place.kill_agent()
        rot_cached(place.path("step-2.pt"), 5)
        got, said = read(place, "plain=step-2.pt")
        checks.ok(got == [digest_of(content_of(2))] and len(said) == 1, "copies are there when the agent was killed", got, said)
        back = until(lambda: place.content("step-2.pt") == content_of(2))
        checks.ok(back and place.agent_pid(), "and the next agent puts them at their paths")
        until(lambda: len(kept(place)) == 4)
        for name in kept(place):
            rot(os.path.join(place.job_folder, "files", name), 2 * MIB)
        rot_cached(place.path("step-3.pt"), 1)
        got, said = read(place, "plain=step-3.pt")
        wanted = f"step-3.pt cannot be read: bytes 0 to {MIB - 1} on disk are not what was saved, and bytes {2 * MIB} to "
        checks.ok(got == ["errno 5"] and len(said) == 1 and wanted in said[0] and "of the copy in memory are not what was saved" in said[0],
                  "a copy in memory that has rotted is no better", got, said)
        end(place, saver)


def restart(checks):
    """The program is killed or fails, and starts again later: the agent keeps the copies for TRANSPCKPT_LINGER_SEC."""
    with Place(TRANSPCKPT_LINGER_SEC="30") as place:
        saver = saved(place, 0, 3)
        saver.kill()
        saver.wait()
        time.sleep(4)
        rot_cached(place.path("step-2.pt"), 1)
        got, said = read(place, "plain=step-2.pt")
        checks.ok(got == [digest_of(content_of(2))] and len(said) == 1 and "copy in memory" in said[0], "a start after a kill reads the copy", got, said)
        failed = place.run(SAVER + "sys.exit(3)", 5, 6, check=False, input="6\n")
        time.sleep(4)
        rot_cached(place.path("step-6.pt"), 1)
        got, said = read(place, "plain=step-6.pt")
        checks.ok(failed.returncode == 3 and got == [digest_of(content_of(6))], "and so does one after a failure", got, said)
        agent = place.agent_pid()
        place.run(SAVER, 7, 8, input="")
        checks.ok(agent and until(lambda: not os.path.exists(place.job_folder), 15), "what has ended well comes no more: nothing is left")
    with Place(TRANSPCKPT_LINGER_SEC="1") as place:
        saver = saved(place, 0, 2)
        saver.kill()
        saver.wait()
        checks.ok(until(lambda: not os.path.exists(place.job_folder)), "nor longer than that", kept(place))


def budget(checks):
    """Copies are what is left of the memory: the oldest go first."""
    limit = 12 * MIB
    with Place(TRANSPCKPT_MEMORY=str(2 * limit)) as place:
        saver = saved(place, 0, 2, SAVER_AT_ONCE)
        # One at a time: there is memory for each.
        for i in range(2, 9):
            saver.stdin.write(f"{i}\n")
            saver.stdin.flush()
            until(lambda i=i: place.content(f"step-{i}.pt") == content_of(i) and not place.listed())
        folder = os.path.join(place.job_folder, "files")

        def held():
            return sum(os.stat(os.path.join(folder, n)).st_blocks * 512 for n in os.listdir(folder) if not n.startswith("table"))
        inside = until(lambda: 0 < held() <= limit and any(n.startswith("spare.") for n in os.listdir(folder)))
        count = len(kept(place))
        checks.ok(inside and 1 <= count < 8, f"{count} copies and a spare are within the half of TRANSPCKPT_MEMORY", held())
        for name in ("step-8.pt", "step-1.pt"):
            rot_cached(place.path(name), 3)
        got, said = read(place, "plain=step-8.pt", "plain=step-1.pt")
        checks.ok(got == [digest_of(content_of(8)), "errno 5"], "the newest ones are kept", got, said)
        until(lambda: place.content("step-8.pt") == content_of(8) and len(kept(place)) == count)
        end(place, saver)
    with Place(TRANSPCKPT_FILES_VERIFY="off") as place:
        saver = saved(place, 0, 3)
        checks.ok(not kept(place), "nothing is kept for who does not look", kept(place))
        end(place, saver)


# Each as if it had been saved so many seconds after the one before.
SPACED = """
import os, sys, time
def save(i, at):
    with open(f"step-{i}.pt", "wb") as f:
        f.write(b"%d" % i * 100000)
        f.flush()
        os.utime(f.fileno(), (at, at))
    if sys.argv[2] == "synced":
        here = os.open(".", os.O_RDONLY)
        os.fsync(here)
for i in range(5): save(i, 1000000000 + i * int(sys.argv[1]))
print("saved", flush=True)
sys.stdin.readline()
"""


def newest(checks):
    """Of two checkpoints the newer one has copies: the pages of the older one are used again."""
    # The first one's copy is made when there is time: before the second one comes, or when all are there.
    for seconds, how, want in ((60, "synced", 1), (60, "at once", 1), (1, "synced", 5), (1, "at once", 5)):
        with Place() as place:
            saver = place.start(SPACED, seconds, how)
            saver.stdout.readline()
            until(lambda: len(kept(place)) == want)
            # One more that should not be there comes a moment later.
            until(lambda: len(kept(place)) != want, 1.5)
            checks.ok(len(kept(place)) == want, f"saved {seconds} s apart, {how}: {want} of 5 are kept", kept(place))
            saver.communicate()


def torn(checks):
    """The log of digests as crashes leave it, and made anew or longer while somebody reads."""
    with Place() as place:
        end(place, saved(place, 0, 4))
        log = os.path.join(place.root, "store/j/files.sums")
        with open(log, "rb") as f:
            content = f.read()
        second = content.index(b"TPCKSUM1", 1)
        reading = place.start(READER + """
for line in sys.stdin:
    try: print(hashlib.sha1(plain(line.strip())).hexdigest(), flush=True)
    except OSError as e: print("errno", e.errno, flush=True)
""", stderr=subprocess.PIPE)

        def ask(name):
            reading.stdin.write(name + "\n")
            reading.stdin.flush()
            return reading.stdout.readline().strip()
        checks.ok(ask("step-0.pt") == digest_of(content_of(0)), "a program that goes on reading")
        # Two records, the second cut off; others behind it, and at the end one of which the rest is to come.
        with open(log + ".new", "wb") as f:
            f.write(b"nonsense" * 7 + content[:second + 100] + content + content[:second - 10])
        os.replace(log + ".new", log)
        for i in range(1, 4):
            rot_cached(place.path(f"step-{i}.pt"), i * 7)
        got = [ask(f"step-{i}.pt") for i in range(4)]
        checks.ok(got == [digest_of(content_of(0))] + ["errno 5"] * 3, "finds all records of a log that was torn and made anew", got)
        got, said = read(place, *(f"plain=step-{i}.pt" for i in range(4)))
        checks.ok(got == [digest_of(content_of(0))] + ["errno 5"] * 3, "and so does one that begins then", got, said)
        place.run(SAVER, 4, 6, input="")
        until(lambda: place.content("step-5.pt") == content_of(5) and not place.agent_pid())
        rot_cached(place.path("step-5.pt"), 1)
        time.sleep(0.3)
        checks.ok(ask("step-5.pt") == "errno 5", "what is saved meanwhile is known")
        reading.communicate()


def cheap(checks):
    """Read once: what this process has compared is not read again; what is not the job's own is not read at all."""
    with Place() as place:
        end(place, saved(place, 0, 2))
        with open(place.path("foreign.pt"), "wb") as f:
            f.write(content_of(5))
        count = """
import os
def read_by_now():
    with open("/proc/self/io") as f: return int(f.readline().split()[1])
def opened(path):
    before = read_by_now()
    os.close(os.open(path, os.O_RDONLY))
    return read_by_now() - before
print(opened("foreign.pt"), opened("step-1.pt"), opened("step-1.pt"), opened("foreign.pt"), flush=True)
pid = os.fork()
if not pid:
    print(opened("step-1.pt"), opened("step-0.pt"), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""
        first, second = (list(map(int, line.split())) for line in place.run(count).splitlines())
        size = len(content_of(1))
        checks.ok(first[1] >= size and max(first[0], first[2], first[3]) < MIB, "a file is compared when it is opened first, others are not", first)
        checks.ok(second[0] < MIB and second[1] >= size, "a child knows what its parent has compared", second)


NEARER = """
import hashlib, os, sys
def io(name):
    with open("/proc/self/io") as f: return dict(line.split(": ") for line in f)[name]
def opened(path, mode):
    before = int(io("rchar"))
    with open(path, mode) as f:
        compared, place = int(io("rchar")) - before, os.readlink(f"/proc/self/fd/{f.fileno()}")
        print("memory" if place.startswith(sys.argv[1]) else "disk", hashlib.sha1(f.read()).hexdigest(), compared > 1 << 20)
for word in sys.argv[2:]:
    mode, path = word.split("=")
    opened(path, mode)
"""


def nearer(checks):
    """What the page cache does not have is read from the copy in memory, if that is as it was saved; what is to be changed is not."""
    with Place() as place:
        saver = saved(place, 0, 3)
        until(lambda: len(kept(place)) == 3)
        names = [f"step-{i}.pt" for i in range(3)]

        def forget():
            for name in names:
                with open(place.path(name), "rb") as f:
                    os.fsync(f.fileno())
                    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        def opened(*words):
            return [tuple(line.split()) for line in place.run(NEARER, place.shm, *words).splitlines()]
        good = [digest_of(content_of(i)) for i in range(3)]
        forget()
        got = opened("rb=step-0.pt", "rb=step-0.pt", "r+b=step-1.pt", "rb=step-1.pt")
        checks.ok(got[:2] == [("memory", good[0], "True"), ("memory", good[0], "False")],
                  "what the page cache does not have is read from memory, and compared once", got)
        checks.ok(got[2:] == [("disk", good[1], "True"), ("disk", good[1], "False")],
                  "what is to be changed is the file itself, which the page cache has behind that", got)
        forget()
        keep_cached(place.path(names[0]))
        checks.ok(opened("rb=step-0.pt") == [("disk", good[0], "True")], "what it has is read where it is")
        saver.kill()
        saver.communicate()
        forget()
        got = opened("rb=step-2.pt")
        checks.ok(got == [("memory", good[2], "True")], "so does a start behind one that was killed", got)
        for name in kept(place):
            rot(os.path.join(place.job_folder, "files", name), MIB + 5)
        got = opened("rb=step-2.pt")
        checks.ok(got == [("disk", good[2], "True")], "a copy that is not what was saved is left alone", got)
        for name in kept(place):
            os.unlink(os.path.join(place.job_folder, "files", name))
        forget()
        checks.ok(opened("rb=step-2.pt") == [("disk", good[2], "True")], "without copies all is as ever")


def main():
    checks = Checks()
    run_tests(checks, [memory, nearer, beside, in_place, nothing_left, bad_copies, restart, budget, newest, torn, cheap])


if __name__ == "__main__":
    main()
