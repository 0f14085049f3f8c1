# SPDX-License-Identifier: Apache-2.0
"""Training that ends when the validation loss does not get better; the best model is saved, and loaded at the end."""
import argparse
import copy
import hashlib

import torch

p = argparse.ArgumentParser()
p.add_argument('--epochs', type=int, default=60)
a = p.parse_args()
torch.manual_seed(17)
data, valid = torch.randn(256, 8), torch.randn(64, 8)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
best, kept, patience = float('inf'), None, 0
for epoch in range(a.epochs):
    model.train()
    for x in data[torch.randperm(256)].split(32):
        loss = (model(x.cuda()) - x.prod(1, keepdim=True).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        score = (model(valid.cuda()) - valid.prod(1, keepdim=True).cuda()).square().mean().item()
    plateau.step(score)
    print(f'epoch {epoch} loss {loss.item():.6f} validation {score:.6f}', flush=True)
    if score < best:
        best, patience = score, 0
        kept = copy.deepcopy(model.state_dict())
        torch.save(kept, 'best.pt')
    else:
        patience += 1
        if patience == 25:
            print('stopped early', epoch)
            break
model.load_state_dict(torch.load('best.pt'))
assert all(v.tolist() == kept[k].tolist() for k, v in model.state_dict().items())
print('final', hashlib.sha256(repr([v.tolist() for v in model.state_dict().values()]).encode()).hexdigest())
