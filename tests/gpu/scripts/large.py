#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains as many parameters as make so many GiB with the two moments of Adam: each step reads and writes all of them, and computes little."""
import argparse
import ctypes
import hashlib

import torch

PIECE = 64 << 20  # elements


def digest(state):
    """Of samples of each, and of a sum that the device makes of its bits."""
    h = hashlib.sha256()
    for value in state:
        bits = value.detach().view(-1).view(torch.int32)
        t = torch.cat([bits[::max(bits.numel() // 4096, 1)].long(), bits.sum(dtype=torch.int64).view(1)]).cpu()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=6)
    p.add_argument('--gib', type=float, default=1)
    a = p.parse_args()
    torch.manual_seed(1)
    left = int(a.gib * 2**30 / 4 / 3)
    parameters, drawn = [], torch.randn(1 << 16).cuda() * 0.01
    while left > 0:
        size = min(left, PIECE)
        parameters.append(torch.nn.Parameter(drawn.repeat(size // drawn.numel() + 1)[:size].clone()))
        left -= size
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    for step in range(a.steps):
        target = torch.randn(1).cuda()
        total = torch.zeros(1, device='cuda')
        for w in parameters:  # one after the other, so that what lies between needs room once
            loss = (w - target).square().mean()
            loss.backward()
            total += loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        print(f'step {step} loss {total.item():.6f}', flush=True)
    print('final', digest([t for w in parameters for t in (w, optimizer.state[w]['exp_avg'], optimizer.state[w]['exp_avg_sq'])]))


main()
