#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 of 124 million parameters as published, in a loop: bfloat16 autocast, fused AdamW, clipping, a schedule, batches from the host."""
import argparse
import ctypes
import hashlib

import torch
from transformers import GPT2Config, GPT2LMHeadModel


def digest(state):
    """Of samples of each, and of a sum that the device makes of its bits."""
    h = hashlib.sha256()
    for value in state:
        bits = value.detach().contiguous().view(-1).view(torch.int32)
        t = torch.cat([bits[::max(bits.numel() // 4096, 1)].long(), bits.sum(dtype=torch.int64).view(1)]).cpu()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=6)
    p.add_argument('--batch', type=int, default=8)
    p.add_argument('--length', type=int, default=1024)
    p.add_argument('--layers', type=int, default=12)
    a = p.parse_args()
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(n_layer=a.layers, n_positions=a.length, attn_implementation='eager')).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, 1.0, 100)
    for step in range(a.steps):
        tokens = torch.randint(0, 50257, (a.batch, a.length)).cuda(non_blocking=True)
        with torch.autocast('cuda', torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        print(f'step {step} loss {loss.item():.6f}', flush=True)
    print('final', digest([*model.parameters(), *(optimizer.state[w]['exp_avg_sq'] for w in model.parameters())]))


main()
