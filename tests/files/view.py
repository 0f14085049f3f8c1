#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.1 memory=1G minutes=20 about=59s disk
"""What the job sees of its files, what others see, and that the two come together. Programs are plain Python."""
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import BARE, WAIT_SEC, Checks, Place, run_tests, stand_still, until

# Stops the agent by SIGSTOP around a program's steps: what is pending stays so, and can be looked at.
STEPS = """
import os, sys
def step(name):
    print(name, flush=True)
    sys.stdin.readline()
"""


def told(program, what):
    line = program.stdout.readline().strip()
    if line != what:
        raise RuntimeError(f"expected {what!r}, got {line!r}")


def go(program):
    program.stdin.write("\n")
    program.stdin.flush()


def end(program):
    program.stdin.close()
    rest = program.stdout.read()
    return program.wait(120), rest


def pause(place):
    pid = place.agent_pid()
    stand_still(pid)
    return pid


INSIDE = STEPS + """
def write(name, data):
    with open(name, "wb") as f:
        f.write(data)
write("model.pt", b"one" * 1000)
step("saved")
write("model.pt", b"second" * 1000)
write("new.tmp.pt", b"fresh")
os.rename("new.tmp.pt", "new.pt")
os.unlink("old.pt")
def look():
    return [sorted(os.listdir(".")), os.path.getsize("model.pt"), open("model.pt", "rb").read(3), os.path.exists("new.tmp.pt"),
            open("new.pt", "rb").read(), os.access("old.pt", os.F_OK), os.path.exists("old.pt"),
            open(os.path.join(os.getcwd(), "link.pt"), "rb").read(2)]
print(look())
child = os.popen(sys.executable + " -c 'import os; print(sorted(os.listdir(\\".\\")), os.path.getsize(\\"model.pt\\"))'").read().strip()
print(child)
pid = os.fork()
if pid == 0:
    print(look(), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
step("pending")
"""


def views(checks):
    with Place() as place:
        for name, data in (("old.pt", b"old"), ("model.pt", b"zero")):
            with open(place.path(name), "wb") as f:
                f.write(data)
        os.symlink("model.pt", place.path("link.pt"))
        program = place.start(INSIDE)
        told(program, "saved")
        until(lambda: place.content("model.pt") == b"one" * 1000)
        checks.ok(place.content("model.pt") == b"one" * 1000, "a file that was closed appears")
        until(lambda: not place.listed())
        agent = pause(place)
        go(program)
        expected = str([["link.pt", "model.pt", "new.pt"], 6000, b"sec", False, b"fresh", False, False, b"se"])
        seen = program.stdout.readline().strip()
        checks.ok(seen == expected, "the job sees what it did", seen, expected)
        seen = program.stdout.readline().strip()
        checks.ok(seen == "['link.pt', 'model.pt', 'new.pt'] 6000", "a program that it starts sees it", seen)
        seen = program.stdout.readline().strip()
        checks.ok(seen == expected, "a forked child sees it", seen, expected)
        told(program, "pending")
        checks.ok(place.content("model.pt") == b"one" * 1000 and place.content("new.pt") is None and
                  place.content("old.pt") == b"old" and place.listing() == ["link.pt", "model.pt", "old.pt"],
                  "nobody else sees it", place.listing())
        rows = [(os.path.basename(r["path"]), r["state"], r["bytes"]) for r in place.listed()]
        checks.ok(rows == [("model.pt", "owed", 6000), ("new.pt", "owed", 5), ("old.pt", "to be removed", 0)],
                  "ls --files says what is owed, in its order", rows)
        os.kill(agent, signal.SIGCONT)
        go(program)
        status, _ = end(program)
        checks.ok(status == 0 and place.content("model.pt") == b"second" * 1000 and place.content("new.pt") == b"fresh" and
                  sorted(os.listdir(place.work)) == ["link.pt", "model.pt", "new.pt"],
                  "at the program's end everybody sees the same", status, os.listdir(place.work))


KILLED = STEPS + """
f = open("model.pt", "wb")
f.write(b"half")
f.flush()
with open("whole.pt", "wb") as w:
    w.write(b"whole")
step("open")
"""


