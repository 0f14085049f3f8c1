#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 memory=2000M minutes=10 about=50s
"""Somebody without the job's secret who reaches the ports of two nodes' agents, from a third node and from a peer's: garbage to each port, connections
that say nothing, and connections that come and go. Neither agent ends, the program trains on, its copies arrive, steps become durable, and an
agent that comes meanwhile is met. Ports are looked for in the kernel's table: there is one. GARBAGE= is how many messages of it."""
import glob
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cluster"))
import node

import job

node.enter()
if "#define HAVE_SODIUM 1" not in job.read(os.path.join(job.build_folder(), "config.h")):
    job.skip("the agent was built without libsodium")
checks = job.Checks()
GARBAGE = int(os.environ.get("GARBAGE", "10000"))
IDLE = 1000
SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "runtime")
VERSION = 100 * int(re.search(r"TPCK_WIRE_VERSION = (\d+)", job.read(os.path.join(SOURCE, "wire", "segment.h")))[1]) + \
    int(re.search(r"TPCK_PEER_VERSION = 100 \* TPCK_WIRE_VERSION \+ (\d+)", job.read(os.path.join(SOURCE, "peer", "protocol.h")))[1])
# What an agent has at most of connections that have not proved themselves (transport_tcp.c), for one address.
EACH = 64

# Words: how, how many (or for how many seconds), the version of the peers' protocol, ADDRESS:PORT... It says "ready" once it has begun, and at its end how many it has made.
ATTACK = """
import random, resource, socket, struct, sys, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
how, count, version, targets = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), [t.rsplit(":", 1) for t in sys.argv[4:]]

def connected(i):
    s = socket.socket()
    s.settimeout(2)
    try:
        s.connect((targets[i % len(targets)][0], int(targets[i % len(targets)][1])))
    except OSError:
        pass
    return s

def some(most):
    return random.randbytes(random.randrange(most))

# By runtime/peer/protocol.h: struct tpck_peer_message behind a frame, and struct tpck_greeting.
def peer(kind, behind):
    return struct.pack("<IHHQIHH", 0x31504354, 88, 0, len(behind), 0x72656570, version, kind) + random.randbytes(80) + behind

def greeting():
    return random.randbytes(64) + struct.pack("<IHH", *(random.randrange(4) for _ in range(3))) + b"j" + bytes(127) + random.randbytes(384)

LENGTHS = (0, 1, 7, 8, 511, 512, 513, 4096, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**47, 2**63 - 1, 2**63, 2**64 - 1)
def message():
    length = random.choice(LENGTHS)
    return random.choice((
        lambda: some(600),
        # A length, as UCX's connection manager begins with, and a message of its TCP.
        lambda: struct.pack("<Q", length) + some(200),
        lambda: struct.pack("<QBI", 0xcafebabe12345678, random.randrange(256), length & 0xffffffff) + some(200),
        # A frame of an agent's, more or less: its head, its flags and its count are anything, or one that promises what does not come.
        lambda: struct.pack("<IHHQ", 0x31504354, random.choice(LENGTHS) & 0xffff, random.randrange(4), length) + some(700),
        lambda: struct.pack("<IHHQ", 0x31504354, 88, random.randrange(2), random.randrange(70000)) + some(120),
        # What is said before the proof, and others of an agent's messages, as it would say them but for the secret.
        lambda: peer(random.randrange(40), some(900)), lambda: peer(1, greeting()), lambda: peer(1, greeting()) + peer(3, greeting()),
        lambda: peer(2, greeting()) + peer(random.choice((4, 5, 8, 13, 17)), some(600))))()

print("ready", flush=True)
made, kept, until = 0, [], time.monotonic() + count
for i in range(count if how != "come" else 1 << 60):
    s = connected(i)
    try:
        if how == "garbage":
            s.send(message())
        made += 1
    except OSError:
        pass
    if how == "come":
        s.close()
        if time.monotonic() > until:
            break
    else:
        kept.append(s)
        if how == "garbage" and len(kept) > 50:
            kept.pop(0).close()
print("made", made, flush=True)
if how == "idle":
    time.sleep(1000)
"""


def sockets(where, state):
    """Ports of a node's TCP sockets in this state, by the kernel's tables: of each its own port."""
    found = []
    for name in ("tcp", "tcp6"):
        rows = job.read(f"/proc/{where.init}/net/{name}").splitlines()[1:]
        found += [int(row.split()[1].rpartition(":")[2], 16) for row in rows if row.split()[3] == state]
    return found


def listening(where):
    return sorted(set(sockets(where, "0A")))


def connections(where):
    """How many there are to the ports at which this node listens."""
    ports = listening(where)
    return sum(port in ports for port in sockets(where, "01"))


def newest(where, what):
    return max((int(n) for n in re.findall(what, where.agent_log())), default=-1)


def pid(where):
    return job.read(where.path("j", "agent.lock")).strip()


