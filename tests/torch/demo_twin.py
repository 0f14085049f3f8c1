#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""For people: two PyTorch ranks under torchrun have twins, and are killed six times, by turns; torchrun, which may not restart anything, sees no end. Prints how
long their progress stood still each time, and whether they ended with the bytes of a run that was left alone. `./bootstrap.sh demo-twin` calls it where there is
a PyTorch. Environment: builddir, srcdir; TORCH_PYTHON as for scripts.py."""
import os
import re
import sys
import time

import scripts
from kill_ranks import Torchrun
from kill_results import files_differ, printed
from kill_twin_ranks import covered, supervisors
from script_job import job

import twins

KILLS, LONGER = 6, 100


def steps(start):
    """How far rank 0 has come, from the first one on."""
    return len(set(re.findall(r'rank 0 of 2 step (\d+) ', start.printed())))


def near(place):
    """Twins have imported what they need, and come as near as they do."""
    rows = [row for row in place.shown() if row['running'] and row.get('twin')]
    return len(rows) == 2 and all(row['twin']['proven'] + 3 >= row['iterations'] for row in rows)


def main():
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    os.environ['SIMGPU_TORCH'] = scripts.package(python)
    print('\nThe same of two PyTorch ranks, by DistributedDataParallel under torchrun, with --max-restarts 0. A twin imports PyTorch first, and is near then.\n')
    with job.Place() as place:
        plain = Torchrun(place, python, 'ddp-alone', 'plain', False, longer=LONGER)
        if plain.start.wait():
            sys.exit('the plain run failed: ' + plain.start.said()[-600:])
        print('plain run: %d iterations in %.0f s\n' % (steps(plain.start), time.monotonic() - plain.start.begun))
        run, killed = Torchrun(place, python, 'ddp-alone', 'first', True, options=('--twin',), longer=LONGER), 0
        begun = run.start.until(lambda: covered(run)) and supervisors(run)
        print('  %22s %10s %12s %22s' % ('killed', 'iteration', 'stood still', 'its place is taken by'), flush=True)
        for number in range(KILLS):
            # Until then a takeover has to run forward first.
            if not run.start.until(lambda: covered(run) and near(place)):
                break
            rank, living = number % 2, covered(run)
            if not living:
                continue
            twin, since = twins.processes(begun[rank])[1], time.monotonic()
            killed += job.signal_if_there(living[rank])
            # What it had printed by then counts as before.
            run.start.until(lambda: twins.started_at(living[rank]) is None)  # pylint: disable=cell-var-from-loop
            at = steps(run.start)
            run.start.until(lambda at=at: steps(run.start) > at)
            print('  %22s %10d %9.0f ms %22s' % ('rank %d, process %d' % (rank, living[rank]), at, (time.monotonic() - since) * 1e3, 'process %d' % twin), flush=True)
        there = run.start.running() and supervisors(run)
        status = run.start.wait()
        lines, wanted = printed(run.start), printed(plain.start)
        wrong = ['%s, not %s' % (lines.get(key), line) for key, line in wanted.items() if lines.get(key) != line][:4]
        wrong += files_differ(python, *(os.path.join(place.root, name) for name in ('plain', 'killed')))[:4]
        for line in wrong:
            print('  ' + line)
        same = not status and not wrong and killed == KILLS and there in (False, begun)
        print('\n%s torchrun has seen neither rank end before the last iteration; its status is %d.' %
              ('Every file of both runs is equal, byte for byte.' if same else 'The runs differ, or were not killed %d times.' % KILLS, status))
    sys.exit(not same)


if __name__ == '__main__':
    main()
