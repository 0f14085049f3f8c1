#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.1 memory=1G minutes=20 about=67s disk
"""Disks that refuse, fail, hang or are full; files that turn out much larger than the last one of their name; what is done to
files just while they are copied. `large`, 20 GiB, is only tried where it is named: trouble.py large."""
import os
import re
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import Checks, Place, run_tests, until
from view import STEPS, end, go, pause, told

SAVES = STEPS + """
import errno
def save(name, data=b"x" * 100000):
    with open(name, "wb") as f:
        f.write(data)
def says(what, *arguments):
    try:
        what(*arguments)
        print("nothing", flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
def sync(name):
    fd = os.open(name, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
for i in range(2):
    save(f"a-{i}.pt")
step("begun")
"""


def begun(place, more):
    program = place.start(SAVES + more)
    told(program, "begun")
    until(lambda: not place.listed())
    return program


def line(program):
    return program.stdout.readline().strip()


def errors(place):
    return {os.path.basename(r["path"]): r.get("error") for r in place.listed()}


class Struck:
    """System calls of the agent's threads of that name are made to fail or wait."""

    def __init__(self, place, thread, *what):
        agent = place.agent_pid()
        tasks = []
        for task in os.listdir(f"/proc/{agent}/task"):
            with open(f"/proc/{agent}/task/{task}/comm", encoding="utf-8") as f:
                if re.fullmatch(rf"{thread}(-\d+)?", f.read().strip()):
                    tasks.append(task)
        if not tasks:
            raise RuntimeError(f"the agent has no thread {thread}")
        self.tracer = subprocess.Popen(["strace", "-q", "-o", "/dev/null", *[a for t in tasks for a in ("-p", t)], *what],
                                       stderr=subprocess.DEVNULL)
        until(lambda: all(self.traced(agent, task) for task in tasks))

    def traced(self, agent, task):
        with open(f"/proc/{agent}/task/{task}/status", encoding="utf-8") as f:
            return f"TracerPid:\t{self.tracer.pid}\n" in f.read()

    def over(self):
        self.tracer.terminate()
        self.tracer.wait(60)


def writes_nothing(agent, folder):
    """Whether a process has no file below the folder open for writing."""
    for fd in os.listdir(f"/proc/{agent}/fd"):
        try:
            path = os.readlink(f"/proc/{agent}/fd/{fd}")
            with open(f"/proc/{agent}/fdinfo/{fd}", encoding="utf-8") as f:
                flags = int(re.search(r"flags:\s*(\d+)", f.read()).group(1), 8)
        except FileNotFoundError:
            continue
        if path.startswith(folder + "/") and flags & os.O_ACCMODE != os.O_RDONLY:
            return False
    return True


def pause_idle(place):
    """It closes a file behind publishing it, and a file system with one open for writing cannot be remounted."""
    def stands(agent):
        for task in os.listdir(f"/proc/{agent}/task"):
            with open(f"/proc/{agent}/task/{task}/stat", encoding="utf-8") as f:
                if f.read().rsplit(") ", 1)[1][0] not in "Tt":
                    return False
        return True

    while True:
        agent = pause(place)
        until(lambda pid=agent: stands(pid))
        if writes_nothing(agent, place.work):
            return agent
        os.kill(agent, signal.SIGCONT)
        time.sleep(0.05)


READ_ONLY = """
save("a-2.pt", b"y" * 100000)
save("pointer.pt", b"a-2")
step("owed")
says(sync, ".")
says(save, "a-3.pt")
save("../other/b-1.pt")
print(os.path.getsize("a-2.pt"), os.path.getsize("../other/b-1.pt"), flush=True)
step("done")
"""


def read_only(checks):
    """The file system is remounted while something is owed to it."""
    with Place() as place:
        os.mkdir(os.path.join(place.root, "other"))
        subprocess.run(["mount", "--bind", place.work, place.work], check=True)
        try:
            program = begun(place, READ_ONLY)
            agent = pause_idle(place)
            go(program)
            told(program, "owed")
            subprocess.run(["mount", "-o", "remount,bind,ro", place.work], check=True)
            os.kill(agent, signal.SIGCONT)
            checks.ok(until(lambda: errors(place).get("a-2.pt") == "Read-only file system"),
                      "a file system that is read-only by now: what is owed to it stays, and ls says why", place.listed())
            go(program)
            said = [line(program) for _ in range(3)]
            checks.ok(said == ["EROFS", "EROFS", "100000 100000"], "fsync and the next save say so, other folders are saved to", said)
            told(program, "done")
            checks.ok(place.listing() == ["a-0.pt", "a-1.pt"], "nothing is there that is not whole", place.listing())
            subprocess.run(["mount", "-o", "remount,bind,rw", place.work], check=True)
            checks.ok(until(lambda: place.content("pointer.pt") == b"a-2" and not place.listed()) and
                      place.content("a-2.pt") == b"y" * 100000, "it comes when it can be written to again", place.log())
            checks.ok(len(re.findall("is not at its path yet", place.log())) <= 3 and "it works again" in place.log(),
                      "with one line for each thing that was wrong", place.log())
            go(program)
            checks.ok(end(program)[0] == 0, "the program ends")
        finally:
            subprocess.run(["umount", "-l", place.work], check=False)


FAILS = """
save("a-2.pt", b"y" * 100000)
step("owed")
f = open("a-3.pt", "wb")
f.write(b"z" * 100000)
says(f.close)
step("closed")
"""


