#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.15 memory=1G about=16s disk
"""What was synced stays, whatever becomes of its writer: at its path, of a file that only its folder speaks for; beside it, or in its
place, of a checkpoint. And files that are changed in place, beside which nothing is taken."""
import fcntl
import os
import select
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import WAIT_SEC, Checks, Place, run_tests, stand_still, until

HEAD = """
import ctypes, fcntl, mmap, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def say(*words):
    print(*words, flush=True)
    sys.stdin.readline()
os.makedirs("checkpoint-1", exist_ok=True)
"""


def stopped_at(place, program, *arguments):
    """The program, at its first say()."""
    process = place.start(HEAD + program, *arguments)
    process.said = process.stdout.readline().split()
    if not process.said:
        raise RuntimeError(f"it ended by itself: status {process.wait(10)}")
    return process


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()
    # Who waits for an agent that is stopped says nothing.
    process.said = process.stdout.readline().split() if select.select([process.stdout], [], [], WAIT_SEC / 4)[0] else []
    return process.said


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdin.close()
    process.stdout.close()


def end(process):
    process.stdin.close()
    status = process.wait(60)
    process.stdout.close()
    return status


def settled(place):
    return until(lambda: not place.listed(), 30)


# ---- one that only its folder speaks for -----------------------------------------------------------

WAYS = {
    "fsync": "os.fsync(fd)",
    "fdatasync": "os.fdatasync(fd)",
    "sync": "os.sync()",
    "syncfs": "libc.syncfs(fd)",
    "sync_file_range": "libc.sync_file_range(fd, ctypes.c_long(0), ctypes.c_long(0), 7)",
    "syscall(SYS_fsync)": "libc.syscall(74, fd)",
    "RWF_DSYNC": "os.pwritev(fd, [b'first'], 0, os.RWF_DSYNC)",
    "RWF_SYNC": "os.pwritev(fd, [b'fi', b'rst'], 0, os.RWF_SYNC)",
    "syscall(SYS_pwritev2)": "libc.syscall(328, fd, parts, *map(ctypes.c_long, (1, 0, 0, 2)))",
    "fsync of a copy": "copy = os.dup(fd); os.fsync(copy); os.close(copy)",
    "a child's fsync": "child = os.fork() or (os.fsync(fd), os._exit(0)); os.waitpid(child, 0)",
    "msync": "m = mmap.mmap(fd, 4096); m[0:5] = b'first'; m.flush()",
    "O_DSYNC": "other = os.open(name, os.O_WRONLY | os.O_DSYNC); os.pwrite(other, b'first', 0)",
    "a lock of a byte range": "fcntl.lockf(fd, fcntl.LOCK_EX, 1)",
}
FIRST = """
name = sys.argv[1]
os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
os.write(fd, b"first" + b"-" * 5000)
say("written")
inode = os.fstat(fd).st_ino
text = ctypes.create_string_buffer(b"first")
parts = struct.pack("QQ", ctypes.addressof(text), 5)
{way}
say(int(inode == os.fstat(fd).st_ino == os.stat(name).st_ino))
os.pwrite(fd, b"FIRST", 0)
os.ftruncate(fd, 6000)
say("again")
"""


def by_folder(checks):
    for level in ("durable", "memory"):
        for settings, name in (({}, "checkpoint-1/notes"), ({"TRANSPCKPT_FILES": "*"}, "run/notes")):
            wrong = []
            with Place(TRANSPCKPT_FSYNC=level, **settings) as place:
                for n, (way, call) in enumerate(WAYS.items()):
                    # A mapping counts as one that is still open; the sixth file of a name would be in memory if it were a checkpoint.
                    process = stopped_at(place, FIRST.format(way=call), f"{name}{n}")
                    before = place.content(f"{name}{n}")
                    same = go_on(process)
                    if level == "memory":
                        until(lambda: place.content(f"{name}{n}"), 10)  # pylint: disable=cell-var-from-loop
                    synced = place.content(f"{name}{n}")
                    go_on(process)
                    now = place.content(f"{name}{n}")
                    kill(process)
                    after = place.content(f"{name}{n}")
                    if before is not None or same != ["1"] or synced != b"first" + b"-" * 5000 or now != b"FIRST" + b"-" * 5000 + bytes(995) or after != now:
                        wrong.append((way, before, same, *[x and (len(x), x[:8]) for x in (synced, now, after)]))
                good = settled(place) and not [x for x in os.listdir(os.path.dirname(place.path(name))) if x.startswith(".tpck-")]
                checks.ok(not wrong and good, f"{name}, {level}: from its first sync on, by {len(WAYS)} ways, it is at its path and an ordinary file",
                          *wrong, place.log()[-500:])