def killed(checks):
    """What was not closed never appears; what was does."""
    with Place() as place:
        with open(place.path("model.pt"), "wb") as f:
            f.write(b"before")
        program = place.start(KILLED)
        told(program, "open")
        program.kill()
        program.wait()
        until(lambda: "was being written" in place.log())
        checks.ok(until(lambda: place.content("whole.pt") == b"whole") and place.content("model.pt") == b"before",
                  "a program that is killed: the file that it had closed is there, the other is as it was",
                  place.content("model.pt"), place.log())
        checks.ok("model.pt was being written when its process was killed" in place.log(), "which is said", place.log())
        checks.ok(until(lambda: not [n for n in os.listdir(place.work) if n.startswith(".tpck-")]), "nothing is left beside",
                  os.listdir(place.work))
        # The other way round: the agent is gone as well, and the next start of the job finishes.
        agent = pause(place)
        program = place.start(KILLED.replace("model", "again").replace("whole", "later"))
        told(program, "open")
        program.kill()
        program.wait()
        os.kill(agent, signal.SIGKILL)
        until(lambda: place.agent_pid() != agent)
        checks.ok(place.content("later.pt") is None, "agent and program killed: what was owed is owed")
        place.run("import os; print(os.listdir('.'))")
        checks.ok(until(lambda: place.content("later.pt") == b"later") and place.content("again.pt") is None,
                  "the next start of the job has it finished", place.log())
        checks.ok(until(lambda: not [n for n in os.listdir(place.work) if n.startswith(".tpck-")]), "and nothing is left beside",
                  os.listdir(place.work))


ORDER = STEPS + """
step("begin")
for i in range(40):
    with open(f"step-{i}.pt", "wb") as f:
        f.write(b"%d" % i * 20000)
    with open("latest", "w") as f:
        f.write(f"step-{i}.pt")
    if i >= 2:
        os.unlink(f"step-{i - 2}.pt")
"""


def order(checks):
    """From outside, at every moment: what `latest` says is there and whole."""
    with Place() as place:
        program = place.start(ORDER)
        told(program, "begin")
        go(program)
        looks, wrong, seen = 0, [], set()
        while program.poll() is None:
            latest = place.content("latest")
            if latest is None:
                continue
            data = place.content(latest.decode() or "nothing")
            # Removed since: another pointer is there by now.
            if data is None and place.content("latest") == latest:
                wrong.append(f"{latest} is not there")
            if data is not None:
                number = latest.decode()[5:-3].encode()
                if data != number * 20000:
                    wrong.append(f"{latest} has {len(data)} bytes")
                seen.add(latest)
            if len([n for n in place.listing() if n.startswith("step-")]) > 4:
                wrong.append(f"{place.listing()}")
            looks += 1
        checks.ok(program.returncode == 0 and not wrong and looks > 10 and len(seen) > 3,
                  f"a pointer is never there before what it points to ({looks} looks, {len(seen)} pointers)", wrong[:5])
        checks.ok(place.listing() == ["latest", "step-38.pt", "step-39.pt"], "and what was removed is gone", place.listing())


SAME = """
import os, sys, mmap
os.umask(0o027)
fd = os.open("plain.pt", os.O_WRONLY | os.O_CREAT, 0o666); os.write(fd, b"x" * 5000); os.close(fd)
for i in range(2):
    fd = os.open("sparse.pt", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o640)
    os.pwrite(fd, b"end", 1 << 24); os.pwrite(fd, b"begin", 0); os.close(fd)
    open("empty.pt", "wb").close()
    with open("mapped.pt", "wb+") as f:
        f.truncate(1 << 20)
        m = mmap.mmap(f.fileno(), 1 << 20)
    m[5:9] = b"here"
    m.close()
os.chmod("plain.pt", 0o604)
os.utime("plain.pt", ns=(10**18, 10**18 + 5))
if os.path.exists("/proc/self/attr") and hasattr(os, "setxattr"):
    try: os.setxattr("sparse.pt", "user.note", b"mine")
    except OSError: pass
with open("appended.pt", "wb") as f: f.write(b"a")
with open("appended.pt", "ab") as f: f.write(b"b")
f = open("twice.pt", "wb"); g = open("twice.pt", "ab"); f.write(b"1"); f.close(); g.write(b"2"); g.close()
os.makedirs("checkpoint-5")
with open("checkpoint-5/anything", "w") as f: f.write("a")
os.rename("checkpoint-5", "done")
with open(b"\\xff\\xfe.pt", "wb") as f: f.write(b"name")
with open("gone.pt", "wb") as f: f.write(b"x"); os.unlink("gone.pt"); f.write(b"y")
try: os.open("plain.pt", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
except FileExistsError: open("exists.txt", "w").close()
fd = os.open("kept.pt", os.O_WRONLY | os.O_CREAT, 0o600); os.dup2(fd, 77); os.close(fd); os.write(77, b"by 77"); os.close(77)
with open("cut.pt", "wb") as f: f.write(b"12345")
os.truncate("cut.pt", 3)
os.link("cut.pt", "cut2.pt")
"""


