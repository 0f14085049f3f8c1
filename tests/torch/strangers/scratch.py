# SPDX-License-Identifier: Apache-2.0
"""A folder for scratch files, which is removed at the end: features are put into it, read back mapped, and moved out."""
import argparse
import os
import shutil
import tempfile

import numpy as np
import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(15)
scratch = tempfile.mkdtemp(prefix='features-')
rows = np.memmap(os.path.join(scratch, 'rows.dat'), np.float32, 'w+', shape=(256, 8))
rows[:] = torch.randn(256, 8).numpy()
rows.flush()
model = torch.nn.Linear(8, 1).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(a.steps):
    x = torch.from_numpy(np.array(rows[(np.arange(32) * 7 + step) % 256]))
    loss = (model(x.cuda()) - x.mean(1, keepdim=True).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rows[step % 256] += float(loss.item()) / 100
    if step % 50 == 0:
        part = os.path.join(scratch, f'part-{step}.npy')
        np.save(part, rows[:4])
        shutil.move(part, f'part-{step}.npy')
    with tempfile.NamedTemporaryFile('w+', suffix='.txt') as f:
        f.write(f'{loss.item()}\n')
        f.flush()
        f.seek(0)
        value = float(f.read())
    print(f'step {step} loss {value:.6f}', flush=True)
del rows
shutil.rmtree(scratch)
