#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=20s
"""A PyTorch script on simgpu that sends tensors of the device to another process: plain and with the preloaded library it
prints the same and leaves the same files, and the library says in one line that such a program is not resumed.

  ipc.py [CASE...]     environment: as for scripts.py

Exits with 77 where there is no PyTorch.
"""
import os
import sys

import scripts
from script_job import job

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {
    # The library's line says why.
    'shared': (['shared_tensors.py'], {}, ('(cuIpc',)),
    # PyTorch passes descriptors of its own mappings then.
    'expandable': (['shared_tensors.py', '--steps', '12'], {'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True'}, ('ShareableHandle', '(cuIpcOpenEvent')),
}
MARKED = 'transpckpt: snapshots from here on cannot be resumed: '


class Run:
    def __init__(self, place, python, name, preloaded):
        script, environment, _ = CASES[name]
        environment = {**place.environment, **environment, 'OMP_NUM_THREADS': '1', 'SIMGPU_UNKNOWN': 'list'}
        # Each of the two processes is a program of its own.
        environment.pop('TRANSPCKPT_JOB')
        run = [os.path.join(place.build, 'transpckpt'), 'run', '--'] if preloaded else []
        if not preloaded:
            environment = {k: v for k, v in environment.items() if not k.startswith('TRANSPCKPT_')}
        self.folder = os.path.join(place.root, name + ('.preloaded' if preloaded else '.plain'))
        os.makedirs(self.folder)
        argv = place.runner + run + [python, '-W', 'ignore', os.path.join(HERE, script[0])] + script[1:]
        self.start = job.Start(place, argv, self.folder, environment, name + str(preloaded))

    def end(self):
        self.status = self.start.wait()
        self.printed, self.said = self.start.printed(), self.start.said()
        return self

    def lines(self, *begin):
        return [line for line in self.said.splitlines() if line.startswith(begin)]


def false_ones(printed):
    """What the script says of itself that is not as it should be."""
    return [line for line in printed.splitlines() if line.endswith(' False')]


def one(place, python, name):
    """What is wrong with it."""
    plain, preloaded = (run.end() for run in [Run(place, python, name, preloaded) for preloaded in (False, True)])
    wrong = false_ones(plain.printed)
    if plain.status or 'final ' not in plain.printed or plain.said:
        return wrong + ['plain: %s, %s' % (plain.status, plain.said[-1000:])]
    if preloaded.status or preloaded.printed != plain.printed:
        wrong.append('preloaded: %s, %s, %s' % (preloaded.status, preloaded.printed[-500:], preloaded.said[-1000:]))
    wrong += job.differences(plain.folder, preloaded.folder)
    if not os.listdir(plain.folder):
        wrong.append('it leaves no file')
    marked = preloaded.lines(MARKED)
    # One process gives, the other takes, and gives in turn.
    if len(marked) != 2 or not all(any(why in line for why in CASES[name][2]) for line in marked):
        wrong.append('preloaded it says %s' % preloaded.said)
    if preloaded.lines('simgpu:') or 'Producer process' in preloaded.said:
        wrong.append('preloaded: %s' % preloaded.said)
    if any(row['resumable'] for row in place.listed()):
        wrong.append('what it left can be resumed')
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
