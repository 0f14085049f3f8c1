#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=75s
"""PyTorch jobs of several ranks under torchrun, by DistributedDataParallel, fully_shard and DeepSpeed: one rank is killed at
a random instant and torchrun starts all of them again, or all are killed and the same command is started again; what the
ranks print, their last digests and the checkpoints that they save themselves must be those of a run in which nobody died.

  kill_ranks.py [CASE...]     environment: as for scripts.py; LOOPS_PYTHON, SUITES_PYTHON; SEED

Without arguments one of USUAL, another each time. Exits with 77 where there is no PyTorch; a case whose packages are not there is skipped.
"""
import os
import subprocess
import sys
import time

import kill
import scripts
from kill_results import FINE, FOLDER_STAYS, LEFT_ALONE, STEP, files_differ, printed
from script_job import job

HERE = os.path.dirname(os.path.abspath(__file__))
# A batch takes its time, so that a step of all ranks can be had before the job ends, however busy the machine is.
DDP = ['ddp.py', '--loading', '0.03', '--steps', '80', '--save-every', '10']
FSDP = ['ddp.py', '--fsdp', '--loading', '0.03', '--steps', '60', '--save-every', '10']
ZERO1 = ['zero.py', '--stage', '1', '--steps', '60', '--save-every', '10']
ZERO3 = ['zero.py', '--stage', '3', '--steps', '60', '--save-every', '10']
# Ranks, which installation, the script.
CASES = {
    'ddp': (2, 'torch', DDP + ['--writer']),
    'ddp-alone': (2, 'torch', ['ddp.py', '--steps', '80', '--save-every', '40']),
    'ddp4': (4, 'torch', DDP + ['--writer']),
    'fsdp': (2, 'loops', FSDP),
    'fsdp4': (4, 'loops', FSDP),
    'zero1': (2, 'suites', ZERO1),
    'zero1x4': (4, 'suites', ZERO1),
    'zero3': (2, 'suites', ZERO3),
    'zero3x4': (4, 'suites', ZERO3),
}
# What runs without arguments: a case takes a minute of two processors or more, most of which is imports.
USUAL = ['ddp4', 'fsdp', 'zero3']
# What an installation must have: DCP needs numpy, which PyTorch's has not.
NEEDS = {'torch': 'torch', 'loops': 'torch, numpy', 'suites': 'torch, numpy, deepspeed'}


class Torchrun:
    def __init__(self, place, python, case, name, preloaded, restarts=0, options=(), longer=1):
        self.place = place
        self.ranks, _, script = CASES[case]
        script = [str(longer * int(word)) if before == '--steps' else word for before, word in zip([''] + script, script)]
        self.script = script[0]
        environment = {k: v for k, v in place.environment.items() if preloaded or not k.startswith('TRANSPCKPT_')}
        environment.update(OMP_NUM_THREADS='1', SIMGPU_DEVICES=str(self.ranks), SIMGPU_UNKNOWN='list',
                           SIMGPU_TORCH=os.environ['SIMGPU_TORCH'], PYTHONUNBUFFERED='1')
        run = [os.path.join(place.build, 'transpckpt'), 'run', *options, '--'] if preloaded else []
        folder = os.path.join(place.root, 'killed' if preloaded else 'plain')
        os.makedirs(folder, exist_ok=True)
        self.start = job.Start(place, place.runner + run + [
            python, '-W', 'ignore', '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', str(self.ranks), '--max-restarts',
            str(restarts), os.path.join(HERE, script[0])] + script[1:], folder, environment, name)

    def processes(self):
        """Of the ranks, by rank: torchrun gives each a session of its own."""
        found = {}
        for entry in os.listdir('/proc'):
            try:
                with open('/proc/%d/environ' % int(entry), 'rb') as f:
                    variables = dict(v.split(b'=', 1) for v in f.read().split(b'\0') if b'=' in v)
                with open('/proc/%s/cmdline' % entry, 'rb') as f:
                    script = self.script.encode() in f.read()
            except (OSError, ValueError):
                continue
            if script and variables.get(b'TRANSPCKPT_SHM') == self.place.shm.encode() and b'RANK' in variables:
                found[int(variables[b'RANK'])] = int(entry)
        return found

    def end(self):
        """All at once."""
        self.start.process.kill()
        for pid in self.processes().values():
            job.signal_if_there(pid)
        self.start.process.wait()
        while self.processes():
            time.sleep(0.02)

    def goes_on(self, steps):
        """Until it has got so far beyond where it was, and a step of all ranks can be had."""
        before = len(STEP.findall(self.start.printed()))
        return self.start.until(lambda: len(STEP.findall(self.start.printed())) >= before + self.ranks * steps) and \
            self.start.until(lambda: any(row['offered'] and row['state'] != 'held' for row in self.place.listed()))

    def remarks(self):
        return [line for line in self.start.said().splitlines() if line.startswith(('transpckpt:', 'simgpu:')) and not FINE.match(line)]


