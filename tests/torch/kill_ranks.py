#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch jobs of two ranks under torchrun: one rank is killed at a random instant and torchrun starts all of them again,
or all are killed and the same command is started again; what the ranks print and their last digests must be those of a
run in which nobody died.

  kill_ranks.py [CASE...]     environment: as for scripts.py; SEED

Exits with 77 where there is no PyTorch.
"""
import os
import re
import signal
import sys
import time

import kill
import scripts
from script_job import job

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = 2
# A batch takes its time, so that a step of all ranks can be had before the job ends, however busy the machine is.
CASES = {
    'ddp': ['ddp.py', '--loading', '0.03', '--steps', '80'],
    'fsdp': ['ddp.py', '--fsdp', '--loading', '0.03', '--steps', '60'],
}
FINE = re.compile(r'transpckpt: (resuming at|live at)')
# What a rank may live to say of the death of another.
LEFT_ALONE = re.compile(r'transpckpt: NCCL on rank \d of communicator \d+, of \d ranks: remote process exited')


def printed(start):
    """What the ranks said of each step, the last time that they did; and their last words."""
    # Two ranks write into one file: a line may begin where another's newline is yet to come.
    return {found[1] or found[0][:6]: found[0] for found in re.finditer(r'(rank \d of \d step \d+) loss [\d.]{8} mean [\d.]{8}|(?:rank \d) final \w{64}', start.printed())}


class Torchrun:
    def __init__(self, place, python, case, name, preloaded, restarts=0):
        self.place = place
        environment = {k: v for k, v in place.environment.items() if preloaded or not k.startswith('TRANSPCKPT_')}
        environment.update(OMP_NUM_THREADS='1', SIMGPU_DEVICES=str(RANKS), SIMGPU_UNKNOWN='list', PYTHONUNBUFFERED='1')
        run = [os.path.join(place.build, 'transpckpt'), 'run', '--'] if preloaded else []
        script = CASES[case]
        self.start = job.Start(place, place.runner + run + [
            python, '-W', 'ignore', '-m', 'torch.distributed.run', '--standalone', '--nproc-per-node', str(RANKS), '--max-restarts',
            str(restarts), os.path.join(HERE, script[0])] + script[1:], place.root, environment, name)

    def processes(self):
        """Of the ranks, by rank: torchrun gives each a session of its own."""
        found = {}
        for entry in os.listdir('/proc'):
            try:
                with open('/proc/%d/environ' % int(entry), 'rb') as f:
                    variables = dict(v.split(b'=', 1) for v in f.read().split(b'\0') if b'=' in v)
                with open('/proc/%s/cmdline' % entry, 'rb') as f:
                    script = b'ddp.py' in f.read()
            except (OSError, ValueError):
                continue
            if script and variables.get(b'TRANSPCKPT_SHM') == self.place.shm.encode() and b'RANK' in variables:
                found[int(variables[b'RANK'])] = int(entry)
        return found

    def end(self):
        """All at once."""
        for pid in [self.start.process.pid, *self.processes().values()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        self.start.process.wait()
        while self.processes():
            time.sleep(0.02)

    def goes_on(self, steps):
        """Until it has got so far beyond where it was, and a step of all ranks can be had."""
        before = len(self.start.printed().splitlines())
        return self.start.until(lambda: len(self.start.printed().splitlines()) >= before + RANKS * steps) and \
            self.start.until(lambda: any(row['offered'] and row['state'] != 'held' for row in self.place.listed()))

    def remarks(self):
        return [line for line in self.start.said().splitlines() if line.startswith(('transpckpt:', 'simgpu:')) and not FINE.match(line)]


def judge_once(python, case, rng):
    """What is wrong, what happened, and how many starts there were."""
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
        os.kill(first.processes()[rng.randrange(RANKS)], signal.SIGKILL)
        if not first.goes_on(5):
            wrong.append('it did not go on: %s' % first.start.said()[-900:])
        time.sleep(rng.random() * took / 20)
        first.end()
        second = Torchrun(place, python, case, 'second', True)
        status = second.start.wait()
        for run in (first, second):
            lines.update(printed(run.start))
            wrong += [line for line in run.remarks() if run is second or not LEFT_ALONE.match(line)]
            resumed += len(job.LIVE.findall(run.start.said()))
        if status:
            wrong.append('it ended with %s: %s' % (status, second.start.said()[-900:]))
        wanted = printed(plain.start)
        if len(wanted) != RANKS * (int(CASES[case][-1]) + 1):
            wrong.append('the plain run printed %d lines that are known' % len(wanted))
        wrong += ['%s, not %s' % (lines.get(key), line) for key, line in wanted.items() if lines.get(key) != line][:4]
        if resumed != 2 * RANKS:
            wrong.append('%d ranks went on at a snapshot in two starts: %s' % (resumed, place.agent_log()[-1500:]))
        return wrong, '%d steps, %d resumed' % (len(wanted) // RANKS, resumed), 2


def main():
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    scripts.run(python, ['mlp.py', '--steps', '1'])  # the stand-ins are made once
    checks, rng = job.Checks(), job.drawn_from()
    for case in sys.argv[1:] or CASES:
        wrong, told = kill.until_killed(lambda case=case: judge_once(python, case, rng))
        checks.ok(not wrong, '%s: %s' % (case, told), *wrong)
    checks.end()


main()
