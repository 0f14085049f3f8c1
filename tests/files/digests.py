#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=1G about=6s disk
"""Digests of published files: what has rotted is named, what was changed on purpose is no fault, and what two saves have in
common is stored once where the file system can."""
import ctypes
import json
import mmap
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from place import WAIT_SEC, Checks, Place, run_tests, until

MIB = 1 << 20
# Numbers differ from chunk to chunk. The first half of a file is the same in each save; a hole in the middle.
SAVE = """
import os, sys
def chunk(i, salt=0): return (b"%8d %8d." % (i, salt)) * 60000
def save(name, salt, chunks):
    with open(name, "wb") as f:
        for i in range(chunks):
            if i == chunks // 2 + 1: f.seek(3 << 20, 1)
            f.write(chunk(i, salt if i > chunks // 2 else 0))
for salt in range(int(sys.argv[1]), int(sys.argv[2])):
    save(f"step-{salt}.pt", salt, int(sys.argv[3]))
with open("latest", "w") as f: f.write("step")
"""


def said_of(place, *paths):
    """Per file its state, and the faults; the exit status."""
    done = place.command("verify", "--files", "--json", *paths)
    rows = json.loads(done.stdout or "[]")
    return {os.path.basename(r["path"]): r["state"] for r in rows}, [f for r in rows for f in r["faults"]], done.returncode


def rot(path, at):
    """As a disk does: nothing of the file but a byte is another."""
    times = os.stat(path)
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 1]))
        os.fsync(f.fileno())
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def keep_cached(path):
    """The page cache keeps it while the test runs: what a full machine has dropped is read from the copy in memory, and nobody sees
    what is on the disk."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    size = ctypes.c_size_t(os.path.getsize(path))
    with open(path, "rb") as f:
        mapped = ctypes.c_void_p(libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, f.fileno(), ctypes.c_long(0)))
    # Without the privilege it is mapped, and dropped later than others.
    libc.mlock(mapped, size)


def rot_cached(path, at):
    rot(path, at)
    keep_cached(path)


def rotten(checks):
    with Place() as place:
        place.run(SAVE, 0, 4, 4)
        # The first of a name is read once there is nothing else to do.
        names = {"latest", *(f"step-{i}.pt" for i in range(4))}
        good = until(lambda: said_of(place) == ({name: "good" for name in names}, [], 0))
        checks.ok(good, "all that was saved is good", said_of(place))
        rot(place.path("step-0.pt"), 7)
        rot(place.path("step-3.pt"), 5 * MIB + 3)
        states, faults, status = said_of(place)
        wanted = [f"{place.path('step-0.pt')}: bytes 0 to {MIB - 1} are not what was saved",
                  f"{place.path('step-3.pt')}: bytes {5 * MIB} to {6 * MIB - 1} are not what was saved"]
        checks.ok(status == 1 and sorted(faults) == wanted and states["step-0.pt"] == states["step-3.pt"] == "BAD" and
                  states["step-1.pt"] == "good", "a byte that is another is found, and where", states, faults)
        checks.ok(said_of(place, "step-1.pt") == ({"step-1.pt": "good"}, [], 0), "one file that is named", said_of(place, "step-1.pt"))
        with open(place.path("step-1.pt"), "ab") as f:
            f.write(b"more")
        os.unlink(place.path("step-2.pt"))
        states, faults, _ = said_of(place)
        checks.ok(states["step-1.pt"] == "changed since it was saved" and "step-2.pt" not in states and len(faults) == 2,
                  "what was changed or removed is no fault", states, faults)
        # By a new agent where the last has nothing to do any more: it tidies, and what was changed is not listed then.
        place.run(SAVE, 0, 1, 4)
        again = until(lambda: said_of(place)[0].get("step-0.pt") == "good")
        _, faults, _ = said_of(place)
        checks.ok(again and len(faults) == 1, "nor what was saved again", *said_of(place))
        until(lambda: said_of(place)[0].get("latest") == "good")
        # What the last crash cut off, and what it left in between.
        log = os.path.join(place.root, "store/j/files.sums")
        with open(log, "r+b") as f:
            content = f.read()
            f.seek(0)
            f.write(b"nonsense" * 7 + content[:-5])
            f.truncate()
        # Both have been recorded twice, in any order; of the one whose last record is torn, the first holds.
        torn, whole = sorted(("latest", "step-0.pt"), key=lambda name: content.rfind(name.encode()), reverse=True)
        states, _, _ = said_of(place)
        checks.ok(states.get("step-3.pt") == "BAD" and states[whole] == "good" and states[torn] == "changed since it was saved",
                  "a torn log loses its last record alone", torn, states)


RENAMED = """
import os, sys
for step in range(3):
    folder = f"ckpt-{step}.partial"
    os.makedirs(folder + "/rank")
    for name in ("model.pt", "rank/optim.pt"):
        with open(f"{folder}/{name}", "wb") as f: f.write(b"%d %s" % (step, name.encode()) * 300000)
    os.rename(folder, f"ckpt-{step}")
for name in ("model.pt", "one.pt", "two.pt"):
    with open(name, "wb") as f: f.write(name.encode() * 300000)
