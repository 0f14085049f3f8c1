# SPDX-License-Identifier: Apache-2.0
"""A training that has processes of its own write down what it tells them, in files that they open themselves.

  writes.py WAY [--steps N] [--every N] [--pause S] [--lag S]

WAY: how the rows are written, and by whom (ways below); before it `early-`: the process is there before the device is met."""
import argparse
import csv
import hashlib
import json
import logging
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import time


def by_line(rows):
    with open('rows.jsonl', 'a', encoding='ascii') as to:
        for row in rows:
            to.write(json.dumps(row) + '\n')
            to.flush()


def by_opening(rows):
    """A file that has a head, and is opened for each row."""
    for step, loss in rows:
        there = os.path.exists('rows.csv')
        with open('rows.csv', 'a', newline='', encoding='ascii') as to:
            writer = csv.writer(to)
            if not there:
                writer.writerow(['step', 'loss'])
            writer.writerow([step, loss])


def by_logging(rows):
    log = logging.getLogger('rows')
    log.setLevel(logging.INFO)
    log.addHandler(logging.FileHandler('worker.log'))
    for step, loss in rows:
        log.info('step %d loss %s', step, loss)


def by_folder(rows):
    """A folder that must not be there, and a file for each row, that must not either."""
    os.mkdir('rows')
    for step, loss in rows:
        with open(f'rows/{step}', 'x', encoding='ascii') as to:
            to.write(str(loss))
        with open('rows/newest', 'w', encoding='ascii') as to:
            to.write(str(step))


def by_output(rows):
    """Its standard output is a file of its own."""
    to = os.open('worker.out', os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(to, 1)
    os.close(to)
    for row in rows:
        os.write(1, f'{row}\n'.encode())


def by_database(rows):
    with sqlite3.connect('rows.sqlite') as base:
        base.execute('CREATE TABLE IF NOT EXISTS rows (step INTEGER, loss REAL)')
        for row in rows:
            base.execute('INSERT INTO rows VALUES (?, ?)', row)
            base.commit()


def by_inherited(rows):
    """A file that its parent has opened, and writes to as well."""
    for row in rows:
        SHARED.write(json.dumps(row) + '\n')
        SHARED.flush()


def by_program(rows):
    """A program does something for each row, and says what is written down."""
    with open('rows.txt', 'a', encoding='ascii') as to:
        for step, loss in rows:
            done = subprocess.run(['sh', '-c', f'echo {step} >> calls.txt; expr {step} + 1'], stdout=subprocess.PIPE, check=True, text=True)
            to.write(f'{done.stdout.strip()} {loss}\n')
            to.flush()


def by_print(rows):
    for step, loss in rows:
        sys.stdout.write(f'row {step} {loss}\n')
        sys.stdout.flush()


def by_evaluating(rows):
    """What the script has saved is looked at, which it removes some time later."""
    with open('rows.txt', 'a', encoding='ascii') as to:
        for step, _ in rows:
            with open(f'weights{step}.pt', 'rb') as weights:
                to.write(f'{step} {hashlib.sha256(weights.read()).hexdigest()}\n')
            to.flush()


WAYS = {'inherited': by_inherited, 'evaluating': by_evaluating, 'print': by_print, 'program': by_program, 'line': by_line, 'opening': by_opening, 'logging': by_logging, 'folder': by_folder, 'output': by_output, 'database': by_database}
TOOLS = {'cat': 'exec cat >> rows.txt', 'tee': 'exec tee -a rows.txt > /dev/null', 'gzip': 'exec gzip -n > rows.gz',
         'without': 'exec env -u LD_PRELOAD dd of=rows.txt oflag=append conv=notrunc status=none'}


def slowly(rows, lag):
    for row in rows:
        time.sleep(lag)
        yield row


def told(rows):
    """Until it is told to end, or there is nobody any more who could."""
    try:
        yield from iter(rows.recv, None)
    except (EOFError, OSError):
        pass


def work(way, rows, parents, lag):
    if parents:
        parents.close()
    WAYS[way](slowly(told(rows), lag))


class Process:
    """A process of multiprocessing's."""

    def __init__(self, way, start, lag=0):
        # Not a queue: its semaphores have names, and who is killed leaves them.
        theirs, self.rows = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context(start).Process(target=work, args=(way, theirs, self.rows if start == 'fork' else None, lag))
        self.process.start()
        theirs.close()

    def tell(self, row):
        self.rows.send(row)

    def end(self):
        self.rows.send(None)
        self.process.join()


class Program:
    """A program that is told a row a line."""

    def __init__(self, argv, **more):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, text=True, **more)

    def tell(self, row):
        self.process.stdin.write(json.dumps(row) + '\n')
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def begin(way, lag):
    if way == 'both':
        return [Process('line', 'fork'), Process('line', 'fork')]
    if way == 'inherited':
        global SHARED
        SHARED = open('rows.jsonl', 'a', encoding='ascii')
        SHARED.write('all rows\n')
        SHARED.flush()
    if way == 'shared':
        # A log that both append to, each by a descriptor of its own.
        log = logging.getLogger('both')
        log.addHandler(logging.FileHandler('worker.log'))
        log.error('it begins')
        return [Process('logging', 'fork')]
    if way == 'given':
        with open('rows.txt', 'a', encoding='ascii') as to:
            return [Program(['cat'], stdout=to)]
    if way in TOOLS:
        return [Program(['sh', '-c', TOOLS[way]])]
    how, _, name = way.rpartition('-')
    if how == 'service':
        return [Program([sys.executable, sys.argv[0], '--serve', name, str(lag)])]
    return [Process(name, how or 'fork', lag)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument('way')
    p.add_argument('--steps', type=int, default=300)
    p.add_argument('--every', type=int, default=10)
    p.add_argument('--pause', type=float, default=0, help='seconds behind each step')
    p.add_argument('--lag', type=float, default=0, help='seconds that its processes take for a row')
    a = p.parse_args()
    early = a.way.startswith('early-')
    way = a.way[6 * early:]
    writers = begin(way, a.lag) if early else None
    import torch
    torch.manual_seed(3)
    model = torch.nn.Linear(8, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    writers = writers or begin(way, a.lag)
    for step in range(a.steps):
        x = torch.randn(32, 8)
        loss = (model(x.cuda()) - x[:, :4].cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % a.every == 0 and way.endswith('evaluating'):
            torch.save(model.state_dict(), f'weights{step}.pt')
            if step >= 5 * a.every:
                os.remove(f'weights{step - 5 * a.every}.pt')
        if step % a.every == 0:
            for writer in writers:
                writer.tell((step, round(loss.item(), 6)))
        print('step %d loss %.6f' % (step, loss.item()), flush=True)
        time.sleep(a.pause)
    for writer in writers:
        writer.end()
    torch.save(model.state_dict(), 'model.pt')


if __name__ == '__main__':
    if sys.argv[1] == '--serve':
        WAYS[sys.argv[2]](slowly((json.loads(line) for line in sys.stdin), float(sys.argv[3])))
    else:
        main()
