#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=90s
"""PyTorch scripts whose kernels have no names for us, killed and started again: those whose iterations show in the pattern of launches
(TRANSPCKPT_INFER=pattern), or in the memory that these change (memory), go on at a snapshot; the others say why not; and all end as they would.

  kill_nameless.py [CASE[=KILLS]...]    environment: as for kill.py; `all` is all of them; without names four, others each time
"""
import os
import random
import sys

import kill
import script_job
from script_job import job

MLP = ['mlp.py', '--hidden', '300,120,500,40', '--steps', '300', '--optimizer']
# Whether they can be told.
CASES = {
    'adam_loop': (MLP + ['Adam-loop'], True, 'pattern'),
    'sgd_loop': (MLP + ['SGD-loop'], True, 'pattern'),
    'gpt_fused': (kill.GPT, False, 'pattern'),  # one launch an iteration
    'conv': (['conv.py', '--steps', '80'], False, 'pattern'),
    # The first end is told about the hundredth iteration, of each start.
    'gpt_fused_memory': (['gpt.py', '--steps', '200', '--accumulate', '1'], True, 'memory'),
    'gpt_expandable_memory': (['gpt.py', '--steps', '200', '--accumulate', '1'], True, 'memory'),
    'conv_memory': (['conv.py', '--steps', '200'], True, 'memory'),
    'gan_memory': (['conv.py', '--gan', '--steps', '200'], True, 'memory'),
}


ENVIRONMENTS = {'gpt_expandable_memory': kill.EXPANDABLE}


def killed_untold(this, kills, rng):
    """Kills at any instant; what `show` said at the last of them, of a start that had iterations to learn from."""
    for _ in range(kills - 1):
        start = this.start()
        start.until(lambda: not start.running(), rng.uniform(0, this.plain_sec))
        start.kill()
    start = this.start()
    start.until(lambda: start.printed().count('\n') >= 25)
    said = [row['reason'] for row in this.place.shown() if row['running'] and row.get('reason')]
    start.kill()
    return said[0] if said else ''


def judge(python, name, kills, rng):
    script, told, setting = CASES[name]
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, script, {'TRANSPCKPT_INFER': setting, **ENVIRONMENTS.get(name, {})})
        if this.run_plain():
            return 'the plain run failed: %s' % this.plain.said()[-300:], ''
        why = '' if told else killed_untold(this, kills, rng)
        snapshots = len(place.listed())
        status = this.run_killed(rng, kills) if told else this.start().wait()
        wrong = this.ended(status) + this.differences() + this.remarks() + this.silent()
        if told and not this.resumed():
            wrong.append('it never went on at a snapshot')
        if not told and (snapshots or not why):
            wrong.append('it has snapshots' if snapshots else 'nothing says why it has no snapshots')
        return ('; '.join(wrong + ([place.root] if wrong and os.environ.get('KEEP') else [])),
                '%d starts, %d resumed%s' % (len(this.starts), this.resumed(), ': ' + why if why else ''))


def chosen():
    """Of each kind one, and of those that are told by memory two."""
    if sys.argv[1:] == ['all']:
        sys.argv[1:] = []
        return CASES
    rng = random.Random(os.environ.setdefault('SEED', str(random.randrange(1 << 32))))
    kinds = [[name for name, (_, told, setting) in CASES.items() if (told, setting) == kind] for kind in ((True, 'pattern'), (False, 'pattern'), (True, 'memory'))]
    return [rng.choice(kinds[0]), rng.choice(kinds[1]), *rng.sample(kinds[2], 2)]


if __name__ == '__main__':
    kill.main(chosen(), judge)
