# SPDX-License-Identifier: Apache-2.0
"""A small network in PyTorch that prints, after each step, where its optimizer's tensors lie: a JSON object a line, of
[address, elements] by role in the optimizer's order. It knows nothing of the project. Arguments: optimizer, steps."""
import json
import sys

import torch

MOMENTS = {'first moments': ('exp_avg', 'momentum_buffer'), 'second moments': ('exp_avg_sq', 'square_avg')}


def made(kind, parameters):
    o = torch.optim
    return {
        'adamw-fused': lambda: o.AdamW(parameters, lr=0.002, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1, fused=True),
        'adamw-scaled': lambda: o.AdamW(parameters, lr=0.002, fused=True),
        'adam-foreach': lambda: o.Adam(parameters, lr=0.002, betas=(0.875, 0.9375), foreach=True),
        'adam-decay': lambda: o.Adam(parameters, lr=0.002, weight_decay=0.1, foreach=True),
        'adam-loop': lambda: o.Adam(parameters, lr=0.002, foreach=False),
        'sgd-fused': lambda: o.SGD(parameters, lr=0.25, momentum=0.5, fused=True),
        'sgd-foreach': lambda: o.SGD(parameters, lr=0.25, foreach=True),
        'momentum': lambda: o.SGD(parameters, lr=0.25, momentum=0.5, weight_decay=0.01, foreach=True),
        'rmsprop': lambda: o.RMSprop(parameters, lr=0.002, foreach=True),
        'adadelta': lambda: o.Adadelta(parameters, foreach=True),
    }[kind]()


def where(tensors):
    return [[t.data_ptr(), t.numel()] for t in tensors]


def main():
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(48 + i, 49 + i) for i in range(5))).cuda()
    parameters = list(model.parameters())
    optimizer = made(sys.argv[1], parameters)
    scaler = torch.amp.GradScaler(init_scale=256.0, growth_interval=5, enabled=sys.argv[1] == 'adamw-scaled')
    for _ in range(int(sys.argv[2])):
        x = torch.randn(16, 48, device='cuda')
        optimizer.zero_grad()
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scale = scaler.get_scale()
        scaler.update()
        says = {'parameters': where(parameters), 'gradients': where([p.grad for p in parameters])}
        for role, keys in MOMENTS.items():
            held = [optimizer.state[p][key] for p in parameters for key in keys if optimizer.state[p].get(key) is not None]
            if held:
                says[role] = where(held)
        if scaler.is_enabled():
            says['scale'] = scale
        print(json.dumps(says), flush=True)


main()