class Job:
    """A program on the first node, copies on the second one. A with statement."""

    def __init__(self):
        self.cluster = node.Cluster(3, memory="1g", TRANSPCKPT_INTERVAL="4", TRANSPCKPT_DURABLE_INTERVAL="1s", SIMGPU_KERNEL_US="1000")

    def __enter__(self):
        self.cluster.__enter__()
        self.a, self.b, self.c = self.cluster.nodes
        self.b.agent()
        work = os.path.join(self.cluster.root, "work")
        os.mkdir(work)
        self.start = self.a.start([*self.cluster.runner, os.path.join(self.cluster.build, "transpckpt"), "run", "--",
                                   os.path.join(self.cluster.build, "tests/trainers/gpt"), "--steps", "1000000", "--seed", "7", "--out", "out"],
                                  self.cluster.environment, "start", work)
        checks.ok(self.goes_on(), "before: copies arrive, and a step becomes durable", self.story())
        self.pids = {n: pid(n) for n in (self.a, self.b)}
        return self

    def __exit__(self, *problem):
        self.start.kill()
        self.cluster.__exit__(*problem)

    def story(self):
        return self.start.said() + "\n" + self.cluster.logs()

    def goes_on(self):
        """Waits until copies have come and a step has become durable that was not when this was called, and the program has trained on."""
        had, durable, done = self.copies(), self.durable(), self.done()
        return bool(node.until(lambda: self.copies() > had + 2 and self.durable() > durable and self.done() > done or not self.start.running(), 60)) and \
            self.start.running()

    def copies(self):
        return newest(self.b, r"a copy of step (\d+) of generation \d+ of \w+ is here")

    def durable(self):
        return newest(self.a, r"step (\d+) is durable")

    def done(self):
        return len(re.findall("step", self.start.printed()))

    def targets(self):
        return [f"{n.address}:{port}" for n in (self.a, self.b) for port in listening(n)]

    def attack(self, where, how, count):
        attacker = where.start([sys.executable, "-c", ATTACK, how, str(count), str(VERSION), *self.targets()], self.cluster.environment, f"{how}.{where.name}",
                               self.cluster.root)
        node.until(lambda: "ready" in attacker.printed(), 20)
        return attacker

    def same(self, what):
        for n in (self.a, self.b):
            checks.ok(pid(n) == self.pids[n] and n.has_agent() and os.path.exists(f"/proc/{n.init}/root/proc/{self.pids[n]}"),
                      f"{what}: the agent of {n.name} is the same one", self.pids, pid(n), self.story())


    def never_parted(self, what):
        for n in (self.a, self.b):
            checks.ok(len(re.findall(r"is a peer;", n.agent_log())) == 1 and " is gone: " not in n.agent_log(), f"{what}: {n.name} has had its peer all the time",
                      n.agent_log()[-6000:])


def made(attacker):
    return int((re.findall(r"made (\d+)", attacker.printed()) or ["0"])[0])


def lines(where):
    return where.agent_log().count("\n")


def places(where):
    """Where a node listens, as the kernel says it: ADDRESS:PORT in hexadecimal digits."""
    return {row.split()[1] for name in ("tcp", "tcp6") for row in job.read(f"/proc/{where.init}/net/{name}").splitlines()[1:] if row.split()[3] == "0A"}


def hexadecimal(address, port):
    return "".join(f"{int(part):02X}" for part in reversed(address.split("."))) + f":{port:04X}"


def answers(at, address, port):
    return not at.run([sys.executable, "-c", "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)", address, str(port)],
                      at.cluster.environment).returncode


def case_interfaces():
    """An agent listens at the addresses that others are told, and where the user names a network at those that are in it."""
    with node.Cluster(3, memory="1g", TRANSPCKPT_INTERFACES="10.77.0.0/16") as cluster:
        a, b, c = cluster.nodes
        for n in (a, b, c):
            node.run("nsenter", "-t", str(n.init), "-n", "ip", "addr", "add", f"10.78.0.{n.number + 1}/24", "dev", "eth0")
        a.agent()
        b.agent()
        checks.ok(node.until(lambda: " is a peer" in a.agent_log(), 30), "interfaces: agents meet at the network that is named", cluster.logs())
        for n in (a, b):
            port = (listening(n) or [0])[0]
            checks.ok(places(n) == {hexadecimal(n.address, port), hexadecimal("127.0.0.1", port)}, f"interfaces: {n.name} listens there, and at the loopback",
                      places(n), cluster.logs())
            checks.ok(answers(c, n.address, port) and not answers(c, f"10.78.0.{n.number + 1}", port), f"interfaces: the other network does not reach {n.name}",
                      cluster.logs())
            told = job.read(next(iter(glob.glob(os.path.join(cluster.environment["TRANSPCKPT_DIR"], "j/agents", f"{n.name}.*.agent"))), "/dev/null"))
            checks.ok("10.77." in told and "10.78." not in told, f"interfaces: nor is it told that it may: {told.split()}", cluster.logs())
    with node.Cluster(2, memory="1g") as cluster:
        a, c = cluster.nodes
        a.agent()
        port = (listening(a) or [0])[0]
        checks.ok(answers(c, a.address, port), "interfaces: without a setting a node's address is listened at", cluster.logs())
        node.run("nsenter", "-t", str(a.init), "-n", "ip", "addr", "add", "10.79.0.1/24", "dev", "eth0")
        node.run("nsenter", "-t", str(c.init), "-n", "ip", "addr", "add", "10.79.0.2/24", "dev", "eth0")
        checks.ok(node.until(lambda: answers(c, "10.79.0.1", port), 20), "interfaces: and one that comes later, soon", cluster.logs())
        checks.ok(not any(place.startswith(("00000000:", "0" * 32 + ":")) for place in places(a)), "interfaces: nothing listens at all addresses", places(a))


