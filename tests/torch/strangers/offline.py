# SPDX-License-Identifier: Apache-2.0
"""Runs that Weights & Biases tracks offline, by a process of its own that is linked statically."""
import argparse
import os

os.environ.update(WANDB_MODE='offline', WANDB_SILENT='true', WANDB_DIR=os.getcwd(), HOME=os.getcwd())
import torch
import wandb

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=250)
a = p.parse_args()
torch.manual_seed(21)
run = wandb.init(project='p', config={'lr': 1e-2})
model = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(a.steps):
    x = torch.randn(64, 8)
    loss = (model(x.cuda()) - x[:, ::2].cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.log({'loss': loss.item()})
    print(f'step {step} loss {loss.item():.6f}', flush=True)
run.finish()
