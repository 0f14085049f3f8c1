#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=100s
"""Training scripts with habits of many people (tests/torch/strangers): each is run plain, and again with the library, killed at
random instants and started again by the same command. What it prints and every file that it leaves must be those of the plain run.

  kill_strangers.py [CASE[=KILLS]...]    environment: as for kill.py; STRANGERS_PYTHON is a Python with PyTorch and the packages

`all` is all of them, killed three times each (once, where a job takes minutes); without names a few, others each time. A case whose package is missing is left out.
"""
import collections
import contextlib
import glob
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import zipfile

import kill
import script_job
import scripts
import tracker
from script_job import job


def bytes_of(path):
    with open(path, 'rb') as f:
        return f.read()


def events(path):
    """What an event file of TensorBoard says, without when."""
    data, said = bytes_of(path), []
    at = 0
    while at + 12 <= len(data):
        length = int.from_bytes(data[at:at + 8], 'little')
        record = data[at + 12:at + 12 + length]
        said.append(record[9:] if record[:1] == b'\x09' else record)  # field 1: a double, the time
        at += 16 + length
    return said + [data[at:]]


def nothing(path):
    """Of a file whose content is another in any two runs."""
    return b''


def text_but(pattern):
    """Bytes, without what time and process numbers decide."""
    return lambda path: re.sub(pattern.encode(), b'#', bytes_of(path))


def tracked(path):
    """What a run's file of Weights & Biases has of its history: records in blocks of 32 KiB, each a message."""
    from_it = ('import json, struct, sys\nfrom wandb.proto import wandb_internal_pb2 as pb\n'
               'data, at, part, found = open(sys.argv[1], "rb").read(), 7, b"", []\n'
               'while at + 7 <= len(data):\n'
               '    if 32768 - at % 32768 < 7:\n        at += 32768 - at % 32768\n        continue\n'
               '    length, kind = struct.unpack("<HB", data[at + 4:at + 7])\n'
               '    part = (part if kind in (3, 4) else b"") + data[at + 7:at + 7 + length]\n    at += 7 + length\n'
               '    if kind in (1, 4):\n        record = pb.Record()\n        record.ParseFromString(part)\n'
               '        if record.WhichOneof("record_type") == "history":\n'
               '            found.append([record.history.step.num] + [i.value_json for i in record.history.item if "loss" in (i.key, *i.nested_key)])\n'
               'print(json.dumps(found))')
    done = subprocess.run([find_python()[0], '-W', 'ignore', '-c', from_it, path], capture_output=True, text=True)
    return done.stdout or done.stderr[-300:]


def rows(path):
    """All rows of a database, without times."""
    with sqlite3.connect('file:%s?mode=ro' % path, uri=True) as db:
        tables = [name for name, in db.execute("select name from sqlite_master where type = 'table' order by name")]
        return [re.sub(r"'[-\d]+ [:.\d]+'", '#', repr(db.execute('select * from %s' % name).fetchall())) for name in tables]


def tracked_rows(path):
    """All rows of MLflow's database, without times and what it names by chance, in whichever order."""
    with sqlite3.connect('file:%s?mode=ro' % path, uri=True) as db:
        tables = [name for name, in db.execute("select name from sqlite_master where type = 'table' order by name")]
        return [(name, sorted(re.sub(r"[0-9a-f]{32}|\d{10,}|'[a-z]+-[a-z]+-\d+'|/[^']*", '#', repr(row)) for row in db.execute('select * from %s' % name))) for name in tables]


def archived(path):
    """The rows of an archive of Comet's."""
    with zipfile.ZipFile(path) as archive:
        said = [json.loads(line) for line in archive.read('messages.json').decode().splitlines()]
    return [(one['payload']['metric']['step'], one['payload']['metric']['metricValue']) for one in said
            if one['type'] == 'metric_msg' and one['payload']['metric']['metricName'] == 'loss']


