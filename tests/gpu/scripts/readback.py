#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A regression by somebody who looks at everything: each step copies weights and gradients to the host, by .cpu(), .tolist() and .item()."""
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
    p.add_argument('--steps', type=int, default=6)
    p.add_argument('--width', type=int, default=256)
    a = p.parse_args()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, a.width), torch.nn.Tanh(), torch.nn.Linear(a.width, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for step in range(a.steps):
        x = torch.randn(64, 32)
        y = x.square().sum(1, keepdim=True)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
        weights = [w.detach().cpu() for w in model.parameters()]
        gradients = sum(w.grad.abs().sum().tolist() for w in model.parameters())
        print(f'step {step} loss {loss.item():.6f} gradients {gradients:.6f} first {weights[0][0, 0].item():.6f}', flush=True)
    print('final', digest([*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values())]))


main()
