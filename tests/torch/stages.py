#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model in two stages, each on a device of its own, trained in micro-batches by one process; activations and gradients
go from one device to the other."""
import argparse
import ctypes
import hashlib

import torch


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=20)
    p.add_argument('--width', type=int, default=96)
    a = p.parse_args()
    torch.manual_seed(3)
    devices = [torch.device('cuda', i % torch.cuda.device_count()) for i in range(2)]
    stages = [torch.nn.Sequential(torch.nn.Linear(20, a.width), torch.nn.GELU(), torch.nn.Linear(a.width, a.width)).to(devices[0]),
              torch.nn.Sequential(torch.nn.LayerNorm(a.width), torch.nn.Dropout(0.1), torch.nn.Linear(a.width, 6)).to(devices[1])]
    optimizers = [torch.optim.AdamW(stage.parameters(), lr=0.01) for stage in stages]
    for step in range(a.steps):
        x, y = torch.randn(32, 20), torch.randint(0, 6, (32,))
        losses = []
        for part in range(2):
            rows = slice(16 * part, 16 * part + 16)
            hidden = stages[0](x[rows].to(devices[0])).to(devices[1])
            loss = torch.nn.functional.cross_entropy(stages[1](hidden), y[rows].to(devices[1])) / 2
            loss.backward()
            losses.append(loss.detach())
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        print(f'step {step} loss {sum(losses).item():.6f}', flush=True)
    state = [v for s in stages for v in s.state_dict().values()]
    state += [v for o in optimizers for s in o.state_dict()['state'].values() for v in s.values()]
    print('final', digest(state), 'on', ' and '.join(sorted({str(v.device) for v in state if v.is_cuda})))


main()
