# SPDX-License-Identifier: Apache-2.0
"""A trainer's job as its user sees it: run it plain, run it with snapshots, kill it at chosen moments, start the same
command again, and compare what it leaves behind with the plain run, byte for byte."""
import functools
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIP = 77
# Nothing here takes long; what does is a hang.
WAIT_SEC = 240
# What a start says when it goes on: step, seconds forward, seconds of putting the state in place.
LIVE = re.compile(r"live at step (\d+) after ([\d.]+) s forward and ([\d.]+) s inject")


def skip(why):
    print(f"1..0 # SKIP {why}")
    sys.exit(SKIP)


# MiB free in /dev/shm that a job needs: the library leaves 256 alone, and the agent 512 beside what is kept of files.
SHM_MIB = 1024


@functools.lru_cache(None)
def need_shm(mib=SHM_MIB):
    """Skips the test where /dev/shm has less than that free: containers have 64 MiB unless they are told otherwise. Where mounts
    are allowed the test is started again with a tmpfs of its own there. Asked at the beginning, before anything is made: what is
    free later, while others run beside it, ends no test."""
    try:
        found = os.statvfs("/dev/shm")
        free = found.f_bavail * found.f_frsize >> 20
    except OSError:
        free = 0
    if max(free, int(os.environ.get("TPCK_OWN_SHM", 0))) >= mib:
        return
    own = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size={mib}m tmpfs /dev/shm && exec "$@"', "sh"]
    if shutil.which("unshare") and not subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        os.environ["TPCK_OWN_SHM"] = str(mib)  # is enough, however much of it is in use later
        os.execvp("unshare", [*own, sys.executable, "-B", os.path.abspath(sys.argv[0]), *sys.argv[1:]])
    skip(f"needs {mib} MiB free in /dev/shm, which has {free} (docker run --shm-size=2g)")


# DEVICE=gpu: the trainers that nvcc built, on the hardware's own driver.
HARDWARE = os.environ.get("DEVICE") == "gpu"


def build_folder():
    folder = os.path.abspath(os.environ.get("builddir", "."))
    for needed in ("transpckpt", "transpckptd", *(["tests/gpu/gpt"] if HARDWARE else
                                                  ["tests/sim/simgpu-run", "tests/trainers/gpt"])):
        if not os.path.exists(os.path.join(folder, needed)):
            skip(f"{needed} has not been built")
    return folder


def drawn_from():
    """A random generator whose seed is printed, so that a failure can be had again."""
    seed = int(os.environ.get("SEED") or random.randrange(1 << 32))
    print(f"# SEED={seed}")
    return random.Random(seed)


def scaled(arguments):
    """A trainer's arguments with TPCK_TEST_TIMES as many iterations: on hardware they are short, and a job is over before it is killed."""
    times = int(os.environ.get("TPCK_TEST_TIMES") or 1)
    return [str(int(word) * times) if before in ("--steps", "--save-every", "--eval-every") else word
            for before, word in zip(["", *arguments], arguments)]


class Checks:
    """TAP."""

    def __init__(self):
        self.count = self.failed = 0

    def ok(self, good, what, *details):
        self.count += 1
        print(f"{'ok' if good else 'not ok'} {self.count} - {what}")
        if not good:
            self.failed += 1
            for detail in details:
                for line in str(detail).splitlines():
                    print(f"#   {line}")
        sys.stdout.flush()
        return good

    def end(self):
        print(f"1..{self.count}")
        sys.exit(1 if self.failed else 0)


