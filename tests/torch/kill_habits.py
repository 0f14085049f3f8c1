#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.2 memory=4G minutes=20 about=100s
"""What chance, time and threads do to PyTorch programs, killed and started again: each goes on where it was, or is refused
in one line and begins anew; and always ends as a program does that is given the same draws and is never killed.

  kill_habits.py [HABIT[=KILLS]...]    environment: as for kill.py; `all`: all of them, and not a quarter, other ones each time
"""
import os
import random
import re
import sys

import kill
import script_job
from script_job import job

# Steps, and the line that may refuse it; None: it must go on.
ANEW = r'cannot resume at step \d+: .*; (trying once more|starting the program again from its beginning)'
HABITS = {
    'plain': (1500, None),
    'words': (1500, None),
    'objects': (1500, ANEW),  # where addresses differ in spite of all
    'entropy': (1000, None),
    'widths': (1500, None),
    'clock': (1500, None),
    'timing': (1000, None),
    'memory': (1300, None),
    'mapped': (1300, None),
    'cycles': (1300, None),
    'counts': (1300, None),
    'recorded': (1000, None),
    'workers': (300, None),
    'workers --unordered': (300, ANEW),
    'threads': (1000, ANEW),
}


def last_life(starts):
    """The starts from the last one on that began at the beginning."""
    first = 0
    for i, start in enumerate(starts):
        if start.printed() and not job.LIVE.search(start.said()):
            first = i
    return starts[first:]


def last_said(lines):
    """What the run says of each step, the last time: what came after a snapshot may be drawn anew."""
    return {' '.join(line.split()[:2]) if line.startswith('step') else line.split()[0]: line for line in lines if not line.startswith('losses')}


def judge_once(python, name, kills, rng):
    steps, refusal = HABITS[name]
    steps = kill.some_steps(steps)
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, ['habits.py'] + name.split() + ['--steps', str(steps)], {})
        if this.run_plain():
            return 'the plain run failed: %s' % this.plain.said()[-300:], '', 0
        status = this.run_killed(rng, kills)
        life = [line for start in last_life(this.starts) for line in start.printed().splitlines()]
        drawn = [line[6:] for line in life if line.startswith('drawn ')]
        told = '%d starts, %d resumed, %d refused' % (len(this.starts), this.resumed(), len(this.remarks()))
        wrong = ['ended with %s, and said %d times what it had drawn: %s' % (status, len(drawn), this.starts[-1].said()[-500:])] if status or not drawn else []
        if not wrong:
            # One that was killed behind its last line said it, too.
            this.argv += ['--given', drawn[-1]]
            if this.run_plain():
                wrong.append('with what was drawn it fails: %s' % this.plain.said()[-300:])
            plain, killed = last_said(this.plain.printed().splitlines()), last_said(life)
            if plain != killed:
                wrong.append('with what was drawn it says something else: %s' % sorted(plain.items() ^ killed.items())[:2])
        odd = [line for line in this.remarks() if not (refusal and re.match('transpckpt: ' + refusal, line))]
        wrong += odd
        if not this.resumed() and (refusal is None or not this.remarks()):
            wrong.append('it never went on at a snapshot, and nothing says why')
        wrong += this.silent()
        return '; '.join(wrong + ([place.root] if wrong and os.environ.get('KEEP') else [])), told, len(this.starts)


def judge(python, name, kills, rng):
    return kill.until_killed(lambda: judge_once(python, name, kills, rng))


def chosen():
    if sys.argv[1:] == ['all']:
        sys.argv[1:] = []
        return HABITS
    rng = random.Random(os.environ.setdefault('SEED', str(random.randrange(1 << 32))))
    return rng.sample(list(HABITS), (len(HABITS) + 3) // 4)


if __name__ == '__main__':
    kill.main(chosen(), judge)
