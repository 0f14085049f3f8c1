# SPDX-License-Identifier: Apache-2.0
"""A loop by time, which a number of steps bounds too; what it says by time goes to standard error."""
import argparse
import sys
import time

import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(16)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters())
step, end, said = 0, time.monotonic() + 3600, time.perf_counter()
while time.monotonic() < end and step < a.steps:
    x = torch.randn(32, 8)
    loss = (model(x.cuda()) - x.std(1, keepdim=True).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f'step {step} loss {loss.item():.6f}', flush=True)
    if time.perf_counter() - said > 0.2:
        print(f'{step / (time.perf_counter() - said):.1f} steps a second, {loss.item():.3f}', file=sys.stderr)
        said = time.perf_counter()
    step += 1
