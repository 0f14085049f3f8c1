#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1 about=20s
"""A program that listens at a Unix socket, and asks itself by it: killed, it goes on, and listens there again, though what was killed has left the socket. Its twin has a
socket of its own until it takes over; others find it by the same path from then on."""
import os
import socket
import stat
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job
import twins

checks = job.Checks()


def answer(path):
    """What whoever listens there makes of 5; None: nobody does."""
    with socket.socket(socket.AF_UNIX) as to:
        to.settimeout(20)
        try:
            to.connect(path)
            to.sendall(struct.pack("i", 5))
            return struct.unpack("i", to.recv(4))[0]
        except OSError:
            return None


def program(place, path, steps):
    this = job.Job(place, "gpt", "--seed", "7", "--steps", str(steps), "--save-every", "50")
    this.environment.update(LD_PRELOAD=job.built(place, "serves.so", "serves.c"), SERVES=path, SERVES_AT="60")
    return this


def goes_on(ends):
    """Once with a socket that is there before the first start, and once with one that the program takes away at its end."""
    with job.Place() as place:
        this = program(place, "control", 600)
        if ends:
            this.environment["SERVES_ENDS"] = "1"
        this.run_plain()
        at = os.path.join(this.work, "control")
        if not ends:
            left = socket.socket(socket.AF_UNIX)
            left.bind(at)
            left.close()
        for number in range(2):
            start = this.killed_at(150 + 200 * number, lambda: os.path.exists(at))
        start = this.start()
        start.until(lambda: this.resumed_at(start))
        asked = start.running() and answer(at)
        status = start.wait()
        checks.ok(status == 0 and this.resumed_at(start) and not this.differences() and "cannot resume" not in this.story(),
                  f"killed twice, with a socket {'of its own' if ends else 'that was there before'}: the same bytes", status, this.differences(), this.story())
        checks.ok(asked in (16, False), "and others are answered", asked)
        checks.ok(os.path.lexists(at) != ends, "the socket is there at the end as it was without", os.listdir(this.work))


def has_twin(path):
    with job.Place() as place:
        os.makedirs(os.path.join(place.root, "far"))
        this = program(place, path.format(place.root), 3000)
        this.run_plain()
        at = os.path.join(this.work, this.environment["SERVES"])
        if os.path.lexists(at):
            os.unlink(at)
        start = job.Start(place, [*this.runner, os.path.join(place.build, "transpckpt"), "run", "--twin", "--", *this.arguments], this.work, this.environment, "start0")

        def repeats():
            return any((row.get("twin") or {}).get("proven", 0) > 100 for row in place.shown() if row["running"])
        killed = 0
        for _ in range(2):
            checks.ok(start.until(repeats), "its twin has repeated more than where it listens", start.said()[-800:])
            here = answer(at)
            killed += twins.kill(start, 0)
            start.until(lambda: twins.taken_over(start) == killed)  # pylint: disable=cell-var-from-loop
            there = answer(at) if start.running() else None
            checks.ok((here, there) == (16, 16), "others are answered before the takeover, and behind it", here, there, start.said()[-800:])
        checks.ok(stat.S_ISSOCK(os.stat(at).st_mode) if start.running() else True, "a socket is there to others")
        status = start.wait()
        wrong = job.differences(this.plain, this.out)
        checks.ok(status == 0 and killed == 2 and not wrong and twins.taken_over(start) == 2, f"with a twin, {killed} kills: the same bytes, and as many takeovers",
                  status, wrong, start.said()[-1200:])


def main():
    for name in sys.argv[1:] or ["resume", "left", "twin", "absolute"]:
        {"resume": lambda: goes_on(True), "left": lambda: goes_on(False), "twin": lambda: has_twin("control"), "absolute": lambda: has_twin("{}/far/control")}[name]()
    checks.end()


if __name__ == "__main__":
    main()
