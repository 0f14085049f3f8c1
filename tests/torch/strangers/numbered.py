# SPDX-License-Identifier: Apache-2.0
"""Files that are called after the process: its log, its state that others may watch, and one that says that it runs, which goes
at the end."""
import argparse
import atexit
import json
import os

import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(1)
pid = os.getpid()
running = f'train.{pid}.pid'
with open(running, 'w') as f:
    f.write(f'{pid}\n')
atexit.register(os.unlink, running)
os.makedirs(f'run-{pid}', exist_ok=True)
log = open(f'log_{pid}.txt', 'a')
model = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(a.steps):
    x = torch.randn(64, 8)
    loss = (model(x.cuda()) - x[:, :4].cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    log.write(f'step {step} loss {loss.item():.6f}\n')
    log.flush()
    if step % 10 == 0:
        with open(f'run-{pid}/state.json.{pid}', 'w') as f:
            json.dump({'step': step, 'loss': loss.item()}, f)
        os.replace(f'run-{pid}/state.json.{pid}', f'run-{pid}/state.json')
        with open(f'run-{pid}/rank0-{pid}.txt', 'a') as f:
            print(step, file=f)
        assert os.path.exists(running) and os.listdir(f'run-{pid}') and f'log_{pid}.txt' in os.listdir('.')
    print(f'step {step} loss {loss.item():.6f}', flush=True)
with open(f'log_{pid}.txt') as f:
    print('lines', len(f.readlines()))
