#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must not be resumed, and what cannot be: a program that is no longer the same, a store that is damaged, memory
or disk that has no room, other programs under the same preload. Argument: a group of cases.

Each time there is one clear line, and the run ends like a plain run of what was started."""
import errno
import fcntl
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job

STEPS = "80"


def text_file(path):
    """Real text, of a few tens of KiB."""
    text = b""
    for pattern in ("/usr/share/common-licenses/*", "/usr/include/std*.h"):
        for name in sorted(glob.glob(pattern)):
            if len(text) < 60000:
                with open(name, "rb") as f:
                    text += f.read()
    with open(path, "wb") as f:
        f.write(text[:60000])


def gpt(place, *more):
    data = os.path.join(place.root, "data.txt")
    text_file(data)
    # Else the program is at its end between two looks of a busy machine.
    place.environment.setdefault("SIMGPU_KERNEL_US", "100")
    this = job.Job(place, "gpt", "--seed", "5", "--steps", STEPS, "--data", data, *more)
    this.data = data
    return this


def ours(start):
    return [line for line in start.said().splitlines() if line.startswith("transpckpt:")]


def plain_again(this):
    shutil.rmtree(this.plain, ignore_errors=True)
    this.run_plain()


def judge(checks, this, start, status, what, wanted):
    """Ended like the plain run, after exactly one line about not resuming, which matches."""
    lines = job.differences(this.plain, this.out)
    checks.ok(status == 0 and not lines, f"{what}: ends like a plain run of it", f"status {status}", *lines,
              this.story())
    said = [line for line in ours(start) if re.search("not resum|cannot resume|not resumable", line)]
    checks.ok(len(said) == 1 and re.search(wanted, said[0]), f"{what}: one line says so: {said}",
              f"wanted: {wanted}", this.story())


# ---- the program is another one ------------------------------------------------------------------------------------

def change_byte(this, keep_time):
    found = os.stat(this.data)
    with open(this.data, "r+b") as f:
        # All over the middle, so that some batch before the snapshot and some after have read one.
        for at in range(20000, 40000, 150):
            f.seek(at)
            f.write(b"#")
    if keep_time:
        os.utime(this.data, ns=(found.st_atime_ns, found.st_mtime_ns))


def change_size(this):
    with open(this.data, "ab") as f:
        f.write(b"one more line\n" * 40)


def change_argument(this, name, value):
    at = this.arguments.index(name) + 1
    this.arguments[at] = value


def busy(binary):
    try:
        with open(binary, "ab"):
            return False
    except OSError as error:
        return error.errno == errno.ETXTBSY


def other_binary(this):
    # A process that was killed may be on its way out.
    job.look_until(lambda: not busy(this.arguments[0]), 10, 0.01)
    with open(this.arguments[0], "ab") as f:
        f.write(b"\0")


def own_binary(this):
    folder = os.path.join(this.place.root, "bin")
    os.makedirs(folder)
    this.arguments[0] = shutil.copy(this.arguments[0], folder)


CHANGES = {
    # what: (before, change, what the line names)
    "data, same size and time": (None, lambda this: change_byte(this, True), r"iteration \d+, device operation"),
    "data, same size": (None, lambda this: change_byte(this, False),
                        r"not resuming at step \d+: the content of \S+/data\.txt is not what the first run read"),
    "data, another size": (None, change_size, r"not resuming at step \d+: \S+/data\.txt has 60560 bytes, had 60000"),
    "data, another file": (lambda this: this.arguments.__setitem__(this.arguments.index(this.data), this.data + ".link") or
                   os.symlink(this.data, this.data + ".link"),
                   lambda this: os.rename(this.data, this.data + ".other") or os.unlink(this.data + ".link") or
                   shutil.copy("/usr/include/stdio.h", this.data + ".link"),
                   r"not resuming at step \d+: the link \S+/data\.txt\.link led to \S+/data\.txt when the first run read it, and is none"),
    "argument --steps": (None, lambda this: change_argument(this, "--steps", "36"), r"argument|--steps|36"),
    "argument --lr": (lambda this: this.arguments.extend(["--lr", "0.002"]),
                      lambda this: change_argument(this, "--lr", "0.001"), r"argument|--lr|0\.001"),
    "environment": (lambda this: this.environment.update(MY_SETTING="1"),
                    lambda this: this.environment.update(MY_SETTING="2"), r"environment.*MY_SETTING|MY_SETTING"),
    "environment, a new variable": (None, lambda this: this.environment.update(NEW_SETTING="2"), r"NEW_SETTING"),
    "one of many arguments": (lambda this: this.arguments.extend(["operand"] * 6000 + ["last=1"]),
                              lambda this: this.arguments.__setitem__(-1, "last=2"), r"argument \d+ is '\(\d+ more, digest"),
    "the end of a long argument": (lambda this: this.arguments.append("x" * 70000 + "1"),
                                   lambda this: this.arguments.__setitem__(-1, "x" * 70000 + "2"), r"70001 bytes, digest"),
    "one of many variables": (lambda this: this.environment.update({f"MANY_{i:04}": "value" for i in range(1500)}),
                              lambda this: this.environment.update(MANY_1499="another"), r"environment.*more, digest"),
    "executable": (own_binary, other_binary, r"executable"),
}


def identity(checks):
    for what, (before, change, wanted) in CHANGES.items():
        with job.Place() as place:
            this = gpt(place)
            if before:
                before(this)
            this.run_plain()
            this.killed_at(20)
            checks.ok(any(row["offered"] for row in place.listed()), f"{what}: there is something to resume",
                      this.story())
            change(this)
            plain_again(this)
            start = this.start()
            judge(checks, this, start, start.wait(), what, wanted)
    for what, settings, resumes in (("a data set of the same bytes and another time", {}, True),
                                    ("a longer way than is allowed", {"TRANSPCKPT_FORWARD_MAX_SEC": "0.001"}, False)):
        with job.Place() as place:
            this = gpt(place)
            this.run_plain()
            this.killed_at(20)
            if resumes:
                shutil.copyfile(this.data, this.data + ".new")
                os.rename(this.data + ".new", this.data)
            start = this.start(environment=settings)
            start.slowly_until(lambda start=start: "step 30 " in start.printed())
            start.kill()
            checks.ok(bool(job.Job.resumed_at(start)) == resumes, f"{what}: {'' if resumes else 'not '}resumed", this.story())
            said = [line for line in ours(start) if "not resuming" in line]
            checks.ok(len(said) == (not resumes), f"{what}: said: {said}")
            start = this.start()
            status = start.wait()
            checks.ok(status == 0 and job.Job.resumed_at(start) and not this.differences(), f"{what}: and resumed again",
                      f"status {status}", *this.differences(), this.story())
    with job.Place() as place:
        this = gpt(place)
        this.run_plain()
        this.killed_at(20)
        start = this.start(environment={"TERM": "other", "SSH_TTY": "x", "PWD": "/elsewhere", "MASTER_ADDR": "node7"})
        status = start.wait()
        checks.ok(status == 0 and job.Job.resumed_at(start) and not this.differences(),
                  "what cannot matter does not keep it from resuming", *this.differences(), this.story())
    # Slurm names what it gives a job by both.
    for what, first, then, resumes in (("another device of Slurm's", ("0", "0"), ("1", "1"), True),
                                       ("one device more of Slurm's", ("0", "0"), ("0,1", "0,1"), False),
                                       ("another device of one's own", ("0", None), ("1", None), False)):
        with job.Place(SIMGPU_DEVICES="2") as place:
            this = gpt(place)
            this.run_plain()

            def devices(given):
                names = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
                return {name: value for name, value in zip(names, given) if value}
            this.killed_at(20, environment=devices(first))
            start = this.start(environment=devices(then))
            status = start.wait()
            checks.ok(status == 0 and not this.differences(printed_too=resumes) and bool(job.Job.resumed_at(start)) == resumes,
                      f"{what}: {'' if resumes else 'not '}resumed", *this.differences(), this.story())


# ---- the store is damaged ------------------------------------------------------------------------------------------

def on_disk_only(place):
    """Everything durable, nothing in memory, as after a reboot."""
    place.signal_agents(signal.SIGTERM)
    place.agent_settles()
    for name in os.listdir(place.shm):
        shutil.rmtree(os.path.join(place.shm, name))


def newest(place, name):
    folders = sorted(f for f in glob.glob(os.path.join(place.store, "j/step-*")) if os.path.exists(f + "/MANIFEST"))
    return os.path.join(folders[-1], name)


def flip(path):
    with open(path, "r+b") as f:
        f.seek(5000)
        byte = f.read(1)
        f.seek(5000)
        f.write(bytes([byte[0] ^ 4]))


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2 // 4096 * 4096)


def unknown_version(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace('"format":1', '"format":99', 1))


DAMAGES = {
    "flipped bit": (lambda place: flip(newest(place, "data.0")), r"digest|does not match|verif", True),
    "truncated container": (lambda place: cut(newest(place, "data.0")), r"data\.0|short|chunk", True),
    "missing container": (lambda place: os.unlink(newest(place, "data.0")), r"data\.0|No such file", True),
    "manifest of an unknown version": (lambda place: unknown_version(newest(place, "MANIFEST")), r"has format 99", False),
}


def damage(checks):
    for what, (harm, wanted, aside) in DAMAGES.items():
        # Iterations take long enough for several to be durable before the last.
        with job.Place(TRANSPCKPT_DURABLE_INTERVAL="4", SIMGPU_KERNEL_US="30", SIMGPU_TOGETHER_US="4000") as place:
            this = gpt(place)
            this.run_plain()
            this.killed_at(30, ready=lambda place=place: sum(row["state"] == "durable" for row in place.listed()) >= 2)
            on_disk_only(place)
            before = [row["step"] for row in place.listed()]
            checks.ok(len(before) >= 2, f"{what}: several are durable {before}", this.story())
            if len(before) < 2:
                continue
            harm(place)
            start = this.start()
            status = start.wait()
            lines = this.differences()
            checks.ok(status == 0 and not lines, f"{what}: the same bytes", f"status {status}", *lines, this.story())
            checks.ok(job.Job.resumed_at(start) in before[:-1], f"{what}: the previous one was used", before,
                      this.story())
            said = [line for line in place.agent_log().splitlines() if re.search(wanted, line)]
            checks.ok(said, f"{what}: said: {said[:1]}", this.story())
            if aside:
                checks.ok(glob.glob(os.path.join(place.store, "j/quarantine/*")), f"{what}: set aside", this.story())


# ---- no room, no permission ----------------------------------------------------------------------------------------

class Mounted:
    """A small tmpfs; None where that is not allowed."""

    def __init__(self, at, size):
        self.at = at
        os.makedirs(at, exist_ok=True)
        self.there = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", at], check=False,
                                    stderr=subprocess.DEVNULL).returncode == 0

    def __enter__(self):
        return self.there

    def __exit__(self, *_):
        if self.there:
            subprocess.run(["umount", "-l", self.at], check=False)


def unharmed(checks, this, what, wanted):
    start = this.start()
    status = start.wait()
    lines = this.differences()
    checks.ok(status == 0 and not lines, f"{what}: the trainer is unharmed", f"status {status}", *lines, this.story())
    said = [line for line in start.said().splitlines() + this.place.agent_log().splitlines() if re.search(wanted, line)]
    checks.ok(said, f"{what}: said: {said[:2]}", this.story())
    return said


def room(checks):
    root = os.geteuid() == 0
    with job.Place() as place:
        this = gpt(place)
        this.run_plain()
        with open(place.store, "w", encoding="ascii"):
            pass
        unharmed(checks, this, "a store that is a file", r"Not a directory|File exists|not a folder|store")
    with job.Place(TRANSPCKPT_OVERHEAD="much", TRANSPCKPT_KEEPS="3") as place:
        this = gpt(place)
        this.run_plain()
        said = unharmed(checks, this, "wrong settings", r"TRANSPCKPT_OVERHEAD|TRANSPCKPT_KEEPS")
        checks.ok(len({line for line in said}) == 2, "wrong settings: one line each", *said)
    with job.Place(TRANSPCKPT_AGENT="/nonexistent/transpckptd") as place:
        this = gpt(place)
        this.run_plain()
        unharmed(checks, this, "an agent that is not there", r"/nonexistent/transpckptd")
    # What the run that was killed had is not durable yet when the next one asks for room, and there is none beside it.
    with job.Place(TRANSPCKPT_MEMORY="38M", TRANSPCKPT_DURABLE_INTERVAL="1000") as place:
        this = gpt(place)
        this.run_plain()
        os.makedirs(os.path.join(place.store, "j"))
        with open(os.path.join(place.store, "j", "lock"), "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            this.killed_at(10)
            start = this.start()
            full = start.slowly_until(lambda: "no snapshots of process" in place.agent_log())
        checks.ok(full, "no room beside what is not durable yet: said", this.story())
        start.go_on()
        second = start.slowly_until(lambda: any(row["generation"] == 2 and row["offered"] for row in place.listed()), rest=0.02)
        checks.ok(second, "and snapshots are taken once that is", this.story())
        start.go_on()
        checks.ok(start.wait() == 0 and not this.differences(), "and it trains to the same bytes", *this.differences(), this.story())
    if not root:
        print("# not root: no small file systems, no other owner")
        return
    with job.Place() as place:
        this = gpt(place)
        this.run_plain()
        os.makedirs(os.path.join(place.store, "j"))
        for path in (place.store, os.path.join(place.store, "j")):
            os.chown(path, 12345, 12345)
        unharmed(checks, this, "somebody else's store", r"belongs to user 12345")
        place.agent_settles()
        left = [os.path.join(base, name) for base, folders, files in os.walk(place.store) for name in folders + files]
        checks.ok(left == [place.store + "/j"], "nothing is written to somebody else's store", *left)
    with job.Place() as place, Mounted(place.shm, "3m") as there:
        if there:
            this = gpt(place)
            this.run_plain()
            unharmed(checks, this, "no room in memory", r"No space|no room|does not fit|tmpfs")
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="3") as place, Mounted(place.store, "4m") as there:
        if there:
            this = gpt(place)
            this.run_plain()
            this.killed_at(25, ready=lambda: "No space left" in place.agent_log())
            start = this.start()
            checks.ok(start.wait() == 0 and not this.differences() and job.Job.resumed_at(start),
                      "no room on disk: resumed from memory, the same bytes", *this.differences(), this.story())
            checks.ok("No space left" in place.agent_log(), "no room on disk: said", this.story())


# ---- several programs, other users, agents that die ----------------------------------------------------------------

def life(checks):
    with job.Place() as place:
        this = gpt(place)
        this.run_plain()
        trainer = " ".join(this.arguments)
        prepare = f"{place.trainer('classifier')} --seed 1 --steps 12 --out prep >/dev/null"
        this.arguments = ["/bin/sh", "-c", f"{prepare} && {trainer}"]
        this.killed_at(20)
        this.start().wait()
        checks.ok(not job.differences(this.plain, this.out), "two programs under one preload: the same bytes",
                  *job.differences(this.plain, this.out), this.story())
        checks.ok(any(job.Job.resumed_at(s) for s in this.starts), "the second of them was resumed", this.story())
        wrong = [line for s in this.starts for line in ours(s) if "cannot resume" in line]
        checks.ok(not wrong, "nothing was offered to the wrong program", *wrong, this.story())
        start = this.start()
        checks.ok(start.wait() == 0 and job.Job.resumed_at(start) is None and "step 0 " in start.printed(),
                  "a run that ended is started again from its beginning", this.story())

    with job.Place() as place:
        this = gpt(place)
        this.run_plain()
        start = this.start()
        agents = 0
        until = time.monotonic() + 60
        while start.running() and time.monotonic() < until:
            time.sleep(0.12)
            if start.running():
                agents += place.signal_agents()
        checks.ok(start.wait() == 0 and not this.differences(), f"{agents} agents killed: the trainer does not notice",
                  *this.differences(), this.story())

    with job.Place() as place:
        this = job.Job(place, "gpt", "--seed", "5", "--steps", "120")
        this.run_plain()
        start = this.start()
        for goal in (15, 30):
            start.slowly_until(lambda goal=goal: this.progress() >= goal)
            place.signal_agents()
            start.go_on()
        start.slowly_until(lambda: this.progress() >= 110)
        start.kill()
        adopted = "adopted session" in place.agent_log()
        held = max((row["step"] for row in place.listed()), default=0)
        checks.ok(adopted, "the next agent adopts what is in memory", this.story())
        checks.ok(held >= 80, f"and snapshots go on (newest: step {held})", this.story())
        status = this.start().wait()
        checks.ok(status == 0 and not this.differences(), "and are good", *this.differences(), this.story())

    for what, disk in (("memory lost", True), ("memory and store lost", False), ("memory and the first tier lost", True)):
        with job.Place(TRANSPCKPT_DURABLE_INTERVAL="5") as place:
            near = place.root + "/near"
            if "tier" in what:
                place.environment["TRANSPCKPT_DIR"] = f"node:{near},site:{place.store}"
            this = gpt(place)
            this.run_plain()
            this.killed_at(30)
            on_disk_only(place)
            if not disk:
                shutil.rmtree(place.store)
            elif "tier" in what:
                shutil.rmtree(near)
            start = this.start()
            status = start.wait()
            checks.ok(status == 0 and not this.differences(), f"{what}: the same bytes", *this.differences(),
                      this.story())
            at = job.Job.resumed_at(start)
            checks.ok(bool(at) == disk, f"{what}: went on at {at}", this.story())
    unprivileged(checks)
    crowded(checks)


def crowded(checks):
    """The device, or what can be pinned for it, has no room for what the library needs there: the first allocations are its own."""
    told = 0
    for number in (1, 2, 3):
        with job.Place() as place:
            this = gpt(place)
            this.run_plain()
            start = this.start(environment={"SIMGPU_FAULT": f"oom@{number}"})
            status = start.wait()
            told += "does not allow snapshots behind the program's back" in start.said()
            checks.ok(status == 0 and not this.differences(), f"allocation {number} of the device fails: the same bytes", f"status {status}",
                      *this.differences(), this.story())
    checks.ok(told, "and a line says that there are no snapshots")


def unprivileged(checks):
    """As nobody, with 8 MiB of locked memory."""
    if os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("prlimit"):
        print("# not root or no setpriv: not run as another user")
        return
    with job.Place() as place:
        # As in a home of mode 0700, wherever this clone is.
        closed = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=0700 none "$0" && exec "$@"', place.build]
        closed = [] if subprocess.run([*closed, "true"], capture_output=True, check=False).returncode else closed
        place.copy_build("gpt")
        os.chown(place.root, 65534, 65534)
        # A folder for temporary files that others cannot enter would be the only thing that is shown.
        if subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "test", "-x", place.root], check=False).returncode:
            print(f"# others cannot enter the folders above {place.root}: not run as another user")
            return
        this = gpt(place)
        for folder in (place.root, this.work, os.path.dirname(this.plain), place.shm):
            os.chown(folder, 65534, 65534)
        this.environment["HOME"] = place.root
        user = [*closed, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "prlimit", "--memlock=8388608:8388608"]
        this.run_plain()
        this.killed_at(25, under=user)
        start = this.start(under=user)
        status = start.wait()
        checks.ok(status == 0 and not this.differences(), "as nobody with 8 MiB of locked memory: the same bytes",
                  f"status {status}", *this.differences(), this.story())
        checks.ok(job.Job.resumed_at(start), "as nobody: resumed", this.story())
        until = time.monotonic() + 30
        owner = place.store + "/j"
        while not glob.glob(owner + "/step-*/MANIFEST") and time.monotonic() < until:
            time.sleep(0.05)
        checks.ok(os.path.exists(owner) and os.stat(owner).st_mode & 0o77 == 0 and os.stat(owner).st_uid == 65534,
                  "as nobody: the store is that user's alone", this.story())


# ---- starting over -------------------------------------------------------------------------------------------------

def habits(place, name, *flags):
    return job.built(place, name, "habits.c", *flags)


def with_habits(place, library, habit, give_input):
    """A trainer with the habits, killed, and its data changed so that it cannot be resumed. The last start."""
    this = gpt(place)
    this.run_plain()
    change = place.root + "/habits"
    this.environment.update(LD_PRELOAD=library, HABITS=change, HABIT=habit)
    this.arguments[-1] = this.out  # it changes its folder
    this.input = give_input
    this.killed_at(20)
    change_byte(this, True)
    plain = this.arguments[-1]
    this.arguments[-1] = "out"
    del this.environment["LD_PRELOAD"]
    plain_again(this)
    this.arguments[-1] = plain
    this.environment["LD_PRELOAD"] = library
    return this, this.start()


def left_behind(start):
    """How many processes of a start that has ended are still there; they are ended."""
    found = subprocess.run(["ps", "-o", "pid=", "-g", str(start.process.pid)], capture_output=True, text=True,
                           check=False).stdout.split()
    if found:
        job.signal_if_there(start.process.pid, whole_group=True)
    return len(found)


def draws(checks):
    with job.Place() as place:
        this = gpt(place)
        this.run_plain()
        this.environment.update(LD_PRELOAD=job.built(place, "draws.so", "draws.cc"), DRAWS=place.root + "/draws")
        this.killed_at(15)
        start = this.start()
        status = start.wait()
        checks.ok(status == 0 and job.Job.resumed_at(start) and not this.differences(), "a program that draws: resumed",
                  *this.differences(), this.story())
        lines = [dict(word.split("=") for word in line.split()) for line in job.read(place.root + "/draws").splitlines()]
        checks.ok(len(lines) == 2 and len(lines[0]) == 16, "it drew from everything, twice", *lines)
        if len(lines) == 2:
            for what, value in lines[0].items():
                checks.ok(lines[1].get(what) == value, f"{what}: the same is drawn again", value, lines[1].get(what))


def chance(checks):
    """What lies elsewhere by chance is seen, tried again, and given up in the end."""
    for misses, resumes, nth in ((1, True, {}), (2, True, {}), (3, False, {}), (1, True, {"ELSEWHERE_NTH": "2"})):
        with job.Place() as place:
            this = gpt(place)
            this.run_plain()
            count = place.root + "/elsewhere"
            with open(count, "w", encoding="ascii") as f:
                f.write("0")
            this.environment.update(LD_PRELOAD=job.built(place, "elsewhere.so", "elsewhere.c"), ELSEWHERE=count, **nth)
            this.killed_at(20)
            with open(count, "w", encoding="ascii") as f:
                f.write(str(misses))
            start = this.start()
            status = start.wait()
            checks.ok(status == 0 and not this.differences(), f"elsewhere at {misses} starts{', for kernels alone' if nth else ''}: ends like a plain run",
                      f"status {status}", *this.differences(), this.story())
            said = [line for line in ours(start) if "lies elsewhere" in line]
            once_more = [line for line in said if line.endswith("trying once more")]
            checks.ok(len(said) == misses and len(once_more) == min(misses, 2) and bool(job.Job.resumed_at(start)) == resumes,
                      f"elsewhere at {misses} starts: each said, {'then it goes on' if resumes else 'then it begins anew'}",
                      *said, this.story())
            checks.ok(job.read(count) == "0", f"elsewhere at {misses} starts: so many there were", job.read(count))


def again(checks):
    for what, habit, as_file in (("habits of a program", "", False), ("input from a file", "input", True)):
        with job.Place() as place:
            text = os.path.join(place.root, "input")
            with open(text, "wb") as f:
                f.write(b"x" * 1000)
            this, start = with_habits(place, habits(place, "habits.so"), habit,
                                      (lambda text=text: open(text, "rb")) if as_file else None)  # pylint: disable=R1732
            judge(checks, this, start, start.wait(), what, "starting the program again")
            seen = [re.sub(r"^process \d+: ", "", line) for line in job.read(place.root + "/habits").splitlines()
                    if line.endswith(tuple("0123456789")) and "gpt" in line.split(",")[0]]
            checks.ok(len(seen) == 3 and seen[0] == seen[2], f"{what}: it finds what it found at its first start", *seen)
            left = left_behind(start)
            checks.ok(left == 2, f"{what}: the children of the run are left, those of the attempt are not", left)
    for what, habit, library, wanted in (
            ("bytes of a pipe", "input", ("habits.so",), "it has read from standard input, so it ends here"),
            ("a stream on a pipe", "stream", ("habits.so",), "it has read from standard input, so it ends here"),
            ("MPI", "", ("libmpi_habits.so", "-DAS_MPI"), "it has initialised MPI, so it ends here")):
        with job.Place() as place:
            pipes = []

            def give():
                ends = os.pipe()
                os.write(ends[1], b"y" * 1000)
                pipes.extend(ends)
                return os.fdopen(ends[0], "rb", closefd=False)

            this, start = with_habits(place, habits(place, *library), habit, give)
            status = start.wait()
            said = [line for line in ours(start) if re.search("cannot resume", line)]
            checks.ok(status == 125 and len(said) == 1 and wanted in said[0], f"{what}: ends with a line: {said}",
                      f"status {status}", this.story())
            left_behind(start)
            start = this.start()
            status = start.wait()
            left_behind(start)
            lines = job.differences(this.plain, this.out)
            checks.ok(status == 0 and not lines and job.Job.resumed_at(start) is None and not job.Job.is_resuming(this, start),
                      f"{what}: the next start is from the beginning", f"status {status}", *lines, this.story())
            for end in pipes:
                os.close(end)


def early(checks):
    """A thread hears again what it heard before it had done anything on the device."""
    with job.Place() as place:
        this = gpt(place)
        this.run_plain()
        this.environment.update(LD_PRELOAD=job.built(place, "early.so", "early.c"), EARLY=place.root + "/early")
        this.killed_at(20)
        start = this.start()
        status = start.wait()
        heard = job.read(place.root + "/early").splitlines()
        checks.ok(status == 0 and job.Job.resumed_at(start) and not this.differences() and heard == ["600 600"] * 2,
                  f"a thread that asks before it launches: resumed, it heard {heard}", f"status {status}", *this.differences(),
                  this.story())


GROUPS = {"identity": identity, "again": again, "chance": chance, "draws": draws, "early": early, "damage": damage, "room": room, "life": life}


def main():
    checks = job.Checks()
    for name in sys.argv[1:] or GROUPS:
        GROUPS[name](checks)
    checks.end()


if __name__ == "__main__":
    main()