def look(folder):
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            s = os.lstat(path)
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder)] = (
                    f.read(), stat.filemode(s.st_mode), s.st_uid, s.st_gid, s.st_nlink, s.st_blocks * 512 < s.st_size,
                    s.st_mtime_ns if name == "plain.pt" else 0, os.listxattr(path))
    return found


def same(checks):
    with Place() as place, Place() as other:
        place.run(SAME)
        other.run(SAME, preload=False)
        ours, theirs = look(place.work), look(other.work)
        different = [n for n in set(ours) | set(theirs) if ours.get(n) != theirs.get(n)]
        checks.ok(not different, "a tree of odd files is the same as without the library",
                  *[(n, str(ours.get(n))[-120:], str(theirs.get(n))[-120:]) for n in different])


WRITERS = """
import os, sys, time
for i in range(30):
    with open("shared.pt", "wb") as f:
        f.write(sys.argv[1].encode() * 50000)
"""


def two_writers(checks):
    with Place() as place:
        programs = [place.start(WRITERS, letter) for letter in "abc"]
        torn = []
        while any(p.poll() is None for p in programs):
            data = place.content("shared.pt")
            if data is not None and (len(data) != 50000 or len(set(data)) != 1):
                torn.append((len(data), set(data)))
        checks.ok(not torn and all(p.returncode == 0 for p in programs), "three processes that write one path: never torn", torn[:3],
                  [p.returncode for p in programs])


# A name is made, as tempfile makes names, and what is saved is written by it while the one that made it is open.
AGAIN = """
import os, subprocess, sys, tempfile, time

def by(how, made):
    if how == "itself":
        with open(made.name, "wb") as f:
            f.write(b"saved")
    else:
        subprocess.run([sys.executable, "-c", "import sys; open(sys.argv[1], 'wb').write(b'saved')", made.name], check=True)

for how in ("itself", "a child"):
    made = tempfile.NamedTemporaryFile(dir=".", suffix=".pt", delete=False)
    by(how, made)
    time.sleep(0.2)
    print(open(made.name, "rb").read(), made.read(), flush=True)
    made.close()
    os.replace(made.name, how + ".pt")
    with open("twice-" + how, "wb") as made:
        made.write(b"begun, and then some")
        made.flush()
        by(how, made)
        made.write(b"!")
"""


def again(checks):
    with Place(TRANSPCKPT_FILES="*") as place, Place() as other:
        seen = place.run(AGAIN), other.run(AGAIN, preload=False)
        until(lambda: not place.listed())
        found = [{n: p.content(n) for n in p.listing()} for p in (place, other)]
        checks.ok(seen[0] == seen[1] and found[0] == found[1] and len(found[0]) == 4,
                  "what is saved by the name of a file that is open is that file", *seen, *found)


FORKED = """
import os, sys, time
f = open("model.pt", "wb")
f.write(b"parent"); f.flush()
if os.fork() == 0:
    time.sleep(0.5)
    f.write(b"child"); f.close()
    os._exit(0)
f.close()
os.wait()
"""


def forked(checks):
    with Place() as place:
        place.run(FORKED)
        until(lambda: place.content("model.pt") is not None)
        checks.ok(place.content("model.pt") == b"parentchild", "a child that goes on writing is waited for",
                  place.content("model.pt"))


MANY = """
import os
os.makedirs("step-1", exist_ok=True)
for i in range(10000):
    with open(f"step-1/{i}", "wb") as f:
        f.write(b"%d" % i)
print(len(os.listdir("step-1")))
"""


