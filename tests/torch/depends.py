#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=50s
"""On simgpu the end of a training run depends on every step, on every tensor, and on the launches between.

Leaving out or repeating one step, putting one tensor back to what it was a step before, and dropping one kernel must each
change the final digest; else a resumed run that lost something could pass for a good one.
"""
import concurrent.futures
import os
import sys

import scripts
from scripts import job


def main():
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(77)
    gpt = ['gpt.py', '--steps', '4', '--accumulate', '1', '--optimizer', 'fused']
    conv = ['conv.py', '--steps', '2']
    cases = {'gpt': (gpt, None), 'conv': (conv, None)}
    # A few of each kind, other ones each time (SEED); ALL=1: all.
    rng = job.drawn_from()

    def some(of, count):
        return of if os.environ.get('ALL') else rng.sample(of, count)
    for how, step in some([(how, step) for how in ('omit', 'again') for step in (1, 3)], 2):
        cases['gpt %s %d' % (how, step)] = (gpt + ['--' + how, str(step)], None)
    for tensor in ('parameter', 'exp_avg', 'exp_avg_sq'):
        for step in some([1, 2, 3], 1):
            cases['gpt stale %s %d' % (tensor, step)] = (gpt + ['--stale', str(step), '--tensor', tensor], None)
    for n in some([40, 95, 150, 201, 262, 340, 401], 3):
        cases['gpt drop %d' % n] = (gpt, 'drop@%d' % n)
    for n in some([1, 13, 45, 53, 60], 2):  # of cuDNN's: forward, statistics, both gradients
        cases['conv drop %d' % n] = (conv, 'drop@%d' % n)
    reference = {name: scripts.final(scripts.run(python, script)) for name, script in (('gpt', gpt), ('conv', conv))}
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get('TORCH_JOBS') or os.cpu_count() or 1)) as pool:
        ends = dict(zip(cases, pool.map(lambda c: scripts.final(scripts.run(python, c[0], '', c[1])), cases.values())))
    print('1..%d' % len(cases))
    bad = 0
    for i, (name, end) in enumerate(ends.items(), 1):
        same = reference[name.split()[0]]
        good = end is not None and same is not None and (end == same) == (name in reference)
        bad += not good
        print('%sok %d - %s%s' % ('' if good else 'not ', i, name, '' if end else ' # no end'))
    sys.exit(bad != 0)


main()
