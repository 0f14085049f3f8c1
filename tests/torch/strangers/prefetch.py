# SPDX-License-Identifier: Apache-2.0
"""Batches that a pool of threads makes ahead, from files that it reads."""
import argparse
import collections
import concurrent.futures
import os
import pickle

import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(5)
if not os.path.exists('data/19.pkl'):
    os.makedirs('data', exist_ok=True)
    for i in range(20):
        with open(f'data/{i}.pkl', 'wb') as f:
            pickle.dump(torch.randn(64, 8, generator=torch.Generator().manual_seed(i)).tolist(), f)


def read(step):
    with open(f'data/{step * 7 % 20}.pkl', 'rb') as f:
        x = torch.tensor(pickle.load(f))
    return x.roll(step, 0)[:48].pin_memory()


model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.SiLU(), torch.nn.Linear(32, 1)).cuda()
optimizer = torch.optim.NAdam(model.parameters())
ahead = collections.deque()
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    for step in range(4):
        ahead.append(pool.submit(read, step))
    for step in range(a.steps):
        ahead.append(pool.submit(read, step + 4))
        x = ahead.popleft().result().cuda(non_blocking=True)
        loss = (model(x) - x.amax(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f'step {step} loss {loss.item():.6f}', flush=True)