AHEAD = STEPS + """
import ctypes
M = 1 << 20
def piece(i): return (b"%7d " % i) * (M // 8)
open("a-0.pt", "wb").write(b"small")
step("one")
f = open("a-1.pt", "wb", buffering=0)
for i in range(40): f.write(piece(i))
step("written")
# What is beside the target by now is another: a word, a piece, a hole, the end.
os.pwrite(f.fileno(), b"other", 3 * M + 5)
os.pwrite(f.fileno(), piece(77), 9 * M)
ctypes.CDLL(None).fallocate(f.fileno(), 3, ctypes.c_long(12 * M), ctypes.c_long(M + 4096))
f.truncate(33 * M + 100)
if len(sys.argv) > 1:
    step("to be killed")
f.close()
step("closed")
"""


def ahead(checks):
    """A large file is copied while it is written; what changes behind that is copied again."""
    def beside(place):
        return [n for n in os.listdir(place.work) if n.startswith(".tpck-") and os.stat(place.path(n)).st_blocks * 512 > 30 << 20]

    piece = [(b"%7d " % i) * (1 << 17) for i in range(40)]
    want = bytearray(b"".join(piece))
    want[(3 << 20) + 5:(3 << 20) + 10] = b"other"
    want[9 << 20:10 << 20] = (b"%7d " % 77) * (1 << 17)
    want[12 << 20:(13 << 20) + 4096] = bytes((1 << 20) + 4096)
    del want[(33 << 20) + 100:]
    for kill in (False, True):
        with Place() as place:
            program = place.start(AHEAD, *(["kill"] if kill else []))
            told(program, "one")
            until(lambda: not place.listed())
            go(program)
            told(program, "written")
            checks.ok(until(lambda: beside(place)), "a large file that is being written is beside its target already", place.listing())
            go(program)
            told(program, "to be killed" if kill else "closed")
            if kill:
                program.kill()
                checks.ok(until(lambda: not place.listed() and not [n for n in os.listdir(place.work) if n.startswith(".tpck-")]) and
                          place.listing() == ["a-0.pt"], "it is taken away when its process is killed", os.listdir(place.work))
            else:
                until(lambda: not place.listed())
                end(program)
                checks.ok(place.content("a-1.pt") == want and sorted(os.listdir(place.work)) == place.listing(), "what changed since is right",
                          os.listdir(place.work), [i for i in range(34) if (place.content("a-1.pt") or b"")[i << 20:i + 1 << 20] != want[i << 20:i + 1 << 20]])
                checks.ok([r["state"] for r in place.verified(place.path("a-1.pt"))] == ["good"], "and its digests",
                          place.verified(place.path("a-1.pt")))


PARENT = STEPS + """
import subprocess
os.stat(".")
child = subprocess.Popen([sys.executable, "-c", "import os, sys; sys.stdin.readline(); f = open('a.pt', 'wb'); f.write(b'child'); f.close(); "
                          "print('saved', flush=True); sys.stdin.readline()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
for i in range(int(sys.argv[1])): os.path.exists("a.pt")
print("child", child.stdin.write("\\n"), flush=True)
child.stdin.flush()
child.stdout.readline()
seen = os.path.getsize("a.pt") if os.path.exists("a.pt") else None
print(seen, os.listdir("."), flush=True)
child.stdin.close()
child.wait()
"""


def elders(checks):
    """A process that has never saved anything, and began before any of its job had: it sees what its child has just closed. The
    agent is slow: it is stopped at its first rename."""
    for turn in range(3):
        with Place() as place:
            environment = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD"}
            agent = subprocess.Popen(["strace", "-f", "-o", os.devnull, "-e", "trace=renameat", "-e", "inject=renameat:delay_enter=2000000",
                                      place.agent, "--job", "j", "--foreground"], env=environment, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL) if shutil.which("strace") else None
            until(lambda: os.path.exists(os.path.join(place.job_folder, "agent.sock")))
            said = place.run(PARENT, 1000 * turn).splitlines()[-1]
            checks.ok(said.startswith("5 ['a.pt'"), "a process that began before all files sees its child's at once", said, place.log())
            place.kill_agent()
            if agent:
                agent.wait(20)


DEAD = STEPS + """
open("a.pt", "wb").write(b"old")
step("old")
open("a.pt", "wb").write(b"new")
step("closed")
for call in sys.argv[1:]: print(eval(call), flush=True)
"""