def not_synced(checks):
    """As ever: old or new."""
    with Place() as place:
        process = stopped_at(place, "f = open('checkpoint-1/notes', 'wb'); f.write(b'n' * 9999); f.flush(); say('written')")
        kill(process)
        settled(place)
        first = place.content("checkpoint-1/notes")
        place.run("open('checkpoint-1/notes', 'wb').write(b'old')")
        process = stopped_at(place, "f = open('checkpoint-1/notes', 'wb'); f.write(b'n' * 9999); f.flush(); say('written')")
        kill(process)
        settled(place)
        second = place.content("checkpoint-1/notes")
        process = stopped_at(place, "f = open('checkpoint-1/notes', 'wb'); f.write(b'n' * 9999); f.close(); say('written')")
        kill(process)
        settled(place)
        third = place.content("checkpoint-1/notes")
        checks.ok(first is None and second == b"old" and third == b"n" * 9999,
                  "what was not synced is there once it has been closed, and not before", first, second, third and len(third))


def seen_by_all(checks):
    """A lock at the path is the one that the program has, for those outside of the job too."""
    with Place() as place:
        process = stopped_at(place, "fd = os.open('checkpoint-1/rows', os.O_RDWR | os.O_CREAT); fcntl.lockf(fd, fcntl.LOCK_EX, 1); say('locked')")
        refused = False
        there = place.content("checkpoint-1/rows") is not None
        if there:
            with open(place.path("checkpoint-1/rows"), "r+b") as f:
                try:
                    fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
                except OSError:
                    refused = True
        kill(process)
        checks.ok(refused, "a byte range that the program has locked is locked for a process outside", there)


# ---- a checkpoint ----------------------------------------------------------------------------------

SAVE = """
name, old, more, end = sys.argv[1:5]
fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
for i in range(64):
    os.write(fd, b"n" * 16384)
# The kernel's clock for files is as coarse as this.
time.sleep(0.05)
os.fsync(fd)
if more == "more":
    os.pwrite(fd, b"x" * 4096, 8192)
    os.lseek(fd, 0, 2)
    os.write(fd, b"y" * 4096)
say("written")
"""
INSIDE = """
import os, sys
name = sys.argv[1]
print(os.path.getsize(name) if os.path.exists(name) else -1, open(name, "rb").read(1).decode() if os.path.exists(name) else "")
# Whatever agent is needed for that is started, also if one that was killed is not quite gone.
os.fsync(os.open(".", os.O_RDONLY))
"""
NEW = b"n" * 64 * 16384
LATER = NEW[:8192] + b"x" * 4096 + NEW[12288:] + b"y" * 4096


def by_name(checks):
    """In memory and beside its target; with the old one there or not; with something written since, or nothing; killed with the agent
    and without it."""
    for level, memory in (("durable", False), ("durable", True), ("memory", True)):
        wrong, tried = [], 0
        for old in (False, True):
            for more in (False, True):
                for both in (False, True):
                    with Place(TRANSPCKPT_FSYNC=level) as place:
                        # One of a name that has been saved before goes into memory.
                        place.run("import sys; [open(f'step-{i}.pt', 'wb').write(b'o' * 70000) for i in range(1, 4)]")
                        if not old:
                            place.run("import os; os.unlink('step-2.pt')")
                        settled(place)
                        name = "step-2.pt" if memory else "other.pt"
                        if old and not memory:
                            with open(place.path(name), "wb") as f:
                                f.write(b"o" * 70000)
                        process = stopped_at(place, SAVE, name, int(old), "more" if more else "no", "")
                        kinds = [row["state"] for row in place.listed()]
                        before = place.content(name)
                        if both:
                            place.kill_agent()
                        kill(process)
                        inside = place.run(INSIDE, name)
                        # An agent that is just being killed looks alive to who begins then: the next one to begin starts another.
                        until(lambda: not place.listed() or (place.run(INSIDE, name) and False), 30)  # pylint: disable=cell-var-from-loop
                        aside = place.content(name + ".tpck-synced")
                        now = place.content(name)
                        expected = (LATER if more else NEW) if not old else b"o" * 70000 if more else NEW
                        kept = (aside == NEW if memory and level == "durable" else aside in (NEW, LATER)) if old and more else aside is None
                        said = not old or not more or both or f"{name}.tpck-synced" in place.log()
                        left = [x for x in os.listdir(place.work) if x.startswith(".tpck-")]
                        tried += 1
                        # From inside there is the old one or the whole new one at any time.
                        view = inside in ({"70000 o\n"} if old else {"-1 \n", f"{len(expected)} n\n"}) or (not more and inside == f"{len(NEW)} n\n")
                        if before != (b"o" * 70000 if old else None) or now != expected or not kept or not said or left or not view:
                            wrong.append((f"old {old} more {more} agent too {both}", kinds, before and before[:1], now and (len(now), now[:1]),
                                          aside and (len(aside), aside[:1]), said, left, inside, place.log()[-300:]))
        checks.ok(not wrong, f"{level}: a checkpoint {'in memory' if memory else 'beside its target'} that was synced and not closed, killed in {tried} ways: old or new, and what was "
                  "synced is there", *wrong)