"""


def renamed(checks):
    """What has another name since, or whose folder has, is found by it: at once, and by who comes later."""
    with Place() as place:
        place.run(RENAMED)
        wanted = [place.path(f"ckpt-{i}/{name}") for i in range(3) for name in ("model.pt", "rank/optim.pt")] + [place.path(name) for name in ("model.pt", "one.pt", "two.pt")]

        def good():
            done = place.command("verify", "--files", "--json")
            return {r["path"]: r["state"] for r in json.loads(done.stdout or "[]")}
        checks.ok(until(lambda: good() == dict.fromkeys(wanted, "good")), "folders renamed into place", good(), wanted)
        os.rename(place.path("ckpt-0"), place.path("kept"))
        os.rename(place.path("model.pt"), place.path("best.pt"))
        rot(place.path("kept/rank/optim.pt"), 7)
        _, faults, status = said_of(place)
        checks.ok(status == 1 and faults == [f"{place.path('kept/rank/optim.pt')}: bytes 0 to {MIB - 1} are not what was saved"],
                  "one that somebody else renamed", faults)
        checks.ok(good().get(place.path("best.pt")) == "good", "a file that was renamed in its folder", good())
        # One that was put over another: there is one file by that name.
        os.rename(place.path("one.pt"), place.path("two.pt"))
        done = place.command("verify", "--files", "--json", "two.pt")
        checks.ok([r["state"] for r in json.loads(done.stdout)] == ["good"], "one that was put over another", done.stdout)
        os.rename(place.path("best.pt"), place.path("ckpt-1/rank/other.pt"))
        checks.ok(place.path("ckpt-1/rank/other.pt") not in good(), "what was moved to another folder is not known", good())
        # The next agent tidies the log: it has the names of today.
        until(lambda: not place.agent_pid())
        place.run(SAVE, 0, 1, 2)
        until(lambda: "step-0.pt" in said_of(place)[0])
        os.rename(place.path("kept"), place.path("kept again"))
        states = good()
        checks.ok(states.get(place.path("kept again/model.pt")) == "good" and states.get(place.path("kept again/rank/optim.pt")) == "BAD",
                  "and again, after the log was tidied", states)


def shared(checks):
    """On a file system that shares blocks: in a mount namespace of its own."""
    probe = ["unshare", "-m", "sh", "-c", "truncate -s 200M \"$0\" && mkfs.btrfs -q \"$0\" && mount -o loop \"$0\" /mnt", ""]
    with Place() as place:
        probe[-1] = os.path.join(place.root, "disk")
        try:
            done = subprocess.run(probe, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            done = None
        if not done or done.returncode:
            checks.count += 1
            print(f"ok {checks.count} # SKIP no btrfs can be mounted: sharing is not tried")
            return
    done = subprocess.run(["unshare", "-m", sys.executable, "-B", os.path.abspath(__file__), "on_btrfs"], check=False,
                          capture_output=True, text=True, timeout=WAIT_SEC)
    print("".join("#   " + line + "\n" for line in done.stdout.splitlines()), end="")
    checks.ok(done.returncode == 0, "what two saves have in common is stored once on btrfs", done.stdout, done.stderr)


# An agent ends behind the last program, and counts what it shared itself: this one keeps it.
STAY = "open('first.pt', 'wb').close(); input()"


def shared_by(place, program, *saves):
    """Bytes, once these have been saved, by the agent of a program that is there; it ends."""
    for begin, end in saves:
        place.run(SAVE, begin, end, 16)
        until(lambda last=f"step-{end - 1}.pt": last in said_of(place)[0])
    bytes_shared = sum(row["shared"] for row in place.rows() if row["state"] == "published")
    program.communicate("\n")
    return bytes_shared


def on_btrfs(checks):
    with Place(TRANSPCKPT_LOG="debug") as place:
        disk = os.path.join(place.root, "disk")
        subprocess.run(["truncate", "-s", "300M", disk], check=True)
        subprocess.run(["mkfs.btrfs", "-q", disk], check=True)
        subprocess.run(["mount", "-o", "loop", disk, place.work], check=True)
        try:
            with place.start(STAY, stderr=subprocess.DEVNULL) as program:
                before = shared_by(place, program, (0, 1), (1, 4))
            du = subprocess.run(["btrfs", "filesystem", "du", "--raw", "-s", place.work], capture_output=True, text=True, check=True).stdout
            total, exclusive = map(int, du.splitlines()[-1].split()[:2])
            wanted = sum(ord("0") + i == byte for i in range(4) for byte in (place.content(f"step-{i}.pt")[-2],))
            checks.ok(wanted == 4 and said_of(place)[1:] == ([], 0), "each save is whole and its own", said_of(place))
            # 16 chunks of nearly a MiB: the first 8 and some are the same in four saves.
            checks.ok(before >= 3 * 8 * MIB and total - exclusive >= 4 * 8 * MIB,
                      f"of {total >> 20} MiB {before >> 20} are shared; the disk has {exclusive >> 20} MiB that are one file's alone", du)
            # Another one's rot is not inherited: what is shared is compared.
            rot(place.path("step-3.pt"), 2 * MIB + 3)
            # By another agent, which finds in the log what the last save was.
            until(lambda: not place.agent_pid())
            logged = len(place.log())
            with place.start(STAY, stderr=subprocess.DEVNULL) as program:
                checks.ok(until(lambda: "saves of 3 names are known" in place.log()[logged:], 60), "what was saved before is known", place.log())
                gained = shared_by(place, program, (4, 5))
            states, _, _ = said_of(place)
            checks.ok(states["step-4.pt"] == "good" and states["step-3.pt"] == "BAD" and gained // MIB == before // MIB // 3 - 1,
                      "a chunk that has rotted is written anew", states, gained, before)
        finally:
            subprocess.run(["umount", "-l", place.work], check=False)


def main():
    checks = Checks()
    if sys.argv[1:] == ["on_btrfs"]:
        on_btrfs(checks)
        checks.end()
    run_tests(checks, [rotten, renamed, shared])


if __name__ == "__main__":
    main()
