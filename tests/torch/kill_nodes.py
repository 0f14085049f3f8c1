#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel under torchrun on two nodes, which are namespaces of this machine: what the ranks print,
their last digests and the checkpoints that they save themselves must be those of a run in which nobody died.

  kill_nodes.py [CASE...]     environment: as for scripts.py

  node         a node is destroyed once a step has copies; the same command goes on on the other one and a spare one
  leader       the same; it is the node of rank 0
  together     one of two nodes with a rank each is destroyed, and both ranks go on on the other one
  rank         one rank is killed, and torchrun starts all of them again where they are
  spare        a node is destroyed where there is a spare one: the other node's torchrun sees nothing of that
  spare_leader the same; it is the node of rank 0. torchrun's meeting place is on the spare node
  twin         a rank of each node is killed, and all change over to their twins each time: no torchrun sees it

Without arguments one of USUAL, another each time (SEED). Exits with 77 where there is no PyTorch, or where namespaces are not allowed.
"""
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'cluster'))
import node

node.enter()
import scripts
from kill_results import FINE, FOLDER_STAYS, LEFT_ALONE, files_differ, printed
from rank_jobs import Launch

import job
import twins

USUAL = ['node', 'twin', 'spare']
STEPS = 80
HANG_SEC = 600
# At the level of the log that says which steps have copies.
DEBUG = re.compile(r'transpckpt: (the driver is /|digests are taken on the device|rank \d of this node goes on as it began|ready to go live)')
STORE = 'import time, torch.distributed as d; s = d.TCPStore("0.0.0.0", 29399, is_master=True, wait_for_workers=False); time.sleep(10000)'
DDP = ['ddp.py', '--loading', '0.03', '--steps', str(STEPS), '--save-every', '10']


def settled(leader):
    """The newest step of which all nodes have their copies, as the leader says."""
    return max((int(n) for n in re.findall(r'step (\d+) of \d+ ranks has [1-9]\d* copies on other nodes', leader.agent_log())), default=-1)


class Torchrun:
    """The same command on several nodes; the first has torchrun's meeting place."""

    starts = 0

    def __init__(self, cluster, python, where, per_node, folder, name, preloaded=True, restarts=0, devices=None, options=(), endpoint=None):
        Torchrun.starts += 1
        self.cluster, self.python, self.where, self.per_node, self.name = cluster, python, where, per_node, name
        self.options = options
        self.preloaded, self.restarts, self.folder = preloaded, restarts, os.path.join(cluster.root, folder)
        self.devices = devices or per_node
        os.makedirs(self.folder, exist_ok=True)
        # Ranks that are left of an earlier start may still have its port.
        self.endpoint = endpoint or '%s:%d' % (where[0].name, 29400 + Torchrun.starts)
        self.launch = Launch([self.begin(here) for here in where])

    def begin(self, here):
        environment = {k: v for k, v in self.cluster.environment.items() if self.preloaded or not k.startswith('TRANSPCKPT_')}
        environment.update(OMP_NUM_THREADS='1', SIMGPU_DEVICES=str(self.devices), SIMGPU_UNKNOWN='list',
                           CUDA_VISIBLE_DEVICES=','.join(str(number) for number in range(self.devices)),
                           SIMGPU_TORCH=os.environ['SIMGPU_TORCH'], PYTHONUNBUFFERED='1')
        run = [os.path.join(self.cluster.build, 'transpckpt'), 'run', *self.options, '--'] if self.preloaded else []
        return here.start(self.cluster.runner + run + [
            self.python, '-W', 'ignore', '-m', 'torch.distributed.run', '--nnodes', str(len(self.where)), '--nproc-per-node', str(self.per_node),
            '--rdzv-backend', 'c10d', '--rdzv-id', 'j', '--rdzv-endpoint', self.endpoint, '--max-restarts', str(self.restarts),
            os.path.join(HERE, DDP[0])] + DDP[1:], environment, '%s.%s' % (self.name, here.name), self.folder)

    def kill_ranks(self, here):
        """Nobody is told: torchrun gives each a session of its own. False: there were none."""
        # The agent that a rank has started has its variables, too.
        script = 'for p in /proc/[0-9]*; do grep -qzxE "RANK=[0-9]+" $p/environ && grep -qzF ddp.py $p/cmdline && kill -KILL ${p#/proc/} && ' \
                 'echo killed; done 2>/dev/null'
        return 'killed' in here.run(['sh', '-c', script], self.cluster.environment).stdout

    def said(self):
        return self.launch.said()

    def printed(self):
        return '\n'.join(start.printed() for start in self.launch.starts)

    def end(self):
        self.launch.kill()
        for here in self.where:
            if here.alive:
                self.kill_ranks(here)

    def resumed(self):
        return [int(found[1]) for found in job.LIVE.finditer(self.said())]

    def remarks(self):
        return [line for line in self.said().splitlines()
                if line.startswith(('transpckpt:', 'simgpu:')) and not FINE.match(line) and not DEBUG.match(line)]


