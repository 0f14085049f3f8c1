#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A classifier with dropout, trained by one optimizer of torch.optim on data drawn on the CPU."""
import argparse
import ctypes
import hashlib
import inspect

import torch


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def tensors(state):
    for value in state.values():
        if torch.is_tensor(value):
            yield value
        elif isinstance(value, dict):
            yield from tensors(value)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--optimizer', default='SGD')
    p.add_argument('--steps', type=int, default=5)
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--hidden', default='48')
    a = p.parse_args()
    torch.manual_seed(a.seed)
    sizes, layers = [20, *map(int, a.hidden.split(','))], []
    for n, m in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(n, m), torch.nn.ReLU(), torch.nn.Dropout(0.2)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 6)).cuda()
    name, _, variant = a.optimizer.partition('-')
    kind = getattr(torch.optim, name)
    parameters = [w for w in model.parameters() if w.dim() == 2] if name == 'Muon' else list(model.parameters())
    settings = {'lr': 0.01}
    if variant == 'loop':
        settings['foreach'] = False
    elif variant:
        settings[variant] = True
    if 'momentum' in inspect.signature(kind).parameters:
        settings['momentum'] = 0.9
    optimizer = kind(parameters, **settings)
    for step in range(a.steps):
        x, y = torch.randn(16, 20).cuda(), torch.randint(0, 6, (16,)).cuda()

        def closure():
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            return loss

        loss = optimizer.step(closure) if name == 'LBFGS' else closure()
        if name != 'LBFGS':
            optimizer.step()
        print(f'step {step} loss {loss.item():.6f}', flush=True)
    state = list(model.state_dict().values()) + list(tensors(optimizer.state_dict()['state']))
    print('final', digest(state))


main()
