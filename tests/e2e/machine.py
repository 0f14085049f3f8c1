#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.9 about=35s
"""A trainer that goes by what the machine says of itself (use of processors, free memory, load, counts of processors, disk space, random bytes, files of /proc
and /sys) is killed and started again: it is told what it was told, and goes on. Use of processors does not get less."""
import os
import re
import shutil
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

GROUPS = {
    "use": ["getrusage", "getrusage by number", "times", "sysinfo", "getloadavg", "sched_getcpu"],
    "processors": ["affinity", "read /sys/devices/system/cpu/online", "read /proc/self/status"],
    "chance": ["at random", "getrandom by number", "arc4random", "read /proc/sys/kernel/random/uuid", "stream /proc/sys/kernel/random/uuid", "read /proc/sys/kernel/random/boot_id"],
    "memory": ["pages", "read /proc/meminfo", "stream /proc/meminfo", "kept /proc/meminfo", "read /proc/self/statm", "read /proc/loadavg", "read /proc/uptime", "read /proc/stat",
               "stream /proc/vmstat", "read /sys/fs/cgroup/memory.current", "read /proc/pressure/cpu", "read /proc/no/such"],
    "process": ["read /proc/self/stat", "stream /proc/self/stat", "stream /proc/self/status", "read /proc/self/io", "environment"],
    "space": ["space"],
    "folders": ["scandir out", "glob out/*"],
}
# What says who the process is is this run's: the words of /proc/PID/stat, and lines of its status.
IDENTITY = re.compile(r"\b(Tgid|Ngid|Pid|PPid|TracerPid|NStgid|NSpid|NSpgid|NSsid):[^|]*\|")


def lines(path):
    return job.read(path).splitlines()


def of_the_machine(line):
    if "/stat: " in line and "/self/" in line:
        words = line.split(") ")[-1].split(" ")
        return [line.split(" ", 1)[0]] + [word for i, word in enumerate(words, 1) if not (2 <= i <= 6 or i == 20)]
    return IDENTITY.sub("", line)


def same(one, other):
    one, other = of_the_machine(one), of_the_machine(other)
    if "/self/status: " not in one:
        return one == other
    # There is room for so much of the text, and a number of another process may have other digits.
    one, other = one.split("|"), other.split("|")
    shown = min(len(one), len(other)) - 1
    return shown > 10 and one[:shown] == other[:shown]


def identity(line):
    words = line.split(") ")[-1].split(" ")
    return words[1], words[19]


def goes_by(checks, group):
    asked = [what for what in GROUPS[group] if not (what.startswith("read /sys/fs/cgroup") and not os.path.exists(what[5:]))]
    under = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] if group == "processors" and shutil.which("taskset") else []
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", "160", "--save-every", "20")
        # The order of work on the device is what is compared, not what a file of the test's says.
        this.environment.update(LD_PRELOAD=job.built(place, "machine.so", "machine.c"), MACHINE=",".join(asked))
        this.run_plain()
        killed = this.killed_at(60)
        said = lines(os.path.join(this.work, "said"))
        # A disk that others use, too.
        with open(os.path.join(place.root, "other"), "wb") as file:
            file.write(os.urandom(3 << 20))
        last = this.start(under=under)
        status = last.wait()
        at = job.Job.resumed_at(last) or 0
        checks.ok(status == 0 and at > 0, f"{group}: killed, it goes on at step {at}", status, this.story(), killed.said())
        kept = lines(os.path.join(this.work, "said"))
        # In each iteration one copy comes to the host, and what is asked behind the boundary is asked anew.
        before = [line for line in said if int(line.split(" ", 1)[0]) * 5 < at]
        other = [f"{a} | {b}" for a, b in zip(before, kept) if not same(a, b)]
        checks.ok(at > 0 and len(before) >= len(asked) and not other, f"{group}: what it is told before step {at} is what it was told ({len(before)} answers)", *other[:6])
        checks.ok([int(line.split(" ", 1)[0]) for line in kept] == [i // len(asked) + 1 for i in range(len(kept))] and len(kept) >= 20 * len(asked), f"{group}: each once",
                  len(kept), *kept[-3:])
        for what, least in (("getrusage", 1), ("times", 2)):
            rows = [line.split(": ")[1].split() for line in kept if line.split(" ", 1)[1].startswith(what + ":")]
            back = [(a, b) for a, b in zip(rows, rows[1:]) if any(int(y) < int(x) for x, y in zip(a[:least], b[:least]))]
            checks.ok(not back, f"{group}: {what} does not go back", *back) if rows else None
        if group == "process":
            who = {identity(line) for line in kept if "read /proc/self/stat:" in line}
            checks.ok(len(who) == 1 and identity([line for line in said if "read /proc/self/stat:" in line][0]) not in who, f"{group}: and it is itself", who)
        checks.ok(not this.differences(), f"{group}: and the trainer wrote the same bytes", *this.differences())


# What is not in the record: who the process is, so that signals and pid files are right; what the device's management library says; of what happens to files the
# kernel tells a program nothing while these are in memory.
UNRECORDED = {"who": "getpid", "nvml": "nvml", "inotify": "inotify", "waits": "inotify waits"}


def is_told_otherwise(checks, group):
    """Work that follows it is refused with a line; what only a file holds of it goes on. Who waits for what is not told is not waited for."""
    for noted in (False, True) if group != "waits" else (False,):
        with job.Place() as place:
            this = job.Job(place, "gpt", "--seed", "3", "--steps", "160", "--save-every", "7")
            this.environment.update(LD_PRELOAD=job.built(place, "machine.so", "machine.c"), MACHINE=UNRECORDED[group], **({"MACHINE_NOTED": "1"} if noted else {}))
            if group == "nvml":
                this.environment["MACHINE_NVML"] = job.built(place, "gauges.so", "gauges.c")
            this.run_plain()
            this.killed_at(60)
            was = lines(os.path.join(this.work, "said"))
            last = this.start()
            status = last.wait()
            said = [line for line in last.said().splitlines() if "starting the program again" in line]
            said = [line for line in said if group != "waits" or "waited for (inotify)" in line]
            kept, at = lines(os.path.join(this.work, "said")), job.Job.resumed_at(last)
            if noted:
                checks.ok(status == 0 and at and not said, f"{group}: where only a file holds it, it goes on at step {at}", status, this.story())
            else:
                checks.ok(status == 0 and len(said) == 1 and at is None, f"{group}: begins anew, with a line: {said}", status, this.story())
            count = len(lines(os.path.join(os.path.dirname(this.plain), "said")))
            # A program that begins anew leaves what it wrote before, as without the library.
            checks.ok([int(line.split(" ", 1)[0]) for line in kept][0 if noted else -count:] == list(range(1, count + 1)), f"{group}: each once", count, *kept[:2], *kept[-2:])
            checks.ok(len({line.split(": ", 1)[1] for line in was}) > 1 or group == "who", f"{group}: it is told different things", *was[:4])
            checks.ok(not this.differences(), f"{group}: to the same end", *this.differences())


def main():
    checks = job.Checks()
    for group in sys.argv[1:] or [*GROUPS, *UNRECORDED]:
        if group in UNRECORDED:
            is_told_otherwise(checks, group)
        else:
            goes_by(checks, group)
    checks.end()


if __name__ == "__main__":
    main()
