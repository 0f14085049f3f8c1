# SPDX-License-Identifier: Apache-2.0
"""Nodes of one test's own on this machine: each is a namespace of network, mounts, processes and host name, with a memory of its
own at /dev/shm, at one bridge. The test itself runs in namespaces too, so that all of it goes with the test."""
import glob
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "e2e"))
import job

INSIDE = "TPCK_TEST_CLUSTER"
NAMESPACES = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]


def enter(skip=job.skip, other_users=False):
    """Goes on in namespaces of the test's own; ends it as skipped where there are none to be had. For programs that become other
    users there is no namespace of users, and the test has to be root."""
    if os.environ.get(INSIDE):
        return
    namespaces = [n for n in NAMESPACES if not (other_users and n in ("--user", "--map-root-user"))]
    for program in ("unshare", "nsenter", "ip"):
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            skip(f"{program} is missing")
    tried = subprocess.run([*namespaces, "sh", "-c", "mount -t tmpfs tmpfs /dev/shm && ip link add tpck0 type bridge && "
                            "ip link add tpck1 type veth peer name tpck2"], capture_output=True, text=True, check=False,
                           env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
    if tried.returncode:
        skip(f"namespaces are not allowed here: {tried.stderr.strip().splitlines()[-1:]}")
    os.environ[INSIDE] = "1"
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    # The shell is the first process, and waits for those whose parents are gone: a namespace ends only once all have been.
    os.execvp("unshare", [*namespaces, "sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-B", os.path.abspath(sys.argv[0]), *sys.argv[1:]])


def run(*argv):
    subprocess.run(argv, check=True, capture_output=True, text=True)


# A wait ends when what it waits for is there: how much longer it may take on a machine that has other work costs nothing.
PATIENCE = 3


def until(condition, seconds=30):
    """What the condition gives once it holds, or None. It takes so many seconds at most on a machine that has nothing else to do."""
    return job.look_until(condition, PATIENCE * seconds, 0.01)


def never(condition, seconds):
    """Whether the condition does not hold once in so many seconds."""
    return not job.look_until(condition, seconds, 0.01)


def chosen_cases(module, by_name, **groups):
    """Those of a module's functions case_NAME that CASE names: several; `by_name`: those that run only so; `every`: all. Otherwise three in
    five, others each time (SEED), of those of a group that CASE names, or of those that are in none."""
    cases = {name[5:]: case for name, case in module.items() if name.startswith("case_")}
    wanted = os.environ.get("CASE", "").split()
    if len(wanted) == 1 and wanted[0] in groups or not wanted:
        drawn = list(groups[wanted[0]]) if wanted else [n for n in cases if not any(n in group for group in (by_name, *groups.values()))]
        chosen = job.drawn_from().sample(drawn, (3 * len(drawn) + 4) // 5)
    else:
        chosen = [name for word in wanted for name in (by_name if word == "by_name" else cases if word == "every" else [word])]
    if unknown := set(chosen) - set(cases):
        sys.exit(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(cases)}")
    return {name: cases[name] for name in chosen}


def run_cases(module, by_name, **groups):
    """The chosen ones, one after the other."""
    for name, case in chosen_cases(module, by_name, **groups).items():
        begun = time.monotonic()
        case()
        print(f"# {name}: {time.monotonic() - begun:.1f} s", flush=True)


def run_beside(checks, names):
    """Cases of this test side by side, each in a process and namespaces of its own; their checks are this test's."""
    environment = {k: v for k, v in os.environ.items() if k != INSIDE}
    begun = time.monotonic()
    running = {name: subprocess.Popen([sys.executable, "-B", os.path.abspath(sys.argv[0])], env={**environment, "CASE": name}, text=True,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for name in names}
    for name, process in running.items():
        said = process.communicate()[0].splitlines()
        count = 0
        for line in said:
            good, _, what = line.partition(" - ")
            if good.startswith(("ok ", "not ok ")):
                count += 1
                checks.ok(good.startswith("ok "), what)
            elif not line.startswith("1.."):
                print(line if line.startswith("#") else f"# {line}", flush=True)
        checks.ok(count and process.returncode in (0, 1) and said[-1] == f"1..{count}", f"{name}: to its end", process.returncode)
    print(f"# beside each other, {', '.join(names)}: {time.monotonic() - begun:.1f} s", flush=True)


def node_called(number, families="4"):
    """Name and address; of a node with IPv6 only that is one of these."""
    return "node" + "abcdefgh"[number], f"10.77.0.{number + 1}" if "4" in families else address_six(number)


def address_six(number):
    return f"fd77::{number + 1}"


def lacks_six():
    """Why nodes cannot have IPv6 here; "": they can."""
    tried = subprocess.run(["unshare", "--net", "sh", "-c", "ip link set lo up && ip -6 addr add fd77::1/64 dev lo nodad"], capture_output=True, text=True,
                           check=False)
    return f"no addresses of IPv6: {tried.stderr.strip()}" if tried.returncode else ""


class BadLink:
    """A node's link by way of tests/cluster/badlink.c: what leaves the node is late by delay_ms, more or less by up to jitter_ms, goes with
    a probability of `loss`, and comes at rate_mbit at most. A packet between two such nodes meets this once each way. It can also read along
    (record=PATH), and alter packets (alter=N)."""

    def __init__(self, node, settings):
        program = os.path.join(node.cluster.build, "tests/cluster/badlink")
        self.process = subprocess.Popen([program, str(node.init), "eth0", f"v{node.number}", str(node.cluster.link_seed + node.number),
                                         *self.words(settings)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            self.end()
            raise RuntimeError(f"{node.name} has no bad link")

    @staticmethod
    def words(settings):
        return [f"{name}={value}" for name, value in settings.items()]

    def tell(self, **settings):
        """From now on; gives how many packets that left the node have passed, were lost, found the queue full, and were altered."""
        self.process.stdin.write(" ".join(self.words(settings)) + "\n")
        self.process.stdin.flush()
        return tuple(int(word) for word in self.process.stdout.readline().split()[1::2])

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Node:
    def __init__(self, cluster, number):
        self.families = cluster.families[number] if hasattr(cluster, "families") else "4"  # of a cluster of another kind
        self.cluster, self.number, self.name, self.address = cluster, number, *node_called(number, self.families)
        ready, told = os.pipe()
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
             f"mount -t tmpfs -o size={cluster.memory} tmpfs /dev/shm && mount --bind {cluster.root}/hosts /etc/hosts && "
             f"hostname {self.name} && ip link set lo up && "
             "echo ready && exec sleep 100000 >/dev/null"], stdin=subprocess.DEVNULL, stdout=told, stderr=subprocess.DEVNULL)
        os.close(told)
        with os.fdopen(ready) as f:
            if f.readline() != "ready\n":
                raise RuntimeError(f"{self.name} does not start")
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as f:
            self.init = int(f.read().split()[0])
        self.link = BadLink(self, cluster.links) if cluster.links else None
        if not self.link:
            run("ip", "link", "add", f"v{number}", "type", "veth", "peer", "name", "eth0", "netns", str(self.init))
        run("ip", "link", "set", f"v{number}", "master", "tpck0", "up")
        if "4" in self.families:
            run("nsenter", "-t", str(self.init), "-n", "ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        if "6" in self.families:
            run("nsenter", "-t", str(self.init), "-n", "ip", "addr", "add", f"{address_six(number)}/64", "dev", "eth0", "nodad")
        run("nsenter", "-t", str(self.init), "-n", "ip", "link", "set", "eth0", "up")
        self.alive = True

    def command(self, argv, environment):
        """What runs argv on this node."""
        return ["nsenter", "-t", str(self.init), "-m", "-n", "-p", "-u", "--wdns=" + self.cluster.root, "env", "-i",
                *(f"{k}={v}" for k, v in environment.items()), *argv]

    def start(self, argv, environment, name, cwd, place=None):
        """A program in the background: job.Start."""
        if self.cluster.mpi:
            self.cluster.mpi.start()
        return job.Start(place or self.cluster, ["nsenter", "-t", str(self.init), "-m", "-n", "-p", "-u", "--wdns=" + cwd, *argv], cwd,
                         environment, name)

    def run(self, argv, environment, **more):
        return subprocess.run(self.command(argv, environment), capture_output=True, text=True, check=False, timeout=60, **more)

    def agent(self, **settings):
        """An agent that was started here by hand; over MPI, all at once."""
        if self.cluster.mpi:
            self.cluster.mpi.start()
            return
        done = self.run([self.cluster.daemon, "--job", "j"], {**self.cluster.environment, **settings})
        if done.returncode:
            raise RuntimeError(f"the agent of {self.name} does not start: {done.stderr}")

    def path(self, *names):
        """A path of this node, seen from the test."""
        return f"/proc/{self.init}/root" + os.path.join(self.cluster.environment["TRANSPCKPT_SHM"], *names)

    def has_agent(self):
        return os.path.exists(self.path("j", "agent.sock"))

    def signal_agent(self, name):
        self.run(["sh", "-c", f"kill -{name} $(cat {self.cluster.environment['TRANSPCKPT_SHM']}/j/agent.lock)"], self.cluster.environment)

    def copies(self):
        """Folders of other nodes' snapshots."""
        return glob.glob(self.path("j", "copy.*"))

    def fragments(self):
        """Folders of fragments of them."""
        return glob.glob(self.path("j", "fragment.*"))

    def agent_log(self):
        """Of the agent that is here, or of the last one that was."""
        self.keep_log()
        return job.read(self.path("j", "agent.log")) or job.read(self.kept())

    def kept(self):
        return f"/proc/{self.init}/root/dev/shm/agent.log"

    def keep_log(self):
        """An agent that ends removes its log, which a test may come to late on a busy machine: another name keeps it."""
        path = self.path("j", "agent.log")
        try:
            if not os.path.exists(self.kept()) or not os.path.samefile(path, self.kept()):
                os.link(path, self.kept() + ".new")
                os.rename(self.kept() + ".new", self.kept())
        except OSError:
            pass

    def cut(self):
        """Nothing comes from it and nothing goes there, and nobody is told."""
        run("ip", "link", "set", f"v{self.number}", "down")

    def heal(self):
        run("ip", "link", "set", f"v{self.number}", "up")

    def slow(self, rate):
        """So much goes out from it in a second; None: as much as it can."""
        change = ["add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "8kb", "latency", "1s"] if rate else ["del", "dev", "eth0", "root"]
        run("nsenter", "-t", str(self.init), "-n", "tc", "qdisc", *change)

    def bytes_out(self):
        """That have left it, by its link."""
        rows = dict(line.split(":") for line in job.read("/proc/net/dev").splitlines() if ":" in line)
        return int({name.strip(): row for name, row in rows.items()}[f"v{self.number}"].split()[0])

    def destroy(self):
        """The link first, so that no packet tells of the end; then all processes, and with them the memory."""
        if self.alive:
            self.cut()
            self.end()

    def end(self):
        if self.alive:
            self.alive = False
            os.kill(self.init, signal.SIGKILL)
            # unshare waits for it, and it for all that runs here.
            self.process.wait()
            if self.link:
                self.link.end()
            # The kernel takes the network down in its own time.
            subprocess.run(["ip", "link", "del", f"v{self.number}"], check=False, capture_output=True)


def need_bad_links(skip=job.skip):
    """Ends the test as skipped where there are none to be had."""
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as e:
        skip(f"/dev/net/tun: {e.strerror}")


# Sends datagrams, each answered by whoever is there, and says how many answers came, and how long the quickest and the middle one took.
PROBE = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if sys.argv[1] == "answer":
    s.bind(("", 7777))
    print("ready", flush=True)
    while True:
        s.sendto(*s.recvfrom(100))
took, count = {}, int(sys.argv[2])
def take(seconds):
    s.settimeout(seconds)
    try:
        while len(took) < count:
            number, sent = s.recv(100).split()
            took[number] = time.monotonic_ns() - int(sent)
    except OSError:
        pass
for i in range(count):
    s.sendto(b"%d %d" % (i, time.monotonic_ns()), (sys.argv[1], 7777))
    take(0.002)
take(2)
took = sorted(took.values()) or [0]
print(len(took), took[0] / 1e6, took[len(took) // 2] / 1e6)
"""


def probe(a, b, count=1000):
    """What becomes of datagrams from a to b and back: the share that is lost, and the shortest and the middle time in milliseconds."""
    answering = b.start([sys.executable, "-c", PROBE, "answer"], b.cluster.environment, "answering", b.cluster.root)
    until(lambda: "ready" in answering.printed(), 20)
    came, shortest, middle = a.run([sys.executable, "-c", PROBE, b.address, str(count)], a.cluster.environment).stdout.split()
    answering.kill()
    return 1 - int(came) / count, float(shortest), float(middle)


def makes_fragments():
    """Whether the agent was built with ISA-L."""
    agent = os.environ.get("AGENT")
    return "#define HAVE_ISAL 1" in job.read(os.path.join(os.path.dirname(agent) if agent else job.build_folder(), "config.h"))


def lacks_mpi():
    """Why agents cannot speak over MPI here; "": they can."""
    if not shutil.which(os.environ.get("MPIRUN", "mpirun")):
        return "mpirun is missing"
    return "" if "#define HAVE_OPENMPI 1" in job.read(os.path.join(job.build_folder(), "config.h")) else "the agent was built without Open MPI"


class MPI:
    """Agents that one mpirun starts, on all nodes that live."""

    def __init__(self, cluster):
        self.cluster, self.running, self.starts, self.said, self.loop = cluster, None, 0, "", None
        self.fault_tolerant = True
        self.program = os.environ.get("MPIRUN", "mpirun")
        if lacks_mpi():
            job.skip(lacks_mpi())
        version = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=False).stdout
        self.major = int(version.split("Open MPI) ")[1].split(".")[0])

    def _script(self, name, text):
        path = os.path.join(self.cluster.root, name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + text)
        return path

    def start(self, wait=True, **settings):
        """Unless they run. Returns once all are peers of each other; with a loop, or without `wait`, that is not waited for."""
        if self.loop or (self.running and self.running.running()):
            return
        nodes = [n for n in self.cluster.nodes if n.alive]
        mark = {n: n.agent_log().count("is a peer") for n in nodes}
        for _ in range(5):
            self.running = self._call(nodes, settings)
            if not wait:
                return
            met = until(lambda: not self.running.running() or all(n.agent_log().count("is a peer") >= mark[n] + len(nodes) - 1 and
                                    n.agent_log().count("speaks with others over MPI") > 0 for n in nodes), 60)
            # mpirun 5 does not always get as far as agents.
            if self.running.running() or mark != {n: n.agent_log().count("is a peer") for n in nodes}:
                break
        if not met or not self.running.running():
            raise RuntimeError(f"mpirun's agents do not meet: {self.running.said()}\n{self.cluster.logs()}")

    def _call(self, nodes, settings):
        """Calls mpirun for these nodes."""
        self.starts += 1
        # mpirun's own, which its daemons on the nodes connect to.
        run("ip", "addr", "replace", "10.77.0.200/24", "dev", "tpck0")
        enter_node = self._script(f"rsh{self.starts}", 'host=$1; shift\ncase $host in\n' + "".join(f"{n.address}) pid={n.init} ;;\n" for n in nodes) +
                                  f'esac\nexec nsenter -t $pid -m -n -p -u --wdns={self.cluster.root} sh -c "$*"\n')
        environment = {k: v for k, v in {**self.cluster.environment, **settings}.items() if k.startswith(("TRANSPCKPT_", "SIMGPU_"))}
        if os.path.isabs(self.program):
            environment["LD_LIBRARY_PATH"] = os.path.join(os.path.dirname(os.path.dirname(self.program)), "lib")
        agent = self._script("agent", "".join(f"export {k}={shlex.quote(v)}\n" for k, v in environment.items()) +
                             f"mkdir -p -m 700 $TRANSPCKPT_SHM $TRANSPCKPT_SHM/j\necho $$ >/dev/shm/mpirun.{self.starts}\nexec {self.cluster.daemon} --job j --foreground 2>>$TRANSPCKPT_SHM/j/agent.log\n")
        # Of launcher and library; those of the other version mean nothing.
        options = {"btl_tcp_if_include": "10.77.0.0/24", "btl": "tcp,self", "pml": "ob1", "oob_tcp_if_include": "10.77.0.0/24",
                   "plm_rsh_agent": enter_node, "plm_rsh_no_tree_spawn": "1", "orte_tmpdir_base": self.cluster.root}
        if self.loop:
            # mpirun hears of a node's loss.
            options.update(oob_tcp_keepalive_time="3", oob_tcp_keepalive_intvl="1", oob_tcp_keepalive_probes="3")
        argv = [self.program, "--allow-run-as-root", "--host", ",".join(f"{n.address}:1" for n in nodes), "--map-by", "ppr:1:node", "--bind-to", "none"]
        if self.major >= 5:
            options = {"btl_tcp_if_include": "10.77.0.0/24", "btl": "tcp,self", "pml": "ob1"}
            for name, value in {"prte_if_include": "10.77.0.0/24", "plm_ssh_agent": enter_node, "plm_ssh_no_tree_spawn": "1"}.items():
                argv += ["--prtemca", name, value]
            if self.fault_tolerant:
                argv += ["--with-ft", "ulfm"]
        for name, value in options.items():
            argv += ["--mca", name, value]
        return job.Start(self.cluster, [*argv, agent], self.cluster.root, {k: v for k, v in os.environ.items() if not k.startswith(INSIDE)},
                         f"mpirun{self.starts}")

    def keep(self, nodes, fault_tolerant=bool(os.environ.get("ULFM"))):
        """As a job's script does: calls mpirun again whenever it ends otherwise than well, with the nodes that there are (`nodes()`), until end(). With
        ULFM, where mpirun has it, others go on without an agent that has died."""
        if self.loop:
            return
        self.fault_tolerant = fault_tolerant
        self.over = threading.Event()
        self.loop = threading.Thread(target=self._keep, args=(nodes,))
        self.loop.start()

    def _keep(self, nodes):
        while not self.over.is_set():
            if not self.running:
                called = nodes()
                self.running, ended = self._call(called, {}), None
            status = self.running.process.poll()
            if status is None and self._agents_ended([n for n in called if n in nodes()]):
                # A node's loss that mpirun has not heard of keeps it from ending.
                ended = ended or time.monotonic()
                if time.monotonic() > ended + 5:
                    self.running.kill()
                    status = "killed, since it did not end when its agents had"
            if status is not None:
                self.said += f"call {self.starts} of mpirun: {status}: {self.running.printed()}{self.running.said()}\n"
                self.running = None
                self.over.wait(1)
            else:
                self.over.wait(0.05)

    def _agents_ended(self, nodes):
        """Whether mpirun has started some on these nodes and none is left."""
        states = []
        for n in nodes:
            pid = job.read(f"/proc/{n.init}/root/dev/shm/mpirun.{self.starts}").strip()
            states.append(pid and job.read(f"/proc/{n.init}/root/proc/{pid}/stat").rpartition(")")[2].strip()[:1] in ("", "Z"))
        return all(states)

    def story(self):
        """What each call of the loop's has said."""
        return self.said + (f"call {self.starts} of mpirun runs: {self.running.printed()}{self.running.said()}" if self.running else "")

    def ended(self, seconds=60):
        """Waits for mpirun's end."""
        status = self.running.wait(seconds)
        self.said = self.running.printed() + self.running.said()
        self.running = None
        return status

    def end(self):
        if self.loop:
            self.over.set()
            self.loop.join()
            self.loop = None
        if self.running:
            self.running.kill()
            self.running = None


# For three nodes that find each other by their addresses, each with a store of its own.
UNSHARED = {"TRANSPCKPT_NODES": "10.77.0.1,10.77.0.2:4800,10.77.0.3", "TRANSPCKPT_DIR": "/dev/shm/d"}


class Cluster:
    """A with statement."""

    def __init__(self, count, memory="700m", links=None, families=None, **settings):
        """links: what each node's link is like (BadLink), {"delay_ms": 20, "jitter_ms": 5, "loss": 0.01}; LINK_SEED= gives its chances.
        families: of addresses, of each node: "4", "6" or "46"; its name has all of them, and its `address` is of IPv4 where there is one."""
        self.build = job.build_folder()
        self.links, self.link_seed = links, int(os.environ.get("LINK_SEED") or random.randrange(1 << 32))
        if links:
            print(f"# links: {' '.join(BadLink.words(links))} LINK_SEED={self.link_seed}", flush=True)
        self.memory = memory
        # Another build of the agent, with sanitizers.
        self.daemon = os.environ.get("AGENT") or os.path.join(self.build, "transpckptd")
        self.root = tempfile.mkdtemp(prefix="tpck-cluster.", dir=os.environ.get("TMPDIR", "/tmp"))
        self.store = os.path.join(self.root, "store")
        self.environment = {k: v for k, v in os.environ.items()
                            if not k.startswith(("TRANSPCKPT_", "SIMGPU_", "UCX_", INSIDE)) and k != "LD_PRELOAD"}
        self.environment.update(TRANSPCKPT_SHM="/dev/shm/t", TRANSPCKPT_DIR=self.store, TRANSPCKPT_JOB="j", TRANSPCKPT_CONF="",
                                TRANSPCKPT_LOG="debug", TRANSPCKPT_PEERS="1", TRANSPCKPT_DURABLE_INTERVAL="1000000",
                                TRANSPCKPT_FILES="none", TRANSPCKPT_LINGER_SEC="60",
                                TRANSPCKPT_AGENT=self.daemon, XDG_STATE_HOME=os.path.join(self.root, "state"),
                                TRANSPCKPT_KERNELS=os.path.join(self.build, "kernels", "digest.simgpu"))
        # Kernels are slow so that iterations are; one by one they would cost three times as much of the processors.
        self.environment["SIMGPU_TOGETHER_US"] = "4000"
        # Devices of all nodes reach each other whatever becomes of the network.
        self.environment["SIMGPU_FABRIC"] = os.path.join(self.root, "fabric")
        os.mkdir(self.environment["SIMGPU_FABRIC"])
        if os.environ.get("TRANSPORT"):
            self.environment["TRANSPCKPT_TRANSPORT"] = os.environ["TRANSPORT"]
        self.environment.update(settings)
        self.count, self.nodes, self.families = count, [], families or ["4"] * count
        self.over, self.keeper = threading.Event(), None
        self.mpi = MPI(self) if self.environment.get("TRANSPCKPT_TRANSPORT") == "mpi" else None
        # A node's name is that of its address, as launchers and libraries of ranks take for granted.
        with open(os.path.join(self.root, "hosts"), "w", encoding="ascii") as f:
            f.write("127.0.0.1 localhost\n" + "".join("{1} {0}\n".format(*node_called(number, family))
                                                      for number in range(count) for family in sorted(self.families[number])))
        self.runner = [os.path.join(self.build, "tests/sim/simgpu-run")]

    def give_secret(self):
        """One that all nodes see, since they share no store."""
        path = self.environment["TRANSPCKPT_SECRET"] = os.path.join(self.root, "secret")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as f:
            f.write("0123456789abcdef" * 4)

    def __enter__(self):
        run("ip", "link", "add", "tpck0", "type", "bridge")
        run("ip", "link", "set", "tpck0", "up")
        # Ranks of a plain run meet at the test's own address.
        run("ip", "link", "set", "lo", "up")
        try:
            for number in range(self.count):
                self.nodes.append(Node(self, number))
        except BaseException:
            self.__exit__()
            raise
        self.keeper = threading.Thread(target=self.keep_logs, daemon=True)
        self.keeper.start()
        return self

    def keep_logs(self):
        while not self.over.wait(0.2):
            for node in list(self.nodes):
                if node.alive:
                    node.keep_log()

    def __exit__(self, *_):
        self.over.set()
        if self.keeper:
            self.keeper.join()
        if self.mpi:
            self.mpi.end()
        for node in self.nodes:
            node.end()
        subprocess.run(["ip", "link", "del", "tpck0"], check=False)
        if os.environ.get("KEEP"):
            print(f"# left for you: {self.root}")
        else:
            shutil.rmtree(self.root, ignore_errors=True)

    def replace(self, number):
        """A node of that name and address that has never been there."""
        self.nodes[number].destroy()
        until(lambda: not os.path.exists(f"/sys/class/net/v{number}"))
        self.nodes[number] = Node(self, number)

    def logs(self):
        return "\n".join(f"--- {node.name}\n{node.agent_log()[-6000:]}" for node in self.nodes if node.alive)

    def rendezvous(self):
        return glob.glob(os.path.join(self.store, "j", "agents", "*.agent"))
