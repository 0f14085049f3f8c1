# SPDX-License-Identifier: Apache-2.0
"""A small training script that starts other programs, as scripts do: it copies its checkpoints by cp, notes their sums by sha256sum, evaluates in a
child, asks git and uname, and tells somebody outside. Each program that is told to says so in `calls`, one line a call.

  starts.py [--steps N] [--how run|system|spawn|fork|asyncio|shell|talk|process|pool]...   every way, unless some are named
"""
import argparse
import asyncio
import concurrent.futures
import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys

import torch

parser = argparse.ArgumentParser()
parser.add_argument('--steps', type=int, default=300)
parser.add_argument('--every', type=int, default=20)
parser.add_argument('--how', nargs='*', default=['run', 'system', 'spawn', 'fork', 'asyncio', 'shell', 'talk', 'process', 'pool', 'poll'])
options = parser.parse_args()

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to('cuda')
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
os.makedirs('backup', exist_ok=True)
# What the outside saw: a program that appends to it has been started.
TELL = 'echo "$0 $1" >> calls'


def by_run(step):
    subprocess.run(['sh', '-c', TELL, 'run', str(step)], check=True)
    subprocess.run(['cp', 'last.pt', f'backup/run{step}.pt'], check=True)
    return subprocess.run(['sha256sum', 'last.pt'], check=True, capture_output=True, text=True).stdout.split()[0]


def by_system(step):
    return os.system(f'echo "system {step}" >> calls; cp last.pt backup/system{step}.pt; exit 3')


def by_spawn(step):
    child = os.posix_spawn('/bin/sh', ['sh', '-c', TELL, 'spawn', str(step)], os.environ)
    return os.waitpid(child, 0)[1]


def by_fork(step):
    child = os.fork()
    if child == 0:
        os.execv('/bin/sh', ['sh', '-c', TELL + '; exit 7', 'fork', str(step)])
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def by_asyncio(step):
    async def ask():
        child = await asyncio.create_subprocess_exec('sh', '-c', TELL + '; wc -c < last.pt', 'asyncio', str(step), stdout=asyncio.subprocess.PIPE)
        said, _ = await child.communicate()
        return said.decode().strip(), child.returncode
    return asyncio.run(ask())


def by_shell(step):
    with open(f'backup/shell{step}.txt', 'w', encoding='utf-8') as out:
        subprocess.run(f'echo "shell {step}" >> calls; sha256sum last.pt', shell=True, check=True, stdout=out)
    failed = subprocess.run('echo wrong >&2; kill -TERM $$', shell=True, check=False, stderr=subprocess.PIPE)
    return failed.returncode, failed.stderr


def by_talk(step):
    with subprocess.Popen(['sh', '-c', TELL + '; sort', 'talk', str(step)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        said, _ = child.communicate('\n'.join(str(i * 7919 % 1000) for i in range(30000)))
    return hashlib.sha256(said.encode()).hexdigest()[:16], child.returncode


def upload(step, name, answer=None):
    """In a child that goes on in this program: a copy by the child itself, one by another program, and a word to the outside."""
    shutil.copy('last.pt', f'backup/{name}{step}.pt')
    subprocess.run(['sh', '-c', TELL, name, str(step)], check=True)
    with open(f'backup/{name}.txt', 'a', encoding='utf-8') as ledger:
        print(step, file=ledger)
    found = subprocess.run(['sha256sum', 'last.pt'], check=True, capture_output=True, text=True).stdout.split()[0]
    if answer:
        answer.put(found)
    return found


def by_process(step):
    context = multiprocessing.get_context('fork')
    answer = context.SimpleQueue()
    child = context.Process(target=upload, args=(step, 'process', answer))
    child.start()
    found = answer.get()
    child.join()
    return found, child.exitcode


def by_pool(step):
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('fork')) as pool:
        return pool.submit(upload, step, 'pool').result()


def by_poll(step):
    """Training goes on until the child has ended: how many more iterations depends on it."""
    child = subprocess.Popen(['sh', '-c', TELL + '; sleep 0.05', 'poll', str(step)])
    extra = 0
    while child.poll() is None:
        iteration()
        extra += 1
    return child.returncode, extra > 0


def iteration():
    x = torch.randn(16, 32).to('cuda')
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss


revision = subprocess.run(['uname', '-r'], check=True, capture_output=True, text=True).stdout
print('on', hashlib.sha256(revision.encode()).hexdigest()[:8], flush=True)
watcher = subprocess.Popen(['sleep', '1000'])
for step in range(options.steps):
    loss = iteration()
    print('step', step, loss.item().hex(), flush=True)
    if step % options.every == options.every - 1:
        torch.save({'step': step, 'model': {k: v.cpu() for k, v in model.state_dict().items()}}, 'last.pt')
        for way in options.how:
            print('told', step, way, *([globals()['by_' + way](step)]), flush=True)
watcher.kill()
print('watcher', watcher.wait(), flush=True)