def queued(path):
    """The rows of a queue of Neptune's."""
    said = [json.loads(line)['obj'] for line in bytes_of(path).decode().splitlines()]
    return [(value['step'], value['value']) for one in said if one['path'] == ['train', 'loss'] for value in one.get('values', [])]


def indexed(path):
    """The rows of the run that has most of them, of those that Aim has in the folder of this file: each start that begins anew leaves one, as without the library."""
    from_it = ('import aim, json, sys\nrepo = aim.Repo(sys.argv[1])\n'
               'runs = [aim.Run(name, repo=repo, system_tracking_interval=None, capture_terminal_logs=False) for name in repo.list_all_runs()]\n'
               'rows = [[list(map(float, part)) for metric in run.metrics() if metric.name == "loss" for part in metric.values.sparse_numpy()] for run in runs]\n'
               'print(json.dumps(max(rows, key=lambda of: len((of or [[]])[0]))))')
    done = subprocess.run([find_python()[0], '-W', 'ignore', '-c', from_it, os.path.dirname(os.path.dirname(path))], capture_output=True, text=True)
    return done.stdout or done.stderr[-300:]


class Case:
    """script: and its arguments. imports: packages. names: what of the names of files differs between any two runs; contents:
    [(pattern of names, reader)], the first that matches. anew: the line that may refuse it, if some habit cannot be followed.
    printed: what differs in lines. temporary: what children that are killed leave, with the library and without. said: a line that the library has to say.
    besides: files of a program for itself alone. tracked: it tells a server of its runs. twice: the line that says that the server may have rows twice.
    spread: the job has processes of sessions of their own, which are killed with it; it takes
    minutes. shared: names of the shared memory
    that one leaves when it is killed, with the library and without."""

    def __init__(self, script, *arguments, imports=(), names=None, contents=(), anew=None, printed=None, temporary=None, said=None, besides=None,
                 tracked=False, twice=None, spread=False, shared=None):
        self.script = [os.path.join('strangers', script)] + list(arguments)
        self.imports, self.names, self.contents, self.anew = imports, names, contents, anew
        self.printed, self.temporary, self.said, self.besides, self.tracked, self.twice = printed, temporary, said, besides, tracked, twice
        self.spread, self.shared = spread, shared

    def name(self, path):
        return re.sub(self.names, '#', path) if self.names else path

    def content(self, path):
        read = next((read for pattern, read in self.contents if re.search(pattern, path)), bytes_of)
        return read(path)


