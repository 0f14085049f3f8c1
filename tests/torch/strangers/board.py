# SPDX-License-Identifier: Apache-2.0
"""A regression that is watched in TensorBoard, in the writer's own folder: its name and that of the event file have time, host
and process id."""
import argparse

import torch
from torch.utils.tensorboard import SummaryWriter

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(0)
writer = SummaryWriter(flush_secs=1)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(a.steps):
    x = torch.randn(64, 8)
    loss = (model(x.cuda()) - x.sum(1, keepdim=True).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    writer.add_scalar('loss/train', loss.item(), step)
    if step % 50 == 0:
        writer.add_histogram('weight', model[0].weight, step)
        writer.add_text('note', f'step {step}', step)
    print(f'step {step} loss {loss.item():.6f}', flush=True)
writer.add_hparams({'lr': 1e-3}, {'loss/last': loss.item()})
writer.close()