class Place:
    """Folders of one test's own, and the end of every agent that it started. A with statement."""

    def __init__(self, **settings):
        need_shm()
        self.build = build_folder()
        self.root = tempfile.mkdtemp(prefix="tpck-e2e.", dir=os.environ.get("TMPDIR", "/tmp"))
        try:
            self.shm = tempfile.mkdtemp(prefix="tpck-e2e.", dir=os.environ.get("TPCK_TEST_SHM", "/dev/shm"))
        except OSError as error:
            shutil.rmtree(self.root)
            skip(f"no memory tier: {error}")
        self.store = os.path.join(self.root, "store")
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(("TRANSPCKPT_", "SIMGPU_")) and k != "LD_PRELOAD"}
        self.environment.update(TRANSPCKPT_SHM=self.shm, TRANSPCKPT_DIR=self.store, TRANSPCKPT_JOB="j",
                                TRANSPCKPT_LOG="info", TRANSPCKPT_CONF="", TRANSPCKPT_LINGER_SEC="20", TRANSPCKPT_INTERVAL="1",
                                TRANSPCKPT_DURABLE_INTERVAL="1s",  # often enough for tests that are not about how often
                                TRANSPCKPT_AGENT=os.path.join(self.build, "transpckptd"), XDG_STATE_HOME=os.path.join(self.root, "state"))
        # What a command starts with: the software device's wrapper, or nothing.
        self.runner = [] if HARDWARE else [os.path.join(self.build, "tests/sim/simgpu-run")]
        # Where it lies once it is installed, the library finds it by itself.
        kernels = os.path.join(self.build, "kernels", "digest.fatbin" if HARDWARE else "digest.simgpu")
        if os.path.exists(kernels):
            self.environment["TRANSPCKPT_KERNELS"] = kernels
        self.environment.update(settings)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # One that has just been started makes its folders anew: none may be left when they are removed.
        end = time.monotonic() + 10
        while time.monotonic() < end:
            left = self.processes()
            if not left:
                break
            for pid in left:
                signal_if_there(pid)
            time.sleep(0.02)
        if os.environ.get("KEEP"):
            print(f"# left for you: {self.root} {self.shm}")
            return
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.shm, ignore_errors=True)

    def processes(self):
        """Processes that have this place's memory tier in their environment: it is named after nobody else's."""
        found = []
        mark = f"TRANSPCKPT_SHM={self.shm}".encode()
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{int(entry)}/environ", "rb") as f:
                    if mark in f.read().split(b"\0"):
                        found.append(int(entry))
            except (OSError, ValueError):
                pass
        return [pid for pid in found if pid != os.getpid()]

    def agents(self):
        """The agents that serve this place."""
        found = []
        for lock in glob.glob(os.path.join(self.shm, "*", "agent.lock")):
            try:
                with open(lock, encoding="ascii") as f:
                    pid = int(f.read() or 0)
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if b"transpckptd" in f.read():
                        found.append(pid)
            except (OSError, ValueError):
                pass
        return found

    def signal_agents(self, how=signal.SIGKILL):
        """Returns how many there were."""
        return sum(signal_if_there(pid, how) for pid in self.agents())

    def agent_log(self):
        text = ""
        for folder in (self.store, self.shm):
            for path in glob.glob(os.path.join(folder, "*", "agent.log")):
                text += read(path)
        return text

    def agent_settles(self, seconds=30):
        """Waits until no agent is left, or until it has nothing to write."""
        end = time.monotonic() + seconds
        while self.agents() and time.monotonic() < end:
            time.sleep(0.05)
        return not self.agents()

    def copy_build(self, name):
        """What a job of that trainer runs, copied to where another user may read it, as the build folder may lie in a home of
        mode 0700; from here on the place uses the copy."""
        copy = os.path.join(self.root, "build")
        for path in ("transpckpt", "transpckptd", ".libs/libtranspckpt.so", "shim/lib/transpckpt/libcuda.so.1", "kernels/digest.simgpu",
                     "tests/sim/simgpu-run", os.path.join("tests/trainers", name)):
            os.makedirs(os.path.dirname(os.path.join(copy, path)), exist_ok=True)
            shutil.copy(os.path.join(self.build, path), os.path.join(copy, path))
        shutil.copytree(os.path.join(self.build, "tests/sim/lib"), os.path.join(copy, "tests/sim/lib"), symlinks=True,
                        ignore=shutil.ignore_patterns(".libs", "*.a", "*.o"))
        subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
        self.runner = [os.path.join(copy, os.path.relpath(word, self.build)) for word in self.runner]
        self.environment.update(TRANSPCKPT_AGENT=os.path.join(copy, "transpckptd"),
                                TRANSPCKPT_KERNELS=os.path.join(copy, "kernels/digest.simgpu"))
        self.build = copy

    def trainer(self, name):
        return os.path.join(self.build, "tests/gpu" if HARDWARE else "tests/trainers", name)

    def command(self, *arguments, **environment):
        return subprocess.run([os.path.join(self.build, "transpckpt"), *arguments],
                              env={**self.environment, **environment}, capture_output=True, text=True, check=False)

    def listed(self):
        return json.loads(self.command("ls", "--json").stdout or "[]")

    def shown(self, *more):
        return json.loads(self.command("show", "--json", *more).stdout or "[]")


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def attributes(path):
    """Mode, and the time of change where a program has set one: those are of long ago."""
    found = os.stat(path)
    return oct(found.st_mode), found.st_mtime if found.st_mtime < 1e9 else "now"


