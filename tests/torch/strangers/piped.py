# SPDX-License-Identifier: Apache-2.0
"""A named pipe that is made at the start, for whoever may want to tell the training something, and looked at each step."""
import os
import stat

import torch

torch.manual_seed(9)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
if not os.path.exists('control'):
    os.mkfifo('control')
for step in range(400):
    x = torch.randn(32, 16)
    loss = (model(x.cuda()) - x[:, :4].sin().cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f'step {step} loss {loss.item():.6f} {stat.S_ISFIFO(os.stat("control").st_mode)}', flush=True)
