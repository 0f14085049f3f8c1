# SPDX-License-Identifier: Apache-2.0
"""Samples that webdataset streams from tar files and shuffles in a buffer."""
import argparse
import glob
import os
import random

import torch
import webdataset as wds

p = argparse.ArgumentParser()
p.add_argument('--epochs', type=int, default=8)
a = p.parse_args()
torch.manual_seed(8)
if not os.path.exists('shards/done'):
    os.makedirs('shards', exist_ok=True)
    with wds.ShardWriter('shards/train-%03d.tar', maxcount=128, verbose=0, mtime=0) as sink:
        for i in range(512):
            sink.write({'__key__': f'{i:06d}', 'x.pth': torch.randn(8, generator=torch.Generator().manual_seed(i)), 'y.cls': i % 5})
    open('shards/done', 'w').close()
data = (wds.WebDataset(sorted(glob.glob('shards/*.tar')), shardshuffle=4, seed=8, empty_check=False).shuffle(100, rng=random.Random(8)).decode()
        .to_tuple('x.pth', 'y.cls').batched(32))
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 5)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(a.epochs):
    for i, (x, y) in enumerate(data):
        loss = torch.nn.functional.cross_entropy(model(torch.as_tensor(x).cuda()), torch.as_tensor(y).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f'epoch {epoch} batch {i} loss {loss.item():.6f}', flush=True)
