#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.2 memory=4G minutes=20 about=70s
"""PyTorch scripts whose kernels have no names for us (TRANSPCKPT_INFER=pattern), killed and started again: those whose
iterations show in the pattern of launches go on at a snapshot; the others say why not; and all end as they would.

  kill_nameless.py [CASE[=KILLS]...]    environment: as for kill.py
"""
import os

import kill
import script_job
from script_job import job

MLP = ['mlp.py', '--hidden', '300,120,500,40', '--steps', '300', '--optimizer']
# Whether they can be told.
CASES = {
    'adam_loop': (MLP + ['Adam-loop'], True),
    'sgd_loop': (MLP + ['SGD-loop'], True),
    'gpt_fused': (kill.GPT, False),  # one launch an iteration
    'conv': (['conv.py', '--steps', '80'], False),
}


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
    script, told = CASES[name]
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, script, {'TRANSPCKPT_INFER': 'pattern'})
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


if __name__ == '__main__':
    kill.main(CASES, judge)