def case_ports():
    """An agent listens at the port that it says, and at no other."""
    with Job() as run:
        for n in (run.a, run.b):
            said = re.findall(r"listens for others at port (\d+)", n.agent_log())
            checks.ok([str(port) for port in listening(n)] == said, f"{n.name} listens at {listening(n)}, and says so: {said}", n.agent_log())


def case_garbage():
    with Job() as run:
        checks.ok(len(run.targets()) >= 2, f"garbage: to {run.targets()}")
        begun = {n: lines(n) for n in (run.a, run.b)}
        attackers = [run.attack(where, "garbage", GARBAGE // 2) for where in (run.c, run.b)]
        went_on = run.goes_on()
        for attacker in attackers:
            attacker.wait(200)
        sent = sum(made(attacker) for attacker in attackers)
        checks.ok(sent > 0.9 * GARBAGE, f"garbage: {sent} messages of it went", *(attacker.said() for attacker in attackers))
        run.same("garbage")
        checks.ok(went_on, "garbage: copies arrive, a step becomes durable, and the program trains on meanwhile", run.story())
        checks.ok(run.goes_on(), "garbage: and afterwards", run.story())
        for n in (run.a, run.b):
            said = len(re.findall(r"a connection from \S+ to port", n.agent_log()))
            checks.ok(1 <= said <= 20, f"garbage: {n.name} says so in some lines: {said}, of {lines(n) - begun[n]} more", n.agent_log()[-6000:])
            said = re.findall(r"(?:no copies from or to|takes no copies from here).*", n.agent_log())
            checks.ok(1 <= len(said) <= 4, f"garbage: some of it has come as far as the proof at {n.name}, in lines: {len(said)}", n.agent_log()[-6000:])
            checks.ok(all(line.startswith("transpckpt: ") and line.isascii() and line.isprintable() for line in n.agent_log().splitlines()),
                      f"garbage: no stranger's characters are in the log of {n.name}", n.agent_log()[-6000:])
        run.never_parted("garbage")


def case_idle():
    """Connections that say nothing are few, whoever makes them, and end; who has the secret is met meanwhile."""
    with Job() as run:
        attackers = [run.attack(where, "idle", IDLE) for where in (run.c, run.b)]
        # Connections are made anew as long as this goes on.
        checks.ok(node.until(lambda: all(made(attacker) for attacker in attackers), 60), "idle: they are made", *(x.said() for x in attackers))
        checks.ok(all(node.until(lambda n=n: connections(n) <= 2 * EACH + 20, 20) for n in (run.a, run.b)),
                  f"idle: there are no more than {2 * EACH} of them at an agent", [connections(n) for n in (run.a, run.b)], run.story())
        checks.ok(run.goes_on(), "idle: copies arrive, a step becomes durable, and the program trains on meanwhile", run.story())
        run.same("idle")
        checks.ok(all(node.until(lambda n=n: connections(n) <= 20, 30) for n in (run.a, run.b)), "idle: they end",
                  [connections(n) for n in (run.a, run.b)], run.story())
        run.never_parted("idle")
        for attacker in attackers:
            attacker.kill()


def case_come():
    """Connections come and go as fast as they can. An agent that is new is met."""
    with Job() as run:
        attackers = [run.attack(where, "come", 25) for where in (run.c, run.b)]
        checks.ok(run.goes_on(), "come: copies arrive, a step becomes durable, and the program trains on meanwhile", run.story())
        run.same("come")
        run.b.signal_agent("KILL")
        node.until(lambda: not os.path.exists(f"/proc/{run.b.init}/root/proc/{run.pids[run.b]}"), 10)
        run.b.agent()
        run.pids[run.b] = pid(run.b)
        checks.ok(node.until(lambda: re.search(r"nodea .*is a peer", job.read(run.b.path("j", "agent.log"))), 30), "come: a new agent is met", run.story())
        for attacker in attackers:
            attacker.wait(200)
        checks.ok(all(made(attacker) > 1000 for attacker in attackers), f"come: {[made(attacker) for attacker in attackers]} connections")
        checks.ok(run.goes_on(), "come: and afterwards all goes on", run.story())
        run.same("come")


os.environ.setdefault("CASE", "every")
node.run_cases(globals(), ())
checks.end()
