#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=3G minutes=20 about=60s
"""A script that starts other programs is killed and started again by the same command. What it wrote, printed and had copied is what a
run leaves that was never killed; and no program that it had started before the step that it goes on from is started again: the
file in which they say that they were started tells.

  kill_starts.py [CASE[=KILLS]...]    environment: as for kill.py
"""
import collections
import os
import random
import re
import sys

import kill
import script_job
from script_job import job

WAYS = ['run', 'system', 'spawn', 'fork', 'asyncio', 'shell', 'talk', 'process', 'pool']
# What the script is given, and whether a run that was never killed does the same: how often it polls is chance.
CASES = {
    'all ways': (['--how', *WAYS], True),
    'polls': (['--how', 'poll', 'run'], False),
}
BEHIND = re.compile(r'transpckpt: what comes behind step (\d+) is done again, with what it starts; the first run started (\d+) programs there: (.*)$', re.M)
SERVICE = re.compile(r'transpckpt: programs that had run for long, or are spoken with, were started again on the way to step \d+: sleep$')
ANEW = re.compile(r'transpckpt: [12] programs that the first run had started were not at their end at step \d+, and are started anew: (sleep|sh|, )+$')


def calls(folder):
    return collections.Counter(job.read(os.path.join(folder, 'calls')).splitlines())


def twice(this):
    """What was started more than once without a line that says so: behind the step that was gone on from, that is named."""
    plain, killed = (calls(folder) for folder in this.folders)
    lives = [(int(job.LIVE.search(start.said())[1]), start.said()) for start in this.starts if job.LIVE.search(start.said())]
    wrong = [f'never started: {call}' for call in plain if not killed[call]]
    unnamed = []
    for call, count in killed.items():
        step = int(call.split()[1])
        # Steps of the library count iterations: the programs of step s are started behind iteration s.
        behind = [said for at, said in lives if at <= step + 1]
        if count > 1 and count <= 1 + len(behind) and not any(BEHIND.search(said) for said in behind):
            unnamed.append(call)
        if count > 1 + len(behind):
            wrong.append(f'started {count} times: {call}, gone on from {[at for at, _ in lives]}')
    # Of each life the last one may have said so before its parent knew.
    return wrong + ([f'started again without a word: {unnamed}'] if len(unnamed) > len(lives) else [])


def judge_once(python, name, kills, rng):
    more, same = CASES[name]
    steps = kill.some_steps(900)
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, ['starts.py', '--steps', str(steps), *more], {})
        if this.run_plain():
            return 'the plain run failed: %s' % this.plain.said()[-300:], '', 0
        status = this.run_killed(rng, kills)
        told = '%d starts, %d resumed' % (len(this.starts), this.resumed())
        wrong = this.ended(status)
        if same:
            wrong += twice(this)
            for folder in this.folders:
                if os.path.exists(os.path.join(folder, 'calls')):
                    os.unlink(os.path.join(folder, 'calls'))
            wrong += this.differences()
        wrong += [line for line in this.remarks() if not (BEHIND.match(line) or ANEW.match(line) or SERVICE.match(line))]
        if not this.resumed():
            wrong.append('it never went on at a snapshot')
        wrong += this.silent()
        return '; '.join(wrong + ([place.root] if wrong and os.environ.get('KEEP') else [])), told, len(this.starts)


def judge(python, name, kills, rng):
    return kill.until_killed(lambda: judge_once(python, name, kills, rng))


if __name__ == '__main__':
    os.environ.setdefault('SEED', str(random.randrange(1 << 32)))
    kill.main(sys.argv[1:] and [word.partition('=')[0] for word in sys.argv[1:]] or list(CASES), judge)
