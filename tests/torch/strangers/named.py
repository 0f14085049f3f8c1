# SPDX-License-Identifier: Apache-2.0
"""Outputs that chance and time name: a folder by uuid, samples by numpy's and Python's chance, marks by the clock."""
import argparse
import os
import random
import secrets
import time
import uuid

import numpy as np
import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(14)
folder = f'runs/{uuid.uuid4().hex}'
os.makedirs(folder)
with open(f'{folder}/id-{uuid.uuid1()}', 'w') as f:
    f.write('one\n')
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(a.steps):
    x = torch.randn(32, 8)
    loss = (model(x.cuda()) - x.abs().cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        with open(f'{folder}/sample-{step}-{np.random.randint(1 << 30)}-{random.getrandbits(30)}-{secrets.token_hex(4)}.txt', 'w') as f:
            f.write(f'{loss.item():.6f}\n')
        with open(f'{folder}/at-{time.time_ns()}', 'w') as f:
            f.write(f'{step}\n')
    print(f'step {step} loss {loss.item():.6f}', flush=True)
print('files', len(os.listdir(folder)), 'folders', len(os.listdir('runs')))
