#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=6G minutes=12 about=110s
"""A PyTorch script whose loader has workers, and its twin, which has workers of its own: the twin comes near while the workers are there, and takes over with the bytes of
a run that was never killed. What workers write is there once; the workers of a twin that ends end with it.

  twin_workers.py [CASE...]    environment: as for scripts.py; KEEP, SEED

Without arguments `fork` and another one, each time another."""
import os
import random
import re
import signal
import socket
import sys
import time

import kill_twin
import script_job
import scripts
from script_job import job

import twins

LATE = 800 # iterations, each of eight samples that two workers read
CASES = {
    'fork': ['--persistent', '--batches', '2500'],
    # Those of an epoch have ended before the next ones are made.
    'epochs': ['--batches', '500', '--epochs', '5'],
    'spawn': ['--persistent', '--batches', '8000', '--context', 'spawn'],
    # The server that forks them listens at a Unix socket of the program's.
    'forkserver': ['--persistent', '--batches', '8000', '--context', 'forkserver'],
    # What a worker writes waits for the takeover; what workers had written that have ended is not written again.
    'writes_late': ['--persistent', '--batches', '8000', '--write-from', str(LATE * 4)],
    # The twin's program speaks with no child of the living one.
    'serves': ['--steps', '6000'],
    'writes': ['--batches', '500', '--epochs', '5', '--write-from', '0'],
}
LEAVES = re.compile(r'transpckpt: (the twin of process \d+ ends at step \d+: a connection to 127.0.0.1:\d+ is made that the first run did not make there; |process \d+ has no twin from here on: )')
NEAR = ('fork', 'epochs', 'spawn', 'forkserver')
checks = job.Checks()


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as server:
        return server.getsockname()[1]


def shown(place):
    """Of the one rank: its step, and how many iterations the twin has repeated."""
    for row in place.shown():
        if row['running'] and row.get('twin'):
            return row.get('iterations') or 0, row['twin'].get('proven') or 0
    return 0, 0


def twin_ends(name, start, twin):
    """Its workers wait for what becomes of it, and do not look whether it is there as they do where they work."""
    theirs = job.children_of(twin)
    job.signal_if_there(twin, signal.SIGKILL)
    gone = start.until(lambda: not any(twins.started_at(pid) for pid in theirs), 10)
    checks.ok(theirs and gone, f'{name}: a twin that is killed leaves none of its {len(theirs)} workers', theirs)


def judge(python, name, rng):
    with job.Place() as place:
        script = ['child_server.py', *CASES[name], '--port', str(free_port())] if name == 'serves' else ['loader_workers.py', *CASES[name]]
        this = kill_twin.TwinJob(place, python, script, {})
        if this.run_plain():
            checks.ok(False, f'{name}: the plain run', this.plain.said()[-300:])
            return
        start = this.start_with_twin()
        seen = [0, 0]

        def works():
            seen[:] = shown(place)
            return seen[1] > 200 and bool(job.children_of(twins.processes(start)[1] or 0))
        def comes_there():
            stands = start.until(lambda: shown(place)[1] > LATE - 100)
            checks.ok(stands, f'{name}: its twin comes to where its workers write', start.said()[-600:])
            time.sleep(1)
            return twins.processes(start)[1]
        if name in NEAR:
            near = start.until(works)
            checks.ok(near, f'{name}: its twin has workers, and has repeated {seen[1]} of {seen[0]} iterations while the program has its own', start.said()[-600:])
        elif name == 'writes_late':
            # There the twin's workers have something to write, and the program's have written it.
            twin_ends(name, start, comes_there())
            comes_there()
        else:
            start.until(lambda: twins.covered(start))
            time.sleep(rng.uniform(4, 6))
        killed = twins.kill(start, rng.uniform(0, 2))
        status = start.wait()
        wrong = this.ended(status) + this.differences()
        wrong += sorted({line for line in start.said().splitlines()
                         if line.startswith('transpckpt: ') and not script_job.FINE.match(line) and not kill_twin.SAYS.match(line) and
                         not (name == 'serves' and LEAVES.match(line))})
        checks.ok(not wrong, f'{name}: {"killed" if killed else "not killed"}, and the same lines and bytes', wrong + ([place.root] if os.environ.get('KEEP') else []))


def main():
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    seed = int(os.environ.get('SEED') or random.randrange(1 << 32))
    print('# SEED=%d' % seed)
    rng = random.Random(seed)
    scripts.run(python, ['mlp.py', '--steps', '1'])  # the stand-ins are made once
    for name in sys.argv[1:] or ['fork', rng.choice(sorted(set(CASES) - {'fork'}))]:
        judge(python, name, rng)
    checks.end()


if __name__ == '__main__':
    main()