def fails(checks):
    """Writing, syncing and renaming fail as disks and quotas do."""
    for code, words, call in (("EDQUOT", "Disk quota exceeded", "pwrite64"), ("EIO", "Input/output error", "fsync"),
                              ("EIO", "Input/output error", "renameat"), ("ESTALE", "Stale file handle", "openat"),
                              ("EEXIST", "File exists", "renameat")):
        with Place() as place:
            program = begun(place, FAILS)
            struck = Struck(place, "tpck-files", f"-etrace={call}", f"-einject={call}:error={code}")
            go(program)
            told(program, "owed")
            there = until(lambda words=words: errors(place).get("a-2.pt") == words)
            checks.ok(there and place.content("a-2.pt") is None, f"{call} that fails with {code} is told by ls, nothing half is there",
                      place.listed(), place.log())
            go(program)
            said = line(program)
            # The file was opened when this was known: it is written beside its target, and close() has nothing to tell.
            checks.ok(said == "nothing", f"{call} with {code}: the next file meets the disk itself", said)
            told(program, "closed")
            struck.over()
            checks.ok(until(lambda: place.content("a-3.pt") == b"z" * 100000) and place.content("a-2.pt") == b"y" * 100000,
                      f"{call} with {code}: nothing is lost", place.log(), place.listing())
            go(program)
            checks.ok(end(program)[0] == 0, "the program ends")


CLOSES = """
f = open("a-2.pt", "wb")
g = open("a-3.pt", "wb")
h = open("../other/b-1.pt", "wb")
f.write(b"y" * 100000)
f.close()
step("owed")
g.write(b"z" * 100000)
says(g.close)
s = os.fdopen(os.dup(h.fileno()), "wb")
h.close()
s.close()
step("closed")
"""


def closes(checks):
    """What is opened before the disk fails and closed behind it."""
    for level, expected in (("durable", "EDQUOT"), ("memory", "nothing")):
        with Place(TRANSPCKPT_FSYNC=level) as place:
            os.mkdir(os.path.join(place.root, "other"))
            program = begun(place, CLOSES)
            struck = Struck(place, "tpck-files", "-etrace=pwrite64", "-einject=pwrite64:error=EDQUOT")
            go(program)
            told(program, "owed")
            until(lambda: errors(place).get("a-2.pt") == "Disk quota exceeded")
            go(program)
            said = line(program)
            checks.ok(said == expected, f"close() of a file that cannot be made durable now, TRANSPCKPT_FSYNC={level}: {expected}", said)
            told(program, "closed")
            struck.over()
            checks.ok(until(lambda: place.content("a-3.pt") == b"z" * 100000) and place.content("a-2.pt") == b"y" * 100000,
                      "the bytes are kept all the same, and come", place.log(), place.listing())
            go(program)
            checks.ok(end(program)[0] == 0, "the program ends")


HANGS = """
save("a-2.pt", b"y" * 100000)
step("owed")
for i in range(5):
    with open(f"../other/b-{i}.pt", "wb") as f:
        f.write(b"z" * 100000)
        f.flush()
        os.fsync(f.fileno())
print([os.path.getsize(f"../other/b-{i}.pt") for i in range(5)] == [100000] * 5, flush=True)
if len(sys.argv) > 1:
    step("saved")
"""


def hangs(checks):
    """A write of the agent does not come back."""
    for leaves in (False, True):
        with Place(TRANSPCKPT_EXIT_WAIT_SEC="1") as place:
            other = os.path.join(place.root, "other")
            os.mkdir(other)
            program = place.start(SAVES + HANGS, *([] if leaves else ["stays"]), stderr=subprocess.PIPE)
            told(program, "begun")
            until(lambda: not place.listed())
            struck = Struck(place, "tpck-files", "-etrace=pwrite64", "-einject=pwrite64:delay_enter=300000000:when=1")
            go(program)
            told(program, "owed")
            go(program)
            said = line(program)
            checks.ok(said == "True" and os.listdir(other) == [n for n in os.listdir(other) if n.startswith(".tpck-")],
                      "a disk that hangs: others are saved to and synced, and nothing comes ahead of what closed before", said)
            if leaves:
                program.wait(60)
                lines = program.stderr.read().splitlines()
                checks.ok(program.returncode == 0 and len(lines) == 1 and "not durable yet" in lines[0],
                          "the program's end waits for it as long as TRANSPCKPT_EXIT_WAIT_SEC and says one line",
                          program.returncode, *lines)
            else:
                told(program, "saved")
                begun_again = place.run("import os; print(os.path.getsize('a-2.pt'))")
                checks.ok(begun_again.strip() == "100000", "the agent goes on answering meanwhile", begun_again)
            checks.ok(place.content("a-2.pt") is None, "nothing half is there")
            struck.over()
            checks.ok(until(lambda: place.content("../other/b-4.pt") == b"z" * 100000) and place.content("a-2.pt") == b"y" * 100000,
                      "it comes back, and all is there", place.log(), place.listing())
            if not leaves:
                go(program)
                checks.ok(end(program)[0] == 0, "the program ends")


LANES = """
other, third = sys.argv[1:]
for i in range(2):
    save(f"{other}/b-{i}.pt")
    save(f"{third}/c-{i}.pt")
sync(other)
sync(third)
step("elsewhere")
save("a-2.pt", b"y" * 100000)
step("owed")
for i in range(2, 5):
    save(f"{other}/b-{i}.pt", b"z" * 100000)
says(sync, other)
step("saved")
save(f"{other}/latest", b"a-2")
os.unlink(f"{third}/c-0.pt")
save(f"{other}/b-5.pt", b"z" * 100000)
save(f"{third}/DONE_3", b"a-2")
print(sorted(os.listdir(other)), sorted(os.listdir(third)), flush=True)
step("pointed")
"""


