# SPDX-License-Identifier: Apache-2.0
"""A training that has something to do at its end that is no business of the device's, and leaves by _exit()."""
import argparse
import os
import time

import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=600)
p.add_argument('--pause', type=float, default=5)
a = p.parse_args()
torch.manual_seed(1)
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(a.steps):
    x = torch.randn(8, 4)
    loss = (model(x.cuda()) - x.cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    print('step %d loss %.6f' % (step, loss.item()), flush=True)
    optimizer.step()
time.sleep(a.pause)
with open('done', 'w') as f:
    f.write('%.6f\n' % loss.item())
os._exit(0)
