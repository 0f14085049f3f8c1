# SPDX-License-Identifier: Apache-2.0
"""SIGUSR1 saves, SIGTERM saves and ends: both are sent by the script, the first now and then, the other at the end; a timer of
the kernel's asks for a line in the log."""
import argparse
import os
import signal
import sys

import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(13)
asked, beats = [], []
signal.signal(signal.SIGUSR1, lambda number, frame: asked.append('save'))
signal.signal(signal.SIGTERM, lambda number, frame: asked.append('end'))
signal.signal(signal.SIGALRM, lambda number, frame: beats.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.Adam(model.parameters())
step = 0
while True:
    x = torch.randn(32, 8)
    loss = (model(x.cuda()) - x.cumsum(1).cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f'step {step} loss {loss.item():.6f}', flush=True)
    step += 1
    if step % 60 == 0:
        os.kill(os.getpid(), signal.SIGUSR1)
    if step == a.steps:
        signal.raise_signal(signal.SIGTERM)
    while asked:
        what = asked.pop(0)
        torch.save({'model': model.state_dict(), 'step': step}, f'{what}-{step}.pt')
        print(what, step, flush=True)
        if what == 'end':
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.exit(0)
