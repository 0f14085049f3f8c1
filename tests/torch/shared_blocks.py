#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A loop that counts in memory and semaphores that have names: a block by a name of chance, one by a name that the folder tells, and a semaphore of the C library.
Each of them shows at once if another process has counted in it, or taken it away."""
import argparse
import ctypes
import hashlib
import os
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

import torch

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.sem_open.restype = ctypes.c_void_p


def semaphore(name):
    found = LIBC.sem_open(name.encode(), os.O_CREAT, 0o600, 0)
    if not found:
        raise OSError(ctypes.get_errno(), 'sem_open')
    return ctypes.c_void_p(found)


def value_of(of):
    value = ctypes.c_int()
    LIBC.sem_getvalue(of, ctypes.byref(value))
    return value.value


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=200)
    p.add_argument('--tracked', action='store_true', help='a process of Python\'s removes the blocks where this one dies')
    a = p.parse_args()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    told = 'transpckpt-test-' + hashlib.sha256(os.getcwd().encode()).hexdigest()[:12]
    blocks = [SharedMemory(create=True, size=4096), SharedMemory(told, create=True, size=4096)]

    def untrack(block):
        if not a.tracked:
            resource_tracker.unregister('/' + block.name, 'shared_memory')
    for block in blocks:
        untrack(block)
    counts = semaphore('/' + told)
    wrong = 0
    for step in range(a.steps):
        loss = model(torch.randn(8, 12).cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for block in blocks:
            # By its name, as another process would.
            again = SharedMemory(block.name)
            untrack(again)
            count = int.from_bytes(block.buf[:8], 'little')
            wrong += count != step or bytes(again.buf[:8]) != bytes(block.buf[:8])
            again.buf[:8] = (count + 1).to_bytes(8, 'little')
            again.close()
        LIBC.sem_post(counts)
        wrong += value_of(counts) != step + 1
        print(f'iteration {step} loss {loss.item():.6f} wrong {wrong}', flush=True)
    for block in blocks:
        block.close()
        if a.tracked:
            block.unlink()
        else:
            LIBC.shm_unlink(b'/' + block.name.encode())
    wrong += LIBC.sem_unlink(b'/' + told.encode()) != 0
    state = repr([t.detach().cpu().tolist() for t in model.state_dict().values()])
    print('final', hashlib.sha256(f'{state} {wrong}'.encode()).hexdigest())


if __name__ == '__main__':
    main()