def dead_at_its_place(checks):
    """The agent dies as it renames a file: who has to wait for it starts another one."""
    if not shutil.which("strace"):
        print("# no strace: an agent that dies at a rename is not tried")
        return
    for call, want, left in (("os.unlink('a.pt')", "None", None), ("os.rename('a.pt', 'b.pt')", "None", None),
                             ("os.chmod('a.pt', 0o604)", "None", b"new"), ("open('a.pt', 'r+b').write(b'X')", "1", b"Xew"),
                             ("os.path.getsize('a.pt')", "3", b"new")):
        with Place() as place:
            environment = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD"}
            program = place.start(DEAD, call)
            told(program, "old")
            until(lambda: not place.listed())
            # Calls are counted by thread: any one of the next agent's may be the one that renames.
            before = place.kill_agent()
            # One that comes while the killed one's lock is still held goes again.
            agent = None
            for _ in range(20):
                agent = subprocess.Popen(["strace", "-f", "-o", os.devnull, "-e", "trace=renameat", "-e", "inject=renameat:signal=KILL:when=1",
                                          place.agent, "--job", "j", "--foreground"], env=environment, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL)
                until(lambda: place.agent_pid() not in (None, 0, before) or agent.poll() is not None)
                if agent.poll() is None:
                    break
            go(program)
            told(program, "closed")
            killed = agent.wait(20) == -signal.SIGKILL
            go(program)
            said = program.stdout.readline().strip() if select.select([program.stdout], [], [], 20)[0] else "nothing"
            if said == "nothing":
                program.kill()
            end(program)
            until(lambda: not place.listed())
            checks.ok(killed and said == want and place.content("a.pt") == left, f"the agent dies at a rename, and the program calls {call}", said,
                      place.content("a.pt"), place.log())


def ahead_of_a_bad_disk(checks):
    """What is told to the one who waits for a write is not told to fsync again: such a part is not used."""
    if not shutil.which("strace"):
        print("# no strace: a disk that fails behind what is copied ahead is not tried")
        return
    with Place() as place:
        environment = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD"}
        agent = subprocess.Popen(["strace", "-f", "-o", place.path("../calls"), "-e", "trace=sync_file_range,unlinkat",
                                  "-e", "inject=sync_file_range:error=EIO", place.agent, "--job", "j", "--foreground"],
                                 env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: os.path.exists(os.path.join(place.job_folder, "agent.sock")))
        program = place.start(AHEAD)
        told(program, "one")
        until(lambda: not place.listed())
        go(program)
        told(program, "written")

        def given_up():
            with open(place.path("../calls"), encoding="utf-8") as f:
                return re.search(r'unlinkat\(\d+, "\.tpck-[^"]*", 0\) += 0', f.read())
        checks.ok(until(given_up) and place.listing() == ["a-0.pt"] and not [n for n in os.listdir(place.work) if n.startswith(".tpck-")],
                  "a part whose disk fails is given up", os.listdir(place.work))
        go(program)
        told(program, "closed")
        until(lambda: not place.listed())
        end(program)
        checks.ok(len(place.content("a-1.pt") or b"") == 33 * (1 << 20) + 100, "and the file comes from memory", place.log())
        place.kill_agent(signal.SIGTERM)
        agent.wait(20)


CUT_AT_ONCE = STEPS + """
import time
here = os.open(".", os.O_RDONLY)
for i in range(20):
    # The one before is at its path.
    os.fsync(here)
    with open("a.pt", "wb") as f: f.write(b"x" * 70000)
    time.sleep(i * 0.002)
    os.truncate("a.pt", 100 + i)
step("written")
"""


