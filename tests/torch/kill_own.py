#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=3G minutes=15 about=90s
"""A script that saves its own checkpoint, and loads it if there is one, is killed and started again by the same command. It goes forward to a snapshot until
a start was seen to load, and from then on takes the cheaper of both ways.

  kill_own.py [CASE]...    environment: as for kill.py
"""
import glob
import json
import os
import random
import re
import sys
import zipfile

import kill
import script_job
from script_job import job

CASES = {'whole': ['--optimizer', 'fused'], 'half': ['--precision', 'fp16']}
TAKEN = re.compile(r'^transpckpt: not resuming at step \d+ of generation \d+: going forward takes some ([\d.]+) s; the program begins with its own checkpoint of '
                   r'step \d+ \(\S*/ckpt\.pt\), which takes some ([\d.]+) s$', re.M)


def known(place):
    for path in glob.glob(os.path.join(place.store, 'j', 'programs', '*.state')):
        found = json.loads(job.read(path) or '{}').get('own', {})
        if found.get('saves'):
            return found
    return {}


def saved(place, folder):
    """Whether the checkpoint that is at its path is known, as it is there: it is written down a second later."""
    try:
        found = os.stat(os.path.join(folder, 'ckpt.pt'))
    except OSError:
        return False
    return any((row[2], row[4] * 10**9 + row[5]) == (found.st_ino, found.st_mtime_ns) for row in known(place).get('saves', []))


def whole(folder):
    """Whether the checkpoint that is at its path has an end: a program that is killed while it writes leaves a part."""
    path = os.path.join(folder, 'ckpt.pt')
    return not os.path.exists(path) or zipfile.is_zipfile(path)


def begins_at(start):
    """The first step that it prints."""
    found = re.search(r'^step (\d+) ', start.printed(), re.M)
    return int(found[1]) if found else -1


def judge(python, name, kills, rng):
    wrong, told = [], []
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, ['gpt.py', '--steps', '150', '--save', 'ckpt.pt', '--save-every', '5', *CASES[name]], {})
        if this.run_plain():
            return 'the plain run failed: %s' % this.plain.said()[-300:], ''

        def killed(lines, ready=lambda: True, **settings):
            before = this.environment
            this.environment = {**before, **{f'TRANSPCKPT_{key}': value for key, value in settings.items()}}
            start = this.start()
            this.environment = before
            start.slowly_until(lambda: start.printed().count('\nstep ') >= lines and any(row['offered'] for row in place.listed()) and ready() and
                               whole(this.folders[1]))
            start.kill()
            if not job.look_until(lambda: saved(place, this.folders[1]), 30, 0.05):
                wrong.append('the checkpoint that is there is not known')
            return start

        killed(12)
        start = killed(4)
        if not job.LIVE.search(start.said()) or 'own checkpoint' in start.said():
            wrong.append('that never was seen to load does not go forward: ' + start.said())
        start = killed(40, lambda: known(place).get('loads'), RESUME='own')
        if begins_at(start) % 5 or begins_at(start) <= 0:
            wrong.append('told so, it begins at step %d' % begins_at(start))
        killed(4, RESUME='forward')
        # Both are measured: the choice follows the figures.
        start = killed(4)
        taken, forward = TAKEN.search(start.said()), job.LIVE.search(start.said())
        line = [text for text in start.said().splitlines() if 'own checkpoint' in text]
        told += line
        if len(line) != 1 or bool(taken) == bool(forward) or (taken and float(taken[2]) > float(taken[1])):
            wrong.append('no choice by two figures: ' + start.said())
        # Where forward may not take so long there is one way left.
        start = killed(4, FORWARD_MAX_SEC='0.001')
        if 'TRANSPCKPT_FORWARD_MAX_SEC is 0.001; the program begins with its own' not in start.said() or begins_at(start) % 5:
            wrong.append('it does not begin with its own where forward may not take so long: ' + start.said())
        last = this.start()
        status = last.wait()
        wrong += this.ended(status)
        # A checkpoint says how long its pickle is by chance of what it holds: what it printed last tells all.
        if this.plain.printed().splitlines()[-1:] != last.printed().splitlines()[-1:]:
            wrong.append('it ends with %s' % last.printed().splitlines()[-1:])
        wrong += this.remarks()
    return '; '.join(wrong), ' '.join(told)


if __name__ == '__main__':
    os.environ.setdefault('SEED', str(random.randrange(1 << 32)))
    kill.main(sys.argv[1:] or [random.Random(os.environ['SEED']).choice(list(CASES))], judge)