def lanes(checks):
    """One disk of three hangs, then fails."""
    with Place(TRANSPCKPT_EXIT_WAIT_SEC="1") as place:
        other, third = (os.path.join(place.root, name) for name in ("other", "third"))
        for folder in (other, third):
            os.mkdir(folder)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", folder], check=True)
        try:
            program = place.start(SAVES + LANES, other, third, stderr=subprocess.PIPE)
            told(program, "begun")
            go(program)
            told(program, "elsewhere")
            until(lambda: not place.listed())
            struck = Struck(place, "tpck-files", "-P", os.path.realpath(place.work), "-etrace=openat",
                            "-einject=openat:delay_enter=300000000")
            go(program)
            told(program, "owed")
            go(program)
            names = [f"b-{i}.pt" for i in range(5)]
            if not until(lambda: [n for n in names if os.path.exists(os.path.join(other, n))] == names, 20):
                struck.over()
                raise RuntimeError(f"it holds up another disk: {os.listdir(other)}")
            said = line(program)
            there = sorted(n for n in os.listdir(other) if not n.startswith(".tpck-"))
            checks.ok(said == "nothing" and there == names and place.content("a-2.pt") is None,
                      "a disk that hangs: what is saved to another one is at its path, durable", said, there, place.listing())
            told(program, "saved")
            go(program)
            said = line(program)
            told(program, "pointed")
            seen = f"{['b-%d.pt' % i for i in range(6)] + ['latest']} {['DONE_3', 'c-1.pt']}"
            rows = {os.path.basename(r["path"]) for r in place.listed()}
            time.sleep(0.3)
            there = sorted(n for n in os.listdir(third) if not n.startswith(".tpck-"))
            checks.ok(said == seen and rows == {"a-2.pt", "latest", "c-0.pt", "b-5.pt", "DONE_3"} and
                      there == ["c-0.pt", "c-1.pt"] and not os.path.exists(f"{other}/latest"),
                      "pointers and removals on others wait for what closed before them on it, and what is behind them for them",
                      said, rows, there)
            go(program)
            program.wait(60)
            lines = program.stderr.read().splitlines()
            checks.ok(program.returncode == 0 and len(lines) == 1 and "not durable yet" in lines[0],
                      "the program's end waits for all of them, as long as it may", program.returncode, *lines)
            struck.over()
            ahead = []

            def come():
                for pointer in (f"{other}/latest", f"{third}/DONE_3"):
                    if os.path.exists(pointer) and place.content("a-2.pt") is None:
                        ahead.append(pointer)
                return not place.listed()
            checks.ok(until(come) and not ahead and sorted(os.listdir(third)) == ["DONE_3", "c-1.pt"] and
                      os.path.exists(f"{other}/latest") and place.content("a-2.pt") == b"y" * 100000,
                      "it comes back, and all is there, in order", ahead, place.log(), os.listdir(third))
        finally:
            for folder in (other, third):
                subprocess.run(["umount", "-l", folder], check=False)


HANGING = """
import threading
*hanging, healthy = sys.argv[1:]
for folder in (*hanging, healthy):
    for i in range(2):
        save(f"{folder}/b-{i}.pt")
    sync(folder)
step("elsewhere")
held = []
def synced(path):
    with open(path, "wb") as f:
        f.write(b"y" * 100000)
        f.flush()
        os.fsync(f.fileno())
for folder in hanging:
    save(f"{folder}/b-2.pt", b"y" * 100000)
    for i in range(3, 6):
        held.append(threading.Thread(target=synced, args=(f"{folder}/b-{i}.pt",)))
        held[-1].start()
step("owed")
for i in range(2, 5):
    save(f"{healthy}/b-{i}.pt", b"z" * 100000)
    synced(f"{healthy}/c-{i}.pt")
says(sync, healthy)
# What waits for what is owed waits for this disk alone.
os.mkdir(f"{healthy}/ckpt.partial")
save(f"{healthy}/ckpt.partial/x.pt")
os.rename(f"{healthy}/ckpt.partial", f"{healthy}/ckpt")
os.chmod(f"{healthy}/ckpt/x.pt", 0o755)
save(f"{healthy}/ckpt/x.pt")
os.link(f"{healthy}/ckpt/x.pt", f"{healthy}/ckpt/linked")
print(*os.listdir(f"{healthy}/ckpt"), flush=True)
step("saved")
for thread in held: thread.join()
"""


