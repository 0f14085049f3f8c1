#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=3G minutes=10 about=25s
"""A script that is killed behind its last work on the device, and before its end: the next start goes on there and ends, and does not begin anew."""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'e2e'))
import job
import script_job
import scripts

STEPS = 600


def ends(checks, python, pause):
    """False: a busy machine came to the end before there was a snapshot of the last step."""
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, ['ending.py', '--steps', str(STEPS), '--pause', str(pause)], {})
        this.start()
        first = this.starts[-1]
        if not first.until(lambda: f'step {STEPS - 1} ' in first.printed() and any(row['offered'] and row['step'] >= STEPS - 1 for row in place.listed())):
            return False
        first.kill()
        this.start()
        last = this.starts[-1]
        status = last.wait()
        checks.ok(status == 0 and job.Job.resumed_at(last) == STEPS - 1 and 'step 0 ' not in last.printed(), 'it goes on at its last step, and ends',
                  status, last.said(), last.printed()[-200:])
        wanted = [line.split()[3] for line in first.printed().splitlines() if line.startswith(f'step {STEPS - 1} ')]
        checks.ok(job.read(os.path.join(this.folders[1], 'done')).split() == wanted, 'what comes behind that is done', wanted)
        return True


def main():
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    os.environ['SIMGPU_TORCH'] = scripts.package(python)
    checks = job.Checks()
    checks.ok(any(ends(checks, python, pause) for pause in (5, 20, 60)), 'it was killed behind its last step')
    checks.end()


if __name__ == '__main__':
    main()
