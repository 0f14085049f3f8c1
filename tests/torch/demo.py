#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT with PyTorch on simgpu, plain and then under `transpckpt run` with kills, and prints what happened
and whether both ended with the same bytes. Environment: builddir; TORCH_PYTHON as for scripts.py."""
import os
import sys
import time

import script_job
import scripts
from script_job import job

STEPS = 150
SCRIPT = ['gpt.py', '--steps', str(STEPS), '--optimizer', 'fused', '--save', 'gpt.pt', '--save-every', '50']
# After how many iterations each start is killed; None: while it runs forward.
PLAN = (15, 60, None, 90, 130)


def row(*cells):
    print('  {:>5}  {:<22} {:>10} {:>6}   {}'.format(*cells), flush=True)


def iterations(text):
    return len([line for line in job.each_once(text) if line.startswith('step ')])


def went_on(start):
    live = job.LIVE.search(start.said())
    if live:
        return 'at %s: %s s forward, %s s of putting its state in place' % live.groups()
    return 'from the beginning' if start.printed() else 'killed before it went on'


def main():
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    begun = time.monotonic()
    print('A small GPT is trained by PyTorch, from PyPI as it is, on a software device whose kernels mix their inputs\n'
          'into their outputs: first left alone, then under `transpckpt run` and killed with SIGKILL again and again.\n'
          'The same command starts it each time, and the script knows nothing of all this.\n')
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, SCRIPT, {})
        if this.run_plain():
            sys.exit('the plain run failed: ' + this.plain.said())
        print('plain run: %d iterations in %.1f s\n' % (STEPS, this.plain_sec))
        print('$ transpckpt run -- python ' + ' '.join(SCRIPT))
        row('start', 'killed', 'iteration', 'lost', 'went on')
        before = 0
        for number, goal in enumerate((*PLAN, STEPS + 1), 1):
            start = this.start()
            if goal is None:
                start.until(lambda: 'resuming at' in start.said())
                time.sleep(0.3 * this.first_sec)
            elif goal <= STEPS:
                start.until(lambda: start.printed().count('\n') >= 4 and this.printed() >= goal)
            if start.running() and goal != STEPS + 1:
                start.kill()
            status = start.wait()
            live = job.LIVE.search(start.said())
            lost = before - int(live[1]) if live and before else '-'
            now = iterations('\n'.join(s.printed() for s in this.starts))
            row(number, 'while running forward' if goal is None else 'at iteration' if goal <= STEPS else 'ended by itself', now, lost,
                went_on(start))
            before = now
        print('\n  lost: iterations that this start had to compute again\n')
        for kind, one in (('plain ', this.plain), ('killed', start)):
            print('  %s %s' % (kind, (one.printed().splitlines() or ['(nothing)'])[-1]))
        wrong = (['it ended with %s' % status] if status else []) + this.differences() + this.remarks()
        for line in wrong:
            print('  ' + line)
        print('\n%s (%.0f s)' % ('The runs differ.' if wrong else 'Output and files of both runs are equal, byte for byte.',
                                 time.monotonic() - begun))
    sys.exit(bool(wrong))


if __name__ == '__main__':
    main()