def judge(plain, runs, ranks):
    """What is wrong with what all starts left, beside a plain run."""
    lines, wrong = {}, []
    for run in runs:
        lines.update(dict(item for start in run.launch.starts for item in printed(start).items()))
    wanted = dict(item for start in plain.launch.starts for item in printed(start).items())
    wrong += ['the plain run did not print %s' % key for key in ['rank %d of %d step %d' % (r, ranks, s) for r in range(ranks)
                                                                 for s in range(STEPS)] if key not in wanted][:4]
    wrong += ['%s, not %s' % (lines.get(key), line) for key, line in wanted.items() if lines.get(key) != line][:4]
    return wrong + files_differ(plain.python, plain.folder, runs[0].folder)[:4]


class Case:
    def __init__(self, checks, python, name, per_node=1, devices=None):
        self.devices = devices
        self.checks, self.python, self.name, self.per_node, self.ranks = checks, python, name, per_node, 2 * per_node

    def ok(self, good, what, *more):
        return self.checks.ok(good, '%s: %s' % (self.name, what), *more)

    def run(self, cluster, where, name, **more):
        return Torchrun(cluster, self.python, where, self.ranks // len(where), 'killed', name, devices=self.devices, **more)

    def plain(self, cluster, where):
        plain = Torchrun(cluster, self.python, where, self.per_node, 'plain', 'plain', preloaded=False, devices=self.devices)
        status = plain.launch.wait(HANG_SEC)
        return plain if self.ok(status == 0, 'a plain run on two nodes', status, plain.said()[-3000:]) else None

    def begin(self, cluster, where, **more):
        """A start that has come so far that a step has copies, and that step; None."""
        begun = time.monotonic()
        run = self.run(cluster, where, 'first', **more)
        if self.ok(node.until(lambda: settled(where[0]) >= 5 or not run.launch.running(), HANG_SEC) and run.launch.running(), 'a step has copies',
                   run.said()[-3000:], run.printed()[-500:], cluster.logs()):
            print('# copies of step %d after %.1f s' % (settled(where[0]), time.monotonic() - begun))
            return run, settled(where[0])
        run.end()
        return None, None

    def end(self, cluster, plain, runs, goes_on, step):
        """The newest start goes on at that step or a later one, and all ends as in the plain run."""
        status = goes_on.launch.wait(HANG_SEC)
        logs = cluster.logs()
        self.ok(status == 0, 'it ends well', status, goes_on.said()[-6000:], logs)
        at = goes_on.resumed()
        self.ok(len(at) == self.ranks and len(set(at)) == 1 and at[0] >= step,
                'all ranks go on at step %s, of step %d there were copies' % (sorted(set(at)), step), goes_on.said()[-3000:], logs)
        wrong = judge(plain, runs, self.ranks)
        self.ok(not wrong, 'with the same bytes', *wrong)
        remarks = [line for run in runs for line in run.remarks()
                   if not FOLDER_STAYS.match(line) and ((run is goes_on and len(runs) > 1) or not LEFT_ALONE.match(line))]
        self.ok(not remarks, 'and without remarks', *remarks)


def lose(case, lost):
    with node.Cluster(3) as cluster:
        nodes = cluster.nodes
        plain = case.plain(cluster, nodes[:2])
        for here in nodes:
            here.agent()
        first, step = plain and case.begin(cluster, nodes[:2]) or (None, None)
        if not first:
            return
        nodes[lost].destroy()
        gone = time.monotonic()
        node.until(lambda: not first.launch.running(), 20)
        print('# torchrun of the other node %s after %.1f s' % ('is ended' if first.launch.running() else 'ends', time.monotonic() - gone))
        first.end()
        where = [here if here.alive else nodes[2] for here in nodes[:2]]
        gone = time.monotonic()
        second = case.run(cluster, where, 'second')
        node.until(lambda: len(second.resumed()) == case.ranks or not second.launch.running(), HANG_SEC)
        print('# live %.1f s after the start' % (time.monotonic() - gone))
        case.end(cluster, plain, [first, second], second, step)


def case_node(case):
    lose(case, 1)


def case_leader(case):
    lose(case, 0)


def case_together(case):
    # What a rank was told of its place at first, and which device, is what its program goes on with.
    case.devices = 2
    with node.Cluster(2, memory='1500m') as cluster:
        a, b = cluster.nodes
        plain = case.plain(cluster, cluster.nodes)
        first, step = plain and case.begin(cluster, cluster.nodes) or (None, None)
        if not first:
            return
        b.destroy()
        node.until(lambda: not first.launch.running(), 20)
        first.end()
        second = case.run(cluster, [a], 'second')
        case.end(cluster, plain, [first, second], second, step)


def case_rank(case):
    with node.Cluster(2) as cluster:
        plain = case.plain(cluster, cluster.nodes)
        first, step = plain and case.begin(cluster, cluster.nodes, restarts=1) or (None, None)
        if first:
            case.ok(first.kill_ranks(cluster.nodes[1]), 'a rank is killed')
            case.end(cluster, plain, [first], first, step)


def case_twin(case):
    with node.Cluster(2, memory='1500m') as cluster:
        plain = case.plain(cluster, cluster.nodes)
        first, step = plain and case.begin(cluster, cluster.nodes, options=('--twin',)) or (None, None)
        if not first:
            return
        launchers = [start.process.pid for start in first.launch.starts]
        begun = None
        for killed in range(2):
            node.until(lambda: twins.all_covered(launchers, case.ranks) or not first.launch.running(), 60)
            begun, living = begun or twins.supervisors(launchers), twins.all_covered(launchers, case.ranks)
            if not case.ok(living, 'both ranks have twins', first.said()[-3000:], cluster.logs()):
                first.end()
                return
            job.signal_if_there(living[1 - killed])
            gone = time.monotonic()
            node.until(lambda wanted=(killed + 1) * case.ranks: len(first.resumed()) == wanted or not first.launch.running(), 60)
            print('# live %.2f s after the death' % (time.monotonic() - gone))
        case.ok(not first.launch.running() or twins.supervisors(launchers) == begun, 'torchrun has the ranks that it had')
        status = first.launch.wait(HANG_SEC)
        at = first.resumed()
        case.ok(status == 0 and len(at) == 2 * case.ranks and min(at) >= step, 'two kills, and all change over each time: %s' % at, status,
                first.said()[-6000:], cluster.logs())
        wrong = judge(plain, [first], case.ranks)
        case.ok(not wrong, 'with the same bytes', *wrong)


def spare(case, lost):
    with node.Cluster(3, memory='1500m') as cluster:
        nodes = cluster.nodes
        plain = case.plain(cluster, nodes[:2])
        os.makedirs(os.path.join(cluster.root, 'killed'), exist_ok=True)
        # A torchrun that has lost its meeting place does not end.
        endpoint = lost == 0 and 'nodec:29399' or None
        store = endpoint and nodes[2].start([case.python, '-c', STORE], cluster.environment, 'store', cluster.root)
        command = nodes[2].start([os.path.join(cluster.build, 'transpckpt'), 'spare'], cluster.environment, 'spare', cluster.root)
        first, step = plain and case.begin(cluster, nodes[:2], options=('--twin',), endpoint=endpoint) or (None, None)
        if not first:
            return
        known = node.until(lambda: nodes[2].agent_log().count('could be started here') >= case.ranks, 30)
        case.ok(known, 'the spare node knows how the ranks were started', cluster.logs())
        left = first.launch.starts[1 - lost]
        launched = twins.supervisors([left.process.pid])
        nodes[lost].destroy()
        gone = time.monotonic()
        first.launch.starts.append(command)
        live = node.until(lambda: len(job.LIVE.findall(left.said() + command.said())) >= case.ranks or not left.running(), 120)
        print('# live %.1f s after the loss' % (time.monotonic() - gone))
        case.ok(live and left.running() and launched and twins.supervisors([left.process.pid]) == launched,
                'torchrun of the other node has the ranks that it had', launched, left.said()[-6000:], command.said()[-3000:], cluster.logs())
        # torchrun waits for the lost one's as long as 300 s, and ends well then.
        node.until(lambda: not command.running() and not twins.supervisors([left.process.pid]), HANG_SEC)
        status = command.process.poll() or left.process.poll() or (0 if not command.running() else 'hung')
        for start in [left, command, *([store] if store else [])]:
            start.kill()
        at = first.resumed()
        case.ok(status == 0 and len(at) == case.ranks and len(set(at)) == 1 and at[0] >= step, 'all ranks go on at step %s, of step %d there were copies' % (at, step),
                status, first.said()[-6000:], cluster.logs())
        wrong = judge(plain, [first], case.ranks)
        case.ok(not wrong, 'with the same bytes', *wrong)


def case_spare(case):
    spare(case, 1)


def case_spare_leader(case):
    spare(case, 0)


def main():
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    scripts.run(python, ['mlp.py', '--steps', '1'])  # the stand-ins are made once
    checks = job.Checks()
    if '#define HAVE_SODIUM 1' not in job.read(os.path.join(job.build_folder(), 'config.h')):
        job.skip('the agent was built without libsodium')
    os.environ['SIMGPU_TORCH'] = scripts.package(python)
    for name in sys.argv[1:] or job.drawn_from().sample(USUAL, 1):
        globals()['case_' + name](Case(checks, python, name, 2 if name.endswith('2') else 1))
    checks.end()


main()