def tree(folder):
    """Relative path -> bytes of every file."""
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, folder)] = f.read()
    return found


def differences(a, b):
    """What differs between two folders, as lines."""
    left, right = tree(a), tree(b)
    lines = []
    for name in sorted(left.keys() | right.keys()):
        if name not in right:
            lines.append(f"{name} is missing")
        elif name not in left:
            lines.append(f"{name} should not be there")
        elif left[name] != right[name]:
            at = next((i for i, (x, y) in enumerate(zip(left[name], right[name])) if x != y),
                      min(len(left[name]), len(right[name])))
            lines.append(f"{name} differs from byte {at} on (sizes {len(left[name])}, {len(right[name])})")
        else:
            one, other = (attributes(os.path.join(folder, name)) for folder in (a, b))
            if one != other:
                lines.append(f"{name} has mode and time {other} in place of {one}")
    return lines


def built(place, name, source, *flags):
    """A library made of a source of this folder."""
    compiler = ("CXX", "c++") if source.endswith(".cc") else ("CC", "cc")
    path = os.path.join(place.root, name)
    subprocess.run([*os.environ.get(*compiler).split(), *os.environ.get("CUDA_CPPFLAGS", "").split(), "-shared", "-fPIC", "-w",
                    *flags, "-o", path, os.path.join(os.path.dirname(os.path.abspath(__file__)), source), "-ldl"], check=True)
    return path


def each_once(text):
    """The lines of a text without those that came before: what a resumed run says again of its last iterations."""
    return list(dict.fromkeys(text.splitlines()))


def signal_if_there(pid, how=signal.SIGKILL, whole_group=False):
    """To a process that may have ended by itself, however unlikely that looks: a loaded machine has its own order.
    False if it had."""
    try:
        (os.killpg if whole_group else os.kill)(pid, how)
    except ProcessLookupError:
        return False
    return True


def children_of(pid):
    """Of its first thread."""
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


def stand_still(pid, seconds=10):
    """Stops a process. The kernel tells one thread first, which may be waiting for a disk, and the others go on until that one is
    back: a stopped process is one of which every thread is. False if it had ended, or would not stop."""
    def moves():
        try:
            states = [read(f"/proc/{pid}/task/{task}/stat").rpartition(")")[2].split()[:1] for task in os.listdir(f"/proc/{pid}/task")]
        except OSError:
            return False
        return any(state and state[0] not in "TtZX" for state in states)

    if not pid or not signal_if_there(pid, signal.SIGSTOP):
        return False
    end = time.monotonic() + seconds
    while moves():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return os.path.exists(f"/proc/{pid}")


def look_until(condition, seconds, least, going=lambda: True):
    """What the condition gives once it holds; None at the end of its time, or once nothing is going on any more. It is looked at
    often, but a look that takes a processor's time, such as a command, gets a fifth of one at most: the tests beside this one,
    and what is waited for, need the rest."""
    end = time.monotonic() + seconds
    while going():
        begun = time.monotonic()
        found = condition()
        now = time.monotonic()
        if found or now > end:
            return found or None
        time.sleep(max(least, min(4 * (now - begun), 0.2)))
    return None


