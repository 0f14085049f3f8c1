# SPDX-License-Identifier: Apache-2.0
"""Two users of one node, of whom one means the other ill: what each runs, and what is left to remove."""
import glob
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from job import SKIP, Checks, look_until, need_shm, signal_if_there  # pylint: disable=unused-import

# What takes longer hangs.
WAIT_SEC = 120

# Saves one file for each line that it is given, and says what it finds in it.
SAVER = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    with open(line.strip(), "wb") as f:
        f.write(b"saved" * 1000)
    print(open(line.strip(), "rb").read() == b"saved" * 1000, flush=True)
"""


def unused_user():
    """A number that no account and no folder of ours has."""
    while True:
        uid = random.randrange(300000, 2000000)
        if not glob.glob(f"/dev/shm/transpckpt-{uid}*"):
            return uid


class Others:
    """A with statement. The victim's memory tier has the name that it has without a setting."""

    def __init__(self, **settings):
        if os.geteuid():
            print("1..0 # SKIP not root: no second user")
            sys.exit(SKIP)
        need_shm()
        build = os.path.abspath(os.environ.get("builddir", "."))
        self.victim, self.attacker = unused_user(), unused_user()
        self.root = tempfile.mkdtemp(prefix="tpck-others.")
        os.chmod(self.root, 0o755)
        # A home of root's is closed to others.
        self.build = os.path.join(self.root, "build")
        os.mkdir(self.build)
        for name in (".libs/libtranspckpt.so", "transpckptd", "transpckpt"):
            if not os.path.exists(os.path.join(build, name)):
                shutil.rmtree(self.root)
                print("1..0 # SKIP the library has not been built")
                sys.exit(SKIP)
            shutil.copy(os.path.join(build, name), self.build)
        subprocess.run(["chmod", "-R", "a+rX", self.build], check=True)
        if not self._runs(os.path.join(self.build, "transpckpt"), "--version"):
            shutil.rmtree(self.root)
            print("1..0 # SKIP another user cannot run what is below", tempfile.gettempdir())
            sys.exit(SKIP)
        self.python = next((path for path in (sys.executable, "/usr/bin/python3") if self._runs(path, "-c", "")), None)
        if not self.python:
            shutil.rmtree(self.root)
            print("1..0 # SKIP no Python that another user can run")
            sys.exit(SKIP)
        self.home = self.folder("home", self.victim)
        self.log = os.path.join(self.home, "log")
        self.tier = f"/dev/shm/transpckpt-{self.victim}"
        self.plain = {k: v for k, v in os.environ.items() if "TRANSPCKPT_" not in k and k not in ("LD_PRELOAD", "XDG_STATE_HOME")}
        self.plain["HOME"] = self.home
        self.environment = dict(self.plain, LD_PRELOAD=os.path.join(self.build, "libtranspckpt.so"), TRANSPCKPT_JOB="j",
                                TRANSPCKPT_AGENT=os.path.join(self.build, "transpckptd"), TRANSPCKPT_CONF="",
                                TRANSPCKPT_LINGER_SEC="1")
        self.environment.update(settings)

    def _runs(self, *command):
        try:
            return not subprocess.run(command, user=self.victim, group=self.victim, extra_groups=[], check=False, capture_output=True,
                                      cwd="/").returncode
        except OSError:
            return False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end = time.monotonic() + 20
        while self.agents() and time.monotonic() < end:
            for pid in self.agents():
                signal_if_there(pid, signal.SIGKILL)
            time.sleep(0.02)
        for path in [self.root, *self.tiers()]:
            shutil.rmtree(path, ignore_errors=True)
            if os.path.islink(path):
                os.unlink(path)

    def folder(self, name, uid, mode=0o700):
        path = os.path.join(self.root, name)
        os.mkdir(path)
        os.chown(path, uid, uid)
        os.chmod(path, mode)
        return path

    def tiers(self):
        """Folders of the victim's name, whoever has made them."""
        return glob.glob(self.tier) + glob.glob(self.tier + "-*")

    def own_tiers(self):
        return [path for path in self.tiers() if stat.S_ISDIR(os.lstat(path).st_mode) and os.lstat(path).st_uid == self.victim]

    def agents(self):
        found = []
        for entry in os.listdir("/proc"):
            try:
                if os.stat(f"/proc/{int(entry)}").st_uid != self.victim:
                    continue
                with open(f"/proc/{int(entry)}/comm", encoding="utf-8") as f:
                    if f.read().startswith("transpckptd"):
                        found.append(int(entry))
            except (OSError, ValueError):
                pass
        return found

    def attack(self, program, *arguments):
        """A Python program of the attacker's."""
        subprocess.run([self.python, "-c", program, *map(str, arguments)], user=self.attacker, group=self.attacker, extra_groups=[],
                       env=self.plain, cwd="/", check=True, timeout=WAIT_SEC)

    def start(self, program=SAVER, *arguments, **more):
        with open(self.log, "ab") as log:
            os.chmod(self.log, 0o666)
            return subprocess.Popen([self.python, "-u", "-c", program, *map(str, arguments)], user=self.victim, group=self.victim,
                                    extra_groups=[], env={**self.environment, **more}, cwd=self.home, text=True, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=log)

    def command(self, *arguments, **more):
        environment = {k: v for k, v in {**self.environment, **more}.items() if k != "LD_PRELOAD"}
        return subprocess.run([os.path.join(self.build, "transpckpt"), *arguments], user=self.victim, group=self.victim, extra_groups=[],
                              env=environment, cwd=self.home, text=True, errors="replace", capture_output=True, check=False, timeout=WAIT_SEC)

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def precious(self):
        path = os.path.join(self.home, "thesis.tex")
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as f:
                f.write("years of work\n")
            os.chown(path, self.victim, self.victim)
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read(100)


def saves(process, name):
    """Has the saver save a file: whether it then finds in it what it wrote."""
    process.stdin.write(name + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip() == "True"


def ready(process):
    return process.stdout.readline().strip() == "ready"


def ended(process):
    process.stdin.close()
    return process.wait(WAIT_SEC)
