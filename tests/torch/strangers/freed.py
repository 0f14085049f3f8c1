# SPDX-License-Identifier: Apache-2.0
"""A thread that saves copies of the weights, which lie on the device, and drops them at its own pace."""
import argparse
import queue
import random
import threading
import time

import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(23)
work, pace = queue.Queue(), random.SystemRandom()


def save():
    with open('saved.txt', 'w') as file:
        while (item := work.get()) is not None:
            step, copy, loss = item
            file.write(f'{step} {loss:.6f} {tuple(copy.shape)}\n')
            file.flush()
            time.sleep(pace.random() * 0.006)
            del item, copy


thread = threading.Thread(target=save)
thread.start()
model = torch.nn.Linear(8, 4).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(a.steps):
    x = torch.randn(64, 8)
    loss = (model(x.cuda()) - x[:, ::2].cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    work.put((step, model.weight.detach().clone(), loss.item()))
    print(f'step {step} loss {loss.item():.6f}', flush=True)
work.put(None)
thread.join()