class Start:
    """One start of a command. Its standard output and error go to files of their own."""

    def __init__(self, place, argv, cwd, environment, name, give_input=None):
        self.out, self.err = os.path.join(place.root, name + ".out"), os.path.join(place.root, name + ".err")
        self.begun = time.monotonic()
        self.missed = ""  # why it was killed at another moment than meant
        with open(self.out, "wb") as out, open(self.err, "wb") as err, \
                (give_input() if give_input else open(os.devnull, "rb")) as given:
            self.process = subprocess.Popen(argv, cwd=cwd, env=environment, stdin=given, stdout=out, stderr=err,
                                            start_new_session=True)

    def running(self):
        return self.process.poll() is None

    def said(self):
        return read(self.err)

    def printed(self):
        return read(self.out)

    def kill(self):
        """With all of its group. The number of a leader that has been waited for may be another's by now."""
        pid = self.process.pid
        if self.process.returncode is None or not os.path.exists(f"/proc/{pid}"):
            signal_if_there(pid, whole_group=True)
        self.process.wait()

    def wait(self, seconds=WAIT_SEC):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return "hung"

    def until(self, condition, seconds=WAIT_SEC):
        """Looks often; False if the command ended first."""
        return bool(look_until(condition, seconds, 0.0005, self.running))


    def slowly_until(self, condition, seconds=WAIT_SEC, rest=0):
        """The same, with all its processes stopped while it is looked at: a short program cannot end before that, however busy the
        machine is. They are stopped when it returns, unless the command ended first. rest: seconds that they are stopped for besides each time, for
        agents to have on a busy machine."""
        end, looks = time.monotonic() + seconds, 0
        while self.running():
            signal_if_there(self.process.pid, signal.SIGSTOP, whole_group=True)
            if condition():
                self.prefer(0)
                return True
            if looks % 16 == 0:
                self.prefer(19)
            looks += 1
            time.sleep(rest)
            self.go_on()
            if time.monotonic() > end:
                return False
            time.sleep(0.004)
        return False

    def prefer(self, nice):
        """How nice the first thread of each of its processes is to others: on a busy machine, where the library's threads wait for a processor,
        the program is not through before there is a snapshot. Root's, who alone may take it back."""
        if os.geteuid() != 0:
            return
        for entry in os.listdir("/proc"):
            try:
                if os.getpgid(int(entry)) == self.process.pid:
                    for thread in os.listdir(f"/proc/{entry}/task"):
                        os.setpriority(os.PRIO_PROCESS, int(thread), nice if thread == entry else 0)
            except (OSError, ValueError):
                pass

    def go_on(self):
        signal_if_there(self.process.pid, signal.SIGCONT, whole_group=True)
        # A child that was stopped on its way into a session of its own, as an agent's first one, is in the group no more, and its parent waits for it.
        for child in children_of(self.process.pid):
            for one in (child, *children_of(child)):
                if read(f"/proc/{one}/stat").rpartition(")")[2].split()[:1] == ["T"]:
                    signal_if_there(one, signal.SIGCONT)


class Kill:
    """What one kill did."""

    def __init__(self, moment, at, generation, capturing):
        self.moment, self.at, self.generation = moment, at, generation
        self.capturing = capturing  # it had taken a snapshot
        self.resumed = None  # step at which the next start that got so far went on; 0: from the beginning
        self.set_back = False  # it went further back on purpose, and said so
        self.skipped = False  # boundaries were passed over: a busy machine had no image free in time

    @property
    def lost(self):
        return None if self.resumed is None else self.at - self.resumed

    @property
    def judged(self):
        """Whether the bound on lost work holds for it."""
        return self.capturing and not self.skipped and self.resumed is not None and not self.set_back


