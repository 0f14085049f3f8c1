# SPDX-License-Identifier: Apache-2.0
"""Runs that Weights & Biases tracks at a server, by a process of its own that posts rows as they come."""
import argparse
import os

os.environ.update(WANDB_API_KEY='d' * 40, WANDB_SILENT='true', WANDB_DIR=os.getcwd(), HOME=os.getcwd())
import torch
import wandb

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=250)
p.add_argument('--resume')
a = p.parse_args()
torch.manual_seed(22)
run = wandb.init(project='p', config={'lr': 1e-2}, resume=a.resume, settings=wandb.Settings(x_file_stream_transmit_interval=0.2))
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
