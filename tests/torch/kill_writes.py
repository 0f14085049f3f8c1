#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=3G minutes=10 about=65s
"""A script has processes of its own write to files what it tells them (writes.py has the ways), and is killed twice: they are made again and told all of it
again, and each row is there once.

  kill_writes.py [WAY...]    WAY: of writes.py; tee: by libc's streams; without: by a program without the library, of which a line says so;
                             others: as line, and somebody else writes to the file, too; lost: as line, and the node's memory goes with the job;
                             outlives-WAY: its process is behind, and outlives the job: it writes what it had been sent once the next start runs forward,
                             a forked one not before that start has forked, too; stays-WAY: and it stays

`all` is all of them; without names a sixth, drawn.
"""
import glob
import os
import re
import shutil
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'e2e'))
import job
import script_job
import scripts

WAYS = ['line', 'early-line', 'opening', 'logging', 'folder', 'output', 'database', 'both', 'inherited', 'early-inherited', 'shared', 'spawn-line', 'spawn-opening',
        'forkserver-line', 'early-forkserver-line', 'early-forkserver-print', 'service-line', 'early-service-line', 'service-folder', 'service-database', 'cat', 'early-cat', 'given', 'early-given', 'gzip', 'evaluating', 'early-evaluating', 'spawn-evaluating', 'service-evaluating', 'print', 'early-print', 'spawn-print', 'service-print', 'program', 'spawn-program', 'service-program', 'tee', 'without', 'others', 'lost', 'outlives-line', 'outlives-folder', 'outlives-service-line',
        'outlives-service-folder', 'stays-line']
LEFT = re.compile(r'processes of the first run that are started again wrote to files that cannot be put back, and will write to them once more: (\S+)$', re.M)
STAYS = re.compile(r'processes of the first run have not ended, and what they write from here on those write once more that are started again: (\d+) \(rows.jsonl\)$', re.M)
UNSEEN = re.compile(r'services that this library is not in .*step \d+, and may have sent and written once more what they had: sh; open to write: (rows\.txt)\b')
UNKNOWN = re.compile(r'of some files to which processes wrote that are started again on the way to step \d+ or behind it, it is not known what they got: they may have it twice$', re.M)


def steps(start):
    return start.printed().count('step ')


def behind(start, way, folder):
    """Whether its process has not written all that it was sent."""
    try:
        written = len(os.listdir(os.path.join(folder, 'rows'))) - 1 if way.endswith('folder') else len(job.read(os.path.join(folder, 'rows.jsonl')).splitlines())
    except FileNotFoundError:
        written = 0
    return steps(start) // 10 > written + 2


def outlived(start):
    """It is killed, but for the processes that it has made, which are stopped."""
    left = job.children_of(start.process.pid)
    os.kill(start.process.pid, signal.SIGKILL)
    start.process.wait()
    return left


def let_go(place, start, left, forked):
    """Once the next start runs forward, and has forked."""
    def is_there():
        return 'resuming at' in start.said() and not glob.glob(os.path.join(place.shm, '*', 'g*', 'behind.written*')) and (not forked or job.children_of(start.process.pid))

    if start.until(is_there):
        for pid in left:
            job.signal_if_there(pid, signal.SIGCONT)


def called(folder):
    """What its process has started, which says so itself."""
    return job.read(os.path.join(folder, 'calls.txt')).split()


