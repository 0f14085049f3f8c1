# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by torch.distributed.checkpoint's async_save, without a process group."""
import argparse
import os
import shutil

import torch
import torch.distributed.checkpoint as dcp

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(12)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
pending = None
for step in range(a.steps):
    x = torch.randn(32, 8)
    loss = (model(x.cuda()) - x.sin().cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        if pending:
            pending.result()
        pending = dcp.async_save({'model': model.state_dict(), 'step': step}, checkpoint_id=f'step_{step}')
        if os.path.isdir(f'step_{step - 90}'):
            shutil.rmtree(f'step_{step - 90}')
    print(f'step {step} loss {loss.item():.6f}', flush=True)
pending.result()
state = {'model': model.state_dict(), 'step': 0}
dcp.load(state, checkpoint_id=f'step_{(a.steps - 1) // 30 * 30}')
print('loaded', state['step'])
