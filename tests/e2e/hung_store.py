#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.1 about=32s disk
"""A store that does not answer, as one on a network may: a program begins all the same, or goes on once it answers, says what it waited
for, and leaves what is there for the next start."""
import os
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job


class Hung:
    """A folder whose file system is a program, which can be stopped. Nothing is remembered of what that has said."""

    def __init__(self, root):
        self.behind, self.at = (os.path.join(root, name) for name in ("behind", "mount"))
        for folder in (self.behind, self.at):
            os.makedirs(folder)
        self.process = subprocess.Popen(["bindfs", "-f", "-o", "attr_timeout=0,entry_timeout=0,negative_timeout=0", self.behind, self.at],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while not os.path.ismount(self.at) and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def end(self):
        self.go_on()
        subprocess.run(["umount", "-l", self.at], check=False, capture_output=True)
        self.process.kill()
        self.process.wait()


def forget_memory(place):
    """As a new node has it."""
    place.signal_agents(signal.SIGTERM)
    if not place.agent_settles():
        place.signal_agents()
    shutil.rmtree(os.path.join(place.shm, "j"), ignore_errors=True)


def case_waits(checks, place, hung):
    this = job.Job(place, "gpt", "--seed", "5", "--steps", "150", "--save-every", "40")
    this.run_plain()
    start = this.killed_at(20, ready=lambda: any(row["state"] == "durable" for row in place.listed()))
    forget_memory(place)
    has = max((row["step"] for row in place.listed()), default=0)
    checks.ok(has, "a store of such a file system is written", start.said())

    hung.stop()
    start = this.start(environment={"TRANSPCKPT_START_WAIT_SEC": "6"})
    status = start.wait()
    said = start.said()
    checks.ok(status == 0 and not job.differences(this.plain, this.out), "where it does not answer the program runs all the same", status, said)
    checks.ok(said.count(f"waiting for {hung.at}") == 1 and said.count(f"{hung.at} has not answered for 6 s") == 1 and
              said.count("no checkpoints in this run: the store did not answer") == 1, "and says so", said)
    program = [*place.runner, os.path.join(place.build, "transpckpt"), "run", "--", sys.executable, "-c",
             "import subprocess, sys; [subprocess.run([sys.executable, '-c', '']) for _ in range(2)]; print('done')"]
    start = job.Start(place, program, this.work, {**place.environment, "TRANSPCKPT_START_WAIT_SEC": "2"}, "program")
    checks.ok(start.wait() == 0 and start.printed() == "done\n" and start.said().count("has not answered") == 1 and
              "no checkpoints" not in start.said(), "what a program starts then says nothing", start.said())

    tiers = {"TRANSPCKPT_DIR": f"node:{place.root}/fast,site:{hung.at}", "TRANSPCKPT_START_WAIT_SEC": "2"}
    start = job.Start(place, program, this.work, {**place.environment, **tiers}, "tiers")
    checks.ok(start.wait() == 0 and start.printed() == "done\n" and start.said().count(f"{hung.at} has not answered") == 1,
              "so it is where it is the second tier", start.said())

    shutil.rmtree(this.out)
    start = this.start()
    checks.ok(start.until(lambda: "waiting for" in start.said()), "a start waits for an answer", start.said())
    hung.go_on()
    status = start.wait()
    at = this.resumed_at(start)
    checks.ok(status == 0 and (at or 0) >= has, f"and goes on at step {at}, where the store has step {has}", start.said())
    checks.ok(not job.differences(this.plain, this.out), "with the same bytes", *job.differences(this.plain, this.out))


def main():
    if not shutil.which("bindfs"):
        job.skip("bindfs is not installed")
    checks = job.Checks()
    with job.Place() as place:
        hung = Hung(place.root)
        try:
            if not os.path.ismount(hung.at):
                job.skip("bindfs cannot mount here")
            place.environment["TRANSPCKPT_DIR"] = hung.at
            case_waits(checks, place, hung)
        finally:
            hung.end()
    checks.end()


if __name__ == "__main__":
    main()