def goes(checks, python, way, tries=3):
    leaves = re.match('(outlives|stays)-', way)
    by = way[leaves.end() if leaves else 0:]
    with job.Place() as place:
        this = script_job.ScriptJob(place, python, ['writes.py', 'line' if way in ('others', 'lost') else by] + ['--steps', '600', '--pause', '0.01'] * (way == 'lost') +
                                    ['--lag', '0.2'] * bool(leaves), {'SIMGPU_TORCH': scripts.package(python)})
        for folder in this.folders if leaves and not way.endswith('folder') else []:
            # What the file had before stays: it cannot just go.
            with open(os.path.join(folder, 'rows.jsonl'), 'w', encoding='ascii') as to:
                to.write('of an earlier run\n')
        done = this.run_plain()
        # Without the library: its process was slower than the script reckons with.
        if done and tries > 1:
            print(f'# {way}: the script has failed by itself; once more')
            goes(checks, python, way, tries - 1)
            return
        rows = os.path.join(this.folders[1], 'rows.jsonl')
        resumed, left, kept, began, before = [], [], [set()], [], script_job.Looks()
        for number in range(3):
            began.append(len(called(this.folders[1])))
            start, looks, already = this.start(), script_job.Looks(), began[-1]

            def ready(start=start, looks=looks, already=already):
                newest = max((row['step'] for row in place.listed() if row['offered'] and row['resumable'] and (way != 'lost' or len(row['where']) > 1)), default=0)
                looks.look(start, called(this.folders[1])[already:])
                return steps(start) > 60 and (not leaves or behind(start, way, this.folders[1])) and newest >= 40 + (resumed or [0])[-1]
            if left and way.startswith('outlives'):
                let_go(place, start, left, 'service' not in way)
            if number < 2:
                if not start.slowly_until(ready) and start.wait() == 0 and tries > 1:
                    print(f'# {way}: the script has ended before there was a snapshot; once more')
                    goes(checks, python, way, tries - 1)
                    return
                left = outlived(start) if leaves else start.kill()
                # What outlives the job writes on: without the library, too, that would be there twice.
                job.look_until(lambda: leaves or not set(place.processes()) - set(place.agents()), 10, 0.05)
                if way == 'others':
                    with open(rows, 'a', encoding='ascii') as to:
                        to.write(f'somebody else {number}\n')
                if way == 'lost':
                    place.signal_agents()
                    place.agent_settles()
                    shutil.rmtree(place.shm, ignore_errors=True)
            else:
                status = start.wait()
            resumed.append(job.Job.resumed_at(start) or 0)
            if number:
                kept.append(kept[-1] | set(before.before(resumed[-1])))
            before = looks
        said = '\n'.join(start.said() for start in this.starts)
        checks.ok(done == 0 and status == 0 and resumed[1] > 0 and resumed[2] > resumed[1], f'{way}: it goes on at steps {resumed[1:]}', done, status, said)
        if way in ('others', 'lost', 'without'):
            name = 'rows.txt' if way == 'without' else 'rows.jsonl'
            with open(os.path.join(this.folders[0], name), encoding='ascii') as plain, open(os.path.join(this.folders[1], name), encoding='ascii') as killed:
                plain, killed = plain.read().splitlines(), killed.read().splitlines()
            line = {'lost': UNKNOWN, 'without': UNSEEN}.get(way, LEFT).search(said)
            checks.ok(line and (way == 'lost' or line[1] == name), f'{way}: a line says that rows may be there twice', said)
            checks.ok(set(plain) <= set(killed) and (way != 'others' or {'somebody else 0', 'somebody else 1'} <= set(killed)), f'{way}: and no row is lost', killed)
            others = [text for text in this.differences() if name not in text]
            checks.ok(not others, f'{way}: and it does what it did without the library', *others)
        elif way.endswith('print'):
            # Steps and rows come in whichever order.
            plain, *killed = (re.findall(r'row \d+ \S+', start.printed()) for start in (this.plain, *this.starts))
            everywhere = sum(killed, [])
            # What comes behind a step that is gone on from comes once more.
            again = [row for row in set(everywhere) if everywhere.count(row) > 1 + sum(int(row.split()[1]) >= at for at in resumed[1:])]
            checks.ok(len(plain) == 30 and set(everywhere) == set(plain) and len(again) <= 2 and all(len(rows) == len(set(rows)) for rows in killed),
                      f'{way}: what its process prints is there, and not again', again, plain, killed, said)
            others = [text for text in this.differences() if 'it printed something else' not in text]
            checks.ok(not others, f'{way}: and it does what it did without the library', *others, said)
        elif way.endswith('program'):
            with open(os.path.join(this.folders[1], 'calls.txt'), encoding='ascii') as calls:
                calls = calls.read().split()
            # What was started behind the snapshot is started again, and one that was at work then, which has no end in the record.
            again = [sorted(kept[i] & set(calls[at:])) for i, at in enumerate(began)]
            checks.ok(set(calls) == {str(step) for step in range(0, 300, 10)} and kept[2] and not any(again),
                      f'{way}: what its process starts is started once, but for {len(calls) - len(set(calls))} in two kills', again, kept, calls, said)
            others = [text for text in this.differences() if 'calls.txt' not in text]
            checks.ok(not others, f'{way}: and it does what it did without the library', *others, said)
        else:
            if leaves:
                checks.ok(left and ({int(pid) for pid in STAYS.findall(start.said())} == set(left)) == way.startswith('stays'), f'{way}: {len(left)} outlived it', left, said)
            checks.ok(not this.differences() and not LEFT.search(said), f'{way}: and it does what it did without the library', *this.differences(), said)


def main():
    python = scripts.find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    checks = job.Checks()
    chosen = sys.argv[1:] or WAYS[job.drawn_from().randrange(6)::6]
    for way in WAYS if chosen == ['all'] else chosen:
        goes(checks, python, way)
    checks.end()


if __name__ == '__main__':
    main()
