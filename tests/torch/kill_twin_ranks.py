#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.5 memory=6G minutes=15 about=60s
"""PyTorch jobs of several ranks under torchrun that have twins: ranks are killed at random instants, all change over to their twins, and
then one is killed as soon as they have, when there are no twins: all are forked once more. torchrun, which may not restart anything, sees
none of it. What the ranks print, their last digests and the checkpoints that they save
themselves must be those of a run in which nobody died.

  kill_twin_ranks.py [CASE...]     environment: as for kill_ranks.py; KILLS, SEED

Without arguments one of USUAL, another each time."""
import os
import time

from kill_ranks import CASES, Torchrun, main
from kill_results import FINE, FOLDER_STAYS, files_differ, printed
from script_job import job

import re

import twins

USUAL = ['ddp', 'fsdp', 'zero3']
LONGER = 3
SAYS = re.compile(r'transpckpt: (process \d+ was ended (by signal 9 \(Killed\)|as another rank\'s was)(; its twin, process \d+, takes over$|.* is forked once more )'
                  r'|process \d+ repeats itself: |resuming at step |communicator \d+, rank \d+ of \d+, is not made anew: |nccl\w+ on rank )')


def supervisors(run):
    """By rank: what torchrun has started."""
    found = {}
    for pid in job.children_of(run.start.process.pid):
        found.update({int(v[5:]): pid for v in variables(pid) if v.startswith(b'RANK=')})
        for below in job.children_of(pid):  # torchrun has a supervisor, too, as run has started it
            found.update({int(v[5:]): below for v in variables(below) if v.startswith(b'RANK=')})
    return found


def variables(pid):
    try:
        with open('/proc/%d/environ' % pid, 'rb') as f:
            return f.read().split(b'\0')
    except OSError:
        return []


def covered(run):
    """The living ones by rank, where each has a twin that follows; else None."""
    there = {rank: twins.processes(pid) for rank, pid in supervisors(run).items()}
    if len(there) < run.ranks or not all(twin and twins.follows(twin) for _, twin in there.values()):
        return None
    return {rank: living for rank, (living, _) in there.items()}


def judge_once(python, case, rng):
    """What is wrong, what happened, and how many starts there were."""
    ranks = CASES[case][0]
    with job.Place() as place:
        plain = Torchrun(place, python, case, 'plain', False, longer=LONGER)
        if plain.start.wait():
            return ['the plain run failed: %s' % plain.start.said()[-600:]], '', 0
        took = time.monotonic() - plain.start.begun
        run, killed = Torchrun(place, python, case, 'first', True, options=('--twin',), longer=LONGER), 0
        begun = run.start.until(lambda: covered(run)) and supervisors(run)
        for i in range(int(os.environ.get('KILLS', '2'))):
            if i % 2 == 0:
                run.start.until(lambda: covered(run))
                time.sleep(rng.random() * took / 10)
            living = covered(run) if i % 2 == 0 else begun and {rank: twins.processes(pid)[0] for rank, pid in begun.items()}
            if not living or not run.start.running():
                break
            killed += job.signal_if_there(living[rng.randrange(ranks)])
            run.start.until(lambda: len(job.LIVE.findall(run.start.said())) >= killed * ranks)
        wrong = [] if not run.start.running() or supervisors(run) == begun else ['torchrun has other ranks than at first']
        status = run.start.wait()
        if not killed:
            return ['it ended before it could be killed: %s' % run.start.said()[-600:]], '', 1
        wrong += [line for line in run.remarks() if not FOLDER_STAYS.match(line) and not SAYS.match(line)]
        resumed = len(job.LIVE.findall(run.start.said()))
        if status or resumed != killed * ranks:
            wrong.append('it ended with %s, and %d went on: %s' % (status, resumed, run.start.said()[-1500:]))
        lines, wanted = printed(run.start), printed(plain.start)
        wrong += ['%s, not %s' % (lines.get(key), line) for key, line in wanted.items() if lines.get(key) != line][:4]
        wrong += files_differ(python, *(os.path.join(place.root, name) for name in ('plain', 'killed')))[:4]
        return wrong, '%d ranks, %d killed, %d went on' % (ranks, killed, resumed), 1 + killed


if __name__ == '__main__':
    main(lambda rng: rng.sample(USUAL, 1), judge_once)