def hanging(checks):
    """Seven disks of eight hang, and three who wait for each of them in fsync()."""
    with Place(TRANSPCKPT_EXIT_WAIT_SEC="60") as place:
        folders = [os.path.join(place.root, f"disk{i}") for i in range(8)]
        for folder in folders:
            os.mkdir(folder)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", folder], check=True)
        try:
            program = place.start(SAVES + HANGING, *folders, stderr=subprocess.PIPE)
            told(program, "begun")
            go(program)
            told(program, "elsewhere")
            until(lambda: not place.listed())
            struck = Struck(place, "tpck-(?:files|sync)", "-f", *[a for f in folders[:-1] for a in ("-P", f)], "-etrace=openat",
                            "-einject=openat:delay_enter=300000000")
            go(program)
            told(program, "owed")
            # Each disk has got its lane, and all syncers that it may have, before the healthy one comes.
            threads = f"/proc/{place.agent_pid()}/task"
            until(lambda: len(os.listdir(threads)) > 7 + 3 * 7)
            go(program)
            names = ["b-0.pt", "b-1.pt", "b-2.pt", "b-3.pt", "b-4.pt", "c-2.pt", "c-3.pt", "c-4.pt"]
            came = until(lambda: [n for n in names if os.path.exists(os.path.join(folders[-1], n))] == names)
            owed = [os.path.exists(f"{folder}/b-2.pt") for folder in folders[:-1]]
            busy = len(os.listdir(threads))
            if not came:
                struck.over()
            said = line(program)
            came_too = until(lambda: os.path.exists(f"{folders[-1]}/ckpt/linked"), 60)
            if not came_too:
                struck.over()
            waits = line(program)
            checks.ok(came_too and sorted(waits.split()) == ["linked", "x.pt"] and not any(os.path.exists(f"{folder}/b-2.pt") for folder in folders[:-1]),
                      "a folder is renamed there, a file linked, without a wait for the others", waits)
            checks.ok(came and said == "nothing" and not any(owed),
                      f"seven disks that hang: what is saved to the eighth is at its path, and synced ({busy} threads)", said, owed,
                      os.listdir(folders[-1]), place.log())
            told(program, "saved")
            struck.over()
            go(program)
            program.wait(100)
            left = [[n for n in sorted(os.listdir(folder)) if place.content(f"{folder}/{n}") != (b"y" if n > "b-1.pt" else b"x") * 100000]
                    for folder in folders[:-1]]
            checks.ok(program.returncode == 0 and not place.listed() and
                      all(len(os.listdir(folder)) == 6 for folder in folders[:-1]), "they come back, and all is there", left, place.listed())
        finally:
            for folder in folders:
                subprocess.run(["umount", "-l", folder], check=False)


LEVELS = """
f = open("a-2.pt", "wb")
f.write(b"y" * 100000)
f.flush()
os.fsync(f.fileno())
step("synced")
f.close()
sync(".")
"""


def levels(checks):
    """What fsync of a file that is still open has waited for."""
    for level, there in (("durable", True), ("replicated", True), ("memory", False)):
        with Place(TRANSPCKPT_FSYNC=level) as place:
            said, sizes = [], []
            for _ in range(2):
                program = place.start(SAVES + LEVELS, stderr=subprocess.PIPE)
                told(program, "begun")
                until(lambda place=place: not place.listed())
                go(program)
                told(program, "synced")
                sizes.append([os.path.getsize(place.path(n)) for n in os.listdir(place.work) if n.startswith(".tpck-")])
                go(program)
                end(program)
                said.append(program.stderr.read())
            checks.ok(sizes == [[100000] if there else []] * 2,
                      f"TRANSPCKPT_FSYNC={level}: fsync {'has' if there else 'does not have'} the bytes on the disk", sizes)
            # Once for each agent of the job: on a slow machine the first one may have ended before the second program began.
            lines = [[s for s in text.splitlines() if "there are no peers" in s] for text in said]
            checks.ok(len(lines[0]) == (level == "replicated") and len(lines[1]) <= len(lines[0]) and [text.splitlines() for text in said] == lines,
                      f"TRANSPCKPT_FSYNC={level}: said once if it is not what was asked for", said)


APART = """
other = sys.argv[1]
for i in range(2):
    save(f"{other}/b-{i}.pt")
sync(other)
step("elsewhere")
f = open(f"{other}/b-2.pt", "wb")
save("a-2.pt", b"y" * 100000)
step("owed")
f.write(b"z" * 100000)
says(f.close)
says(sync, other)
save(f"{other}/b-3.pt", b"z" * 100000)
g = open(f"{other}/b-4.pt", "wb")
print(os.fstat(g.fileno()).st_dev == os.stat(os.environ["TRANSPCKPT_SHM"]).st_dev, flush=True)
g.close()
says(sync, other)
save(f"{other}/latest", b"a-2")
says(sync, other)
"""


def apart(checks):
    """A disk that fails is told of to those that write to it."""
    with Place() as place:
        other = os.path.join(place.root, "other")
        os.mkdir(other)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", other], check=True)
        try:
            program = place.start(SAVES + APART, other)
            told(program, "begun")
            go(program)
            told(program, "elsewhere")
            until(lambda: not place.listed())
            struck = Struck(place, "tpck-files", "-P", os.path.realpath(place.work), "-etrace=openat", "-einject=openat:error=EDQUOT")
            go(program)
            told(program, "owed")
            until(lambda: errors(place).get("a-2.pt") == "Disk quota exceeded")
            go(program)
            said = [line(program) for _ in range(4)]
            checks.ok(said == ["nothing", "nothing", "True", "nothing"] and
                      sorted(n for n in os.listdir(other) if not n.startswith(".tpck-")) == [f"b-{i}.pt" for i in range(5)],
                      "a disk that fails: close and fsync of another one have nothing to tell, and files for it go into memory", said)
            said = line(program)
            checks.ok(said == "EDQUOT" and not os.path.exists(f"{other}/latest"),
                      "fsync says what keeps a pointer from its path, on whatever disk that is", said)
            struck.over()
            checks.ok(until(lambda: not place.listed()) and place.content("a-2.pt") == b"y" * 100000 and
                      os.path.exists(f"{other}/latest"), "and all comes when it works again", place.log())
            checks.ok(end(program)[0] == 0, "the program ends")
        finally:
            subprocess.run(["umount", "-l", other], check=False)


