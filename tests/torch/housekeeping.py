#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small regression by somebody who is tidy: a run folder that is gone into, a log that rotates, a table, a database of
metrics, a lock, a counter in mapped memory, checkpoints of which some are kept, the best one copied, an archive of old ones."""
import argparse
import csv
import fcntl
import glob
import json
import logging.handlers
import mmap
import os
import pathlib
import shutil
import sqlite3
import struct
import tempfile

import torch


def write_whole(path, text):
    with tempfile.NamedTemporaryFile('w', dir='.', prefix='.' + path, delete=False) as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(f.name, path)


class Checkpoints:
    """One folder each; the latest is pointed to, the best is copied, all but three go, every fourth to the archive."""

    def __init__(self):
        self.best = None
        os.makedirs('archive', exist_ok=True)

    def save(self, step, loss, model, optimizer):
        folder = f'step-{step:05d}'
        os.mkdir(folder + '.part')
        torch.save(model.state_dict(), folder + '.part/model.pt')
        torch.save(optimizer.state_dict(), folder + '.part/optimizer.pt')
        pathlib.Path(folder + '.part/loss').write_text(f'{loss:.6f}\n')
        os.utime(folder + '.part/loss', (step, step))
        os.rename(folder + '.part', folder)
        if os.path.lexists('latest.new'):
            os.unlink('latest.new')
        os.symlink(folder, 'latest.new')
        os.replace('latest.new', 'latest')
        if self.best is None or loss < self.best:
            self.best = loss
            shutil.copy2('latest/model.pt', 'best.pt')
            shutil.copy2('latest/loss', 'best.loss')
            os.chmod('best.pt', 0o444)
            os.replace('best.pt', 'best-model.pt')
        for old in sorted(glob.glob('step-*'))[:-3]:
            number = int(old[5:])
            if number % 4 == 0:
                shutil.copytree(old, f'archive/{number}')
                shutil.move(f'archive/{number}/loss', f'archive/{number}.loss')
            shutil.rmtree(old)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=400)
    p.add_argument('--out', default='outputs')
    a = p.parse_args()
    torch.manual_seed(3)
    os.makedirs(os.path.join(a.out, 'run'), exist_ok=True)
    os.chdir(os.path.join(a.out, 'run'))
    lock = open('lock', 'w')
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    log = logging.getLogger('training')
    log.setLevel(logging.INFO)
    log.addHandler(logging.handlers.RotatingFileHandler('train.log', maxBytes=600, backupCount=3))
    table = csv.writer(rows := open('losses.csv', 'a', newline='', buffering=1))
    metrics = sqlite3.connect('metrics.db')
    metrics.execute('create table if not exists losses (step integer primary key, loss real)')
    with open('counter', 'wb') as f:
        f.truncate(4096)
    with open('counter', 'r+b') as f:
        counter = mmap.mmap(f.fileno(), 4096)

    model = torch.nn.Sequential(torch.nn.Linear(6, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    checkpoints = Checkpoints()
    for step in range(a.steps):
        x = torch.randn(32, 6)
        optimizer.zero_grad()
        loss = (model(x.cuda()) - x.prod(1, keepdim=True).cuda()).square().mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            value = loss.item()
            log.info('step %d loss %.6f', step, value)
            table.writerow([step, f'{value:.6f}'])
            with metrics:
                metrics.execute('insert into losses values (?, ?)', (step, value))
            struct.pack_into('<q', counter, 8, struct.unpack_from('<q', counter, 8)[0] + step)
            write_whole('state.json', json.dumps({'step': step, 'loss': value, 'files': sorted(os.listdir('.'))}))
            sizes = sum(e.stat().st_size for e in os.scandir('.') if e.is_file() and not e.name.startswith('metrics'))
            print(f'step {step} loss {value:.6f}, {len(list(pathlib.Path(".").rglob("*")))} files, {sizes} bytes', flush=True)
        if step % 30 == 0:
            checkpoints.save(step, loss.item(), model, optimizer)
    rows.close()
    print('rows', metrics.execute('select count(*), sum(step) from losses').fetchone(), 'counter', struct.unpack_from('<q', counter, 8)[0])
    print('final', pathlib.Path('best.loss').read_text().strip(), os.path.realpath('latest').rsplit('/', 1)[1])


main()
