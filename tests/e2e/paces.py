#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 about=45s
"""A trainer has somebody who has others do things for it, at his own pace (paces.c): a thread, a forked process, or one that is executed anew as
multiprocessing's are. It is killed twice. In one of its starts he is slower than the trainer, as on a busy machine: what was done before the step that is gone on
from is not done again.

  paces.py [WAY-CASE...]   WAY: thread, fork, worker; `all` is all of them
                           CASE: ahead: in the first start; so he does what was not done by then while the next start runs forward
                                 behind: in the second one, where the trainer is live before he has come so far again
                                 half: the same, and he has started something by then, and heard nothing of it
                                 late: the same, and he has not even begun
                                 unborn: the same, and is a process that the kernel has not let come back from fork() yet
                                 long: as behind, for more than a minute: he goes by a clock of his own, and a line says what he starts again
                                 tight: he has no descriptor for what answers him while the next start runs forward: it refuses to go on, in a line
                                 tried: two starts go on from the first one's step, and are killed before they have a snapshot: what they had him do behind
                                 that step is named by the next one, as what the first one had is
                                 lost: the memory of the node is lost with the job: a line says that nobody knows what is done again
                                 left: he is made before there is a device, and is answered when the trainer has come to its last step: he does not ask again
"""
import http.server
import os
import random
import re
import shutil
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

WAYS = [f"{way}-{case}" for way in ("thread", "fork", "worker") for case in ("ahead", "behind", "half", "late", "unborn", "tried")
        if (way, case) not in (("thread", "ahead"), ("thread", "unborn"), ("fork", "tried"))]
LONG_WAYS = ["fork-long"]  # a minute
ALWAYS = ["fork-tight", "fork-left", "fork-tried", "fork-lost"]
STEPS, SLOW, LAST, SOME_STEPS = 300, 3, 4, 100
SOME = 2  # without names: so many, others each time, and ALWAYS
LONG = re.compile(r"who is not as far as in the first run a minute after the program was live starts again what that had started: sh$", re.M)
TOLD = re.compile(r"a process that is not as far as in the first run a minute after the program was live tells 127.0.0.1:\d+ again what that had told it$", re.M)


TWICE = re.compile(r"of some files to which processes wrote that are started again .* it is not known what they got: they may have it twice$", re.M)
WHO = {"first": "the first run", "tried": "starts that left no snapshot"}
STARTED = {who: re.compile(rf"what comes behind step \d+ is done again, with what it starts; {text} started (\d+) programs there: sh\b") for who, text in WHO.items()}
SENT = {who: re.compile(rf"what comes behind step \d+ is done again, with what it sends; {text} sent something there to (\S+)$", re.M) for who, text in WHO.items()}
UNKNOWN = re.compile(r"what comes behind step \d+ is done again, and what the first run started or sent there is not known: it went with the memory of its node$", re.M)
TIGHT = re.compile(r"nothing can stand in for 127.0.0.1:\d+", re.M)