LOSES = """
save("big-0.pt", b"y" * (20 << 20))
step("owed")
f = open("more.pt", "wb")
f.write(b"z" * (20 << 20))
f.flush()
try:
    os.fsync(f.fileno())
    print("nothing", flush=True)
except OSError as e:
    print("an error", flush=True)
step("synced")
f.close()
step("closed")
save("more.pt", b"n" * 1000)
"""


def loses(checks):
    """A disk that does not write what it has taken: after that sync says that all is well."""
    with Place() as place:
        backing, image = (os.path.join(place.root, name) for name in ("backing", "backing/image"))
        os.mkdir(backing)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", backing], check=True)
        try:
            subprocess.run(["truncate", "-s", "96M", image], check=True)
            made = subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", image], capture_output=True, check=False)
            mounted = made.returncode == 0 and subprocess.run(["mount", "-o", "loop,errors=continue", image, place.work],
                                                              capture_output=True, check=False).returncode == 0
            if not mounted:
                print("# no ext4 can be mounted: a disk that loses what it has taken is not tried")
                return

            def room(size):
                subprocess.run(["mount", "-o", f"remount,size={size}", backing], check=True)

            def drop(name):
                with open(place.path(name), "rb") as f:
                    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

            def uncached(name):
                drop(name)
                return place.content(name)
            for name in ("big-0.pt", "more.pt"):
                with open(place.path(name), "wb") as f:
                    f.write(b"old")
            program = begun(place, LOSES)
            go(program)
            told(program, "owed")
            there = until(lambda: errors(place).get("big-0.pt"))
            first = errors(place).get("big-0.pt")
            until(lambda: place.log().count("big-0.pt") > 1, 3)
            checks.ok(there and place.content("big-0.pt") == b"old", "a sync that failed is not taken for one that worked the next time: "
                      "the old file stays", first, place.listed())
            room("64m")
            checks.ok(until(lambda: not place.listed(), 60) and uncached("big-0.pt") == b"y" * (20 << 20),
                      "what the disk has lost is written again from memory", place.listed(), place.log())
            used = os.statvfs(backing)
            room(f"{(used.f_blocks - used.f_bfree) * used.f_frsize // 1024 + 1024}k")
            go(program)
            said = line(program)
            told(program, "synced")
            for name in [n for n in os.listdir(place.work) if n.startswith(".tpck-")]:
                drop(name)
            room("96m")
            go(program)
            told(program, "closed")
            there = until(lambda: errors(place).get("more.pt") == "Input/output error")
            lines = len(re.findall("the disk has lost some", place.log()))
            checks.ok(said == "an error" and there and place.content("more.pt") == b"old" and lines == 1,
                      "what the disk has lost and memory has not does not come, which is said in a line", said, place.listed(), place.log())
            go(program)
            status, _ = end(program)
            checks.ok(status == 0 and until(lambda: not place.listed()) and uncached("more.pt") == b"n" * 1000 and
                      "is given up: the disk has lost some of it" in place.log(), "until it is saved again", status, place.log())
        finally:
            for folder in (place.work, backing):
                subprocess.run(["umount", "-l", folder], capture_output=True, check=False)


NO_ROOM = """
import time
save("old.pt", b"o" * 500000)
sync(".")
f = open("a-2.pt", "wb")
step("opened")
f.write(b"y" * 100000)
f.close()
os.unlink("old.pt")
print(os.path.exists("old.pt"), flush=True)
step("removed")
# A disk with room for this only when what was removed is gone: by then it is, unless the agent had it open just then, whose
# blocks come a moment later.
late = 0
for i in range(6):
    for again in range(100):
        try:
            save("large.pt", b"%d" % i * 600000)
            break
        except OSError:
            late += not again
            time.sleep(0.02)
    if i < 5: os.unlink("large.pt")
print(late, flush=True)
says(sync, ".")
"""


def no_room(checks):
    """A disk of 1 MiB."""
    with Place() as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place.work], check=True)
        try:
            program = begun(place, NO_ROOM)
            go(program)
            told(program, "opened")
            # Somebody else's file takes what there was when it was opened.
            try:
                with open(place.path("others"), "wb", buffering=0) as f:
                    while f.write(b"x" * 4096):
                        pass
            except OSError:
                pass
            go(program)
            said = line(program)
            checks.ok(said == "False", "a file is removed behind one that there is no room for")
            told(program, "removed")
            checks.ok(until(lambda: errors(place).get("a-2.pt") == "No space left on device") and
                      place.content("old.pt") == b"o" * 500000 and place.content("a-2.pt") is None,
                      "it stays until that one is there, although its room would do", place.listed(), place.listing())
            os.unlink(place.path("others"))
            checks.ok(until(lambda: not place.listed()) and place.content("a-2.pt") == b"y" * 100000 and
                      place.content("old.pt") is None, "both come in their order once there is room", place.listed())
            go(program)
            late, said = int(line(program)), line(program)
            status, _ = end(program)
            checks.ok(late < 3 and said == "nothing" and status == 0 and place.content("large.pt") == b"5" * 600000,
                      f"what was removed has made room for what is saved next, a moment later {late} times of 5", said, status, place.listing())
        finally:
            subprocess.run(["umount", "-l", place.work], check=False)


