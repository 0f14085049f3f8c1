#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 about=9s
"""What tests/suite/suite.py promises of tests, held to tests made for it: who runs beside whom, that the longest begin
first, what becomes of one that hangs or leaves something running, repeats, and parts."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import suite

SUITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "suite.py")
# Stands for make: makes a log by running the script of that name, and the summary.
MAKE = """#!/bin/sh
for log; do :; done
case " $* " in *" test-suite.log "*) for a; do case $a in TEST_LOGS=*) grep -l 'result: FAIL' $(echo "${a#*=}" | sed 's/\\.log/.trs/g') && exit 1; esac; done; exit 0;; esac
test=${log%.log}
sh "$test.sh" >"$log" 2>&1
case $? in 0) result=PASS;; 77) result=SKIP;; *) result=FAIL;; esac
echo ":test-result: $result
:global-test-result: $result
:recheck: $([ $result = FAIL ] && echo yes || echo no)" >"$test.trs"
echo "$result: $test"
[ $result != FAIL ]
"""
count = failed = 0


def ok(good, what, *details):
    global count, failed
    count += 1
    print(f"{'ok' if good else 'not ok'} {count} - {what}", flush=True)
    if not good:
        failed += 1
        for detail in details:
            for line in str(detail).splitlines():
                print(f"#   {line}")


class Folder:
    """Tests of a name each; all say in one file when they begin and end."""

    def __init__(self, root, tests):
        self.root = tempfile.mkdtemp(dir=root)
        self.write("make", MAKE)
        os.chmod(os.path.join(self.root, "make"), 0o755)
        for name, (needs, body) in tests.items():
            self.write(f"{name}.sh", f"#!/bin/sh\n# needs: {needs}\necho begin {name} >>said\n{body}\nstatus=$?\necho end {name} >>said\nexit $status\n")
        self.names = [f"{name}.sh" for name in tests]

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w", encoding="ascii") as f:
            f.write(text)

    def run(self, *more, **environment):
        base = {k: v for k, v in os.environ.items() if k not in ("REPEAT", "LOAD", "PART", "FAIL_FAST", "AGAIN", "MAKEFLAGS", "CORES")}
        done = subprocess.run([sys.executable, SUITE, "--make", os.path.join(self.root, "make"), "--srcdir", self.root, *more, *self.names],
                              cwd=self.root, env={**base, "CORES": "2", "XDG_CACHE_HOME": self.root, **environment},
                              capture_output=True, text=True, check=False, timeout=120)
        self.out = done.stdout + done.stderr
        return done.returncode

    def said(self):
        with open(os.path.join(self.root, "said"), encoding="ascii") as f:
            return f.read().split("\n")[:-1]

    def overlap(self):
        """Pairs that ran at the same time."""
        running, pairs = set(), set()
        for line in self.said():
            what, name = line.split()
            if what == "begin":
                pairs |= {tuple(sorted((name, other))) for other in running}
                running.add(name)
            else:
                running.discard(name)
        return pairs

    def begun(self):
        return [line.split()[1] for line in self.said() if line.startswith("begin")]

    def has(self, name):
        return os.path.exists(os.path.join(self.root, name))

    def text(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as f:
            return f.read()


def meets(other):
    """Passes only if the other one runs meanwhile, or has run."""
    return f"i=0; until grep -q 'begin {other}' said; do i=$((i + 1)); [ $i -lt 400 ] || exit 1; sleep 0.05; done"


def side_by_side(root):
    waiting = Folder(root, {"a": ("cores=0.3", meets("c")), "b": ("cores=0.3", meets("a")), "c": ("cores=0.3", meets("b"))})
    ok(waiting.run() == 0, "three that mostly wait run side by side", waiting.out)
    busy = Folder(root, {"a": ("cores=2", "sleep 0.2"), "b": ("", "sleep 0.2"), "c": ("cores=4", "sleep 0.2")})
    ok(busy.run() == 0 and not busy.overlap(), "those that fill the processors do not, and more of them than there are is all", busy.out)
    memory = Folder(root, {"a": ("cores=0.1 memory=900000G", "sleep 0.2"), "b": ("cores=0.1 memory=1G", "sleep 0.2")})
    ok(memory.run() == 0 and not memory.overlap(), "nothing runs beside one that takes the memory", memory.out)
    alone = Folder(root, {"a": ("cores=0.1 alone about=99s", "sleep 0.2"), "b": ("cores=0.1", "sleep 0.2"), "c": ("cores=0.1", meets("b"))})
    ok(alone.run() == 0 and not any("a" in pair for pair in alone.overlap()) and alone.begun()[-1] == "a",
       "nothing runs beside one that measures, which comes last", alone.out)
    things = Folder(root, {"a": ("cores=0.1 slurm", meets("c")), "b": ("cores=0.1 slurm tap", "sleep 0.2"), "c": ("cores=0.1 tap", "sleep 0.2")})
    ok(things.run() == 0 and not {("a", "b"), ("b", "c")} & things.overlap(), "those that need one thing run one after the other, others beside them", things.out)


def again(root):
    once = 'echo "not ok 1 - too slow"; [ -e once.was ] || { touch once.was; false; }'
    third = 'echo x >>third.runs; [ $(wc -l <third.runs) = 2 ]'
    one = Folder(root, {"once": ("cores=0.1", once), "good": ("cores=0.1", "true")})
    ok(one.run(AGAIN="2") == 0 and re.search(r"failed beside others, and passed 2 times on a quiet machine: once.sh.*\n  not ok 1 - too slow", one.out) and
       one.begun().count("once") == 3 and one.begun().count("good") == 1 and one.has("once.log.first"), "what failed and passes each time at the end has passed, with a line",
       one.out)
    os.unlink(os.path.join(one.root, "once.was"))
    ok(one.run() != 0, "but not unasked", one.out)
    bad = Folder(root, {"third": ("cores=0.1", third), "never": ("cores=0.1", "false"), "once": ("cores=0.1", once)})
    ok(bad.run(AGAIN="2") != 0 and "machine: third" not in bad.out and "machine: never" not in bad.out and "machine: once" in bad.out and
       bad.begun().count("never") == 2 and "FAIL" in bad.text("third.trs") and "PASS" in bad.text("once.trs"), "one that fails once more has failed", bad.out)
    many = Folder(root, {f"bad{i}": ("cores=0.1", "false") for i in range(7)})
    ok(many.run(AGAIN="2") != 0 and len(many.begun()) == 7, "where many fail none is run again", many.out)
    # Each fails the first time, and then passes only beside the other one, if that may be.
    def beside(name, other):
        return f"[ -e {name}.was ] || {{ touch {name}.was; exit 1; }}; touch {name}.on; i=0; until [ -e {other}.on ]; do i=$((i + 1)); [ $i -lt 400 ] || exit 1; sleep 0.05; done"
    two = Folder(root, {"a": ("cores=0.4", beside("a", "b")), "b": ("cores=0.4", beside("b", "a"))})
    ok(two.run(AGAIN="1") == 0 and two.begun().count("a") == 2, "those that leave most of the processors alone run side by side again", two.out)
    busy = {name: ("cores=0.8", f"[ -e {name}.was ] || {{ touch {name}.was; exit 1; }}; echo on >>said.again; sleep 0.3; [ $(grep -c on said.again) = 1 ] && rm said.again")
            for name in "ab"}
    two = Folder(root, busy)
    ok(two.run(AGAIN="1") == 0 and two.begun().count("b") == 2, "and those that need more of them one after the other", two.out)


def order(root):
    tests = {"short": ("cores=2 about=1s", "true"), "long": ("cores=2 about=50s", "true"), "middle": ("cores=2 about=20s", "true")}
    folder = Folder(root, tests)
    ok(folder.run() == 0 and folder.begun() == ["long", "middle", "short"], "the longest begins first", folder.out, folder.said())
    times = json.loads(folder.text("tests/suite/times.json"))
    ok(set(times) == {"short.sh", "long.sh", "middle.sh"} and max(times.values()) < 20, "a time of each is kept", times)
    times["short.sh"] = 99
    folder.write("tests/suite/times.json", json.dumps(times))
    os.unlink(os.path.join(folder.root, "said"))
    ok(folder.run() == 0 and folder.begun()[0] == "short", "and is what counts the next time", folder.out)
    folder.write("tests/suite/times.json", "[1")
    ok(folder.run() == 0, "times that cannot be read are no fault", folder.out)
    many = Folder(root, {f"t{i}": ("cores=0.1", "sleep 3") for i in range(11)} | {"idle": ("cores=0.9", "sleep 6")})
    ok(many.run() == 0 and len(re.findall(r"^ +[\d.]+ s  \w+\.sh: \d+% of a processor", many.out, re.M)) == 10 and "sleep asleep" in many.out,
       "the ten slowest are told, with what they wait for", many.out)
    ok(re.findall(r"^  (\w+)\.sh says cores=0.9 and uses 0", many.out, re.M) == ["idle"], "and who says that it needs what it does not use", many.out)
    if not suite.group_of_mine():
        ok(True, "what nobody's children use is counted # SKIP no control groups to be had")
        return
    busy = 'i=0; while [ $i -lt 400000 ]; do i=$((i + 1)); done; touch over'
    away = Folder(root, {"away": ("", f"(setsid sh -c '{busy}' &); until [ -e over ]; do sleep 0.2; done")})
    ok(away.run() == 0 and float(re.search(r"PASS: away.sh \(.* s, ([\d.]+) cores\)", away.out)[1]) >= 0.1, "what nobody's children use is counted", away.out)
    left = [name for name in os.listdir(suite.group_of_mine()) if name.startswith("tpck-suite.") and not os.path.exists(f"/proc/{name.split('.')[1]}")]
    ok(not left, "no control group is left", left)


def runs(pid):
    try:
        with open(f"/proc/{int(pid)}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ends(pid):
    """It has been sent SIGKILL, and may need a moment."""
    until = time.monotonic() + 20
    while runs(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not runs(pid)


def hangs(root):
    folder = Folder(root, {"a": ("cores=0.1 minutes=0.02", "setsid sleep 300 & echo $! >pid; sleep 300"), "b": ("cores=0.1", "true")})
    begun = time.monotonic()
    status = folder.run()
    ok(status != 0 and "FAIL: a" in folder.out and "hung" in folder.out and "ended after" in folder.text("a.log") and "FAIL" in folder.text("a.trs"),
       "one that takes longer than it says is ended and has failed", status, folder.out, folder.text("a.trs"))
    ok("PASS: b" in folder.out and time.monotonic() - begun < 60, "the others go on", folder.out)
    ok(ends(folder.text("pid")), "what it started is ended, whatever session it is in")
    folder = Folder(root, {"a": ("", "setsid sleep 300 & echo $! >pid")})
    status = folder.run()
    ok(status == 0 and "left running by a.sh: 1" in folder.out and "sleep 300" in folder.text("a.log") and
       ends(folder.text("pid")), "what a test leaves running is ended and told", status, folder.out, folder.text("a.log"))


def repeats(root):
    folder = Folder(root, {"a": ("", "echo x >>n; [ $(wc -l <n) != 2 ]"), "b": ("", "true")})
    status = folder.run(REPEAT="3")
    ok(status != 0 and "a.sh: 2 PASS, 1 FAIL" in folder.out and "1 of 2 tests passed all of 3 times" in folder.out,
       "one bad run of three is a bad test", status, folder.out)
    ok(folder.has("a.log.2") and not folder.has("a.log.3") and "FAIL" in folder.text("a.trs") and len(folder.begun()) == 6,
       "and its log is kept", folder.out)
    ok(folder.run("--recheck") == 0 and folder.begun()[6:] == ["a"], "recheck runs what failed", folder.out, folder.said())
    folder = Folder(root, {"a": ("cores=2 about=9s", "false"), "b": ("cores=2", "true")})
    ok(folder.run(FAIL_FAST="1") != 0 and folder.begun() == ["a"], "FAIL_FAST begins nothing after a failure", folder.out)
    folder = Folder(root, {"a": ("", "for i in 1 2 3 4 5 6 7 8 9; do pgrep -f 'infer/[i]nfer.c' && exit 0; sleep 0.1; done; exit 1")})
    ok(folder.run(LOAD="1") == 2 and "LOAD" in folder.out, "LOAD without anything to build is said", folder.out)
    os.makedirs(os.path.join(folder.root, "runtime/infer"))
    folder.write("runtime/infer/infer.c", "int main(void) { return 0; }\n")
    ok(folder.run(LOAD="1") == 0, "LOAD builds beside the tests", folder.out)


def parts(root):
    folder = Folder(root, {f"t{i}": (f"cores=0.5 about={i * i + 1}s", "true") for i in range(10)})
    found = []
    for k in (1, 2, 3):
        ok(folder.run("--list", PART=f"{k}/3") == 0, f"part {k} of 3", folder.out)
        found.append({line.split()[-1]: float(line.split()[0]) for line in folder.out.splitlines()})
    sums = [sum(part.values()) for part in found]
    ok(sorted(name for part in found for name in part) == sorted(folder.names), "each test is in one part", found)
    ok(max(sums) < 1.5 * min(sums), "parts are of about the same length", sums)
    ok(folder.run(PART="4/3") == 2 and "PART=4/3" in folder.out, "a part that there is not is said", folder.out)


def needs(root):
    folder = Folder(root, {"a": ("", "true")})
    ok(folder.run(MAKEFLAGS="kn") == 0 and "a.sh" in folder.out and not folder.has("said") and folder.run(MAKEFLAGS="k -- CC=gcc-n") == 0 and
       folder.has("said"), "make -n runs nothing", folder.out)
    for line, said in (("cores=many", "cores=many"), ("core=1", "'core'")):
        folder = Folder(root, {"a": (line, "true")})
        ok(folder.run() == 2 and said in folder.out and "a.sh" in folder.out and not folder.has("said"), f"'{line}' is refused, and named", folder.out)
    folder = Folder(root, {"a": ("cores=0.5 memory=2G about=30s minutes=1 tap", "true")})
    os.rename(os.path.join(folder.root, "a.sh"), os.path.join(folder.root, "a.c"))
    folder.write("a.c", "// SPDX\n// needs: cores=0.5 memory=2G about=30s tap\n")
    folder.names = ["a"]
    ok(folder.run("--list") == 0 and folder.out.split() == ["30.0", "s", "0.5", "cores", "2048", "MiB", "a", "tap"], "a compiled test's line is in its source", folder.out)


def main():
    with tempfile.TemporaryDirectory(prefix="tpck-suite.") as root:
        for case in (side_by_side, order, hangs, repeats, again, parts, needs):
            case(root)
    print(f"1..{count}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
