# SPDX-License-Identifier: Apache-2.0
"""A Slurm of one test's own on this machine: munged, slurmctld and two slurmd on loopback, with their folders, ports and key, and
an installation of the project that a user without rights can read. All of it goes with the test."""
import glob
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import job

USER = "nobody"
DAEMONS = ("munged", "slurmctld", "slurmd")
FREEZER = "/sys/fs/cgroup/freezer"
DEVICES = "/sys/fs/cgroup/devices"
# A character device that no driver has: who may have it is told so, and who may not is told that.
DEVICE = 240
LIMITS = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup/cpuset")


def needs():
    """Ends the test as skipped where there is no Slurm."""
    for program in (*DAEMONS, "srun", "sbatch", "scontrol", "scancel"):
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            job.skip(f"Slurm is not installed ({program} is missing)")
    if os.geteuid() != 0:
        job.skip("slurmd starts tasks of other users, which only root can")
    job.need_shm()
    if not os.path.exists(os.path.join(job.build_folder(), ".libs", "spank_transpckpt.so")):
        job.skip("spank_transpckpt.so has not been built")


HERE = os.path.dirname(os.path.abspath(__file__))
# Where cgroups of version 2 are all that a process sees of them, as on machines that have no others.
ONLY_V2 = ["unshare", "-m", "sh", "-c", "umount -l /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup && mkdir -p /sys/fs/cgroup/system.slice && "]


def in_only_v2(script, *arguments):
    return [*ONLY_V2[:-1], ONLY_V2[-1] + script, "sh", *arguments]


def has_v2():
    """Whether slurmd can have them here."""
    probe = "mkdir /sys/fs/cgroup/system.slice/tpck-probe.$$ && rmdir /sys/fs/cgroup/system.slice/tpck-probe.$$"
    return shutil.which("cc") and not subprocess.run(in_only_v2(probe), capture_output=True, check=False).returncode


def mount_of_v2():
    """Where cgroups of version 2 are for the test, or None."""
    rows = [row.split() for row in job.read("/proc/mounts").splitlines()]
    return next((row[1] for row in rows if row[2] == "cgroup2"), None)


def has_private():
    """Why jobs cannot have mounts of their own here, or None."""
    if not any(glob.glob(f"/usr/{folder}/job_container_tmpfs.so") for folder in ("lib/*/slurm*", "lib*/slurm*", "local/lib/slurm")):
        return "Slurm's job_container/tmpfs is not installed"
    if not shutil.which("taskset") or subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        return "mount namespaces are not allowed"
    return None


def has_limits():
    """Whether steps can be given limits here, of memory and cores."""
    return all(os.access(os.path.join(kind, "cgroup.procs"), os.W_OK) for kind in LIMITS)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def until(condition, seconds=60):
    """What the condition gives once it holds, or None. It takes so many seconds at most on a machine that has nothing else to do."""
    end = time.monotonic() + 3 * seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    return None


