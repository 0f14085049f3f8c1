# SPDX-License-Identifier: Apache-2.0
"""Folders of one test of the file path, its settings, and what is seen from outside of the job."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from job import SKIP, Checks, look_until, need_shm, read, signal_if_there, stand_still  # pylint: disable=unused-import

# A program's own system calls, which no library sees: bare(number, ...) by an instruction of its own.
BARE = """
import ctypes, mmap, os
_code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
# mov rax,rdi; mov rdi,rsi; mov rsi,rdx; mov rdx,rcx; mov r10,r8; mov r8,r9; mov r9,[rsp+8]; syscall; ret
_code.write(bytes.fromhex("4889f8 4889f7 4889d6 4889ca 4d89c2 4d89c8 4c8b4c2408 0f05 c3"))
_call = ctypes.CFUNCTYPE(ctypes.c_long, *[ctypes.c_void_p] * 7)(ctypes.addressof(ctypes.c_char.from_buffer(_code)))
def bare(number, *arguments):
    held = [ctypes.c_char_p(a) if isinstance(a, bytes) else a for a in arguments]
    words = [ctypes.cast(a, ctypes.c_void_p).value if isinstance(a, ctypes.c_char_p) else a & (1 << 64) - 1 for a in held]
    result = _call(number, *words, *[0] * (6 - len(words)))
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result
"""

# What takes longer hangs.
WAIT_SEC = 120


class Place:
    """A with statement; agents that were started in it are ended."""

    def __init__(self, at=None, **settings):
        need_shm()
        build = os.path.abspath(os.environ.get("builddir", "."))
        self.library = os.path.join(build, ".libs/libtranspckpt.so")
        self.agent = os.path.join(build, "transpckptd")
        if not os.path.exists(self.library) or not os.path.exists(self.agent):
            print("1..0 # SKIP the library has not been built")
            sys.exit(SKIP)
        self.root = at or tempfile.mkdtemp(prefix="tpck-files.")
        self.shm = tempfile.mkdtemp(prefix="tpck-files.", dir="/dev/shm")
        self.work = os.path.join(self.root, "work")
        os.makedirs(self.work, exist_ok=True)
        self.plain = {k: v for k, v in os.environ.items() if "TRANSPCKPT_" not in k and k != "LD_PRELOAD"}
        self.environment = dict(
            self.plain, LD_PRELOAD=self.library, TRANSPCKPT_AGENT=self.agent, TRANSPCKPT_SHM=self.shm,
            TRANSPCKPT_DIR=os.path.join(self.root, "store"), TRANSPCKPT_JOB="j")
        self.environment.update(settings)
        self.job_folder = os.path.join(self.environment["TRANSPCKPT_SHM"], "j")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill_agent(signal.SIGKILL)
        for folder in (self.root, self.shm):
            shutil.rmtree(folder, ignore_errors=True)
        # One that has just been started makes its folder anew.
        end = time.monotonic() + 10
        while os.path.exists(self.shm) and time.monotonic() < end:
            self.kill_agent(signal.SIGKILL)
            time.sleep(0.02)
            shutil.rmtree(self.shm, ignore_errors=True)

    def run(self, program, *arguments, preload=True, timeout=WAIT_SEC, check=True, **more):
        """A Python program, by its text, in the folder of work. What it printed."""
        done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], cwd=self.work, text=True, timeout=timeout,
                              env=self.environment if preload else self.plain, capture_output=True, check=False, **more)
        if check and done.returncode:
            raise RuntimeError(f"status {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout if check else done

    def start(self, program, *arguments, preload=True, **more):
        """The same, running; it speaks through pipes."""
        return subprocess.Popen([sys.executable, "-u", "-c", program, *map(str, arguments)], cwd=self.work, text=True,
                                env=self.environment if preload else self.plain, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, **more)

    def path(self, name):
        return os.path.join(self.work, name)

    def content(self, name):
        """From outside: the test itself is not preloaded."""
        try:
            with open(self.path(name), "rb") as f:
                return f.read()
        except FileNotFoundError:
            return None

    def listing(self):
        return sorted(n for n in os.listdir(self.work) if not n.startswith(".tpck-"))

    def listed(self):
        """What `transpckpt ls --files` says is pending."""
        return [row for row in self.rows() if "path" in row]

    def rows(self):
        return json.loads(self.command("ls", "--files", "--json").stdout)

    def published(self):
        """How many files are at their paths, while there is an agent."""
        return sum(row["files"] for row in self.rows() if row["state"] == "published")

    def recorded(self):
        """Of how many files digests have been taken, whatever became of them."""
        try:
            with open(os.path.join(self.root, "store/j/files.sums"), "rb") as f:
                return f.read().count(b"TPCKSUM1")
        except FileNotFoundError:
            return 0

    def verified(self, *paths):
        """What `transpckpt verify --files` says."""
        return json.loads(self.command("verify", "--files", "--json", *paths).stdout or "[]")

    def command(self, *arguments):
        environment = {k: v for k, v in self.environment.items() if k != "LD_PRELOAD"}
        return subprocess.run([os.path.join(os.path.dirname(self.agent), "transpckpt"), *arguments], env=environment, text=True, errors="replace",
                              stdout=subprocess.PIPE, check=False, timeout=WAIT_SEC, cwd=self.work)

    def agent_pid(self):
        try:
            with open(os.path.join(self.job_folder, "agent.lock"), encoding="utf-8") as f:
                pid = int(f.read() or 0)
            with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
                name, state = f.read().split(" (", 1)[1].rsplit(") ", 1)
                return pid if name == "transpckptd" and state[0] not in "ZX" else 0
        except (OSError, ValueError):
            return 0

    def kill_agent(self, how=signal.SIGKILL):
        """One that has nothing to do may end by itself."""
        pid = self.agent_pid()
        if pid and signal_if_there(pid, how):
            while self.agent_pid() == pid:
                time.sleep(0.002)
        return pid

    def log(self):
        try:
            with open(os.path.join(self.job_folder, "agent.log"), encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return ""


def run_tests(checks, tests, by_name=()):
    """All of the tests, or those that the command names, and the end. `by_name`: run only so."""
    chosen = sys.argv[1:]
    unknown = set(chosen) - {test.__name__ for test in [*tests, *by_name]}
    if unknown:
        sys.exit(f"no test is called {', '.join(sorted(unknown))}; there are {', '.join(test.__name__ for test in [*tests, *by_name])}")
    for test in [test for test in [*tests, *by_name] if test.__name__ in chosen] if chosen else tests:
        begun = time.monotonic()
        test(checks)
        print(f"# {test.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
    checks.end()


def until(what, seconds=WAIT_SEC):
    return bool(look_until(what, seconds, 0.005))
