#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=35s
"""Programs of other stacks than PyTorch. Those that leave the device alone must do the same under the library as without, and the
library must say nothing and leave nothing but the digests of what they saved. Those that train on it are killed at random instants and started again by the same
command, and must end as one that was never killed.

  stacks.py [CASE[=KILLS]...]    environment: srcdir, builddir, KILLS, SEED; STACKS_PYTHON is a Python with some of the packages

A case whose package is not there is skipped; exits with 77 where there is none.
"""
import concurrent.futures
import os
import random
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'torch'))
import script_job
from script_job import job

INERT, RESUMES = 'inert', None
# CuPy's pool takes a free block out of a set of objects, in an order that their addresses decide.
ELSEWHERE = r'cannot resume at step \d+: .*: what copies, sets or kernels work on lies elsewhere than in the first run \(.*\); ' \
            r'(trying once more|starting the program again from its beginning)$'
# What must be installed, the program, and what becomes of it: else the line that may refuse to resume it.
CASES = {
    'jax': ('jax', ['jax_cpu.py'], INERT),
    'tensorflow': ('tensorflow', ['tensorflow_cpu.py'], INERT),
    'numba': ('numba', ['numba_cpu.py'], INERT),
    'numba_kernels': ('numba_cuda', ['numba_kernels.py', '--steps', '300'], RESUMES),
    'cupy': ('cupy', ['cupy_loop.py', '--steps', '400'], ELSEWHERE),
    'cupy_async': ('cupy', ['cupy_loop.py', '--steps', '400', '--allocator', 'async'], RESUMES),
}


def find_python():
    """A Python, and which of the packages it has."""
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    look = 'import importlib.util, sys; print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name)))'
    for python in (os.environ.get('STACKS_PYTHON'), os.path.join(cache, 'transpckpt', 'stacks', 'bin', 'python')):
        if python and os.access(python, os.X_OK):
            found = subprocess.run([python, '-c', look] + [package for package, _, _ in CASES.values()], capture_output=True, text=True)
            if found.returncode == 0 and found.stdout.split():
                return python, found.stdout.split()
    return None, []


def left_behind(*folders):
    return sorted(os.path.join(at, name) for folder in folders for at, _, files in os.walk(folder) for name in files)


def caches(folder):
    return {'PYTHONDONTWRITEBYTECODE': '1', 'NUMBA_CACHE_DIR': os.path.join(folder, 'numba'), 'CUPY_CACHE_DIR': os.path.join(folder, 'cupy')}


def judge_inert(python, script):
    """What the library changed, or left behind, or said."""
    with job.Place() as place:
        starts = []
        for name, run in (('plain', []), ('preloaded', [os.path.join(place.build, 'transpckpt'), 'run', '--'])):
            environment = {**place.environment, **caches(os.path.join(place.root, 'caches of ' + name))}
            folder = os.path.join(place.root, name)
            os.makedirs(folder)
            argv = place.runner + run + [python, '-W', 'ignore', os.path.join(HERE, script[0])] + script[1:]
            starts.append(job.Start(place, argv, folder, environment, 'said ' + name))
            starts[-1].folder = folder
            starts[-1].status = starts[-1].wait()
        plain, preloaded = starts
        if plain.status:
            return 'the plain run failed: %s' % plain.said()[-500:], ''
        wrong = ['ended with %s: %s' % (preloaded.status, preloaded.said()[-500:])] if preloaded.status else []
        wrong += job.differences(plain.folder, preloaded.folder)
        place.agent_settles()
        wrong += ['%s should not be there' % name for name in left_behind(place.shm, place.store) if os.path.basename(name) != 'files.sums']
        wrong += [line for line in preloaded.said().splitlines() if line.startswith('transpckpt: ')]
        if plain.printed() != preloaded.printed():
            wrong.append('it printed something else')
        if not plain.printed() or not left_behind(plain.folder):
            wrong.append('the program does nothing')
        return '; '.join(wrong), 'the same, and nothing said'


def judge_killed(python, script, refusal, kills, rng):
    """What is wrong, and what happened."""
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, [os.path.join(HERE, script[0])] + script[1:], caches(os.path.join(place.root, 'caches')))
        if this.run_plain():
            return 'the plain run failed: %s' % this.plain.said()[-500:], ''
        status = this.run_killed(rng, kills)
        refused = [line for line in this.remarks() if refusal and re.match('transpckpt: ' + refusal, line)]
        wrong = ['ended with %s: %s' % (status, this.starts[-1].said()[-500:])] if status else []
        wrong += this.differences() + this.silent() + [line for line in this.remarks() if line not in refused]
        if not this.resumed() and not refused:
            wrong.append('it never went on at a snapshot')
        told = '%d starts, %d resumed%s' % (len(this.starts), this.resumed(), ', refused in a line' if refused else '')
        return '; '.join(wrong + ([place.root] if wrong and os.environ.get('KEEP') else [])), told


def judge(python, name, kills, rng):
    _, script, fate = CASES[name]
    return judge_inert(python, script) if fate == INERT else judge_killed(python, script, fate, kills, rng)


def main():
    python, packages = find_python()
    kills, seed = int(os.environ.get('KILLS') or 2), int(os.environ.get('SEED') or random.randrange(1 << 32))
    wanted = [(n.partition('=')[0], int(n.partition('=')[2] or kills)) for n in sys.argv[1:] or CASES]
    there = [w for w in wanted if CASES[w[0]][0] in packages]
    if not there:
        print('no Python with %s: ./bootstrap.sh torch installs one' % ', '.join(CASES[name][0] for name, _ in wanted))
        sys.exit(job.SKIP)
    print('# SEED=%d' % seed)
    checks = job.Checks()
    for name, _ in wanted:
        if CASES[name][0] not in packages:
            checks.ok(True, '%s # SKIP %s is not installed' % (name, CASES[name][0]))
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get('TORCH_JOBS') or os.cpu_count() or 1)) as pool:
        for (name, n), (wrong, told) in zip(there, pool.map(lambda w: judge(python, *w, random.Random('%d %s' % (seed, w[0]))), there)):
            checks.ok(not wrong, '%s: %s' % (name, told if CASES[name][2] == INERT else '%d kills, %s' % (n, told)), wrong)
    checks.end()


if __name__ == '__main__':
    main()
