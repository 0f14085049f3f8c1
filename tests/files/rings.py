#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.15 memory=512M disk about=80s
"""Files that are closed by calls that no library sees, by io_uring above all, and files that a ring has open when no descriptor of
them is left. What a program says of its saves it says by tests/files/ring.c, step by step."""
import os
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import SKIP, WAIT_SEC, Checks, Place, run_tests, until
from view import pause

PIECE = 4096
# A file that nobody holds back is there sooner; one that is taken for closed is there at the end of this, though somebody may write it:
# the agent waits two seconds for such a one.
HELD_SEC = 3.5
MOMENT_SEC = 0.5
SOON_SEC = 10


class Ring:
    """The program; a with statement."""

    def __init__(self, place, **settings):
        self.place = place
        program = os.path.abspath(os.path.join(os.environ.get("builddir", "."), "tests/files/ring"))
        self.errors = open(os.path.join(place.root, "errors"), "w+", encoding="utf-8")  # pylint: disable=consider-using-with
        self.process = subprocess.Popen([program], cwd=place.work, env=dict(place.environment, **settings), text=True,  # pylint: disable=consider-using-with
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.errors.close()

    def tell(self, *words):
        """Without waiting for it."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def step(self, *words, fails=False):
        self.tell(*words)
        said = self.process.stdout.readline().split()
        if not said:
            status = self.process.wait(WAIT_SEC)
            if status == SKIP:
                print("1..0 # SKIP there is no io_uring here")
                sys.exit(SKIP)
            raise RuntimeError(f"it ended by itself at {words}: status {status}")
        if int(said[1]) < 0 and not fails:
            raise RuntimeError(f"{words}: {os.strerror(-int(said[1]))}")
        return int(said[1])

    def save(self, name, pieces, letter):
        fd = self.step("open", name)
        self.step("write", fd, pieces, ord(letter))
        return fd

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_SEC)
        self.process.stdin.close()
        self.process.stdout.close()

    def end(self):
        self.process.stdin.close()
        return self.process.wait(WAIT_SEC)

    def said(self):
        with open(self.errors.name, encoding="utf-8") as f:
            return f.read()


def whole(letter, pieces):
    return letter.encode() * (pieces * PIECE)


def there(place, name, content):
    return until(lambda: place.content(name) == content, SOON_SEC)


def stays(place, name, content, seconds=HELD_SEC):
    return not until(lambda: place.content(name) != content, seconds)


# ---- closed ------------------------------------------------------------------------------------------

def end_by(*words):
    return lambda ring, fd: ring.step(*(fd if word == "FD" else word for word in words))


def moved(ring, fd):
    ring.step("dup2", fd, 40)
    ring.step("bare", fd)
    ring.step("bare", 40)


def with_child(ring, fd):
    """Who has a descriptor since a fork is not waited for."""
    ring.step("fork")
    ring.step("bare", fd)


def in_thread(ring, fd):
    ring.step("thread")
    ring.step("bare", fd)


WAYS = {
    "by io_uring": end_by("ends", "FD"),
    "by an instruction": end_by("bare", "FD"),
    "by a range, by an instruction": end_by("range", "FD", 0),
    "by a range of descriptors of its own": end_by("libcrange", "FD", 2),
    "by execve": end_by("exec"),
    "twice": moved,
    "while a child of a fork has it": with_child,
    "in a thread, when the first one has ended": in_thread,
    "by libc, passed on before": lambda ring, fd: (ring.step("pass", fd), ring.step("close", fd)),
    "by an instruction, passed on before": lambda ring, fd: (ring.step("pass", fd), ring.step("bare", fd)),
}


def closed(checks):
    """Of a first file of a name, which is beside its target, and of a second one, in memory."""
    for way, close in WAYS.items():
        for kind in ("first", "second"):
            with Place() as place, Ring(place) as ring:
                if kind == "second":
                    ring.step("close", ring.save("a-1.pt", 2, "x"))
                    until(lambda: place.content("a-1.pt"), SOON_SEC)  # pylint: disable=cell-var-from-loop
                ring.step("ring")
                fd = ring.save("a-2.pt", 3, "n")
                held = place.content("a-2.pt") is None
                if way == "by execve":
                    ring.tell("exec")
                else:
                    close(ring, fd)
                begun = time.monotonic()
                checks.ok(held and there(place, "a-2.pt", whole("n", 3)) and ring.process.poll() is None,
                          f"closed {way}, the {kind} of its name: it appears while its process lives ({time.monotonic() - begun:.1f} s)",
                          place.content("a-2.pt") and len(place.content("a-2.pt")), place.listed(), place.log()[-300:])


def rows(place):
    return [(os.path.basename(row["path"]), row["state"]) for row in place.listed()]


def in_order(checks):
    """The agent stands still: what the library itself knows is what is in the table."""
    with Place() as place, Ring(place) as ring:
        ring.step("ring")
        ring.step("close", ring.save("first.pt", 1, "f"))
        until(lambda: place.content("first.pt"), SOON_SEC)
        until(lambda: not place.listed(), SOON_SEC)
        agent = pause(place)
        fd = ring.save("a.pt", 3, "a")
        ring.step("ends", fd)
        again = ring.step("open", "b.pt")
        got = rows(place)
        checks.ok(again == fd and got == [("a.pt", "owed"), ("b.pt", "being written")], "a number that comes again releases what it was", again, fd, got)
        ring.step("close", again)
        fd = ring.save("c.pt", 3, "c")
        ring.step("ends", fd)
        ring.step("read", place.path("first.pt"))
        got = rows(place)
        checks.ok(got[-1] == ("c.pt", "owed"), "also if it is another's that is read", got)
        one, other = ring.save("d.pt", 3, "d"), ring.save("e.pt", 3, "e")
        ring.step("ends", one)
        ring.step("close", other)
        got = rows(place)
        checks.ok(got[-2:] == [("d.pt", "owed"), ("e.pt", "owed")], "what was closed so before another one is before that", got)
        ring.step("bare", ring.save("f.pt", 3, "f"))
        os.kill(agent, signal.SIGCONT)
        # At the end it is waited for, as all that is closed.
        status = ring.end()
        checks.ok(status == 0 and [place.content(f"{n}.pt") for n in "acdef"] == [whole(n, 3) for n in "acdef"], "all is there at the program's end",
                  status, place.listing())


# ---- not closed --------------------------------------------------------------------------------------

def still_open(checks):
    cases = {
        "nothing happens to it": lambda ring, fd: None,
        "a vfork child closes its descriptor": lambda ring, fd: ring.step("vfork", fd),
        "another descriptor is left": lambda ring, fd: (ring.step("dup2", fd, 40), ring.step("bare", fd)),
        "it is mapped": lambda ring, fd: (ring.step("map", fd), ring.step("bare", fd)),
    }
    for what, calls in cases.items():
        with Place() as place, Ring(place) as ring:
            calls(ring, ring.save("a.pt", 3, "n"))
            held = stays(place, "a.pt", None)
            status = ring.end()
            checks.ok(held and status == 0 and there(place, "a.pt", whole("n", 3)), f"{what}: it is not closed, and whole at the end", held, status,
                      place.listing())


def registered(checks):
    closing = {"close": end_by("close", "FD"), "io_uring": end_by("ends", "FD"), "close, with a hidden ring": lambda ring, fd: (ring.step("close", fd), ring.step("hide"))}
    for how, close in closing.items():
        for after in ("is killed", "unregisters it", "ends"):
            if after == "unregisters it" and "hidden" in how:
                continue
            for kind in ("first", "second"):
                with Place() as place, Ring(place) as ring:
                    if kind == "second":
                        ring.step("close", ring.save("a-1.pt", 2, "x"))
                        there(place, "a-1.pt", whole("x", 2))
                    with open(place.path("a-2.pt"), "wb") as f:
                        f.write(b"old")
                    ring.step("ring")
                    fd = ring.save("a-2.pt", 1, "n")
                    ring.step("register", fd)
                    close(ring, fd)
                    ring.step("put", 11, ord("n"), PIECE)
                    held = stays(place, "a-2.pt", b"old", HELD_SEC if after == "is killed" else MOMENT_SEC)
                    ring.step("put", 12, ord("n"), 12 * PIECE)
                    want = whole("n", 24)
                    if after == "is killed":
                        ring.kill()
                        until(lambda: not place.listed(), SOON_SEC)  # pylint: disable=cell-var-from-loop
                        want = b"old"
                    elif after == "ends":
                        ring.end()
                    else:
                        ring.step("unregister")
                    got = there(place, "a-2.pt", want)
                    checks.ok(held and got, f"registered, and closed by {how}, the {kind} of its name: it is not closed; its process {after}", held,
                              len(place.content("a-2.pt")), place.listed(), place.log()[-300:])


def killed(checks):
    """At any moment."""
    seed = int(os.environ.get("SEED", "0")) or random.randrange(1 << 30)
    drawn, torn = random.Random(seed), []
    with Place() as place:
        for n in range(int(os.environ.get("KILLS", "12"))):
            before, letter = place.content("a.pt"), chr(ord("a") + n % 26)
            with Ring(place) as ring:
                ring.step("ring")
                fd = ring.step("open", "a.pt")
                ring.step("register", fd)
                ring.step("close", fd)
                for piece in range(24):
                    ring.tell("put", 1, ord(letter), piece * PIECE)
                if n % 3:
                    time.sleep(drawn.uniform(0, 0.005))
                else:
                    for piece in range(24):
                        ring.process.stdout.readline()
                    ring.step("unregister")
                    there(place, "a.pt", whole(letter, 24))
            until(lambda: not place.listed(), SOON_SEC)
            got = place.content("a.pt")
            if got not in (before, whole(letter, 24)) or (not n % 3 and got == before):
                torn.append((n, got and (len(got), got[:1], got[-1:])))
    checks.ok(not torn, f"old or new, whenever a process is killed that writes by a ring alone (SEED={seed})", *torn)


def slow_end(checks):
    """The kernel closes what a killed process had open long before it is dead, if it has much to give back: that is not closed."""
    cpu = min(os.sched_getaffinity(0))
    with Place() as place, Ring(place) as ring:
        with open(place.path("a.pt"), "wb") as f:
            f.write(b"old")
        ring.save("a.pt", 3, "n")
        ring.step("heavy", 256, cpu)
        spin = f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nprint(flush=True)\nwhile True: pass"
        with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as busy:
            busy.stdout.readline()
            ring.process.kill()
            begun, without = time.monotonic(), 0
            while ring.process.poll() is None and time.monotonic() - begun < SOON_SEC:
                try:
                    without += not os.listdir(f"/proc/{ring.process.pid}/fd")
                except OSError:
                    pass
                time.sleep(0.02)
            took = time.monotonic() - begun
            busy.kill()
        until(lambda: not place.listed(), SOON_SEC)
        checks.ok(place.content("a.pt") == b"old", f"what the end of a process closes is not closed ({took:.1f} s, {without} looks at nothing)",
                  len(place.content("a.pt")))


def locked(checks):
    """One that a ring writes does not go on in another inode."""
    with Place() as place, Ring(place) as ring:
        ring.step("close", ring.save("a-1.pt", 2, "x"))
        there(place, "a-1.pt", whole("x", 2))
        ring.step("ring")
        fd = ring.save("a-2.pt", 1, "n")
        ring.step("register", fd)
        ring.step("lock", fd)
        ring.step("put", 2, ord("n"), PIECE)
        ring.step("unregister")
        ring.step("close", fd)
        checks.ok(there(place, "a-2.pt", whole("n", 3)), "what a ring writes behind a lock is in the file", len(place.content("a-2.pt") or b""))


def empty(checks):
    """A ring that has none of it holds up nothing."""
    with Place() as place, Ring(place) as ring:
        ring.step("ring")
        ring.step("sparse")
        for n in range(3):
            ring.step("close", ring.save(f"a-{n}.pt", 3, "n"))
        checks.ok(all(there(place, f"a-{n}.pt", whole("n", 3)) for n in range(3)), "a ring without files holds up none", place.listing())


def told(checks):
    with Place(TRANSPCKPT_LOG="info") as place, Ring(place) as ring:
        ring.step("close", ring.save("a-1.pt", 3, "n"))
        silent = "io_uring" in ring.said() or "of job j" in place.command("doctor").stdout
        ring.step("ring")
        for n in range(2, 6):
            ring.step("close", ring.save(f"a-{n}.pt", 3, "n"))
        lines = [line for line in ring.said().splitlines() if "this process uses io_uring" in line]
        doctor = [line for line in place.command("doctor").stdout.splitlines() if "of job j" in line]
        checks.ok(not silent and len(lines) == 1 and len(doctor) == 1 and str(ring.process.pid) in doctor[0] and "io_uring" in doctor[0],
                  "one line says that its process uses io_uring, and so does doctor", silent, lines, doctor)
        ring.end()
        checks.ok("of job j" not in place.command("doctor").stdout, "doctor says it of processes that are there")
    with Place(TRANSPCKPT_LOG="info") as place, Ring(place) as ring:
        ring.save("a.pt", 3, "n")
        ring.step("ring")
        checks.ok(until(lambda: "uses io_uring" in place.log(), SOON_SEC), "the agent says it of one that comes while a file is open", place.log())


class Fuse(Place):
    """The folder of work is on FUSE, of which the kernel gives no leases."""

    def __init__(self, **settings):
        super().__init__(**settings)
        behind = os.path.join(self.root, "behind")
        os.makedirs(behind)
        subprocess.run(["bindfs", behind, self.work], check=True, capture_output=True)

    def __exit__(self, *what):
        self.kill_agent()
        subprocess.run(["umount", "-l", self.work], check=False)
        super().__exit__(*what)


def on_fuse(checks):
    """Who has files registered is asked for by the ring's own list; each kind of file: beside its target, and in memory."""
    if not shutil.which("bindfs") or not os.access("/dev/fuse", os.W_OK) or os.geteuid():
        print("# on_fuse: needs root, bindfs and /dev/fuse")
        return
    for end_of, where, settings in (("pt", "memory", {}), ("dat", "disk", {"TRANSPCKPT_FILES": "*"})):
        with Fuse(**settings) as place, Ring(place) as ring:
            ring.step("close", ring.save(f"a-1.{end_of}", 2, "x"))
            without = there(place, f"a-1.{end_of}", whole("x", 2))
            ring.step("ring")
            fd = ring.save(f"a-2.{end_of}", 1, "n")
            row = place.listed()
            ring.step("close", fd)
            beside = there(place, f"a-2.{end_of}", whole("n", 1))
            checks.ok(without and beside and row[0]["where"] == where, f"FUSE, {where}: a file of a process that has a ring is closed as ever", without, beside, row)
        for after in ("is killed", "unregisters it", "ends"):
            with Fuse(**settings) as place, Ring(place) as ring:
                with open(place.path(f"a-2.{end_of}"), "wb") as f:
                    f.write(b"old")
                ring.step("ring")
                fd = ring.save(f"a-2.{end_of}", 1, "n")
                ring.step("register", fd)
                ring.step("close", fd)
                ring.step("put", 11, ord("n"), PIECE)
                held = stays(place, f"a-2.{end_of}", b"old", HELD_SEC if after == "is killed" else MOMENT_SEC)
                ring.step("put", 12, ord("n"), 12 * PIECE)
                if after == "is killed":
                    ring.kill()
                    until(lambda: not place.listed(), SOON_SEC)  # pylint: disable=cell-var-from-loop
                elif after == "ends":
                    ring.end()
                else:
                    ring.step("unregister")
                got = there(place, f"a-2.{end_of}", b"old" if after == "is killed" else whole("n", 24))
                checks.ok(held and got, f"FUSE, {where}: registered, and closed: it is not closed; its process {after}", held, len(place.content(f"a-2.{end_of}")),
                          place.listed(), ring.said(), place.log()[-300:])


def main():
    run_tests(Checks(), [closed, in_order, still_open, registered, killed, slow_end, locked, empty, told, on_fuse])


if __name__ == "__main__":
    main()
