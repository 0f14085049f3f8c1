# SPDX-License-Identifier: Apache-2.0
"""A progress bar on standard error, and one in a file; garbage collected and the allocator's memory given back each few steps."""
import argparse
import gc

import torch
from tqdm import tqdm

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).cuda()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
bar = tqdm(range(a.steps), desc='training')
with open('progress.txt', 'w') as f:
    slow = tqdm(total=a.steps, file=f, bar_format='{n_fmt} of {total_fmt}', miniters=10, mininterval=0)
    for step in bar:
        x = torch.randn(16 + step % 3 * 48, 8)
        loss = (model(x.cuda()) - x.square().mean(1, keepdim=True).cuda()).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        bar.set_postfix(loss=f'{loss.item():.4f}')
        slow.update()
        if step % 20 == 19:
            del loss
            gc.collect()
            torch.cuda.empty_cache()
        else:
            print(f'step {step} loss {loss.item():.6f}', flush=True)
    slow.close()
