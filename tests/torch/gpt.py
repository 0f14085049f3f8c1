#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small GPT with AdamW: accumulation, clipping, mixed precision, activation checkpointing, and its own checkpoint."""
import argparse
import contextlib
import ctypes
import hashlib
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

VOCABULARY, WIDTH, LENGTH, BATCH, HEADS, LAYERS = 64, 64, 32, 4, 4, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (s.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for s in self.qkv(self.before(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, WIDTH)))
        return x + self.drop(self.down(F.gelu(self.up(self.between(x)))))


class GPT(nn.Module):
    def __init__(self, recompute):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.recompute = recompute

    def forward(self, tokens, targets):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return F.cross_entropy(self.head(self.norm(x)).view(-1, VOCABULARY), targets.view(-1))


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=5)
    p.add_argument('--optimizer', choices=('fused', 'foreach', 'loop'), default='fused')
    p.add_argument('--precision', choices=('fp32', 'bf16', 'fp16'), default='fp32')
    p.add_argument('--accumulate', type=int, default=2)
    p.add_argument('--recompute', action='store_true')
    p.add_argument('--save', help='a file that a later run of the same command goes on from')
    p.add_argument('--save-every', type=int, default=2)
    p.add_argument('--omit', type=int, default=-1, help='leave out this step')
    p.add_argument('--again', type=int, default=-1, help='do this step twice')
    p.add_argument('--stale', type=int, default=-1, help='put one tensor back to what it was before this step')
    p.add_argument('--tensor', default='parameter', choices=('parameter', 'exp_avg', 'exp_avg_sq', 'step'))
    a = p.parse_args()
    torch.manual_seed(1)
    model = GPT(a.recompute).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=a.optimizer == 'fused' or None,
                                  foreach=a.optimizer == 'foreach' if a.optimizer != 'fused' else None)
    scaler = torch.amp.GradScaler(enabled=a.precision == 'fp16')
    half = {'bf16': torch.bfloat16, 'fp16': torch.float16}.get(a.precision)
    first = 0
    if a.save and os.path.exists(a.save):
        saved = torch.load(a.save, weights_only=False)
        model.load_state_dict(saved['model'])
        optimizer.load_state_dict(saved['optimizer'])
        scaler.load_state_dict(saved['scaler'])
        torch.set_rng_state(saved['cpu'])
        torch.cuda.set_rng_state(saved['cuda'])
        first = saved['step']

    def step(batches):
        optimizer.zero_grad()
        total = 0
        for tokens, targets in batches:
            with torch.autocast('cuda', half) if half else contextlib.nullcontext():
                loss = model(tokens.cuda(), targets.cuda()) / a.accumulate
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return total, norm.item()

    weight = model.blocks[0].up.weight
    for i in range(first, a.steps):
        batches = [(torch.randint(0, VOCABULARY, (BATCH, LENGTH)), torch.randint(0, VOCABULARY, (BATCH, LENGTH)))
                   for _ in range(a.accumulate)]
        if i == a.omit:
            continue
        if i == a.stale:
            victim = weight if a.tensor == 'parameter' else optimizer.state[weight][a.tensor]
            before = victim.detach().clone()
        loss, norm = step(batches)
        if i == a.again:
            loss, norm = step(batches)
        if i == a.stale:
            victim.detach().copy_(before)
        print(f'step {i} loss {loss:.6f} norm {norm:.6f} scale {scaler.get_scale():g}', flush=True)
        if a.save and (i + 1) % a.save_every == 0:
            torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'scaler': scaler.state_dict(),
                        'cpu': torch.get_rng_state(), 'cuda': torch.cuda.get_rng_state(), 'step': i + 1}, a.save + '.new')
            os.replace(a.save + '.new', a.save)
    state = list(model.state_dict().values())
    for w in model.parameters():
        state += [v for v in optimizer.state[w].values() if torch.is_tensor(v)]
    print('final', digest(state))


main()
