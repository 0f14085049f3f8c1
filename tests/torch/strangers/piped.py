# SPDX-License-Identifier: Apache-2.0
"""A named pipe that is made at the start, and late in the training has a reader, to which rows go from there on; with --asks somebody writes to it what the
learning rate is to be."""
import os
import subprocess
import sys

import torch

torch.manual_seed(9)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if not os.path.exists('rows'):
    os.mkfifo('rows')
rows = None
for step in range(400):
    x = torch.randn(32, 16)
    loss = (model(x.cuda()) - x[:, :4].sin().cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f'step {step} loss {loss.item():.6f}', flush=True)
    if step == 320 and '--asks' in sys.argv:
        reader = subprocess.Popen('echo 0.0005 > rows', shell=True)
        with open('rows') as answer:
            optimizer.param_groups[0]['lr'] = float(answer.read())
    elif step == 320:
        reader = subprocess.Popen('cat rows > rows.txt', shell=True)
        rows = open('rows', 'w')
    if rows:
        print(step, f'{loss.item():.6f}', file=rows, flush=True)
if rows:
    rows.close()
reader.wait()
