#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 about=30s
"""A trainer saves its own state often, and reads all of it back from the device each time: far more than the record may hold. It goes on where it
was killed all the same, from memory and from the store, and the record stays small. A limit of the disk, and bytes that have rotted there, cost
a resume and nothing else.

`large`, where it is named: 2 GiB of state, saved every four iterations, killed after the fifth save. SAVES_ROWS says how large."""
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

MIB = 1 << 20


def sizes(folder, pattern):
    """How many files there are, and their bytes together."""
    found = []
    for path in glob.glob(os.path.join(folder, pattern)):
        try:
            found.append(os.stat(path).st_size)
        except OSError:
            pass
    return len(found), sum(found)


def in_memory(place):
    return sizes(place.shm, "j/stash/*/[0-9]*.[0-9]*")


def in_store(place):
    return sizes(place.store, "j/keep/*/[0-9]*.[0-9]*")


def record(place):
    """Bytes of the logs in memory that are in use."""
    used = 0
    for session in glob.glob(os.path.join(place.shm, "j", "g*")):
        segments = sorted(glob.glob(os.path.join(session, "log.*")))
        for path in segments:
            with open(path, "rb") as f:
                used = max(used, segments.index(path) * 16 * MIB + int.from_bytes(f.read(48)[40:48], "little"))
    return used


def saved(start, out):
    """How many saves are complete, by the trainer's own marks."""
    return [int(name[5:]) for name in os.listdir(out) if name.startswith("DONE_")] if os.path.isdir(out) else []


def killed_behind(this, step):
    """A start that is killed some iterations behind that step's save."""
    start = this.start()
    start.slowly_until(lambda: this.progress() >= step + 3 and this.place.listed())
    start.kill()
    return start


def durable(place):
    """The newest step that a resume would be offered from the store."""
    return max((row["step"] for row in place.listed() if row["state"] == "durable" and row["resumable"]), default=0)


GPT = ["gpt", "--seed", "5", "--steps", "90", "--save-every", "7"]


def from_memory(checks):
    with job.Place(TRANSPCKPT_LOG_BYTES="8M") as place:
        this = job.Job(place, *GPT)
        this.run_plain()
        bytes_read = 0
        for step in (30, 70):
            start = killed_behind(this, step)
            bytes_read = max(bytes_read, in_memory(place)[1] + in_store(place)[1])
        start = this.start()
        status = start.wait()
        at = this.resumed_at(start) or 0
        checks.ok(status == 0 and at >= 65 and not this.differences(), "killed twice between saves: goes on where it was, and ends with the same bytes",
                  status, at, this.differences(), this.story())
        checks.ok(bytes_read > 8 * MIB and "cannot be resumed" not in this.story(), "what it has read back is more than the record's limit", bytes_read, this.story())
        place.agent_settles()
        checks.ok(not in_memory(place)[0] and not in_store(place)[0], "and is gone once the program has ended well", in_memory(place), in_store(place))


def from_store(checks):
    """The node's memory is lost; then what is in the store has rotted."""
    for rots in (False, True):
        with job.Place(TRANSPCKPT_LOG_BYTES="8M", TRANSPCKPT_LINGER_SEC="0") as place:
            this = job.Job(place, *GPT)
            this.run_plain()
            start = killed_behind(this, 40)
            job.look_until(lambda: not place.agents(), 60, 0.05)
            count, held = in_store(place)
            listed = place.command("ls").stdout
            checks.ok(count and held > MIB and "read back from the device by rank 0" in listed, "what it has read back is in the store, and ls says how much",
                      count, held, listed)
            shutil.rmtree(os.path.join(place.shm, "j"), ignore_errors=True)
            newest = durable(place)
            if rots:
                for path in glob.glob(os.path.join(place.store, "j/keep/*/[0-9]*.[0-9]*")):
                    with open(path, "r+b") as f:
                        f.seek(os.path.getsize(path) - 100)
                        byte = f.read(1)
                        f.seek(-1, os.SEEK_CUR)
                        f.write(bytes([byte[0] ^ 1]))
            start = this.start()
            status = start.wait()
            if rots:
                checks.ok(status == 0 and "it has been damaged" in start.said() and not this.differences(printed_too=False),
                          "where that has rotted the program begins anew, and a line says why", status, this.differences(printed_too=False), this.story())
            else:
                checks.ok(status == 0 and this.resumed_at(start) == newest and newest > 30 and not this.differences(),
                          "the node's memory is lost: it goes on at the newest durable step", status, newest, this.differences(), this.story())


