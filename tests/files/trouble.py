#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disks that refuse, fail, hang or are full, and files that turn out much larger than the last one of their name."""
import os
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import Checks, Place, until
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
    """System calls of one thread of the agent are made to fail or wait."""

    def __init__(self, place, thread, *what):
        agent = place.agent_pid()
        self.tracer = None
        for task in os.listdir(f"/proc/{agent}/task"):
            with open(f"/proc/{agent}/task/{task}/comm", encoding="utf-8") as f:
                if f.read().strip() != thread:
                    continue
            self.tracer = subprocess.Popen(["strace", "-o", "/dev/null", "-p", task, *what], stderr=subprocess.PIPE, text=True)
            self.tracer.stderr.readline()
            until(lambda task=task: self.traced(agent, task))
            return
        raise RuntimeError(f"the agent has no thread {thread}")

    def traced(self, agent, task):
        with open(f"/proc/{agent}/task/{task}/status", encoding="utf-8") as f:
            return f"TracerPid:\t{self.tracer.pid}\n" in f.read()

    def over(self):
        self.tracer.terminate()
        self.tracer.communicate(timeout=60)


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
            agent = pause(place)
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
            there = until(lambda words=words: errors(place).get("a-2.pt") == words, 20)
            checks.ok(there and place.content("a-2.pt") is None, f"{call} that fails with {code} is told by ls, nothing half is there",
                      place.listed(), place.log())
            go(program)
            said = line(program)
            # It was opened when this was known: it is written beside its target, and close() has nothing to tell.
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
            until(lambda: errors(place).get("a-2.pt") == "Disk quota exceeded", 20)
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


NO_ROOM = """
save("old.pt", b"o" * 500000)
sync(".")
f = open("a-2.pt", "wb")
step("opened")
f.write(b"y" * 100000)
f.close()
os.unlink("old.pt")
print(os.path.exists("old.pt"), flush=True)
step("removed")
# A disk with room for this only when what was removed is gone: by then it is.
for i in range(4):
    save("large.pt", b"l" * 600000)
    os.unlink("large.pt")
save("large.pt", b"m" * 600000)
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
            said = line(program)
            status, _ = end(program)
            checks.ok(said == "nothing" and status == 0 and place.content("large.pt") == b"m" * 600000,
                      "what was removed has made room for what is saved next", said, status, place.listing())
        finally:
            subprocess.run(["umount", "-l", place.work], check=False)


def main():
    checks = Checks()
    mounts = [read_only, no_room]
    tests = [fails, closes, hangs, *mounts]
    chosen = sys.argv[1:]
    if "TPCK_OWN_MOUNTS" not in os.environ:
        # Mounts of this test are nobody else's.
        if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False).returncode == 0:
            os.environ["TPCK_OWN_MOUNTS"] = "1"
            os.execvp("unshare", ["unshare", "-m", sys.executable, "-B", os.path.abspath(__file__), *chosen])
        print("# no mount namespace:", *[test.__name__ for test in mounts], "are not tried")
        tests = [test for test in tests if test not in mounts]
    for test in tests:
        if not chosen or test.__name__ in chosen:
            begun_at = time.monotonic()
            test(checks)
            print(f"# {test.__name__}: {time.monotonic() - begun_at:.1f} s", flush=True)
    checks.end()


if __name__ == "__main__":
    main()
