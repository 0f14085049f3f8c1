#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 about=2s
"""transpckpt top: plain lines about a trainer that runs, was killed, and runs again; on a terminal it draws, leaves at q or a
signal, and leaves the terminal as it was."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

ROW = re.compile(r"^j +(?P<rank>\d+) +(?P<pid>\d+) (?P<state>[a-z]+) +(?P<step>\d+) +(?P<time>[\d.]+ m?s|-) +(?P<held>\d+)(?: -\d+)?"
                 r" +(?P<durable>\d+)(?: -(?P<lag>\d+))? +(?P<capture>.*)$", re.M)
JOB = re.compile(r"^j: memory (?P<used>[\d.]+ \w+) of (?P<limit>[\d.]+ \w+); last flush (?P<flush>.*?); files owed (?P<owed>\d+)\n"
                 r"  failures (?P<failures>\d+), resumes (?P<resumes>\d+)", re.M)


def plain(checks, place):
    done = place.command("top", "-n", "2", "-d", "0.5", "j")
    rows, jobs = list(ROW.finditer(done.stdout)), list(JOB.finditer(done.stdout))
    good = done.returncode == 0 and len(rows) == 2 and len(jobs) == 2
    if not checks.ok(good and not done.stderr, "twice a row of the process and one of the job", done.stdout, done.stderr):
        return None
    first, second = rows
    shown = place.shown()[-1]
    checks.ok(int(first["pid"]) == shown["pid"] and first["state"] == "capturing", "it is the process that runs", done.stdout, shown)
    checks.ok("nothing is captured" not in done.stdout, "of one that is protected it does not say that nothing is captured", done.stdout)
    checks.ok(int(first["step"]) < int(second["step"]) <= shown["iterations"], "it comes forward", done.stdout)
    checks.ok(0 < int(second["held"]) <= int(second["step"]) and int(second["durable"]) + int(second["lag"] or 0) == int(second["step"]),
              "steps in memory and on disk, and how far behind", done.stdout)
    rate = re.match(r"([\d.]+)/s [\d.]+ [KMG]iB/s$", second["capture"].strip())
    checks.ok(first["capture"].strip() == "-" and rate and float(rate[1]) > 0, "the rate of snapshots, from the second look on", done.stdout)
    checks.ok(re.match(r"[\d.]+ [KMG]iB at [\d.]+ [KMG]iB/s", jobs[1]["flush"]), "and of flushes", done.stdout)
    return jobs[1]


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, place, rows, columns):
        self.shown = b""
        self.fd, self.keeper = pty.openpty()
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.before = termios.tcgetattr(self.keeper)
        self.process = subprocess.Popen([os.path.join(place.build, "transpckpt"), "top", "-d", "0.2"], stdin=self.keeper,
                                        stdout=self.keeper, stderr=self.keeper, start_new_session=True,
                                        env={**place.environment, "TERM": "xterm"})

    def until(self, text, seconds=20):
        end = time.monotonic() + seconds
        while text not in self.shown and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self.fd, 65536)
                except OSError:
                    break
        return text in self.shown

    def ended(self):
        """Exit status; what it wrote last is in `shown`."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            while select.select([self.fd], [], [], 0.02)[0]:
                try:
                    self.shown += os.read(self.fd, 65536)
                except OSError:
                    break
            if self.process.poll() is not None:
                return self.process.returncode
        self.process.kill()
        self.process.wait()
        return "hung"


def screen(checks, place, leave, what, rows=24, columns=132):
    terminal = Terminal(place, rows, columns)
    drawn = terminal.until(b"\x1b[?1049h") and terminal.until(b"transpckpt top")
    if columns > 100:
        drawn = drawn and terminal.until(b"capturing") and terminal.until(b"files owed")
    changed = termios.tcgetattr(terminal.keeper)[3] != terminal.before[3]
    leave(terminal)
    status = terminal.ended()
    checks.ok(drawn and changed, f"{what}: it draws", terminal.shown)
    checks.ok(status == 0, f"{what}: it ends well", status)
    checks.ok(termios.tcgetattr(terminal.keeper) == terminal.before, f"{what}: the terminal's modes are as before")
    tail = terminal.shown[terminal.shown.rfind(b"\x1b[?1049l"):]
    checks.ok(b"\x1b[?1049l" in tail and terminal.shown.rfind(b"\x1b[?25h") > terminal.shown.rfind(b"\x1b[?25l"),
              f"{what}: its screen and the cursor are back", terminal.shown[-200:])
    os.close(terminal.keeper)
    os.close(terminal.fd)


def has_ncurses(place):
    return "#define HAVE_NCURSES 1" in job.read(os.path.join(place.build, "config.h"))


def main():
    checks = job.Checks()
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="0.3s") as place:
        this = job.Job(place, "gpt", "--seed", "4", "--steps", "20000")

        def durable():
            return [row for row in place.shown() if row["running"] and row["durable_step"] and row["notes"]["captured"] > 20]

        start = this.start()
        checks.ok(start.until(durable), "a trainer runs", start.said())
        row = plain(checks, place)
        checks.ok(row and (row["failures"], row["resumes"]) == ("0", "0"), "nothing has failed")
        start.kill()
        start = this.start()
        checks.ok(start.until(durable), "it goes on", start.said())
        row = plain(checks, place)
        checks.ok(row and (row["failures"], row["resumes"]) == ("1", "1"), "one failure is known")
        if has_ncurses(place):
            screen(checks, place, lambda t: os.write(t.fd, b"q"), "q")
            screen(checks, place, lambda t: t.process.terminate(), "SIGTERM")
            screen(checks, place, lambda t: os.write(t.fd, b"q"), "a small window", 4, 20)
        done = place.command("top", "-n", "none")
        checks.ok(done.returncode == 2 and "is no number" in done.stderr, "a wrong number", done.stderr)
        start.kill()
    checks.end()


if __name__ == "__main__":
    main()