def answers(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as to:
        try:
            to.connect(path)
        except OSError:
            return False
    return True


def slow_store(checks):
    """A checkpoint takes as long to become durable as the program runs: what is read back meanwhile goes to the store beside it."""
    if not shutil.which("strace"):
        print("# no strace: a disk that takes long is not tried")
        return
    with job.Place(TRANSPCKPT_LOG_BYTES="64M", TRANSPCKPT_DURABLE_INTERVAL="1") as place:
        this = job.Job(place, *GPT, "--steps", "3000")
        killed_behind(this, 7)
        job.look_until(lambda: durable(place), 60, 0.05)
        place.signal_agents(signal.SIGKILL)
        # One that is dying may still be asked, and holds the lock.
        job.look_until(lambda: not place.agents() and not answers(os.path.join(place.shm, "j/agent.sock")), 60, 0.01)
        newest, before = durable(place), in_store(place)[1]
        slow = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=io_uring_enter", "-e", "inject=io_uring_enter:delay_enter=20000000"]
        agent = subprocess.Popen([*slow, os.path.join(place.build, "transpckptd"), "--job", "j", "--foreground"], env=place.environment,
                                 stderr=subprocess.DEVNULL)
        job.look_until(lambda: answers(os.path.join(place.shm, "j/agent.sock")), 60, 0.01)
        traced = agent.poll() is None and place.agents() and place.agents() != [agent.pid]
        start = killed_behind(this, 800)
        held = in_store(place)[1] - before
        checks.ok(traced and "cannot be resumed" not in start.said() and durable(place) == newest and held > 32 * MIB,
                  "what is read back goes to the store beside a checkpoint that takes long", traced, held, newest, durable(place), start.said())
        place.signal_agents(signal.SIGKILL)
        agent.wait(60)


def no_room(checks):
    """The disk is small: the program goes on unprotected, and is told so."""
    with job.Place(TRANSPCKPT_LOG_BYTES="8M", TRANSPCKPT_RECORD_DISK="1M", TRANSPCKPT_LOG="warn") as place:
        this = job.Job(place, *GPT, "--steps", "300")
        this.run_plain()
        start = this.start()
        status = start.wait()
        said = [line for line in start.said().splitlines() if "transpckpt" in line]
        checks.ok(status == 0 and not this.differences(), "with a small TRANSPCKPT_RECORD_DISK the program does as without", status, this.differences())
        log = place.agent_log()
        checks.ok(len(said) == 1 and "cannot be resumed" in said[0] and "TRANSPCKPT_RECORD_DISK" in log,
                  "and one line says that it is not protected any more", said, log[-600:])


def forgets(checks):
    """The oldest goes where the user knows that it was read to be saved only. Of the last two saves, which are there, either has what it was saved with."""
    for most, every in ((4, 7), (1, 20)):
        forgets_behind(checks, most, every)


def forgets_behind(checks, most, every):
    with job.Place(TRANSPCKPT_LOG_BYTES="8M", TRANSPCKPT_RECORD_DISK=f"{most}M", TRANSPCKPT_RECORD_FULL="forget", TRANSPCKPT_LINGER_SEC="0",
                   SIMGPU_KERNEL_US="60") as place:
        # Of the second, what was saved last before the kill is there at the end, too.
        this = job.Job(place, *GPT[:-1], str(every))
        this.run_plain()
        start = killed_behind(this, 70)
        job.look_until(lambda: not place.agents(), 60, 0.05)
        held, newest = in_store(place)[1], durable(place)
        start = this.start()
        status = start.wait()
        checks.ok(status == 0 and this.resumed_at(start) == newest and newest > 60 and held <= most * MIB and "count as zeros" in start.said() and
                  not this.differences(), f"TRANSPCKPT_RECORD_FULL=forget: {most} MiB are kept, and what saved its state goes on as ever", status, held, newest,
                  this.differences(), this.story())


def large(checks):
    rows = os.environ.get("SAVES_ROWS") or "5592405"
    job.WAIT_SEC = 2400
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="600s") as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "24", "--save-every", "4", "--bigrams", rows)
        this.run_plain()
        most = 0
        start = this.start()

        def far_enough():
            nonlocal most
            most = max(most, record(place))
            return this.progress() >= 22
        start.until(far_enough, job.WAIT_SEC)
        start.kill()
        disk = in_store(place)[1]
        memory = in_memory(place)[1]
        begun = time.monotonic()
        start = this.start()
        status = start.wait(job.WAIT_SEC)
        print(f"# record {most / MIB:.1f} MiB, stashes {memory / MIB:.0f} MiB in memory and {disk / MIB:.0f} MiB in the store; "
              f"resumed at {this.resumed_at(start)}, all in {time.monotonic() - begun:.1f} s")
        checks.ok(status == 0 and (this.resumed_at(start) or 0) >= 20 and not this.differences() and most < 64 * MIB,
                  "a large state: goes on at the last iteration, with a record under 64 MiB", status, most, this.differences(), this.story())


def main():
    checks = job.Checks()
    tests = {test.__name__: test for test in (from_memory, from_store, slow_store, no_room, forgets, large)}
    for name in sys.argv[1:] or ["from_memory", "from_store", "slow_store", "no_room", "forgets"]:
        tests[name](checks)
    checks.end()


if __name__ == "__main__":
    main()