# The line that may refuse a habit.
ANEW = r'cannot resume at step \d+: .*: %s; (trying once more|starting the program again from its beginning)$'
ENDS = r'cannot resume at step \d+: the program ended with status 1, which it did not the first time; (trying once more|starting the program again from its beginning)$'
# The line of it says what can be done.
ELSEWHERE = ANEW % r'what copies, sets or kernels work on lies elsewhere than in the first run \(the thread that trains should be who frees memory of the device; .*\)'
CASES = {
    'board': Case('board.py', imports=('tensorboard',), names=r'\w{3}\d\d_\d\d-\d\d-\d\d_[^/]*|(?<=tfevents\.).*|\d{9,}\.\d+',
                  contents=[('tfevents', events)]),
    'numbered': Case('numbered.py', names=r'\d{2,}'),
    'loggers': Case('loggers.py', contents=[(r'\.log', text_but(r'[-\d]+ [:,\d]+ +\d+ |after +[\d.]+ s'))]),
    'progress': Case('progress.py', imports=('tqdm',)),
    'savers': Case('savers.py'),
    'freed': Case('freed.py', anew=ELSEWHERE),
    'prefetch': Case('prefetch.py'),
    'ahead': Case('ahead.py'),
    'ahead_thread': Case('ahead.py', '--thread', anew=ELSEWHERE),
    'ahead_workers': Case('ahead.py', '--workers', '2', temporary='pymp-'),
    'workers': Case('workers.py', temporary='pymp-'),
    'mapped': Case('mapped.py', imports=('datasets',), names=r'[0-9a-f]{16,}|_\w+[-.\w]*_(?=hf_)|_(plain|killed)_', contents=[(r'\.json$', nothing), ('cache-', os.path.getsize)]),
    'piped': Case('piped.py', besides='control$'),
    'shards': Case('shards.py', imports=('webdataset',)),
    'reinforce': Case('reinforce.py', imports=('gymnasium',)),
    'played': Case('reinforce.py', '--vectorization', 'async', imports=('gymnasium',)),
    'study': Case('study.py', imports=('optuna',), contents=[(r'\.db', rows)]),
    'dated': Case('dated.py', imports=('hydra',), names=r'\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d', contents=[(r'\.(log|yaml)', text_but(r'[-\d]+ [:,\d]+|/\S*'))],
                  printed=r'\[[-\d]+ [:,\d]+\]'),
    'swept': Case('dated.py', '--multirun', 'lr=0.01,0.02', 'steps=150', imports=('hydra',), names=r'\d{4}-\d\d-\d\d/\d\d-\d\d-\d\d',
                  contents=[(r'\.(log|yaml)', text_but(r'[-\d]+ [:,\d]+|/\S*'))], printed=r'\[[-\d]+ [:,\d]+\]'),
    'distributed_save': Case('distributed_save.py', contents=[('metadata', nothing)]),
    'signalled': Case('signalled.py'),
    'named': Case('named.py', names=r'[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|-\d+-\d+-[0-9a-f]{8}(?=\.txt)|(?<=at-)\d+'),
    'scratch': Case('scratch.py', imports=('numpy',)),
    'timed': Case('timed.py'),
    'stopped': Case('stopped.py'),
    'finder': Case('finder.py'),
    'averaged': Case('averaged.py'),
    'tracked': Case('tracked.py', imports=('mlflow',), names=r'[0-9a-f]{32}|\d{10,}', contents=[('meta.yaml|runName', nothing), ('.', text_but(r'[0-9a-f]{32}|\d{10,}|/\S*'))]),
    'tracked_base': Case('tracked.py', '--base', imports=('mlflow', 'sqlalchemy', 'alembic'), names=r'[0-9a-f]{32}|\d{10,}', contents=[(r'\.db', tracked_rows), ('.', text_but(r'[0-9a-f]{32}|\d{10,}|/\S*'))]),
    'comet': Case('trackers.py', 'comet', imports=('comet_ml',), names=r'[0-9a-f]{32}', contents=[(r'\.zip$', archived), ('.', nothing)]),
    'neptune': Case('trackers.py', 'neptune', imports=('neptune',), names=r'run__\w{8}(-\w{4}){3}-\w{12}__\d+__\w+', contents=[(r'data-.*\.log$', queued), ('.', nothing)],
                    printed=r'offline/[-0-9a-f]{36}'),
    'aim': Case('trackers.py', 'aim', imports=('aim',), besides=r'\.aim/(?!run_metadata\.sqlite$)', anew=ENDS, contents=[(r'run_metadata\.sqlite$', indexed), ('.', nothing)]),
    'offline': Case('offline.py', imports=('wandb',), names=r'\d{8}_\d{6}-[a-z0-9]{8}|\d{8}_\d{6}|(?<=run-)[a-z0-9]{8}|\d{8,}', besides=r'\.cache/wandb|debug.*\.log',
                    contents=[(r'\.wandb$', tracked), ('output.log', bytes_of), ('.', nothing)], said=r'started again on the way to step \d+: wandb-core$'),
    'notebook': Case('notebook.py', imports=('nbconvert', 'ipykernel'), anew=r"not resuming: argument \d+ is '\S+\.json', was '\S+\.json'$",
                     contents=[('ipynb', nothing)], temporary='tmp|jupyter'),
    'streamed': Case('streamed.py', imports=('streaming',), temporary=r'\d{6}_\w+_filelock$', shared=r'\d{6}_\w+$'),
    'cluster': Case('cluster.py', imports=('ray', 'tensorboardX'), anew=r"transpckpt: not resuming: argument \d+ is '--node-manager-port=\d+', was '--node-manager-port=\d+'$",
                    printed=r'\(RayTrainWorker pid=\d+\) ', temporary='session_|ray|prom_', spread=True),
    'online': Case('online.py', imports=('wandb',), names=r'\d{8}_\d{6}-[a-z0-9]{8}|\d{8}_\d{6}|(?<=run-)[a-z0-9]{8}|\d{8,}', besides=r'\.cache/wandb|debug.*\.log',
                   contents=[(r'\.wandb$', tracked), ('output.log', bytes_of), ('.', nothing)], said=r'started again on the way to step \d+: wandb-core$',
                   tracked=True),
}
CASES['allowed'] = Case('online.py', '--resume', 'allow', imports=('wandb',), names=CASES['online'].names, besides=CASES['online'].besides,
                        contents=CASES['online'].contents, said=CASES['online'].said, tracked=True,
                        twice=r'transpckpt: the server of the run in \S+/run-\S+ goes on with what it has, ')