GROWS = STEPS + """
import ctypes, mmap, shutil, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.fopen.restype = ctypes.c_void_p
ways = sys.argv[1].split(",")
MIB = 1 << 20
# In each MiB another byte.
def piece(i):
    return bytes([i % 251]) * MIB
def grow(way, name, count):
    if way in ("write", "pwrite", "writev", "pwritev2", "appending", "numbered", "dup", "append", "threads"):
        fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC | (os.O_APPEND if way == "append" else 0), 0o640)
        os.set_inheritable(fd, True)
        assert count == 1 or os.fstat(fd).st_dev == os.stat(os.environ["TRANSPCKPT_SHM"]).st_dev
        copy = os.dup(fd)
        half = []
        def odd():
            # In small pieces, so that the file is moved while they are written.
            cell = piece(1)[:16]
            for at in range(MIB, 2 * MIB if count > 1 else MIB, 16):
                os.pwrite(copy, cell, at)
            for i in range(3, count, 2):
                os.pwrite(copy, piece(i), i * MIB)
        if way == "threads":
            half = [threading.Thread(target=odd)]
            half[0].start()
            time.sleep(0.02)
        for i in range(count):
            if way == "pwrite":
                os.pwrite(fd, piece(count - 1 - i), (count - 1 - i) * MIB)
            elif way == "threads":
                if i % 2 == 0:
                    os.pwrite(fd, piece(i), i * MIB)
            elif way == "writev":
                assert os.writev(fd, [piece(i)[:MIB // 2]] * 2) == MIB
            elif way == "pwritev2":
                assert os.pwritev(fd, [piece(i)[:MIB // 2]] * 2, i * MIB) == MIB
            elif way == "appending":
                assert os.pwritev(fd, [piece(i)], 0, 16) == MIB
            elif way == "numbered":
                assert libc.syscall(18, fd, piece(i), *map(ctypes.c_long, (MIB, i * MIB))) == MIB
            elif way == "dup":
                os.write(copy if i % 2 else fd, piece(i))
            else:
                os.write(fd, piece(i))
        for t in half:
            t.join()
        assert os.get_inheritable(fd) and not os.get_inheritable(copy)
        if way == "dup":
            assert os.lseek(fd, 0, os.SEEK_CUR) == os.lseek(copy, 0, os.SEEK_CUR) == count * MIB
        assert os.pread(fd, 2, MIB - 1) == bytes([0, 1 if count > 1 else 0])[:2 if count > 1 else 1]
        os.close(copy)
        os.close(fd)
    elif way == "stdio":
        f = ctypes.c_void_p(libc.fopen(name.encode(), b"wb"))
        libc.fputs(b"\\1", f)
        libc.fseek(f, ctypes.c_long(0), 0)
        for i in range(count):
            for part in range(2):
                assert libc.fwrite(piece(i), ctypes.c_size_t(1), ctypes.c_size_t(MIB // 2), f) == MIB // 2
        assert libc.fclose(f) == 0
    elif way == "mapped":
        with open(name, "wb+") as f:
            assert count == 1 or os.fstat(f.fileno()).st_dev == os.stat(os.environ["TRANSPCKPT_SHM"]).st_dev
            f.truncate(count * MIB)
            with mmap.mmap(f.fileno(), count * MIB) as m:
                for i in range(count):
                    m[i * MIB:(i + 1) * MIB] = piece(i)
    elif way == "copied":
        with open("source", "wb") as f:
            for i in range(count):
                f.write(piece(i))
        shutil.copyfile("source", name)
for i in range(2):
    for way in ways:
        grow(way, f"{way}-{i}.pt", 1)
step("small")
for way in ways:
    grow(way, f"{way}-2.pt", int(sys.argv[2]))
if "sparse" in sys.argv:
    # 20 GiB where the tier has a tenth of it.
    fd = os.open("write-3.pt", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    for i in range(0, 640, 16):
        os.pwrite(fd, piece(i), i * MIB * 32)
    os.ftruncate(fd, 640 * MIB * 32)
    os.close(fd)
step("grown")
"""
WAYS = ["write", "pwrite", "writev", "pwritev2", "appending", "numbered", "dup", "append", "threads", "stdio", "mapped", "copied"]


def of_pieces(place, name, count, step=1):
    with open(place.path(name), "rb") as f:
        for i in range(0, count, step):
            f.seek(i * (1 << 20) * (32 if step > 1 else 1))
            if f.read(1 << 20) != bytes([i % 251]) * (1 << 20):
                return f"MiB {i}"
    return ""


def grown(checks, what, ways, count, *more, **settings):
    with Place(**settings) as place:
        program = place.start(GROWS, ",".join(ways), count, *more)
        told(program, "small")
        until(lambda: not place.listed())
        agent = pause(place)
        go(program)
        told(program, "grown")
        rows = {os.path.basename(r["path"]): r["where"] for r in place.listed() if r["state"] != "to be removed"}
        held = sum(os.stat(os.path.join(place.job_folder, "files", n)).st_blocks * 512 for n in
                   os.listdir(os.path.join(place.job_folder, "files")) if n[0] in "0123456789abcdef")
        names = [f"{way}-2.pt" for way in ways] + (["write-3.pt"] if more else [])
        checks.ok([n for n in names if rows.get(n) != "disk"] == [] and held < 64 << 20,
                  f"{what}: files that get much larger go on beside their targets", rows, held)
        checks.ok(not [n for n in names if place.content(n) is not None], "nothing is there before it is whole", place.listing())
        os.kill(agent, signal.SIGCONT)
        go(program)
        status, _ = end(program)
        wrong = [(way, of_pieces(place, f"{way}-2.pt", count)) for way in ways]
        wrong += [("sparse", of_pieces(place, "write-3.pt", 640, 16))] if more else []
        checks.ok(status == 0 and not [w for w in wrong if w[1]], f"{what}: and hold every byte", status, wrong, place.log())
        checks.ok(not [n for n in os.listdir(place.work) if n.startswith(".tpck-")] and
                  oct(os.stat(place.path(f"{ways[0]}-2.pt")).st_mode & 0o777) == "0o640", "with their modes, and nothing beside",
                  os.listdir(place.work))
        if more:
            found = os.stat(place.path("write-3.pt"))
            checks.ok(found.st_size == 20 << 30 and found.st_blocks * 512 < 1 << 30, "holes stay holes", found)