class Cluster:
    """A with statement."""

    def __init__(self, cgroups=None, private=False, constrained=False, devices=False):
        """`cgroups`: of which version those are that steps get; 0: none. None: as CGROUPS says, or as there are. `private`: each
        job has a /tmp and a /dev/shm of its own. `constrained`: a step's memory and cores are what it has asked for. `devices`: a node has two
        of a kind, dev0 and dev1, and a step those that it has asked for."""
        self.build = job.build_folder()
        self.private, self.constrained, self.devices = private, constrained, devices
        # What jobs see, too.
        self.root = tempfile.mkdtemp(prefix="tpck-slurm.", dir="/var/tmp" if private else "/tmp")
        os.chmod(self.root, 0o755)
        self.shm = tempfile.mkdtemp(prefix="tpck-slurm.", dir="/dev/shm")
        self.user = pwd.getpwnam(USER)
        os.chown(self.shm, self.user.pw_uid, self.user.pw_gid)
        # Others than those of a cluster without, which may be there at the same time.
        self.nodes = [name + ("p" if private else "") for name in self.names()]
        self.daemons = {}
        # Where cgroups are to be had, they are what ends a step.
        if cgroups is None:
            cgroups = int(os.environ.get("CGROUPS") or (1 if os.access(FREEZER, os.W_OK) else 2 if has_v2() else 0))
        self.cgroups = cgroups
        self.home = os.path.join(self.root, "user")
        os.mkdir(self.home)
        os.chown(self.home, self.user.pw_uid, self.user.pw_gid)
        self.install()

    def path(self, *names):
        return os.path.join(self.root, *names)

    # Where the nodes are; another kind of cluster has them elsewhere.
    control = "localhost(127.0.0.1)"

    @staticmethod
    def names():
        return [f"tpck{os.getpid()}{letter}" for letter in "ab"]

    def ports(self):
        """slurmctld's, and each slurmd's."""
        return free_ports(1 + len(self.nodes))

    def place(self, number):
        """Of a node, for slurm.conf."""
        del number
        return "NodeHostname=localhost NodeAddr=127.0.0.1"

    def on(self, number):
        """What its slurmd is started by."""
        # On one processor, since Linux 6.18 counts namespaces on each by itself, and lets no namespace be bound in one that has a greater number.
        pinned = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] if self.private else []
        if self.cgroups != 2:
            # Mounts of the jobs' are nothing to the machine.
            return [*pinned, "unshare", "-m"] if self.private else []
        # As systemd starts a service. Beside cgroups of version 1 slurmd would not use those of version 2.
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", self.path("only_v2.so"), os.path.join(HERE, "only_v2.c")], check=True)
        own = f"/sys/fs/cgroup/system.slice/{self.nodes[number]}.service"
        return pinned + in_only_v2('mkdir "$0" && echo $$ >"$0/cgroup.procs" && LD_PRELOAD=$1 && export LD_PRELOAD && shift && exec "$@"')[:-1] + [
            own, self.path("only_v2.so")]

    def install(self):
        """As `make install` lays it out."""
        def copy(source, *to):
            os.makedirs(os.path.dirname(self.path(*to)), exist_ok=True)
            shutil.copy(os.path.join(self.build, source), self.path(*to))

        copy("transpckpt", "inst/bin/transpckpt")
        copy("transpckptd", "inst/bin/transpckptd")
        copy(".libs/libtranspckpt.so", "inst/lib/libtranspckpt.so")
        copy(".libs/spank_transpckpt.so", "inst/lib/slurm/spank_transpckpt.so")
        copy("shim/lib/transpckpt/libcuda.so.1", "inst/lib/transpckpt/libcuda.so.1")
        copy("kernels/digest.simgpu", "inst/lib/transpckpt/digest.simgpu")
        copy("tools/standin/standin", "inst/lib/transpckpt/standin")
        copy("tests/trainers/gpt", "inst/gpt")
        copy("tests/trainers/gpt_ranks", "inst/gpt_ranks")
        copy("tests/sim/simgpu-run", "inst/sim/simgpu-run")
        shutil.copytree(os.path.join(self.build, "tests/sim/lib"), self.path("inst/sim/lib"),
                        ignore=shutil.ignore_patterns(".libs", "*.a", "*.o"))
        self.library = self.path("inst/lib/libtranspckpt.so")
        self.forwarder = self.path("inst/lib/transpckpt/libcuda.so.1")

    def write(self, name, text):
        with open(self.path(name), "w", encoding="ascii") as f:
            f.write(text)

    def plugstack(self, *arguments):
        """What srun and slurmstepd read when they start; slurmd has read it already."""
        self.write("plugstack.conf", " ".join(["required", self.path("inst/lib/slurm/spank_transpckpt.so"),
                                               f"state={self.path('state')}", *arguments]) + "\n")

    def start(self, name, *argv):
        with open(self.path(name + ".out"), "wb") as out:
            self.daemons[name] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.root,
                                                  env=self.environment(), start_new_session=True)

    def __enter__(self):
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self):
        ports = self.ports()
        os.mkdir(self.path("munge"))
        os.chmod(self.path("munge"), 0o755)
        for folder in ("ctld", "log"):
            os.mkdir(self.path(folder))
        with open(os.open(self.path("munge/key"), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
            f.write(os.urandom(128))
        self.write("cgroup.conf", "CgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\n" +
                   ("CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n" if self.cgroups == 2 else "CgroupPlugin=cgroup/v1\n") +
                   ("ConstrainCores=yes\nConstrainRAMSpace=yes\n" if self.constrained else "") + ("ConstrainDevices=yes\n" if self.devices else ""))
        if self.devices:
            for number in range(2):
                os.mknod(self.path(f"dev{number}"), stat.S_IFCHR | 0o666, os.makedev(DEVICE, number))
                os.chmod(self.path(f"dev{number}"), 0o666)
            self.write("gres.conf", f"AutoDetect=off\nName=gpu File={self.path('dev[0-1]')}\n")
        if self.private:
            self.write("job_container.conf", f"AutoBasePath=true\nBasePath={self.path('jobs')}\n")
        self.write("slurm.conf", "\n".join([
            "ClusterName=tpck", f"SlurmctldHost={self.control}", f"SlurmctldPort={ports[0]}", "SlurmUser=root",
            "SlurmdUser=root", "AuthType=auth/munge", "CredType=cred/munge",
            f"AuthInfo=socket={self.path('munge/socket')},cred_expire=5", f"StateSaveLocation={self.path('ctld')}",
            f"SlurmdSpoolDir={self.path('%n.spool')}", f"SlurmctldPidFile={self.path('ctld.pid')}",
            f"SlurmdPidFile={self.path('%n.pid')}", f"SlurmctldLogFile={self.path('log/slurmctld')}",
            f"SlurmdLogFile={self.path('log/%n')}", f"ProctrackType=proctrack/{'cgroup' if self.cgroups else 'linuxproc'}",
            f"TaskPlugin=task/{'cgroup' if self.constrained or self.devices else 'none'}", *(["GresTypes=gpu"] if self.devices else []),
            *(["JobContainerType=job_container/tmpfs", "PrologFlags=Contain"] if self.private else []), "JobAcctGatherType=jobacct_gather/none", "SelectType=select/cons_tres",
            f"SelectTypeParameters=CR_Core{'_Memory' if self.constrained else ''}", "SchedulerType=sched/builtin", "SchedulerParameters=sched_interval=1,sched_min_interval=0",
            "MpiDefault=none", "SlurmdParameters=config_overrides", "ReturnToService=2", "KillWait=2", "SlurmdTimeout=12", "MinJobAge=600", f"PlugStackConfig={self.path('plugstack.conf')}",
            *[f"NodeName={node} {self.place(number)} Port={ports[1 + number]} CPUs=4{' RealMemory=2000' if self.constrained else ''}{' Gres=gpu:2' if self.devices else ''}" for number, node in enumerate(self.nodes)],
            f"PartitionName=all Nodes={','.join(self.nodes)} Default=YES State=UP", ""]))
        self.plugstack()
        self.start("munged", shutil.which("munged", path="/usr/sbin:/sbin:" + os.environ["PATH"]), "--foreground", "--force",
                   *[f"--{kind}={self.path('munge', name)}" for kind, name in
                     (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))])
        if not until(lambda: os.path.exists(self.path("munge/socket")), 20):
            raise RuntimeError("munged does not start: " + job.read(self.path("munged.out")))
        self.start("slurmctld", shutil.which("slurmctld", path="/usr/sbin:/sbin:" + os.environ["PATH"]), "-D", "-f",
                   self.path("slurm.conf"))
        for number, node in enumerate(self.nodes):
            self.start(node, *self.on(number), shutil.which("slurmd", path="/usr/sbin:/sbin:" + os.environ["PATH"]), "-D", "-N", node,
                       "-f", self.path("slurm.conf"))
        if not until(lambda: self.said(["sinfo", "-h", "-o", "%t %D"]).strip() == f"idle {len(self.nodes)}", 60):
            raise RuntimeError("the nodes do not come up:\n" + self.story())

    def __exit__(self, *_):
        try:
            if "slurmctld" in self.daemons:
                self.said(["scancel", "--user", USER], root=True)
                until(lambda: not self.said(["squeue", "-h"], root=True).strip(), 15)
        except (OSError, subprocess.SubprocessError):
            pass
        for name in reversed(list(self.daemons)):
            self.daemons[name].terminate()
            try:
                self.daemons[name].wait(15)
            except subprocess.TimeoutExpired:
                self.daemons[name].kill()
                self.daemons[name].wait()
        for _ in range(200):
            left = self.started_here()
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            time.sleep(0.05)
        if self.cgroups == 2:
            subprocess.run(in_only_v2('cd /sys/fs/cgroup && for node; do find system.slice -depth -type d -path "*/${node}[._]*" -exec rmdir {} \\;; done; '
                                      "rmdir system.slice", *self.nodes), capture_output=True, check=False)
        if self.cgroups == 1:
            for kind in (FREEZER, *(LIMITS if self.constrained else ()), *([DEVICES] if self.devices else [])):
                for node in self.nodes:
                    for folder, _, _ in os.walk(os.path.join(kind, f"slurm_{node}"), topdown=False):
                        until(lambda: self.removed(folder), 5)
        if os.environ.get("KEEP"):
            print(f"# left for you: {self.root} {self.shm}")
            return
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.shm, ignore_errors=True)

    @staticmethod
    def removed(folder):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def started_here(self):
        """Processes that have a path of this cluster's in their environment."""
        found = []
        marks = (f"TRANSPCKPT_SHM={self.shm}".encode(), f"SLURM_CONF={self.path('slurm.conf')}".encode())
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{int(entry)}/environ", "rb") as f:
                    if set(marks) & set(f.read().split(b"\0")):
                        found.append(int(entry))
            except (OSError, ValueError):
                pass
        return [pid for pid in found if pid != os.getpid()]

    # ---- the user ----------------------------------------------------------------------------

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items()
                if not k.startswith(("TRANSPCKPT", "SLURM", "SIMGPU_", "SPANK", "SRUN", "SBATCH")) and k != "LD_PRELOAD"}
        kept.update(SLURM_CONF=self.path("slurm.conf"), HOME=self.home, **more)
        return kept

    def settings(self, **more):
        return {"TRANSPCKPT_SHM": self.shm, "TRANSPCKPT_DIR": self.path("user/store"), "TRANSPCKPT_LOG": "info",
                "TRANSPCKPT_CONF": "", "TRANSPCKPT_INTERVAL": "1", "TRANSPCKPT_LINGER_SEC": "3600", **more}

    def popen(self, argv, out, cwd=None, **environment):
        with open(out, "wb") as file:
            return subprocess.Popen(argv, env=self.environment(**environment), cwd=cwd or self.home, user=self.user.pw_uid,
                                    group=self.user.pw_gid, extra_groups=[], stdin=subprocess.DEVNULL, stdout=file,
                                    stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, argv, cwd=None, root=False, **environment):
        who = {} if root else {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        return subprocess.run(argv, env=self.environment(**environment), cwd=cwd or self.home, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=120, **who)

    def said(self, argv, root=False):
        return self.run(argv, root=root).stdout

    def state_of(self, number):
        found = re.search(r"JobState=(\S+)", self.said(["scontrol", "show", "job", str(number)]))
        return found[1] if found else ""

    def jobs(self):
        return re.findall(r"^JobId=(\d+)", self.said(["scontrol", "show", "job"]), re.M)

    # ---- what the project left ---------------------------------------------------------------

    def agents(self):
        """Agent's process id -> its folder of the memory tier."""
        found = {}
        for lock in glob.glob(os.path.join(self.shm, "*", "agent.lock")):
            try:
                pid = int(job.read(lock) or 0)
                with open(f"/proc/{pid}/cmdline", "rb") as f:
                    if b"transpckptd" in f.read():
                        found[pid] = os.path.dirname(lock)
            except (OSError, ValueError):
                pass
        return found

    def memory(self):
        """Names in the memory tier."""
        return [name for name in os.listdir(self.shm) if not name.startswith(".")]

    def story(self):
        text = ""
        for path in sorted(glob.glob(self.path("*.out")) + glob.glob(self.path("log/*")) + glob.glob(self.path("user/*.txt")) +
                           glob.glob(self.path("user/store/*/agent.log")) + glob.glob(os.path.join(self.shm, "*/agent.log"))):
            text += f"--- {path}\n" + "\n".join(job.read(path).splitlines()[-25:]) + "\n"
        return text