def by_flag(checks):
    """A write that is a sync, of one in memory."""
    for way in ("os.pwritev(fd, [b'n' * 70000], 0, os.RWF_DSYNC)", "libc.syscall(328, fd, parts, *map(ctypes.c_long, (1, 0, 0, 4)))"):
        with Place() as place:
            place.run("for i in (1, 2): open(f'step-{i}.pt', 'wb').write(b'o' * 70000)")
            settled(place)
            process = stopped_at(place, f"""
fd = os.open('step-3.pt', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
text = ctypes.create_string_buffer(b'n' * 70000)
parts = struct.pack("QQ", ctypes.addressof(text), 70000)
time.sleep(0.05)
say({way})
""")
            kill(process)
            checks.ok(process.said == ["70000"] and settled(place) and place.content("step-3.pt") == b"n" * 70000,
                      f"{way.split('(')[0]} with a flag: what it has written stays when its process is killed", process.said, place.listing())


def closed_behind(checks):
    """What a sync has made stays on the disk until the rest is there."""
    with Place() as place:
        place.run("for i in (1, 2): open(f'step-{i}.pt', 'wb').write(b'o' * 70000)")
        settled(place)
        process = stopped_at(place, "f = open('step-3.pt', 'wb'); f.write(b'n' * 70000); f.flush(); os.fsync(f.fileno()); say('synced'); "
                                    "f.write(b'm' * 70000); f.close(); say('closed')")
        parts = [place.content(n) for n in os.listdir(place.work) if n.startswith(".tpck-") and n.endswith(".part")]
        go_on(process)
        end(process)
        checks.ok(parts == [b"n" * 70000] and settled(place) and place.content("step-3.pt") == b"n" * 70000 + b"m" * 70000,
                  "what is synced is beside the path, and the rest comes with it", [len(p) for p in parts])


def final_inode(checks):
    """By a mapping or a lock."""
    for way in ("m = mmap.mmap(fd, 4096); m[0:3] = b'new'", "fcntl.lockf(fd, fcntl.LOCK_EX, 1)"):
        with Place() as place:
            place.run("for i in (1, 2): open(f'step-{i}.pt', 'wb').write(b'o' * 70000)")
            settled(place)
            process = stopped_at(place, f"""
fd = os.open('step-2.pt', os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.write(fd, b'n' * 5000)
{way}
say(os.fstat(fd).st_ino)
if 'm' in globals():
    m.close()
os.close(fd)
say('closed')
""")
            inode, before = int(process.said[0]), place.content("step-2.pt")
            go_on(process)
            end(process)
            good = settled(place) and os.stat(place.path("step-2.pt")).st_ino == inode
            checks.ok(good and before == b"o" * 70000 and len(place.content("step-2.pt")) == 5000,
                      f"{'a mapping' if 'mmap' in way else 'a lock'} is of the inode that the file has in the end; until then there is the old one",
                      inode, before and before[:1], os.stat(place.path("step-2.pt")).st_ino)


# ---- what is changed in place ----------------------------------------------------------------------