def judge_once(python, case, rng):
    """What is wrong, what happened, and how many starts there were."""
    ranks = CASES[case][0]
    with job.Place() as place:
        plain = Torchrun(place, python, case, 'plain', False)
        if plain.start.wait():
            return ['the plain run failed: %s' % plain.start.said()[-600:]], '', 0
        took = time.monotonic() - plain.start.begun
        wrong, lines, resumed = [], {}, 0
        # One rank dies, and torchrun starts both again.
        first = Torchrun(place, python, case, 'first', True, restarts=3)
        if not first.goes_on(5):
            return ['it ended before it could be killed: %s' % first.start.said()[-600:]], '', 1
        time.sleep(rng.random() * took / 20)
        victim = first.processes().get(rng.randrange(ranks))
        if not victim or not job.signal_if_there(victim):
            return ['it ended before it could be killed: %s' % first.start.said()[-600:]], '', 1
        if not first.goes_on(5):
            wrong.append('it did not go on: %s' % first.start.said()[-900:])
        time.sleep(rng.random() * took / 20)
        first.end()
        second = Torchrun(place, python, case, 'second', True)
        status = second.start.wait()
        for run in (first, second):
            lines.update(printed(run.start))
            wrong += [line for line in run.remarks() if not FOLDER_STAYS.match(line) and (run is second or not LEFT_ALONE.match(line))]
            resumed += len(job.LIVE.findall(run.start.said()))
        if status:
            wrong.append('it ended with %s: %s' % (status, second.start.said()[-900:]))
        wanted = printed(plain.start)
        steps = int(CASES[case][2][CASES[case][2].index('--steps') + 1])
        wrong += ['the plain run did not print %s' % key for key in
                  ['rank %d of %d step %d' % (r, ranks, s) for r in range(ranks) for s in range(steps)] if key not in wanted][:4]
        wrong += ['%s, not %s' % (lines.get(key), line) for key, line in wanted.items() if lines.get(key) != line][:4]
        wrong += files_differ(python, *(os.path.join(place.root, name) for name in ('plain', 'killed')))[:4]
        if resumed != 2 * ranks:
            wrong.append('%d ranks went on at a snapshot in two starts: %s' % (resumed, place.agent_log()[-1500:]))
        return wrong, '%d ranks, %d steps, %d resumed' % (ranks, steps, resumed), 2


def find_python(installation):
    """A Python that has what it needs, and the folder of its PyTorch, which need not be of the same installation."""
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    for python in (os.environ.get(installation.upper() + '_PYTHON'), os.path.join(cache, 'transpckpt', installation, 'bin', 'python')):
        if python and os.access(python, os.X_OK):
            found = subprocess.run([python, '-W', 'ignore', '-c', 'import os, %s; print(os.path.dirname(torch.__file__))' % NEEDS[installation]],
                                   capture_output=True, text=True, check=False)
            if found.returncode == 0:
                return python, found.stdout.split()[-1]
    return None, None


def main(cases, judge_once):
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    scripts.run(python, ['mlp.py', '--steps', '1'])  # the stand-ins are made once
    checks, rng = job.Checks(), job.drawn_from()
    for case in sys.argv[1:] or cases(rng):
        python, torch = find_python(CASES[case][1])
        if not python:
            checks.count += 1
            print('ok %d # SKIP %s: no Python with %s' % (checks.count, case, NEEDS[CASES[case][1]]))
            continue
        os.environ['SIMGPU_TORCH'] = torch
        wrong, told = kill.until_killed(lambda case=case, python=python: judge_once(python, case, rng))
        checks.ok(not wrong, '%s: %s' % (case, told), *wrong)
    checks.end()


if __name__ == '__main__':
    main(lambda rng: rng.sample(USUAL, 1), judge_once)
