# SPDX-License-Identifier: Apache-2.0
"""MosaicML's streaming: shards that are written once, read in an order drawn from a seed."""
import os

import numpy as np
import torch
from streaming import MDSWriter, StreamingDataset

if not os.path.exists('shards/index.json'):
    with MDSWriter(out='shards', columns={'x': 'ndarray:float32:8', 'i': 'int'}, size_limit=1 << 13) as out:
        for i in range(512):
            out.write({'x': np.random.default_rng(i).standard_normal(8).astype('float32'), 'i': i})
torch.manual_seed(5)
data = StreamingDataset(local='shards', shuffle=True, shuffle_seed=5, batch_size=16, num_canonical_nodes=1)
loader = torch.utils.data.DataLoader(data, batch_size=16)
model = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
step = 0
for epoch in range(8):
    for batch in loader:
        x = batch['x']
        loss = (model(x.cuda()) - x[:, ::2].cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f'step {step} loss {loss.item():.6f} of {batch["i"][:4].tolist()}', flush=True)
        step += 1
torch.save(model.state_dict(), 'model.pt')