def left(case, folder):
    """(name, content) of all that is there, sorted."""
    found = []
    for base, folders, names in os.walk(folder):
        for name in folders + names:
            path = os.path.join(base, name)
            if case.besides and re.search(case.besides, os.path.relpath(path, folder)):
                continue
            shown = case.name(os.path.relpath(path, folder))
            if os.path.islink(path):
                found.append((shown, 'link to ' + case.name(os.readlink(path))))
            elif os.path.isdir(path):
                found.append((shown, 'folder'))
            else:
                found.append((shown, case.content(path)))
    return found


def differences(case, plain, killed):
    """What differs between two folders, as lines."""
    names = [collections.defaultdict(list), collections.defaultdict(list)]
    for of, folder in zip(names, (plain, killed)):
        for name, content in left(case, folder):
            of[name].append(content)
    lines = []
    for name in sorted(names[0].keys() | names[1].keys()):
        a, b = (sorted(of[name], key=repr) for of in names)
        if len(a) != len(b):
            lines.append('%d of %s in place of %d' % (len(b), name, len(a)))
        elif a != b:
            lines.append('%s has other content' % name)
    return lines


class Stranger(script_job.ScriptJob):
    """The script of a case, whose temporary files have a folder of their own."""

    def __init__(self, place, python, case, torch, server):
        self.case, self.server, self.plain_runs = case, server, []
        self.temporary = os.path.join(place.root, 'tmp')
        os.makedirs(self.temporary)
        super().__init__(place, python, case.script, {'SIMGPU_TORCH': torch, 'TMPDIR': self.temporary,
                                                      **({'WANDB_BASE_URL': 'http://127.0.0.1:%d' % server.server_address[1]} if server else {})})

    def end_others(self):
        """What the job has in sessions of its own; not the agent."""
        for pid in set(self.place.processes()) - set(self.place.agents()) if self.case.spread else ():
            job.signal_if_there(pid)

    def start(self):
        self.end_others()
        return super().start()

    def run_plain(self):
        status = super().run_plain()
        self.plain_runs = self.server.taken() if self.server else []
        return status

    def tracked_otherwise(self):
        """How the server's rows differ from those of the plain run; of a start that was killed before it had a snapshot there is a run, too."""
        plain, killed = [run.rows() for run in self.plain_runs], self.server.taken()
        if len(plain) != 1 or not plain[0]:
            return ['the plain run has no rows at the server']
        if any(run.rows() == plain[0] and not run.changed for run in killed):
            return []
        if self.case.twice and any(re.search(self.case.twice, start.said()) for start in self.starts):
            # The last rows are the last of the program, whatever is in front of them.
            losses = [loss for _, _, loss in plain[0]]
            return [] if any([loss for _, _, loss in run.rows()][-len(losses):] == losses for run in killed) else ['the server lacks rows']
        return ['the server has other rows: %s' % [(len(run.rows()), len(run.changed)) for run in killed]]

    def differences(self):
        lines = differences(self.case, *self.folders) + (self.tracked_otherwise() if self.server else [])
        texts = [self.plain.printed(), '\n'.join(start.printed() for start in self.starts)]
        if self.case.printed:
            texts = [re.sub(self.case.printed, '#', text) for text in texts]
        plain, killed = ([line for line in job.each_once(text) if line] for text in texts)
        if plain != killed:
            extra = [line for line in killed if line not in plain] or ['(fewer lines)']
            lines.append('it printed something else: %s' % extra[0])
        begun = sum(not job.LIVE.search(start.said()) for start in self.starts)
        there = sorted(name for name in os.listdir(self.temporary) if not re.match(self.case.temporary or '$', name))
        if len(there) >= max(begun, 1):
            lines.append('it leaves temporary files: %s' % ' '.join(there))
        return lines


