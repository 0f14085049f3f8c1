#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains some hundred MiB and saves model and optimizer each few steps; a copy of the save and its sum are made by programs that the script starts, and old saves
are removed."""
import argparse
import os
import subprocess

import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=60)
p.add_argument('--width', type=int, default=2048)
p.add_argument('--every', type=int, default=40)
a = p.parse_args()
torch.manual_seed(7)
model = torch.nn.Sequential(*[torch.nn.Linear(a.width, a.width) for _ in range(6)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(a.steps):
    x = torch.randn(64, a.width)
    loss = (model(x.cuda()) - x.roll(1, 1).cuda()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f'step {step} loss {loss.item():.6f}', flush=True)
    if step % a.every == a.every - 1:
        torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict()}, 'last.pt')
        os.makedirs('kept', exist_ok=True)
        name = f'kept/{step:06d}.pt'
        subprocess.run(['cp', 'last.pt', name], check=True)
        print(f'saved {step}', subprocess.run(['sha256sum', name], capture_output=True, text=True, check=True).stdout.split()[0], flush=True)
        for old in sorted(os.listdir('kept'))[:-2]:
            os.remove(os.path.join('kept', old))
for name in sorted(os.listdir('kept')) if os.path.isdir('kept') else []:
    print('kept', name, subprocess.run(['sha256sum', 'kept/' + name], capture_output=True, text=True, check=True).stdout.split()[0])
