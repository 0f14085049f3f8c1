#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small residual network with batch norm and momentum; or (--gan) a generator and a discriminator in turn."""
import argparse
import ctypes
import hashlib

import torch
import torch.nn as nn
import torch.nn.functional as F


class Residual(nn.Module):
    def __init__(self, width, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.skip = nn.Conv2d(width, width, 1, stride)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def classifier(classes):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), Residual(8, 1), Residual(8, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def classify(steps):
    model = classifier(5).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for i in range(steps):
        x, y = torch.randn(4, 3, 16, 16).cuda(), torch.randint(0, 5, (4,)).cuda()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f'step {i} loss {loss.item():.6f}', flush=True)
    return [model]


def gan(steps):
    maker = nn.Sequential(nn.ConvTranspose2d(8, 8, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh()).cuda()
    judge = classifier(1).cuda()
    makes, judges = torch.optim.Adam(maker.parameters(), lr=1e-3), torch.optim.Adam(judge.parameters(), lr=1e-3)
    for i in range(steps):
        real, noise = torch.randn(4, 3, 8, 8).cuda(), torch.randn(4, 8, 1, 1).cuda()
        made = maker(noise)
        loss = F.binary_cross_entropy_with_logits(judge(real), torch.ones(4, 1, device='cuda')) + \
            F.binary_cross_entropy_with_logits(judge(made.detach()), torch.zeros(4, 1, device='cuda'))
        judges.zero_grad()
        loss.backward()
        judges.step()
        fooled = F.binary_cross_entropy_with_logits(judge(made), torch.ones(4, 1, device='cuda'))
        makes.zero_grad()
        fooled.backward()
        makes.step()
        print(f'step {i} judge {loss.item():.6f} maker {fooled.item():.6f}', flush=True)
    return [maker, judge]


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=3)
    p.add_argument('--gan', action='store_true')
    p.add_argument('--benchmark', action='store_true', help='take the engines that are measured to be the fastest')
    a = p.parse_args()
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = a.benchmark
    models = (gan if a.gan else classify)(a.steps)
    print('final', digest(v for m in models for v in m.state_dict().values()))


main()
