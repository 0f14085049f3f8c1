#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=65s
"""PyTorch scripts that are hard on the driver, killed and started again: with 40 streams and 1, 8 or 32 connections, 20,000 operations a step, a kernel
that is new at step 1,000, weights that are read back and a device that is waited for in each step. One whose model is split among two devices is told that
there are no snapshots, and ends as it would.

  kill_crowd.py [CASE[=KILLS]...]    environment: as for kill.py; `all` is all of them; without names four, others each time
"""
import os
import random
import sys

import kill
import script_job
from script_job import job

STREAMS = ['crowd.py', '--streams', '40', '--layers', '12', '--steps', '40']
CASES = {
    'streams': (STREAMS, {}),
    'streams_1': (STREAMS, {'CUDA_DEVICE_MAX_CONNECTIONS': '1'}),
    'streams_32': (STREAMS, {'CUDA_DEVICE_MAX_CONNECTIONS': '32'}),
    'operations': (['crowd.py', '--operations', '20000', '--steps', '24'], {}),
    'late': (['crowd.py', '--late', '1000', '--steps', '1060'], {}),
    'readback': (['crowd.py', '--cpu', '--synchronize', '--steps', '300'], {}),
    'two_devices': (['crowd.py', '--devices', '2', '--steps', '80'], {'SIMGPU_DEVICES': '2'}),
}


def judge_late(python, script, environment):
    """Killed once the new kernel is in use, it goes on at a snapshot behind its first launch."""
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, script, environment)
        if this.run_plain():
            return 'the plain run failed: %s' % this.plain.said()[-300:], ''
        start = this.start()
        late = int(script[script.index('--late') + 1])
        start.slowly_until(lambda: start.printed().count('\n') >= late + 20 and max((row['step'] for row in place.listed() if row['offered']), default=0) > late + 5)
        start.kill()
        status = this.start().wait()
        at = [int(live[1]) for live in (job.LIVE.search(s.said()) for s in this.starts) if live]
        wrong = this.ended(status) + this.differences() + this.remarks() + this.silent()
        if not at or at[-1] <= late:
            wrong.append('it went on at %s' % at)
        return '; '.join(wrong), 'it went on at %s' % at


def judge_two(python, script, environment, rng):
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, script, environment)
        if this.run_plain():
            return 'the plain run failed: %s' % this.plain.said()[-300:], ''
        start = this.start()
        start.slowly_until(lambda: start.printed().count('\n') >= rng.randrange(10, 40))
        start.kill()
        status = this.start().wait()
        said = [line for line in this.starts[0].said().splitlines() if 'the memory of several devices' in line]
        wrong = this.ended(status) + this.differences()
        if len(said) != 1 or this.resumed():
            wrong.append('%d lines say that there are no snapshots, %d starts were resumed: %s' % (len(said), this.resumed(), this.starts[0].said()[-600:]))
        return '; '.join(wrong), said[0] if said else ''


def judge(python, name, kills, rng):
    script, environment = CASES[name]
    if name == 'two_devices':
        wrong, told = judge_two(python, script, environment, rng)
    elif name == 'late':
        wrong, told = judge_late(python, script, environment)
    else:
        wrong, told = kill.judge_script(python, script, environment, kills, rng)
    return wrong, told


def chosen():
    """Of the numbers of connections one each time, and of the others three."""
    if sys.argv[1:] == ['all']:
        sys.argv[1:] = []
        return CASES
    rng = random.Random(os.environ.setdefault('SEED', str(random.randrange(1 << 32))))
    streams = [name for name in CASES if name.startswith('streams')]
    return [rng.choice(streams), *rng.sample([name for name in CASES if name not in streams], 3)]


if __name__ == '__main__':
    kill.main(chosen(), judge)
