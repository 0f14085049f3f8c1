#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 about=6s
"""An agent dies while all images of a program are committed, as they are while each is read: the next one has some free again."""
import glob
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

STATE, FILLING, COMMITTED = 16, 1, 3  # in an image's header (runtime/wire/segment.h)


def captured(place):
    return max((row["notes"]["captured"] for row in place.shown() if row.get("notes")), default=0)


def states(place):
    """Of all images, by path."""
    found = {}
    for image in glob.glob(os.path.join(place.shm, "j", "g*", "image.*")):
        with open(image, "rb") as f:
            found[image] = struct.unpack_from("<I", f.read(STATE + 4), STATE)[0]
    return found


def main():
    checks = job.Checks()
    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "100000")
        start = this.start()
        checks.ok(start.slowly_until(lambda: captured(place) >= 5 and FILLING not in states(place).values()), "the program is stopped between two snapshots",
                  this.story())
        before = captured(place)
        place.signal_agents()
        job.look_until(lambda: not place.agents(), 10, 0.01)
        images = states(place)
        checks.ok(len(images) >= 2 and COMMITTED in images.values() and set(images.values()) <= {0, 2, 3}, "its images are there", images)
        for image in images:
            with open(image, "r+b") as f:
                f.seek(STATE)
                f.write(struct.pack("<I", COMMITTED))
        start.go_on()
        checks.ok(start.until(lambda: captured(place) >= before + 5, 60), "the next agent gives room for more snapshots",
                  captured(place) - before, this.story())
        start.kill()
    checks.end()


if __name__ == "__main__":
    main()