FORKS = STEPS + """
MIB = 1 << 20
for i in range(2):
    with open(f"write-{i}.pt", "wb") as f:
        f.write(bytes(MIB))
step("small")
fd = os.open("write-2.pt", os.O_RDWR | os.O_CREAT)
there, back = os.pipe()
child = os.fork()
if not child:
    os.read(there, 1)
    os.pwrite(fd, bytes([19]) * MIB, 19 * MIB)
    os._exit(0)
for i in range(19):
    os.write(fd, bytes([i]) * MIB)
os.write(back, b"1")
os.waitpid(child, 0)
os.close(fd)
fd = os.open("write-3.pt", os.O_RDWR | os.O_CREAT)
step("grown")
for i in range(200):
    os.write(fd, bytes([i]) * MIB)
step("never")
"""


def grows(checks):
    """The budget is 8 MiB for files: what was small the last time is 40 MiB now."""
    grown(checks, "a small budget", WAYS, 40, "sparse", TRANSPCKPT_MEMORY="16M")
    with Place(TRANSPCKPT_MEMORY="16M") as place:
        program = place.start(FORKS)
        told(program, "small")
        until(lambda: not place.listed())
        go(program)
        told(program, "grown")
        checks.ok(until(lambda: place.content("write-2.pt") is not None) and of_pieces(place, "write-2.pt", 20) == "",
                  "one that a forked child writes as well holds every byte", of_pieces(place, "write-2.pt", 20))
        go(program)
        until(lambda: [n for n in os.listdir(place.work) if n.startswith(".tpck-")])
        program.kill()
        program.wait()
        # The agent's line is written behind that.
        checks.ok(until(lambda: not [n for n in os.listdir(place.work) if n.startswith(".tpck-")] and
                        re.findall(r"(\S+) was being written", place.log()) == [place.path("write-3.pt")]) and
                  place.listing() == ["write-0.pt", "write-1.pt", "write-2.pt"],
                  "killed while it is moved: nothing is left of it", place.log(), os.listdir(place.work))


def small_tier(checks):
    """The tier is a tmpfs that is too small, whatever the budget."""
    with Place() as other:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=320m", "none", other.shm], check=True)
        try:
            grown(checks, "a small tmpfs", ["write", "mapped"], 100, TRANSPCKPT_SHM=other.shm)
        finally:
            subprocess.run(["umount", "-l", other.shm], check=False)


def large(checks):
    """LARGE_GIB (20) of data under a budget of 2 GiB; only where it is asked for by its name."""
    gib = int(os.environ.get("LARGE_GIB") or 20)
    with Place(TRANSPCKPT_MEMORY="2G") as place:
        disk = os.statvfs(place.work)
        if disk.f_bavail * disk.f_frsize < 2 * gib << 30:
            checks.ok(True, f"large # SKIP there is no room for {gib} GiB")
            return
    grown(checks, f"{gib} GiB", ["write"], gib << 10, TRANSPCKPT_MEMORY="2G")


FIRST = """
step("ready")
save("a-2.pt", b"1" * 3000000)
step("closed")
"""
# What it finds of the one before, if it looks, then its own, by each way that has to look at what is there.
SECOND = STEPS + """
def read(name):
    with open(name, "rb") as f:
        d = f.read()
    return len(d), d[:1], d[-1:]
print(read("a-2.pt") if sys.argv[1] == "reads" else "", flush=True)
with open("a-2.pt", "wb") as f:
    f.write(b"2" * 2000000)
print(read("a-2.pt"), os.path.getsize("a-2.pt"), "a-2.pt" in os.listdir("."), flush=True)
if sys.argv[1] == "reads":
    with open("b.pt", "wb") as f:
        f.write(b"b" * 1000)
    os.rename("b.pt", "a-2.pt")
    with open("a-2.pt", "wb") as f:
        f.write(b"3" * 1000000)
print(read("a-2.pt"), os.path.exists("b.pt"), flush=True)
step("done")
"""
# When the agent is stopped: before it knows of the file, or so long after that it was closed.
STOPS = [("writes", None), ("reads", None)] + [("reads", delay) for delay in (0, 0.001, 0.002, 0.004, 0.008)]


def in_flight(place, first, delay):
    """One that is killed with a file on its way; the agent stands still. Its id."""
    go(first)
    told(first, "ready")
    agent = place.agent_pid()
    if delay is None:
        pause(place)
    go(first)
    told(first, "closed")
    if delay is not None:
        time.sleep(delay)
        pause(place)
    first.kill()
    first.wait()
    return agent