def numbers(path):
    return [int(line) for line in job.read(path).splitlines() if line.isdigit()]


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):  # pylint: disable=invalid-name
        row = int(self.rfile.read(int(self.headers['Content-Length'])))
        self.server.rows.append(row)
        if row == LAST and not self.server.goes.wait(job.WAIT_SEC):
            return
        answer = b'taken %d' % row
        self.send_response(200)
        self.send_header('Content-Length', str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def served():
    """A server that does not belong to the job."""
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
    server.rows, server.goes = [], threading.Event()
    server.goes.set()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def goes(checks, way, case):
    with job.Place() as place, served() as server:
        this = job.Job(place, "gpt", "--seed", "3", "--steps", str(STEPS))
        this.environment.update(LD_PRELOAD=job.built(place, "paces.so", "paces.c"), PACES=way)
        # Of who is ahead a line says that it may be sent twice; a thread's has one, too.
        posts = (way != "thread" and case != "ahead") or case == "tried"
        if posts:
            this.environment["PACES_PORT"] = str(server.server_address[1])

        def there(name, text=None):
            """The file is there with the text; None: it is gone."""
            path = os.path.join(this.work, name)
            if text is None:
                if os.path.exists(path):
                    os.unlink(path)
                return
            with open(path + ".new", "w", encoding="ascii") as to:
                to.write(text)
            os.rename(path + ".new", path)

        this.run_plain()
        server.rows.clear()
        plain = os.path.dirname(this.plain)
        count = len(numbers(os.path.join(plain, "calls")))
        calls = os.path.join(this.work, "calls")

        if case in ("tight", "left"):
            (too_tight if case == "tight" else left)(checks, this, there, server)
            return
        if case == "tried":
            tried(checks, way, this, there, server)
            return
        if case == "lost":
            lost(checks, way, this)
            return
        there(*(("pace", str(SLOW)) if case == "ahead" else ("lock", "")))
        first = this.killed_at(40)
        done, posted = [numbers(calls)], [list(server.rows)]
        there("pace")
        there("lock", "")
        if case == "long":
            too_long(checks, way, this, there)
            return
        if case != "ahead":
            there("lock")
            there({"behind": "pace", "half": "hears", "late": "late", "unborn": "unborn"}[case], str(SLOW))
        second = this.killed_at(40) if case == "ahead" else slow(this, there)
        done.append(numbers(calls))
        posted.append(list(server.rows))
        last = this.start()
        status = last.wait()
        done.append(numbers(calls))
        posted.append(list(server.rows))
        resumed = [job.Job.resumed_at(start) or 0 for start in (second, last)]
        said = this.story() + "".join(start.said() for start in this.starts)
        if LONG.search(said) or TOLD.search(said):
            print(f"# {way}-{case}: on this machine it took him more than a minute: that is another case")
            return
        checks.ok(status == 0 and count >= 20 and 0 < resumed[0] < resumed[1], f"{way}-{case}: killed, it goes on at steps {resumed}", status, said, first.said())
        if case == "ahead":
            checks.ok(max(done[0]) == SLOW, f"{way}-{case}: he had done {done[0]} by the first kill")


        def again(all_):
            """What was done before a step that was gone on from, and behind it."""
            return [number for before, after, at in zip(all_, all_[1:], resumed)
                    for number in set(before) if number * STEPS < (at - 1) * count and number in after[len(before):]]
        checks.ok(set(done[2]) == set(range(1, count + 1)) and not again(done), f"{way}-{case}: what he starts is not started again, but for what is behind those steps",
                  again(done), done, resumed, count, said)
        if posts:
            checks.ok(set(posted[2]) == set(range(1, count + 1)) and not again(posted), f"{way}-{case}: and what he posts is not posted again", again(posted), posted,
                      resumed, said)
        same = len(job.read(os.path.join(this.work, "same")).splitlines())
        checks.ok(count <= same and abs(same - len(done[2])) <= 2, f"{way}-{case}: what is the same each time is started as often", same, len(done[2]), count, said)
        heard = [job.read(os.path.join(folder, "heard")) for folder in (plain, this.work)]
        # What he wrote is taken back when he is made; of one who comes too late for that a line says so.
        checks.ok(heard[0] == heard[1] or (case == "unborn" and TWICE.search(said) and set(heard[0].splitlines()) == set(heard[1].splitlines())),
                  f"{way}-{case}: and he hears what he hears without the library", heard[1], said)
        checks.ok(not this.differences(), f"{way}-{case}: and the trainer wrote the same bytes", *this.differences())


def too_long(checks, way, this, there):
    there("lock")
    there("pace", str(SLOW))
    start = this.start()
    start.until(lambda: "live at" in start.said())
    time.sleep(61)
    there("pace")
    status = start.wait()
    checks.ok(status == 0 and LONG.search(start.said()) and (way == "thread" or TOLD.search(start.said())), f"{way}-long: lines say what is done again", status, start.said())


def too_tight(checks, this, there, server):
    this.environment["PACES_TIGHT"] = "1"
    there("lock", "")
    this.killed_at(40)
    before = list(server.rows)
    last = this.start()
    status = last.wait()
    checks.ok(status == 0 and len(before) > 3 and TIGHT.search(last.said()) and job.Job.resumed_at(last) is None, "fork-tight: what nothing can stand in for is not told again silently",
              status, before, server.rows, last.said())
    checks.ok(not this.differences(), "fork-tight: and the trainer wrote the same bytes", *this.differences())


def left(checks, this, there, server):
    this.environment["PACES_EARLY"] = "1"
    there("pace", str(LAST))
    server.goes.clear()
    first = this.start()
    first.slowly_until(lambda: LAST in server.rows and len(re.findall(r"^step ", first.printed(), re.M)) > 30 and any(row["offered"] for row in this.place.listed()))
    there("hold", "")
    first.go_on()
    first.until(lambda: os.path.exists(os.path.join(this.work, "held")))
    server.goes.set()
    heard = os.path.join(this.work, "heard")
    first.until(lambda: f"taken {LAST}\n" in job.read(heard))
    first.kill()
    before = list(server.rows)
    for name in ("hold", "held", "pace"):
        there(name)
    last = this.start()
    status = last.wait()
    checks.ok(status == 0 and (job.Job.resumed_at(last) or 0) > 20 and before[-1] == LAST and server.rows.count(LAST) == 1,
              "fork-left: what was answered behind the last step is not posted again", status, before, server.rows, first.said(), last.said())
    checks.ok(not this.differences(), "fork-left: and the trainer wrote the same bytes", *this.differences())


def tried(checks, way, this, there, server):
    here = f"127.0.0.1:{server.server_address[1]}"

    def started(start, who):
        said = STARTED[who].search(start.said())
        return int(said[1]) if said else 0

    def sent(start, who):
        return SENT[who].findall(start.said())

    there("lock", "")
    first = this.killed_at(SOME_STEPS, environment={"TRANSPCKPT_INTERVAL": str(SOME_STEPS - 30)})
    rows, starts = [list(server.rows)], []
    for _ in range(2):
        starts.append(this.start(environment={"TRANSPCKPT_INTERVAL": "1000000"}))
        starts[-1].slowly_until(lambda: job.LIVE.search(starts[-1].said()) and len(server.rows) >= len(rows[-1]) + 2)
        starts[-1].kill()
        rows.append(list(server.rows))
    last = this.start()
    status = last.wait()
    resumed = [job.Job.resumed_at(start) or 0 for start in (*starts, last)]
    said = first.said() + "".join(start.said() for start in this.starts)
    checks.ok(status == 0 and 0 < resumed[0] == resumed[1] == resumed[2] and len(re.findall("is gone and left no snapshot", this.place.agent_log())) == 2,
              f"{way}-tried: three starts go on at step {resumed}, of which two leave no snapshot", status, said, this.place.agent_log()[-3000:])
    # Of each number he starts two programs.
    each = [2 * (len(rows[i + 1]) - len(rows[i])) for i in range(2)]
    behind = [[started(start, who) for start in (*starts, last)] for who in WHO]
    checks.ok(behind[0][0] >= 4 and len(set(behind[0])) == 1, f"{way}-tried: each says that the first run started {behind[0][0]} programs behind that step", behind, rows, said)
    checks.ok(behind[1][0] == 0 and all(abs(sum(each[:i]) - behind[1][i]) <= 2 * i for i in (1, 2)) and 0 < behind[1][1] < behind[1][2],
              f"{way}-tried: and what starts had started there is named by the next ones: {behind[1]}", each, behind, rows, said)
    checks.ok(all(sent(start, "first") == [here] for start in (*starts, last)) and [sent(start, "tried") for start in (*starts, last)] == [[], [here], [here]],
              f"{way}-tried: and to whom they had sent something", [[sent(start, who) for start in (*starts, last)] for who in WHO], said)
    again = {number for number in server.rows if server.rows.count(number) > 1}
    checks.ok(again and min(again) * STEPS >= (resumed[0] - 1) * len(set(server.rows)), f"{way}-tried: nothing of before that step is sent again", again, server.rows, resumed)
    checks.ok(not UNKNOWN.search(said), f"{way}-tried: all of it is known", said)
    checks.ok(not this.differences(), f"{way}-tried: and the trainer wrote the same bytes", *this.differences())


def lost(checks, way, this):
    first = this.killed_at(SOME_STEPS, lambda: any(row["offered"] and len(row["where"]) > 1 for row in this.place.listed()))
    this.place.signal_agents()
    this.place.agent_settles()
    shutil.rmtree(this.place.shm, ignore_errors=True)
    last = this.start()
    status = last.wait()
    checks.ok(status == 0 and (job.Job.resumed_at(last) or 0) > 0 and UNKNOWN.search(last.said()) and not UNKNOWN.search(first.said()),
              f"{way}-lost: a line says that it is not known what is done again", status, first.said(), last.said())
    checks.ok(not this.differences(), f"{way}-lost: and the trainer wrote the same bytes", *this.differences())


def slow(this, there):
    """A start whose process is slow until the trainer is live, and comes along then."""
    start = this.start()
    start.slowly_until(lambda: "live at" in start.said())
    there("lock", "")
    for name in ("pace", "hears", "late", "unborn"):
        there(name)
    start.go_on()
    start.slowly_until(lambda: len(re.findall(r"^step ", start.printed(), re.M)) > 30 and any(row["offered"] for row in this.place.listed()))
    start.kill()
    return start


def main():
    checks = job.Checks()
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"# SEED={seed}")
    for chosen in (WAYS + LONG_WAYS + ALWAYS if sys.argv[1:] == ["all"] else sys.argv[1:]) or random.Random(seed).sample(WAYS, SOME) + ALWAYS:
        goes(checks, *chosen.split("-"))
    checks.end()


if __name__ == "__main__":
    main()
