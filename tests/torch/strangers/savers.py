# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that a thread saves from a copy on the CPU, while training goes on; the last three stay, `latest` points to the
newest and is replaced at once, and a text says which is done."""
import argparse
import os
import threading

import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(4)
os.makedirs('checkpoints', exist_ok=True)


def save(state, step):
    path = f'checkpoints/model-{step:06d}.pt'
    torch.save(state, path + '.tmp')
    os.replace(path + '.tmp', path)
    os.symlink(os.path.basename(path), 'checkpoints/latest.tmp')
    os.replace('checkpoints/latest.tmp', 'checkpoints/latest')
    with open('checkpoints/done.txt', 'a') as f:
        f.write(f'{step}\n')
    for old in sorted(n for n in os.listdir('checkpoints') if n.endswith('.pt'))[:-3]:
        os.remove(os.path.join('checkpoints', old))


model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).cuda()
optimizer = torch.optim.Adam(model.parameters())
saver = None
for step in range(a.steps):
    x = torch.randn(32, 8)
    loss = (model(x.cuda()) - x.flip(1).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        if saver:
            saver.join()
        state = {'model': {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}, 'step': step}
        saver = threading.Thread(target=save, args=(state, step), daemon=True)
        saver.start()
    print(f'step {step} loss {loss.item():.6f}', flush=True)
saver.join()
print('latest', torch.load('checkpoints/latest')['step'])