def stopped(checks):
    """A trainer is killed with a file in flight, its agent stands still, and its successor saves to the same path."""
    hung, wrong, waited = [], [], []
    for way, delay in STOPS:
        with Place() as place:
            agent = in_flight(place, begun(place, FIRST), delay)
            second = place.start(SECOND, way)
            said, goes = "", False
            while not said.endswith("done\n"):
                # Who only writes is not to wait at all: a busy machine has time for it.
                if select.select([second.stdout], [], [], 60 if goes or (way, delay) == STOPS[0] else 2)[0]:
                    more = os.read(second.stdout.fileno(), 4096).decode()
                    if not more:
                        break
                    said += more
                elif goes:
                    hung.append((way, delay, said))
                    break
                else:
                    # A version of what it has read is kept, which has to be at its path: that waits for the agent.
                    waited.append((way, delay))
                    os.kill(agent, signal.SIGCONT)
                    goes = True
            os.kill(agent, signal.SIGCONT)
            said = said.splitlines()
            if said[-1:] != ["done"]:
                second.kill()
                second.wait()
                wrong.append((way, delay, said))
                continue
            go(second)
            status, _ = end(second)
            came = until(lambda place=place: not place.listed())
            content = place.content("a-2.pt") or b""
            last = ("(1000000, b'3', b'3')", b"3" * 1000000) if way == "reads" else ("(2000000, b'2', b'2')", b"2" * 2000000)
            if said != ["(3000000, b'1', b'1')" if way == "reads" else "", "(2000000, b'2', b'2') 2000000 True", f"{last[0]} False", "done"] or \
                    status or not came or content != last[1] or place.listing() != ["a-0.pt", "a-1.pt", "a-2.pt"]:
                wrong.append((way, delay, said, status, came, len(content), content[:1], place.listing(), place.log()))
    checks.ok(not hung and STOPS[0] not in waited, "an agent that stands still holds up no successor that only writes, and no other for longer",
              hung, waited)
    checks.ok(not wrong, "the path holds what the successor saved last, and it has seen that all the time", *wrong[:3])


MEANWHILE = """
big = 3 << 20
save("a-2.pt", b"y" * big)
step("copied")
what = sys.argv[1]
if what == "removed":
    os.unlink("a-2.pt")
elif what == "replaced":
    save("new.pt", b"n" * 1000)
    os.rename("new.pt", "a-2.pt")
elif what == "renamed":
    os.rename("a-2.pt", "b-2.pt")
elif what == "truncated":
    save("a-2.pt", b"t" * 2000)
elif what == "appended":
    with open("a-2.pt", "ab") as f:
        f.write(b"more")
elif what == "changed":
    with open("a-2.pt", "r+b") as f:
        f.write(b"changed")
print({n: (len(d), d[:3], d[-3:]) for n in sorted(os.listdir(".")) for d in [open(n, "rb").read()]}, flush=True)
step("done")
"""


def meanwhile(checks):
    """What is done by name while the agent copies."""
    for what, expected in (("removed", {}), ("replaced", {"a-2.pt": (1000, b"nnn", b"nnn")}), ("renamed", {"b-2.pt": (3 << 20, b"yyy", b"yyy")}),
                           ("truncated", {"a-2.pt": (2000, b"ttt", b"ttt")}), ("appended", {"a-2.pt": ((3 << 20) + 4, b"yyy", b"ore")}),
                           ("changed", {"a-2.pt": (3 << 20, b"cha", b"yyy")})):
        with Place() as place:
            program = place.start(SAVES + MEANWHILE, what)
            told(program, "begun")
            until(lambda: not place.listed())
            # The second piece of it does not come to an end.
            struck = Struck(place, "tpck-files", "-etrace=pwrite64", "-einject=pwrite64:delay_enter=300000000:when=2")
            go(program)
            told(program, "copied")
            there = until(lambda place=place: [n for n in os.listdir(place.work) if n.startswith(".tpck-") and
                                               os.stat(place.path(n)).st_blocks], 20)
            go(program)
            said = line(program)
            expected = dict({f"a-{i}.pt": (100000, b"xxx", b"xxx") for i in range(2)}, **expected)
            told(program, "done")
            checks.ok(there and said == str(dict(sorted(expected.items()))), f"{what} while it is copied: the job sees that", said)
            struck.over()
            go(program)
            status, _ = end(program)
            left = {n: (len(d), d[:3], d[-3:]) for n in sorted(os.listdir(place.work)) for d in [place.content(n)]}
            checks.ok(status == 0 and left == expected, f"{what} while it is copied: so does everybody in the end", status, left, place.log())


RACES = STEPS + """
import threading
step("begun")
for i in range(40):
    fd = os.open(f"race-{i % 4}.pt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    written = []
    def writes():
        try:
            while len(written) < 4000:
                os.pwrite(fd, b"w" * 512, len(written) * 512)
                written.append(1)
        except OSError:
            pass
    thread = threading.Thread(target=writes)
    thread.start()
    while len(written) < 10 + i * 10:
        pass
    os.close(fd)
    thread.join()
    size = os.path.getsize(f"race-{i % 4}.pt")
    if size not in (len(written) * 512, len(written) * 512 + 512):
        print(i, size, len(written) * 512, flush=True)
print("raced", flush=True)
"""


def races(checks):
    with Place() as place:
        program = place.start(RACES)
        told(program, "begun")
        go(program)
        said = line(program)
        status, _ = end(program)
        checks.ok(said == "raced" and status == 0, "closed by one thread while another writes: all that was written before is there", said)


def main():
    checks = Checks()
    mounts = [read_only, no_room, small_tier, lanes, hanging, apart, loses]
    tests = [fails, closes, hangs, levels, grows, meanwhile, stopped, races, *mounts]
    if "TPCK_OWN_MOUNTS" not in os.environ:
        # Mounts of this test are nobody else's.
        if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode == 0:
            os.environ["TPCK_OWN_MOUNTS"] = "1"
            os.execvp("unshare", ["unshare", "-m", sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:]])
        print("# no mount namespace:", *[test.__name__ for test in mounts], "are not tried")
        tests = [test for test in tests if test not in mounts]
    run_tests(checks, tests, [large])


if __name__ == "__main__":
    main()