def leased(checks):
    """Somebody cuts a file just as the agent asks the kernel whether anybody writes to it: the kernel lets the agent know, by a
    signal that would end it. The agent is slow to give back what it asked by."""
    if not shutil.which("strace"):
        print("# no strace: a lease that is broken is not tried")
        return
    with Place() as place:
        environment = {k: v for k, v in place.environment.items() if k != "LD_PRELOAD"}
        agent = subprocess.Popen(["strace", "-f", "-o", place.path("../calls"), "-e", "trace=fcntl", "-e", "inject=fcntl:delay_exit=20000",
                                  place.agent, "--job", "j", "--foreground"], env=environment, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        until(lambda: os.path.exists(os.path.join(place.job_folder, "agent.sock")))
        before = place.agent_pid()
        program = place.start(CUT_AT_ONCE)
        told(program, "written")
        until(lambda: not place.listed())
        with open(place.path("../calls"), encoding="utf-8") as f:
            broken = len(re.findall("--- SIGIO", f.read()))
        checks.ok(broken and place.agent_pid() == before and place.content("a.pt") == b"x" * 119,
                  "who cuts what the agent looks at does not end the agent", broken, before, place.agent_pid(), place.log())
        end(program)
        place.kill_agent(signal.SIGTERM)
        agent.wait(20)


NAMES = ["model.pt", "b.safetensors", "latest", "notes.txt", "train.log", "checkpoint-3/anything", "checkpoint-3/out.log",
         "more.bin", "state.bin", "quiet/.tmpAb12Cd", "two.pt", "theirs.pt", "pipe.pt/x", "link.pt", "sub/own.dat", "sub/other.dat",
         "away/far.pt"]
WRITES = STEPS + """
# The job's agent begins with the first file: it is stopped then.
for name in ("first.pt", "first.txt"): open(name, "w").close()
step("begin")
for name in sys.argv[1:]:
    try: open(name, "wb").write(b"1")
    except OSError as error: print(name, error, file=sys.stderr)
step("written")
"""


def told_ahead(checks):
    """What `show --files` says is what happens."""
    for setting in ("auto", "auto:*/sub/own.*:*.bin", "*.txt", "none"):
        with Place(TRANSPCKPT_FILES=setting) as place:
            for folder in ("checkpoint-3", "sub", "pipe.pt", "quiet"):
                os.mkdir(place.path(folder))
            place.environment["TRANSPCKPT_FILES_EXCEPT"] = f"/nowhere:{place.path('away')}/"
            os.mkdir(place.path("away"))
            os.symlink("away", place.path("road"))
            for name in ("two.pt", "theirs.pt"):
                place.run("import sys; open(sys.argv[1], 'w').close()", name, preload=False)
            os.link(place.path("two.pt"), place.path("also.txt"))
            os.chown(place.path("theirs.pt"), 1, -1)
            os.symlink("nowhere", place.path("link.pt"))
            said = json.loads(place.command("show", "--files", "--json", *NAMES).stdout)
            told_of = {os.path.relpath(row["path"], place.work): row for row in said}
            # Which is the same folder by another name.
            program = place.start(WRITES, *NAMES, "road/by.pt")
            told(program, "begin")
            until(lambda: not place.listed())
            agent = pause(place) if place.agent_pid() else 0
            go(program)
            told(program, "written")
            taken = sorted(os.path.relpath(row["path"], place.work) for row in place.listed())
            if agent:
                os.kill(agent, signal.SIGCONT)
            end(program)
            # A link's target is what is opened.
            want = sorted(name if name != "link.pt" else "nowhere" for name, row in told_of.items() if row["taken"])
            checks.ok(set(told_of) == set(NAMES) and taken == want and bool(taken) == (setting != "none"),
                      f"{setting}: of {len(NAMES)} files {len(want)} are said to be taken, and are", taken, want,
                      *((name, row["why"], row.get("glob")) for name, row in told_of.items()))


def many(checks):
    with Place() as place:
        # Each of them is synced: a disk may take a minute and more for that.
        printed = place.run(MANY, timeout=4 * WAIT_SEC)
        names = os.listdir(place.path("step-1"))
        wrong = [n for n in names if place.content(f"step-1/{n}") != n.encode()]
        checks.ok(printed.strip() == "10000" and len(names) == 10000 and not wrong, "10,000 small files", printed, len(names), wrong[:3])


HEADLESS = """
import ctypes, os, threading, time
def writes():
    with open("model.pt", "wb") as f:
        f.write(b"first"); f.flush()
        time.sleep(1.5)
        f.write(b"second")
    os._exit(0)
threading.Thread(target=writes).start()
time.sleep(0.1)
ctypes.CDLL(None).syscall(60, 0)
"""


def headless(checks):
    """The thread that is the process in /proc has ended; another one goes on writing."""
    with Place() as place:
        place.run(HEADLESS)
        until(lambda: place.content("model.pt") is not None)
        checks.ok(place.content("model.pt") == b"firstsecond", "a process without its first thread is no dead one",
                  place.content("model.pt"), place.log())


PAST = BARE + """
for i in range(20):
    with open("latest", "wb") as f:
        f.write(b"%d" % i * 100000)
    if i:
        os.remove("model.pt")
    fd = os.open(".tmpAbC12x", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, b"%d" % i)
    bare(264, -100, b".tmpAbC12x", -100, b"model.pt")
    os.close(fd)
    with open("model.pt", "rb") as f:
        assert f.read() == b"%d" % i
"""


def past(checks):
    """As Rust's tempfile does it: the call that renames is not one of a library."""
    with Place(TRANSPCKPT_FILES="*latest:*/work/*") as place:
        done = place.run(PAST, check=False)
        checks.ok(done.returncode == 0 and place.content("model.pt") == b"19" and place.listing() == ["latest", "model.pt"],
                  "a file that is renamed by a bare system call is there, and nothing that is owed comes behind it",
                  done.stderr, place.listing())


CUT = STEPS + """
import time
here = os.open(".", os.O_RDONLY)
for i in range(40):
    # The one before is at its path.
    os.fsync(here)
    with open("model.pt", "wb") as f:
        f.write(b"x" * (16 << 20))
    time.sleep(i % 20 * 0.001)
    os.truncate("model.pt", 100 + i)
    if i == 0:
        step("first")
step("cut")
"""


def cut(checks):
    """A file is cut short while the agent copies it."""
    with Place() as place:
        program = place.start(CUT)
        told(program, "first")
        agent = place.agent_pid()
        go(program)
        told(program, "cut")
        until(lambda: not place.listed())
        checks.ok(place.agent_pid() == agent and place.content("model.pt") == b"x" * 139 and "is not at its path" not in place.log(),
                  "a file that is cut while it is copied: the agent takes no offence, and it is as it was cut",
                  place.agent_pid(), agent, len(place.content("model.pt") or b""), place.log())
        go(program)
        end(program)


SPARES = STEPS + """
import time
def save(i):
    for c in "abcdefgh":
        with open(f"{c * 3}-{i}.pt", "wb") as f:
            f.write(b"x" * (1 << 20))
save(1)
step("one")
save(2)
step("two")
"""


def spares(checks):
    """Memory for the next file of each name, and no more than may be taken."""
    with Place(TRANSPCKPT_MEMORY="8M") as place:
        def held():
            return [n for n in os.listdir(os.path.join(place.job_folder, "files")) if re.match(r"spare\.[0-9a-f]+$", n)]
        program = place.start(SPARES)
        told(program, "one")
        checks.ok(until(lambda: not place.listed() and len(held()) == 3), "some of eight names have memory ready", held())
        agent = pause(place)
        go(program)
        told(program, "two")
        where = [r["where"] for r in place.listed()]
        checks.ok(where.count("memory") == 4 and where.count("disk") == 4,
                  "as many files as there is room for go into memory, the others beside their targets", where)
        os.kill(agent, signal.SIGCONT)
        until(lambda: not place.listed())
        checks.ok(len(held()) <= 4, "names that are many share what there is", held())
        go(program)
        end(program)


# Each as if it had been saved a minute after the one before. Two are read while they are in memory alone.
REUSED = STEPS + """
import mmap
def save(i):
    # The first one, which went beside its target, is of no checkpoint before the others: its copy gives no pages.
    at = 1000000000 + (i * 60 if i else 1000)
    with open(f"step-{i}.pt", "wb") as f:
        f.write(b"%d" % i * 300000)
        f.flush()
        os.utime(f.fileno(), (at, at))
def published():
    here = os.open(".", os.O_RDONLY)
    os.fsync(here)
    os.close(here)
save(0)
published()
step("begun")
save(1)
fd = os.open("step-1.pt", os.O_RDONLY)
print(os.readlink(f"/proc/self/fd/{fd}").startswith(os.environ["TRANSPCKPT_SHM"]), flush=True)
bytes = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
os.close(fd)
step("mapped")
published()
step("one")
save(2)
published()
step("over")
print(bytes[:] == b"1" * 300000, flush=True)
bytes.close()
for i in (3, 4):
    save(i)
    published()
step("end")
"""


def reused(checks):
    """The pages of the checkpoint before the newest one are the next one's, but not while somebody has them mapped."""
    if not shutil.which("strace"):
        print("# no strace: whose pages are used again is not tried")
        return
    with Place() as place:
        def punched():
            with open(trace, encoding="utf-8") as f:
                return f.read().count("PUNCH_HOLE")

        def traced():
            with open(f"/proc/{agent}/status", encoding="utf-8") as f:
                return f"TracerPid:\t{tracer.pid}\n" in f.read()

        def settled(copy=None):
            names = os.listdir(os.path.join(place.job_folder, "files"))
            return (not place.listed() and any(re.match(r"spare\.[0-9a-f]+$", n) for n in names) and
                    not any(n.endswith(".old") for n in names) and (not copy or copy not in names and set(copies()) - begun))

        def copies():
            return [n for n in os.listdir(os.path.join(place.job_folder, "files")) if n.startswith("kept.")]
        trace = os.path.join(place.root, "trace")
        program = place.start(REUSED)
        told(program, "begun")
        until(lambda: settled() and copies())
        begun = set(copies())
        agent = pause(place)
        tracer = subprocess.Popen(["strace", "-f", "-q", "-o", trace, "-e", "trace=fallocate", "-p", str(agent)], stderr=subprocess.DEVNULL)
        until(traced)
        go(program)
        in_memory = program.stdout.readline().strip()
        told(program, "mapped")
        os.kill(agent, signal.SIGCONT)
        go(program)
        told(program, "one")
        until(lambda: settled() and set(copies()) - begun)
        first = (set(copies()) - begun).pop()
        go(program)
        told(program, "over")
        calm = until(lambda: settled(first))
        go(program)
        checks.ok(calm and in_memory == "True" and program.stdout.readline().strip() == "True" and not punched(),
                  "what is mapped from memory stays as it is when two newer ones have been saved", in_memory, punched())
        told(program, "end")
        checks.ok(until(settled, 20) and until(punched), "what nobody reads gives its pages to the next one")
        go(program)
        end(program)
        tracer.terminate()
        tracer.wait()


FULL = STEPS + """
def save(name, size):
    with open(name, "wb") as f:
        f.write(b"x" * size)
        f.flush()
        os.fsync(f.fileno())
for i in range(2):
    save(f"a-{i}.pt", 300000)
step("two")
f = open("a-2.pt", "wb")
f.write(b"y" * 600000)
f.flush()
try:
    os.fsync(f.fileno())
    print("synced")
except OSError as e:
    print(e.strerror)
f.close()
print(os.path.getsize("a-2.pt"))
try:
    save("a-3.pt", 600000)
    print("saved")
except OSError as e:
    print(e.strerror)
os.unlink("a-3.pt")
step("full")
"""


def full(checks):
    """A disk of 1 MiB: in a mount namespace of its own."""
    done = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"], capture_output=True, check=False)
    if done.returncode:
        print("# no mount namespace: a full disk is not tried")
        return
    done = subprocess.run(["unshare", "-m", sys.executable, "-B", os.path.abspath(__file__), "on_a_full_disk"], check=False,
                          capture_output=True, text=True, timeout=120)
    checks.ok(done.returncode == 0, "a disk that is full is what fsync says; what is owed stays, and comes once there is room",
              done.stdout, done.stderr)


def on_a_full_disk(checks):
    with Place() as place:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place.work], check=True)
        try:
            program = place.start(FULL)
            told(program, "two")
            until(lambda: not place.listed())
            go(program)
            said = [program.stdout.readline().strip() for _ in range(3)]
            checks.ok(said == ["No space left on device", "600000", "No space left on device"], "the program is told", said)
            told(program, "full")
            checks.ok(place.content("a-2.pt") is None and len(place.content("a-1.pt")) == 300000 and
                      [r.get("error") for r in place.listed() if r["path"].endswith("a-2.pt")] == ["No space left on device"],
                      "nothing looks whole that is not", place.listed(), place.listing())
            os.unlink(place.path("a-0.pt"))
            checks.ok(until(lambda: place.content("a-2.pt") == b"y" * 600000, 60), "it comes once there is room", place.log())
            go(program)
            status, _ = end(program)
            checks.ok(status == 0, "the program ends", status)
        finally:
            subprocess.run(["umount", "-l", place.work], check=False)


def main():
    checks = Checks()
    if sys.argv[1:] == ["on_a_full_disk"]:
        on_a_full_disk(checks)
        checks.end()
    run_tests(checks, [views, killed, order, same, two_writers, again, forked, headless, past, cut, spares, reused, full, ahead, ahead_of_a_bad_disk, elders, dead_at_its_place, leased, told_ahead, many])


if __name__ == "__main__":
    main()
