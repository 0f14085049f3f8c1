#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.1 memory=1500M about=19s
"""What one more peer costs an agent: memory, descriptors, and what it reads. The agents have a host name each and one network, so
that there may be many: COUNTS=2,8,24,48 says how many there are, one time after the other, and SECONDS= how long each is looked at."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import node

import job

node.enter()
checks = job.Checks()
SECONDS = float(os.environ.get("SECONDS", "5"))


class Agents:
    """So many, which all have met. A with statement."""

    def __init__(self, cluster, count):
        self.cluster, self.count, self.agents = cluster, count, []
        self.store = os.path.join(cluster.root, f"store{count}")

    def __enter__(self):
        for number in range(self.count):
            environment = {**self.cluster.environment, "TRANSPCKPT_SHM": f"/dev/shm/{self.count}.{number}", "TRANSPCKPT_DIR": self.store,
                           "TRANSPCKPT_LOG": f"info:{self.log(number)}"}
            self.agents.append(subprocess.Popen(
                ["unshare", "--uts", "sh", "-c", f"hostname h{number} && exec {self.cluster.daemon} --job j --foreground"], env=environment,
                stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return self

    def __exit__(self, *_):
        for agent in self.agents:
            agent.send_signal(signal.SIGKILL)
            agent.wait()

    def log(self, number):
        return os.path.join(self.cluster.root, f"log{self.count}.{number}")

    def met(self):
        return all(job.read(self.log(number)).count("is a peer") >= self.count - 1 for number in range(self.count))

    def read_of(self, pid):
        """Bytes that it has read, but from its connections, and how long it has worked."""
        io = dict(line.split(": ") for line in job.read(f"/proc/{pid}/io").splitlines())
        stat = job.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return int(io["rchar"]), (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def cost(self):
        """Of the one in the middle: KiB of memory that are its own, descriptors, bytes that it reads in a second, and percent of a processor."""
        pid = self.agents[self.count // 2].pid
        time.sleep(2)
        (read, worked), begun = self.read_of(pid), time.monotonic()
        time.sleep(SECONDS)
        (read_then, worked_then), took = self.read_of(pid), time.monotonic() - begun
        memory = next(int(line.split()[1]) for line in job.read(f"/proc/{pid}/smaps_rollup").splitlines() if line.startswith("Private_Dirty"))
        return memory, len(os.listdir(f"/proc/{pid}/fd")), (read_then - read) / took, 100 * (worked_then - worked) / took


class Place:
    """What node.Cluster has, of the test's own namespaces."""

    def __enter__(self):
        self.cluster = node.Cluster(0)
        node.run("ip", "link", "set", "lo", "up")
        node.run("ip", "link", "add", "tpck0", "type", "veth", "peer", "name", "tpck1")
        node.run("ip", "addr", "add", "10.77.0.1/24", "dev", "tpck0")
        for name in ("tpck0", "tpck1"):
            node.run("ip", "link", "set", name, "up")
        node.run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        return self.cluster

    def __exit__(self, *_):
        self.cluster.__exit__()


def main():
    counts, costs, size = [int(count) for count in os.environ.get("COUNTS", "2,8").split(",")], [], 0
    with Place() as cluster:
        for count in counts:
            with Agents(cluster, count) as agents:
                checks.ok(bool(node.until(agents.met, 60)), f"{count} agents meet", "\n".join(job.read(agents.log(n)) for n in range(count)))
                files = os.path.join(agents.store, "j", "agents")
                size = min(os.path.getsize(os.path.join(files, name)) for name in os.listdir(files) if name.endswith(".agent"))
                costs.append(agents.cost())
            print("# {} agents: {} KiB of its own, {} descriptors, {:.0f} bytes read in a second, {:.2f} % of a processor".format(count, *costs[-1]),
                  flush=True)
    more = counts[-1] - counts[0]
    memory, descriptors, read, worked = ((after - before) / more for before, after in zip(costs[0], costs[-1]))
    print(f"# one more peer: {memory:.1f} KiB, {descriptors:.1f} descriptors, {read:.1f} bytes read in a second, {worked:.3f} % of a processor")
    # A look at the folder comes every second.
    checks.ok(read < size / 4, "a peer's file is not read again and again", f"{read:.1f} bytes a second and peer; a file has {size}")
    checks.end()


main()
