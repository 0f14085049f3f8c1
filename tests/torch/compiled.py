#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Classifies sequences by a compiled model: embedding, attention written out, dropout, and a fused AdamW that is not."""
import argparse
import ctypes
import hashlib

import torch
from torch import nn

WORDS, LENGTH, WIDTH, CLASSES, BATCH = 50, 12, 32, 5, 8


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.up, self.down = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, words, kinds):
        x = self.words(words)
        h = self.first(x)
        scores = (self.query(h).unsqueeze(2) * self.key(h).unsqueeze(1)).sum(-1) / WIDTH ** 0.5
        weights = nn.functional.dropout(scores.softmax(-1), 0.1, self.training)
        x = x + (weights.unsqueeze(-1) * self.value(h).unsqueeze(1)).sum(2)
        x = x + self.down(nn.functional.gelu(self.up(self.second(x))))
        return nn.functional.cross_entropy(self.out(x.mean(1)), kinds)


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=6)
    p.add_argument('--mode', default='default', choices=('default', 'reduce-overhead'))
    a = p.parse_args()
    torch.manual_seed(1)
    model = Classifier().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loss_of = torch.compile(model, mode=a.mode)
    for step in range(a.steps):
        words, kinds = torch.randint(0, WORDS, (BATCH, LENGTH)).cuda(), torch.randint(0, CLASSES, (BATCH,)).cuda()
        optimizer.zero_grad()
        loss = loss_of(words, kinds)
        loss.backward()
        optimizer.step()
        print(f'step {step} loss {loss.item():.6f}', flush=True)
    state = list(model.state_dict().values())
    for w in model.parameters():
        state += [v for v in optimizer.state[w].values() if torch.is_tensor(v)]
    print('final', digest(state))


main()
