#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1 memory=800M about=40s
"""A program whose record is larger than TRANSPCKPT_LOG_BYTES: what is full of it is packed and goes to the store, memory has what is not. It is killed, and
goes on from there; then the node's memory is lost, and it goes on from the store. It ends with the bytes of a run that was never killed."""
import glob
import os
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

MIB = 1 << 20
# Reads all gradients back in small pieces, which the record itself has, before each iteration: some 370 KiB.
GPT = ["gpt", "--seed", "5", "--steps", "400", "--save-every", "150", "--check-zeros"]
LIMIT = 56


def packs(place):
    return glob.glob(os.path.join(place.store, "j/keep/*/pack.*"))


def kilobytes(found):
    return sum(os.stat(path).st_size for path in found) >> 10


def killed_at(this, place, count):
    """A start that is killed once so many segments are in the store."""
    start = this.start()
    start.until(lambda: len(packs(place)) >= count)
    return start


def memory(place):
    """MiB that segments take in memory, packed or not, of the newest session."""
    sessions = sorted(glob.glob(os.path.join(place.shm, "j/g*")), key=os.path.getmtime)
    found = [path for path in glob.glob(os.path.join(sessions[-1], "*")) if os.path.basename(path).startswith(("log.", "pack.", "ahead"))] if sessions else []
    return sum(os.lstat(path).st_blocks * 512 for path in found) / MIB


def shared(pid):
    """MiB of shared memory that a process has mapped, images apart."""
    found, log = 0, False
    for line in job.read(f"/proc/{pid}/smaps").splitlines():
        if "-" in line.split(" ")[0] and ":" not in line.split(" ")[0]:
            log = "/log." in line
        elif log and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found / 1024


def trainer_of(place):
    return next((row["pid"] for row in place.shown() if row["running"]), None)


def main():
    checks = job.Checks()
    if "#define HAVE_ZSTD" not in job.read(os.path.join(job.build_folder(), "config.h")):
        job.skip("this build has no zstd")
    with job.Place(TRANSPCKPT_LOG_BYTES=f"{LIMIT}M") as place:
        this = job.Job(place, *GPT)
        this.run_plain()
        start = killed_at(this, place, 3)
        pid = trainer_of(place)
        held, mapped = memory(place), shared(pid) if pid else -1
        start.kill()
        found = packs(place)
        checks.ok(len(found) >= 3 and kilobytes(found) < 1024, f"48 MiB of the record are {kilobytes(found)} KiB in the store", found, this.story())
        checks.ok(0 < held <= 48, f"memory has {held:.1f} MiB of it", held)
        checks.ok(0 <= mapped <= 48, f"the program has {mapped:.1f} MiB of it mapped", mapped)
        # So many may have come into the store behind the death of the first one.
        start = this.start()
        start.until(lambda: this.resumed_at(start) and len(packs(place)) >= 4)
        at = this.resumed_at(start) or 0
        start.kill()
        checks.ok(at > 100, f"the next start goes on at step {at}", this.story())
        checks.ok("cannot be resumed" not in this.story(), f"more than {LIMIT} MiB in all are no more than that in memory", this.story())
        place.agent_settles()
        place.signal_agents()
        shutil.rmtree(os.path.join(place.shm, "j"), ignore_errors=True)
        start = this.start()
        status = start.wait()
        at = this.resumed_at(start) or 0
        checks.ok(status == 0 and at > 100 and not this.differences(), f"the node's memory is lost: it goes on from the store at step {at}, and ends with the same bytes",
                  status, this.differences(), this.story())
        job.look_until(lambda: not packs(place), 90, 0.05)
        checks.ok(not packs(place), "what was packed is gone once the program has ended well", packs(place), place.agents(), place.agent_log()[-600:])
    checks.end()


if __name__ == "__main__":
    main()
