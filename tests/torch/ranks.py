#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=75s
"""PyTorch jobs of two ranks on simgpu, by the nccl backend, and one of two devices in one process: the ranks agree, what
they average is the average, and the preloaded library changes nothing and has nothing to say, but for one line where there
are two devices in a process.

  ranks.py [CASE...]     environment: as for scripts.py

Exits with 77 where there is no PyTorch.
"""
import os
import re
import socket
import sys

import scripts
from script_job import job

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 2
CASES = {
    'ddp': ['ddp.py'],
    'ddp_bf16': ['ddp.py', '--bf16'],
    'fsdp': ['ddp.py', '--fsdp'],
    'stages': ['stages.py', '--steps', '40'],
}
REFUSES_DEVICES = 'transpckpt: no snapshots from here on: the program uses the memory of several devices'


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return str(s.getsockname()[1])


class Ranks:
    """A script as the ranks of one job, each a process with its own output."""

    def __init__(self, place, python, script, name, preloaded=False):
        self.starts = []
        port = free_port()
        ranks = 1 if name.startswith('stages') else RANKS
        run = [os.path.join(place.build, 'transpckpt'), 'run', '--'] if preloaded else []
        for rank in range(ranks):
            environment = {k: v for k, v in place.environment.items() if preloaded or not k.startswith('TRANSPCKPT_')}
            environment.update(OMP_NUM_THREADS='1', SIMGPU_UNKNOWN='list', SIMGPU_DEVICES='2')
            if ranks > 1:
                environment.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR='127.0.0.1', MASTER_PORT=port)
            argv = place.runner + run + [python, '-W', 'ignore', os.path.join(HERE, script[0])] + script[1:]
            self.starts.append(job.Start(place, argv, place.root, environment, '%s.%d' % (name, rank)))

    def end(self):
        self.status = [start.wait() for start in self.starts]
        self.printed = [start.printed() for start in self.starts]
        self.said = [[line for line in start.said().splitlines() if line.startswith(('transpckpt:', 'simgpu:'))] for start in self.starts]
        return self


def average_is_wrong(printed):
    """Whether a mean of the ranks is not theirs, by the printed digits; or all losses are the same anyway."""
    steps = {}
    for step, loss, mean in re.findall(r'step (\d+) loss (\S+) mean (\S+)', '\n'.join(printed)):
        steps.setdefault(step, []).append((float(loss), float(mean)))
    for rows in steps.values():
        if len(rows) != RANKS or any(abs(sum(l for l, _ in rows) / RANKS - mean) > 2e-6 for _, mean in rows):
            return True
    return not steps or all(len({loss for loss, _ in rows}) == 1 for rows in steps.values())


def finals(printed):
    return {re.search(r'final (\w+)', line)[1] for text in printed for line in text.splitlines() if 'final ' in line}


def one(place, python, name):
    """What is wrong with it."""
    plain = Ranks(place, python, CASES[name], name).end()
    preloaded = Ranks(place, python, CASES[name], name + '.preloaded', preloaded=True).end()
    wrong = []
    if any(plain.status) or any(plain.said):
        return ['plain: %s, %s, %s' % (plain.status, plain.said, plain.starts[0].said()[-500:])]
    if len(finals(plain.printed)) != 1:
        wrong.append('the ranks do not agree')
    if len(plain.starts) > 1 and average_is_wrong(plain.printed):
        wrong.append('an average is wrong')
    if len(plain.starts) == 1 and not plain.printed[0].endswith('on cuda:0 and cuda:1\n'):
        wrong.append('it does not use two devices')
    if preloaded.status != plain.status or preloaded.printed != plain.printed:
        wrong.append('preloaded: %s, %s' % (preloaded.status, preloaded.starts[0].said()[-500:]))
    if preloaded.said != ([[]] * RANKS if len(plain.starts) > 1 else [[REFUSES_DEVICES]]):
        wrong.append('preloaded it says %s' % preloaded.said)
    return wrong


def main():
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    scripts.run(python, ['mlp.py', '--steps', '1'])  # the stand-ins are made once
    checks = job.Checks()
    with job.Place() as place:
        for name in sys.argv[1:] or CASES:
            wrong = one(place, python, name)
            checks.ok(not wrong, name, *wrong)
    checks.end()


main()
