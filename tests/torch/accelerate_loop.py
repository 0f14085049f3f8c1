#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A loop with accelerate: prepared model, optimizer, loader and scheduler, accumulation, clipping, saved states."""
import argparse
import ctypes
import hashlib

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from torch.utils.data import DataLoader, TensorDataset


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--epochs', type=int, default=2)
    p.add_argument('--precision', default='bf16')
    p.add_argument('--save-every', type=int, default=5, help='epochs')
    a = p.parse_args()
    accelerator = Accelerator(mixed_precision=a.precision, gradient_accumulation_steps=2,
                              project_config=ProjectConfiguration(project_dir='run', automatic_checkpoint_naming=True, total_limit=2))
    assert accelerator.device.type == 'cuda'
    set_seed(7)
    g = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(96, 20, generator=g), torch.randint(0, 6, (96,), generator=g))
    model = torch.nn.Sequential(torch.nn.Linear(20, 48), torch.nn.GELU(), torch.nn.LayerNorm(48), torch.nn.Linear(48, 32), torch.nn.GELU(),
                                torch.nn.Linear(32, 6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(data, batch_size=12, shuffle=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8 * a.epochs)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    step = 0
    for epoch in range(a.epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                step += 1
                accelerator.print(f'step {step} loss {accelerator.gather(loss).mean().item():.6f}', flush=True)
        if (epoch + 1) % a.save_every == 0:
            accelerator.save_state()
    accelerator.save_model(model, 'model')
    accelerator.print('final', digest(accelerator.unwrap_model(model).state_dict().values()))


main()
