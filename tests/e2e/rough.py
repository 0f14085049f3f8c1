#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 minutes=20 about=75s
"""Drivers that block: a call that waits for the device holds up those of other threads, the library's too. A program that launches a kernel for the
first time while a snapshot is copied, fills its queues, reads back to ordinary memory, takes and gives back memory, or has many streams, goes on, takes
its snapshots, and is killed and continued to the same bytes. So does one whose driver pins no memory for the library."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

# Of each: the trainer's arguments, the device's settings, and how many snapshots it has taken when it is killed. A queue of 32 does not take the copies
# of one at once. Steps of many launches are few: it is killed at one of the first 25.
CASES = {
    "late": (["--late"], {}, 8),
    "queue": (["--launches", "2400", "--steps", "60"], {}, 8),
    "short queue": (["--launches", "480", "--late", "--steps", "80"], {"SIMGPU_QUEUE": "32"}, 3),
    "readback": (["--pageable", "--allocate", "--late"], {"SIMGPU_ALLOCATIONS": "wait"}, 8),
    "streams": (["--streams", "40", "--late"], {}, 8),
    "not pinned": (["--streams", "4", "--late"], {"SIMGPU_FAULT": "oom_thread@tpck-link"}, 3),
    # Nothing that the library's threads ask for is there, and all that the program's do.
    "poor": (["--streams", "4", "--late"], {"SIMGPU_FAULT": "oom_thread@tpck-"}, 3),
    "20,000 launches": (["--launches", "20000", "--steps", "40"], {"SIMGPU_KERNEL_US": "0"}, 2),
    "new at 1,000": (["--late", "--late-from", "1000", "--steps", "1400", "--layers", "6"], {"SIMGPU_KERNEL_US": "0"}, 8),
    "32 channels": (["--streams", "40", "--late", "--pageable"], {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}, 3),
    "one channel": (["--streams", "40", "--late", "--pageable"], {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "SIMGPU_FAULT": "no_memops,pageable_access"}, 3),
}
# The calls that launch a kernel, as the trainer names them.
LAUNCHES = ["config", "configured", "driver", "driver-config", "buffer", "buffer-config", "cooperative"]
STEPS = 200
# So long a snapshot is copied that the next iteration begins meanwhile.
SLOW = {"SIMGPU_COPY_GBPS": "0.4", "SIMGPU_KERNEL_US": "10", "SIMGPU_TOGETHER_US": "100"}


def captured(place):
    done = subprocess.run([os.path.join(place.build, "transpckpt"), "show", "--json"], env=place.environment, capture_output=True, text=True,
                          check=False)
    return max((row["notes"]["captured"] for row in json.loads(done.stdout or "[]") if row.get("notes")), default=0)


def case(checks, name):
    arguments, settings, least = CASES[name]
    with job.Place(**{**SLOW, **settings}) as place:
        this = job.Job(place, "rough", "--seed", "3", *job.scaled(["--steps", str(STEPS)]), *arguments)
        this.run_plain()
        late = "--late-from" in arguments
        first = this.killed_at(1020 if late else min(25, this.last // 2),
                               lambda: captured(place) >= least and (not late or any(row["offered"] and row["step"] > 1000 for row in place.listed())))
        checks.ok(first.process.returncode == -9 and captured(place) >= least, f"{name}: it takes {captured(place)} snapshots until it is killed",
                  this.story())
        second = this.start()
        status = second.wait()
        at = job.Job.resumed_at(second) or 0
        if late:
            checks.ok(at > 1000, f"{name}: it goes on behind the kernel's first launch, at {at}", this.story())
        if "pageable_access" in settings.get("SIMGPU_FAULT", ""):
            checks.ok("kernels on this device can write ordinary memory" in first.said(), f"{name}: at info the log says what is in no snapshot", this.story())
        checks.ok(status == 0 and at > 0 and not this.differences(), f"{name}: continued at step {at}, to the same bytes", status, *this.differences(),
                  this.story())


def clock(checks):
    """A number that a launch is given follows a clock: it does so again, and goes on. Where it follows what the record has not, as the processor's
    counter, nothing goes on from there, and a line says so."""
    ways = [[]] + [["--graph", graph] for graph in ("captured", "updated", "built", "added")] + [["--launch", launch] for launch in LAUNCHES]
    for option, how in ((option, how) for how in ways for option in ("--clock", "--counter")):
        with job.Place() as place:
            this = job.Job(place, "rough", "--seed", "3", *job.scaled(["--steps", "120"]), option, *how)
            first = this.killed_at(20)
            start = this.start()
            status = start.wait()
            said = [line for line in start.said().splitlines() if line.startswith("transpckpt:") and "starting the program again" in line]
            log, at = job.read(os.path.join(this.out, "log.txt")).splitlines(), job.Job.resumed_at(start)
            if option == "--clock":
                checks.ok(status == 0 and not said and at and log[:at] == first.printed().splitlines()[:at], f"clock {how}: goes on at step {at}, and was told the same times", status,
                          said, log[:3], this.story())
            else:
                checks.ok(status == 0 and len(said) == 1 and at is None, f"counter {how}: begins anew, with a line: {said}", status, this.story())
            checks.ok(len(log) == int(job.scaled(["--steps", "120"])[1]), f"{option} {how}: to its end", len(log))


def marked(checks, why, *arguments):
    """Something happens that is in no record: nothing goes on from there, and a line says why."""
    with job.Place() as place:
        this = job.Job(place, "rough", "--seed", "3", *job.scaled(["--steps", "60"]), *arguments)
        this.run_plain()
        first = this.start()
        first.slowly_until(lambda: first.printed().count("step ") >= 20 and (why in first.said() or place.listed()))
        first.kill()
        start = this.start()
        status = start.wait()
        said = [line for line in first.said().splitlines() if why in line]
        checks.ok(status == 0 and len(said) == 1 and job.Job.resumed_at(start) is None, f"{arguments}: begins anew, and a line said why: {said}", status, this.story())
        checks.ok(not this.differences(), f"{arguments}: to the same end", *this.differences())


def tally(checks):
    """A kernel counts in host memory by its own address."""
    marked(checks, "may write to", "--tally")


def host(checks):
    """A graph that was built copies to the host."""
    marked(checks, "a graph of the program copies to the host", "--graph", "host")


def waits(checks):
    """The library's threads wait for the device without spinning, whatever the program's context says of its own waits."""
    with job.Place(**SLOW) as place:
        told = os.path.join(place.root, "waits")
        this = job.Job(place, "rough", "--seed", "3", "--steps", "600", "--streams", "4", environment={"SIMGPU_WAITS": told})
        status = this.start().wait()
        rows = [line.split() for line in job.read(told).splitlines() if line.startswith("tpck-")]
        checks.ok(status == 0 and any(int(row[4]) for row in rows), f"waits: the library's threads wait: {rows}", status, this.story())
        checks.ok(not any(int(row[2]) for row in rows), "waits: none of them would spin", rows)


OTHERS = {"clock": clock, "tally": tally, "host": host, "waits": waits}


def main():
    checks = job.Checks()
    for name in sys.argv[1:] or [*CASES, *OTHERS]:
        if name in OTHERS:
            OTHERS[name](checks)
        else:
            case(checks, name)
    checks.end()


if __name__ == "__main__":
    main()