BESIDE = """
def taken(name):
    open(name, "wb").write(b"1")
    f = open(name, "wb")
    f.write(b"22"); f.flush()
    say(name)
    f.close()
{setting}
taken("checkpoint-1/notes")
taken("checkpoint-1/model.pt")
taken("model.pt")
{ending}
taken("checkpoint-1/model-2.pt")
"""
OPENINGS = {
    "os.open": ("db = os.open('checkpoint-1/rows', os.O_RDWR)", "os.close(db)"),
    "fopen": ("db = libc.fopen; db.restype = ctypes.c_void_p; db = db(b'checkpoint-1/rows', b'r+')", "libc.fclose(ctypes.c_void_p(db))"),
    "a lock": ("db = os.open('checkpoint-1/new', os.O_RDWR | os.O_CREAT); fcntl.lockf(db, fcntl.LOCK_EX, 1)", "os.close(db)"),
    "lockf": ("db = os.open('checkpoint-1/new', os.O_WRONLY | os.O_CREAT); assert not libc.lockf(db, 1, ctypes.c_long(1))", "os.close(db)"),
    "a copy of a descriptor": ("db = os.open('checkpoint-1/rows', os.O_RDWR); other = os.dup(db); os.close(db)", "os.close(other)"),
    "dup2": ("db = os.open('checkpoint-1/rows', os.O_RDWR); os.dup2(db, 77); os.close(db)", "os.dup2(0, 77)"),
    "a link": ("os.symlink('checkpoint-1/rows', 'link'); db = os.open('link', os.O_RDWR)", "os.closerange(db, db + 1)"),
    "a fork": ("""
db = os.open('checkpoint-1/rows', os.O_RDWR)
child = os.fork()
if child:
    os.waitpid(child, 0)
    os._exit(0)""", "os.close(db)"),
}


def in_place(checks):
    for way, (setting, ending) in OPENINGS.items():
        with Place(TRANSPCKPT_FILES="auto:*") as place:
            os.makedirs(place.path("checkpoint-1"))
            with open(place.path("checkpoint-1/rows"), "wb") as f:
                f.write(b"rows")
            process = stopped_at(place, BESIDE.format(setting=setting, ending=ending))
            seen = []
            for n in range(4):
                # What is not taken is at its path while it is written; of what is taken there is what was saved before, or nothing.
                seen.append(place.content(process.said[0]) == b"22")
                if n < 3:
                    go_on(process)
            status = end(process)
            checks.ok(seen == [True, True, False, False] and status == 0,
                      f"beside a file that is changed in place nothing is taken, until it is closed ({way})", seen, status, place.log()[-300:])


def not_in_place(checks):
    """What is made anew, or appended to, or read, is not changed in place."""
    with Place() as place:
        os.makedirs(place.path("checkpoint-1"))
        with open(place.path("checkpoint-1/rows"), "wb") as f:
            f.write(b"rows")
        process = stopped_at(place, """
open("checkpoint-1/rows", "rb"); fds = [os.open("checkpoint-1/rows", flags) for flags in (os.O_RDONLY, os.O_RDWR | os.O_APPEND, os.O_WRONLY)]
fds += [os.open("checkpoint-1/model.pt", os.O_RDWR | os.O_CREAT | os.O_TRUNC), os.open("elsewhere", os.O_RDWR | os.O_CREAT)]
fcntl.lockf(fds[0], fcntl.LOCK_SH, 1)
f = open("checkpoint-1/other.pt", "wb")
f.write(b"22"); f.flush()
say("written")
""")
        seen = [place.content(f"checkpoint-1/{n}") for n in ("model.pt", "other.pt")]
        kill(process)
        checks.ok(seen == [None, None], "a folder in which files are read, made anew and appended to is one of checkpoints", seen)


def removed_at_once(checks):
    """A journal's end does not wait for a checkpoint's turn."""
    with Place() as place:
        place.run("import os; os.makedirs('checkpoint-1'); os.makedirs('run')\nfor n in ('rows', 'rows-journal'): open(f'run/{n}', 'wb').write(b'1')")
        settled(place)
        process = stopped_at(place, """
db = os.open("run/rows", os.O_RDWR)
open("model.pt", "wb").write(b"m" * 100)
say("begin")
open("other.pt", "wb").write(b"m" * 100)
os.unlink("run/rows-journal")
say("removed")
""")
        settled(place)
        agent = place.agent_pid()
        stand_still(agent)
        try:
            go_on(process)
            there = os.path.exists(place.path("run/rows-journal")), os.path.exists(place.path("other.pt"))
        finally:
            os.kill(agent, signal.SIGCONT)
        end(process)
        checks.ok(there == (False, False), "what is removed beside a file that is changed in place is gone at once", there)


if __name__ == "__main__":
    run_tests(Checks(), [by_folder, not_synced, seen_by_all, by_name, by_flag, closed_behind, final_inode, in_place, not_in_place, removed_at_once])
