#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torchvision's ResNet-50 as its reference script trains it: half precision with a scaler, channels last, SGD with momentum, a moving average of the weights,
batches that workers load into pinned memory."""
import argparse
import ctypes
import hashlib

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        drawn = torch.Generator().manual_seed(i)
        return torch.randn(3, 96, 96, generator=drawn), i % 10


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=6)
    p.add_argument('--batch', type=int, default=16)
    a = p.parse_args()
    torch.manual_seed(1)
    model = torchvision.models.resnet50(num_classes=10).cuda().to(memory_format=torch.channels_last)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99), use_buffers=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, a.steps)
    scaler = torch.amp.GradScaler('cuda')
    loader = DataLoader(Pictures(a.steps * a.batch), a.batch, shuffle=True, num_workers=2, pin_memory=True)
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True).to(memory_format=torch.channels_last), y.cuda(non_blocking=True)
        with torch.autocast('cuda', torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        average.update_parameters(model)
        print(f'step {step} loss {loss.item():.6f}', flush=True)
    print('final', digest([*model.state_dict().values(), *average.state_dict().values()]))


main()
