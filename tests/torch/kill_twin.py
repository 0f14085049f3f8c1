#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=6G minutes=15 about=100s
"""PyTorch scripts that have a twin are killed at random instants, and never started again: what they print, the files that they write and
their last digest must be those of a run that was never killed.

  kill_twin.py [CASE[=KILLS]...]    environment: as for scripts.py; KILLS, SEED, TWINS (how many follow, 1 or 2; else by chance)
"""
import os
import random
import re
import sys

import kill
import script_job
from script_job import job

import twins

CASES = {name: kill.CASES[name] for name in ('adam_fused', 'lbfgs', 'gpt', 'gpt_save', 'gpt_fp16', 'conv', 'graph', 'housekeeping', 'loader', 'gpt_async', 'gpt_expandable', 'gpt_save_much', 'conv_benchmark', 'muon', 'shared_blocks', 'shared_tracked', 'fork_saves')}
LONGER = 4
# A loader's workers look every five seconds whether who made them is there.
SAYS = re.compile(r'transpckpt: (process \d+ was ended by signal 9 .*takes over$|process \d+ repeats itself: |process \d+ was ended by .* is forked once more |process \d+ ended before it was live; the other twin, |resuming at step |processes of the first run have not ended, |this process uses io_uring: )')


class TwinJob(script_job.ScriptJob):
    def start_with_twin(self):
        argv = self.place.runner + [os.path.join(self.place.build, 'transpckpt'), 'run', '--twin', '--'] + self.argv
        start = job.Start(self.place, argv, self.folders[1], {**self.environment, **self.garbage}, 'start0')
        self.starts.append(start)
        return start


def judge(python, name, kills, rng):
    """What is wrong, and what happened."""
    script, environment = CASES[name]
    # A twin has to import PyTorch, too, before it follows.
    script = [str(LONGER * int(word)) if before in ('--steps', '--epochs') else word for before, word in zip([''] + script, script)]
    twins_kept = os.environ.get('TWINS') or rng.choice('12')
    with job.Place(TRANSPCKPT_TWIN=twins_kept) as place:
        this = TwinJob(place, python, script, environment)
        if this.run_plain():
            return 'the plain run failed: %s' % this.plain.said()[-300:], ''
        start, killed = this.start_with_twin(), 0
        while killed < kills and twins.kill_of_several(start, rng.uniform(0, this.plain_sec / 4)):
            killed += 1
        status = start.wait()
        wrong = this.ended(status) + this.differences()
        wrong += sorted({line for line in start.said().splitlines()
                         if line.startswith('transpckpt: ') and not script_job.FINE.match(line) and not SAYS.match(line)})
        # The last one may have come when the script was just through.
        lost = start.said().count('ended before it was live; the other twin')
        if twins.taken_over(start) + lost not in (killed, max(killed - 1, 1)):
            wrong.append('%d takeovers' % twins.taken_over(start))
        return '; '.join(wrong + ([place.root] if wrong and os.environ.get('KEEP') else [])), '%d killed, %s twins' % (killed, twins_kept)


if __name__ == '__main__':
    kill.main(sys.argv[1:] or random.Random(os.environ.setdefault('SEED', str(random.randrange(1 << 32)))).sample(sorted(CASES), 2), judge)