class Job:
    """A trainer with its arguments: self.plain and self.out are the folders that it writes."""

    def __init__(self, place, name, *arguments, environment=None, base=0):
        self.place = place
        # Else those that need some look for texts that most machines have.
        data = os.environ.get("TPCK_TEST_DATA") if name != "rough" else None
        self.arguments = [place.trainer(name), *arguments, *(["--data", data] if data else []), "--out", "out"]
        self.environment = {**place.environment, **(environment or {})}
        at = len(arguments) - arguments[::-1].index("--steps")  # where it is given twice, the last one holds
        self.last = int(arguments[at])
        self.base = base  # the first iteration, where the trainer resumes from its own checkpoint
        self.work = os.path.join(place.root, "work")
        self.out = os.path.join(self.work, "out")
        self.plain = os.path.join(place.root, "plain", "out")
        os.makedirs(self.work)
        os.makedirs(os.path.dirname(self.plain))
        self.starts, self.kills = [], []
        self.set_back = set()  # generations whose snapshots are not offered any more
        self.plain_sec = 0
        self.runner = place.runner
        self.input = None  # called for an open file that a start gets as its standard input

    def run_plain(self, *more):
        """The reference. Returns its Start."""
        environment = {k: v for k, v in self.environment.items() if not k.startswith("TRANSPCKPT_")}
        start = Start(self.place, [*self.runner, *self.arguments, *more], os.path.dirname(self.plain), environment,
                      "plain")
        status = start.wait(WAIT_SEC)
        self.plain_sec = time.monotonic() - start.begun
        if status != 0:
            raise RuntimeError(f"the plain run ended with {status}: {start.said()}")
        self.plain_start = start
        return start

    def start(self, under=(), arguments=None, environment=None):
        argv = [*self.runner, *under, os.path.join(self.place.build, "transpckpt"), "run", "--",
                *(arguments or self.arguments)]
        start = Start(self.place, argv, self.work, {**self.environment, **(environment or {})},
                      f"start{len(self.starts)}", self.input)
        start.offers = self.place.agent_log().count("offering step")
        self.starts.append(start)
        return start

    def killed_at(self, iteration, ready=lambda: True, **options):
        """A start that is killed once it has come so far, and there is something to go on from, and it is ready for what comes."""
        start, missed = self.start(**options), 0

        def there():
            nonlocal missed
            if len(re.findall(r"^step ", start.printed(), re.M)) < iteration:
                return False
            if any(row["offered"] for row in self.place.listed()) and ready():
                return True
            # The agent of a busy machine gets time while the program is stopped, the more the longer it takes.
            missed += 1
            time.sleep(min(0.02 * missed, 0.5))
            return False

        if not start.slowly_until(there):
            start.missed = (f", {len(re.findall(r'^step ', start.printed(), re.M))} of {iteration} iterations after "
                            f"{time.monotonic() - start.begun:.0f} s, status {start.process.returncode}, {self.place.listed()}")
        start.kill()
        return start

    def progress(self):
        """How many iterations log.txt has, from this run's first."""
        steps = re.findall(r"^step (\d+) ", read(os.path.join(self.out, "log.txt")), re.M)
        return int(steps[-1]) + 1 - self.base if steps else 0

    @staticmethod
    def resumed_at(start):
        """None: it did not get so far."""
        live = LIVE.search(start.said())
        return int(live[1]) if live else None

    def kill_plan(self, rng, count):
        """Moments (kind, goal in iterations, fraction) over the whole run. Every other one is about progress: two
        deaths in a row before anything was achieved make the next start go further back, which is not what is
        measured here."""
        steps = self.steps() - 6
        early = ["forward", "inject", "start", "inject"]
        late = ["progress", "save", "progress", "flush"]
        rng.shuffle(early)
        rng.shuffle(late)
        goals = sorted(rng.uniform(0, steps) for _ in range(count))
        return [((early if i % 2 else late)[i // 2 % 4], int(goal), rng.random()) for i, goal in enumerate(goals)]

    def steps(self):
        return self.last - self.base

    def _resume_took(self):
        """Seconds forward and inject of the newest start that went live."""
        for start in reversed(self.starts):
            took = LIVE.search(start.said())
            if took:
                return float(took[2]), float(took[3])
        return 0.03, 0.01

    def _wait_for(self, start, moment, iteration_sec):
        """Returns when it is time to kill; False if the run ended before."""
        kind, goal, part = moment
        first = self.progress()

        if kind == "start":
            return start.until(lambda: time.monotonic() - start.begun > 0.12 * part)
        if kind in ("forward", "inject"):
            # Without anything to resume from, this is some moment of the start.
            start.until(lambda: self.is_resuming(start) or self.progress() > first)
            forward, inject = self._resume_took()
            time.sleep(forward * part if kind == "forward" else forward + inject * part)
            return start.running()
        # From here on the run shall have got somewhere.
        if not start.until(lambda: self.is_far_enough(start, goal)):
            return False
        if kind == "progress":
            time.sleep((1 + 2 * part) * iteration_sec)
            return start.running()
        folder = self.out if kind == "save" else os.path.join(self.place.store, "j")

        def look():
            try:
                return {(entry.name, entry.inode(), entry.stat().st_mtime_ns) for entry in os.scandir(folder)
                        if entry.name not in ("log.txt", "agent.log")}
            except OSError:
                return set()

        before, ends = look(), time.monotonic() + 15 * iteration_sec
        start.until(lambda: look() != before or time.monotonic() > ends)
        time.sleep(0.004 * part)
        return start.running()

    def is_resuming(self, start):
        return "transpckpt: resuming at" in start.said() or self.place.agent_log().count("offering step") > start.offers

    def is_far_enough(self, start, goal):
        """Some iterations past where it went on, so that snapshots are taken again, and past the goal. What it prints
        itself counts: log.txt may still be an earlier start's."""
        steps = re.findall(r"^step (\d+) ", start.printed(), re.M)
        return len(steps) >= 4 and int(steps[-1]) + 1 - self.base >= goal

    def run_killed(self, plan, agent_too=None, between=None):
        """Kills by plan, then lets the run end by itself. Returns the last status; self.kills has what happened."""
        iteration_sec = self.plain_sec / max(self.steps(), 1)
        for moment in plan:
            start = self.start()
            if not self._wait_for(start, moment, iteration_sec):
                if start.running():
                    start.kill()
                    return "hung"
                self.after_start(start)
                return start.wait()
            start.kill()
            self.after_start(start)
            if start.wait() == 0:  # it ended while the moment was come
                return 0
            self.kills.append(self.after_kill(moment[0]))
            if agent_too and agent_too():
                self.place.signal_agents()
            if between:
                between(self)
        start = self.start()
        status = start.wait()
        self.after_start(start)
        return status

    def after_kill(self, moment):
        """Counts the iterations that the newest live process had finished as the library does, which is less than the
        trainer's count where the trainer skipped an update."""
        rows = [row for row in self.place.shown() if row.get("iterations") and row["state"] != "running forward"]
        newest = max(rows, key=lambda row: row["generation"], default=None)
        last = self.kills[-1] if self.kills else None
        if newest and not (last and last.generation == newest["generation"]):
            kill = Kill(moment, newest["iterations"], newest["generation"], newest["held_step"] > 0)
            kill.skipped = newest["notes"]["skipped"] > 1  # the first is passed over while images are made
            # Killed on its way out, it may have said already that it ended well: nothing is left to go on with.
            kill.skipped = kill.skipped or kill.at >= self.steps() - 1
            return kill
        # The start had not come so far; what an earlier one had finished is what there is to lose.
        if not last:
            return Kill(moment, 0, None, False)
        kill = Kill(moment, last.at, last.generation, last.capturing)
        kill.skipped = last.skipped
        return kill

    def after_start(self, start):
        """Says of the kills before this start where it went on."""
        at = self.resumed_at(start)
        # Who was sent back stays there until there is a newer snapshot.
        same = self.kills[-1].generation if self.kills else None
        if "not resuming at" in start.said():
            self.set_back.add(same)
        if at is None and (self.is_resuming(start) or not start.printed()):
            return
        for kill in self.kills:
            if kill.resumed is None or (same in self.set_back and kill.generation == same):
                kill.resumed = at or 0
                kill.set_back = same in self.set_back

    def differences(self, printed_too=True, but=None):
        """Lines that match `but` may be printed or not."""
        # A program that is killed between mkstemp() and rename() leaves its temporary file behind.
        lines = [line for line in differences(self.plain, self.out) if not re.match(r"\S+\.ckpt\.\w{6} should", line)]
        printed = "\n".join(start.printed() for start in self.starts)
        wanted, found = ([line for line in each_once(text) if line and not (but and re.match(but, line))]
                         for text in (self.plain_start.printed(), printed))
        if printed_too and wanted != found:
            lines.append("standard output differs")
        return lines

    def tell(self):
        """What happened, for people."""
        for kill in self.kills:
            print(f"# killed at {kill.moment}, iteration {kill.at}: went on at {kill.resumed}, "
                  f"lost {kill.lost}{', set back' if kill.set_back else '' if kill.capturing else ', too early'}")

    def story(self):
        """Everything said, for a failure."""
        text = "".join(f"--- start {i}: {s.process.returncode}{s.missed}\n{s.said()}" for i, s in enumerate(self.starts))
        return text + "--- agent\n" + "\n".join(self.place.agent_log().splitlines()[-60:])
