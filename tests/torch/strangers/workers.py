# SPDX-License-Identifier: Apache-2.0
"""A DataLoader whose worker processes stay from epoch to epoch, over a data set that reads its items from a file."""
import argparse
import os
import random

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __init__(self, path):
        self.path = path
        if not os.path.exists(path):
            torch.save(torch.randn(512, 8, generator=torch.Generator().manual_seed(6)), path)
        self.x = torch.load(path)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] * (1 if random.random() < 0.5 else -1) + torch.randn(8) / 10


p = argparse.ArgumentParser()
p.add_argument('--epochs', type=int, default=12)
a = p.parse_args()
torch.manual_seed(6)
loader = DataLoader(Numbers('numbers.pt'), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True, pin_memory=True,
                    prefetch_factor=2, drop_last=False)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters())
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, a.epochs)
for epoch in range(a.epochs):
    for i, x in enumerate(loader):
        x = x.cuda(non_blocking=True)
        loss = (model(x) - x.norm(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f'epoch {epoch} batch {i} loss {loss.item():.6f}', flush=True)
    schedule.step()
    torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'epoch': epoch}, 'last.pt')
