#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop in the manner of nanoGPT: batches are cut from a memory-mapped file, micro steps under autocast, a loss
scaler, decayed groups with fused AdamW, a cosine schedule, an evaluation that saves a checkpoint; times go to stderr."""
import argparse
import contextlib
import ctypes
import hashlib
import math
import os
import pickle
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WIDTH, HEADS, LAYERS, LENGTH, BATCH, MICRO = 48, 4, 2, 24, 4, 2
MOST, LEAST, WARMUP = 1e-3, 1e-4, 5


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.c_out = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (s.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for s in self.c_attn(self.ln_1(x)).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + self.c_proj(y)
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f, self.lm_head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), ignore_index=-1)

    def configure(self):
        w = [p for p in self.parameters() if p.requires_grad]
        groups = [{'params': [p for p in w if p.dim() >= 2], 'weight_decay': 0.1}, {'params': [p for p in w if p.dim() < 2], 'weight_decay': 0.0}]
        return torch.optim.AdamW(groups, lr=MOST, betas=(0.9, 0.95), fused=True)


def prepare(folder):
    """A text becomes two files of tokens and one of what they mean, where they are not there yet."""
    if os.path.exists(os.path.join(folder, 'meta.pkl')):
        return
    os.makedirs(folder, exist_ok=True)
    text = ''.join('%d times %d is %d.\n' % (a, b, a * b) for a in range(60) for b in range(20))
    letters = sorted(set(text))
    ids = np.array([letters.index(c) for c in text], dtype=np.uint16)
    ids[:int(0.9 * len(ids))].tofile(os.path.join(folder, 'train.bin'))
    ids[int(0.9 * len(ids)):].tofile(os.path.join(folder, 'val.bin'))
    with open(os.path.join(folder, 'meta.pkl'), 'wb') as f:
        pickle.dump({'vocab_size': len(letters), 'itos': letters}, f)


def get_batch(folder, split):
    data = np.memmap(os.path.join(folder, split + '.bin'), dtype=np.uint16, mode='r')
    ix = torch.randint(len(data) - LENGTH, (BATCH,))
    x = torch.stack([torch.from_numpy(data[i:i + LENGTH].astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + LENGTH].astype(np.int64)) for i in ix])
    return x.pin_memory().to('cuda', non_blocking=True), y.pin_memory().to('cuda', non_blocking=True)


def get_lr(step, steps):
    if step < WARMUP:
        return MOST * (step + 1) / (WARMUP + 1)
    return LEAST + 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(steps - WARMUP, 1))) * (MOST - LEAST)


@torch.no_grad()
def estimate_loss(model, folder, context):
    out = {}
    model.eval()
    for split in ('train', 'val'):
        losses = torch.zeros(3)
        for k in range(3):
            x, y = get_batch(folder, split)
            with context:
                losses[k] = model(x, y).item()
        out[split] = losses.mean()
    model.train()
    return out


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=4)
    p.add_argument('--eval-every', type=int, default=20)
    p.add_argument('--dtype', default='bfloat16')
    p.add_argument('--out', default='out')
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    prepare('data')
    torch.manual_seed(1337)
    torch.backends.cuda.matmul.allow_tf32 = True
    kind = getattr(torch, a.dtype)
    context = torch.amp.autocast('cuda', kind) if a.dtype != 'float32' else contextlib.nullcontext()
    with open(os.path.join('data', 'meta.pkl'), 'rb') as f:
        vocabulary = pickle.load(f)['vocab_size']
    model = GPT(vocabulary).cuda()
    scaler = torch.amp.GradScaler('cuda', enabled=a.dtype == 'float16')
    optimizer = model.configure()
    best = 1e9
    x, y = get_batch('data', 'train')
    began = time.time()
    for step in range(a.steps):
        lr = get_lr(step, a.steps)
        for group in optimizer.param_groups:
            group['lr'] = lr
        if step % a.eval_every == 0:
            losses = estimate_loss(model, 'data', context)
            print(f"step {step}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}", flush=True)
            if losses['val'] < best:
                best = losses['val']
                if step > 0:
                    torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'iter_num': step,
                                'best_val_loss': best}, os.path.join(a.out, 'ckpt.pt'))
        for _ in range(MICRO):
            with context:
                loss = model(x, y) / MICRO
            x, y = get_batch('data', 'train')
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        now = time.time()
        took, began = now - began, now
        print(f'iter {step}: loss {loss.item() * MICRO:.4f}', flush=True)
        print(f'iter {step}: time {took * 1000:.2f}ms', file=sys.stderr)
    print('final', digest(model.state_dict().values()))


main()
