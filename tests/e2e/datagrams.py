#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 minutes=8 about=25s
"""A trainer tells others how far it is by datagrams, as metrics are told (datagrams.c), and is killed behind its snapshot; then a start that goes on from there is
killed before it has one of its own. Nothing that was told before that step is told again, and what was told behind it is: lines say to whom, of the first run and of
that start.

  datagrams.py [WAY...]    WAY: of datagrams.c; `all` is all of them; without names two, drawn
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

WAYS = ["to", "number", "log", "message", "messages", "connected", "written", "forked", "own"]
STEPS, TAKEN = 300, 60
WHO = {"first": "the first run", "tried": "starts that left no snapshot"}
SENT = {who: re.compile(rf"what comes behind step \d+ is done again, with what it sends; {text} sent something there to (\S+)$", re.M) for who, text in WHO.items()}


class Others:
    """Who is told."""

    def __init__(self, way):
        self.socket, self.told = socket.socket(socket.AF_UNIX if way == "log" else socket.AF_INET, socket.SOCK_DGRAM), []
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind("/dev/log" if way == "log" else ("127.0.0.1", 0))
        self.here = "/dev/log" if way == "log" else f"127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self.listens, daemon=True).start()

    def listens(self):
        while True:
            self.told.append(int(self.socket.recv(100).split()[-1].rstrip(b"\0")))


def goes(checks, way):
    with job.Place() as place:
        others = Others(way)
        this = job.Job(place, "gpt", "--seed", "3", "--steps", str(STEPS))
        this.environment.update(LD_PRELOAD=job.built(place, "datagrams.so", "datagrams.c"), DATAGRAMS=way, DATAGRAMS_PORT=others.here.rpartition(":")[2])
        this.run_plain()
        job.look_until(lambda: len(set(others.told)) == len(others.told) and others.told[-1:] == [max(others.told, key=abs)], 5, 0.05)
        plain = list(others.told)
        others.told.clear()
        one = {"TRANSPCKPT_INTERVAL": str(TAKEN)}
        first = this.killed_at(2 * TAKEN - 20, environment=one)
        told = [len(others.told)]
        second = this.start(environment={"TRANSPCKPT_INTERVAL": "1000000"})
        second.until(lambda: job.LIVE.search(second.said()) and len(others.told) >= told[0] + 8)
        second.kill()
        told.append(len(others.told))
        last = this.start()
        status = last.wait()
        job.look_until(lambda: set(plain) <= set(others.told), 10, 0.05)
        resumed = [job.Job.resumed_at(start) or 0 for start in (second, last)]
        said = first.said() + "".join(start.said() for start in this.starts)
        checks.ok(status == 0 and 0 < resumed[0] == resumed[1], f"{way}: two starts go on at step {resumed}", status, said)
        lines = [{who: line.findall(start.said()) for who, line in SENT.items()} for start in (second, last)]
        checks.ok([line["first"] for line in lines] == [[others.here]] * 2, f"{way}: lines say to whom the first run told something behind it", lines, said)
        checks.ok([line["tried"] for line in lines] == [[], [others.here]], f"{way}: and to whom a start did that left no snapshot", lines, said)
        # A forked process is as far as it comes.
        again = [number for number in others.told[told[0]:] if abs(number) * STEPS < (resumed[0] - (20 if way in ("forked", "own") else 2)) * max(plain)]
        checks.ok(not again, f"{way}: nothing is told again that was told before that step", again[:20], resumed, told, max(plain))
        checks.ok(set(others.told) == set(plain) and len(plain) == len(set(plain)), f"{way}: and all is told", set(plain) ^ set(others.told))
        checks.ok(not this.differences(), f"{way}: and the trainer wrote the same bytes", *this.differences())


# A /dev with a log of the test's own in place of the machine's.
DEV = """mount -t tmpfs tmpfs "$DEV" && mkdir "$DEV/shm" && mount --bind /dev/shm "$DEV/shm" && ln -s /proc/self/fd "$DEV/fd" &&
for name in null zero full random urandom tty; do : >"$DEV/$name" && mount --bind "/dev/$name" "$DEV/$name" || exit 1; done && mount --bind "$DEV" /dev"""


def log(checks):
    """The way `log`, in a namespace of mounts."""
    with tempfile.TemporaryDirectory() as folder:
        own = {**os.environ, "DEV": folder, "OWN_LOG": "1"}
        under = ["unshare", "--mount", "sh", "-c", DEV + ' && exec "$@"', "sh"]
        if not shutil.which("unshare") or subprocess.run([*under, "true"], env=own, capture_output=True, check=False).returncode:
            print("# log: no namespace of mounts can be made")
            return
        done = subprocess.run([*under, sys.executable, "-B", os.path.abspath(__file__), "log"], env=own, capture_output=True, text=True, check=False)
        checks.ok(not done.returncode, f"log: {done.stdout.count('ok ')} checks in a namespace of mounts", done.stdout, done.stderr)


def main():
    checks = job.Checks()
    for way in WAYS if sys.argv[1:] == ["all"] else sys.argv[1:] or job.drawn_from().sample(WAYS, 2):
        if way == "log" and not os.environ.get("OWN_LOG"):
            log(checks)
        else:
            goes(checks, way)
    checks.end()


if __name__ == "__main__":
    main()
