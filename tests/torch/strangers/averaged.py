# SPDX-License-Identifier: Apache-2.0
"""Gradients of four batches each, of which the last of an epoch are fewer, and a copy of the model that follows it slowly."""
import argparse
import copy

import torch

p = argparse.ArgumentParser()
p.add_argument('--epochs', type=int, default=30)
a = p.parse_args()
torch.manual_seed(19)
data = torch.randn(309, 8)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).cuda()
slow = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(a.epochs):
    batches = data[torch.randperm(len(data))].split(32)
    for i, x in enumerate(batches):
        loss = (model(x.cuda()) - x.square().sum(1, keepdim=True).cuda()).square().mean()
        (loss / min(4, len(batches) - i // 4 * 4)).backward()
        if i % 4 == 3 or i == len(batches) - 1:
            optimizer.step()
            optimizer.zero_grad()
            for old, new in zip(slow.parameters(), model.parameters()):
                old.lerp_(new.detach(), 0.05)
    with torch.no_grad():
        print(f'epoch {epoch} loss {loss.item():.6f} slow {(slow(x.cuda())).mean().item():.6f}', flush=True)
torch.save({'model': model.state_dict(), 'slow': slow.state_dict()}, 'both.pt')