@contextlib.contextmanager
def without_shared(names):
    """Takes away what the jobs within leave in /dev/shm by such names, and nobody has mapped."""
    before = set(os.listdir('/dev/shm')) if names else set()
    try:
        yield
    finally:
        left = [name for name in os.listdir('/dev/shm') if names and name not in before and re.match(names, name)]
        maps = ''.join(job.read(path) for path in glob.glob('/proc/[0-9]*/maps')) if left else ''
        for name in left:
            if '/dev/shm/%s\n' % name not in maps:
                os.unlink(os.path.join('/dev/shm', name))


def judge_once(python, torch, name, kills, rng):
    case = CASES[name]
    with without_shared(case.shared), job.Place() as place, tracker.Tracker() if case.tracked else contextlib.nullcontext() as server:
        this = Stranger(place, python, case, torch, server)
        if this.run_plain():
            return 'the plain run failed: %s' % this.plain.said()[-600:], '', 0
        status = this.run_killed(rng, kills)
        told = '%d starts, %d resumed' % (len(this.starts), this.resumed())
        wrong = this.ended(status)
        wrong += this.differences() + [line for line in this.remarks() if not any(may and re.search(may, line) for may in (case.anew, case.said, case.twice))]
        if not this.resumed() and not case.anew:
            wrong.append('it never went on at a snapshot')
        wrong += this.silent()
        return '; '.join(wrong + ([place.root] if wrong and os.environ.get('KEEP') else [])), told, len(this.starts)


def find_python():
    """A Python with PyTorch, which need not be of its installation, and the folder of that."""
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    for python in (os.environ.get('STRANGERS_PYTHON'), os.path.join(cache, 'transpckpt', 'strangers', 'bin', 'python')):
        if python and os.access(python, os.X_OK):
            found = subprocess.run([python, '-W', 'ignore', '-c', 'import os, torch; print(os.path.dirname(torch.__file__))'],
                                   capture_output=True, text=True)
            if not found.returncode:
                return python, found.stdout.split()[-1]
    python = scripts.find_python()
    return python, python and scripts.package(python)


def has(python, case):
    return not case.imports or not subprocess.run(
        [python, '-c', 'import importlib.util, sys; sys.exit(any(not importlib.util.find_spec(n) for n in sys.argv[1:]))', *case.imports]).returncode


def main():
    python, torch = find_python()
    if not python:
        print('no Python with PyTorch: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    os.environ['SIMGPU_TORCH'] = torch
    rng = random.Random(os.environ.setdefault('SEED', str(random.randrange(1 << 32))))
    there = [name for name, case in CASES.items() if has(python, case)]
    if len(there) < len(CASES):
        print('# left out, as packages are missing: %s' % ' '.join(name for name in CASES if name not in there))
    if sys.argv[1:] == ['all']:
        sys.argv[1:] = ['%s=%d' % (name, 1 if CASES[name].spread else 3) for name in there]
    short = [name for name in there if not CASES[name].spread]
    kill.main(rng.sample(short, min(3, len(short))),
              lambda python, name, kills, rng: kill.until_killed(lambda: judge_once(python, torch, name, kills, rng)), python)


if __name__ == '__main__':
    main()
