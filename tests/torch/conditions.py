# SPDX-License-Identifier: Apache-2.0
"""What programs decide by is what they would find on any device: comparisons, logic, masks, sums of whole numbers. Against the CPU's."""
import hashlib

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def pairs(dtype):
    """Operands, by how they lie in memory."""
    low = 0 if dtype in (torch.uint8, torch.bool) else -3
    a, b = (torch.randint(low, 2 if dtype == torch.bool else 4, (7, 9)).to(dtype) for _ in range(2))
    if dtype in FLOATS:
        a[0, 0] = b[0, 0] = float('inf')
        a[1, 1], a[2, 2] = float('nan'), -float('inf')
    if dtype == torch.uint8:
        a[0, 0] = 200
    yield 'dense', a, b
    yield 'transposed', a.t(), b.t().contiguous()
    yield 'a row', a, b[0]
    yield 'a number', a, 1
    yield 'infinity', a, float('inf') if dtype in FLOATS else 2
    yield 'a scalar', a, torch.tensor(1, dtype=dtype)
    yield 'a scalar before', torch.tensor(1, dtype=dtype), a
    if dtype != torch.bool:
        yield 'every other', a[:, ::2], 1
        yield 'other type', a, b.long()


def on_device(x):
    return x.cuda() if isinstance(x, torch.Tensor) and x.dim() else x


def cases():
    for dtype in FLOATS + WHOLE + (torch.bool,):
        for how, a, b in pairs(dtype):
            for relation in ('eq', 'ne', 'lt', 'le', 'gt', 'ge'):
                yield f'{relation} {dtype} {how}', getattr(torch, relation), a, b
            if how == 'dense':
                mask = torch.rand(7, 9) > 0.5
                yield f'masked_fill {dtype}', lambda x, m: x.masked_fill(m, 1), a, mask
                if dtype in FLOATS:
                    for test in (torch.isnan, torch.isinf, torch.isfinite, torch.abs):
                        yield f'{test.__name__} {dtype}', lambda x, _, test=test: test(x), a, b
    x, y = torch.rand(50) > 0.5, torch.rand(50) > 0.5
    for logic in ('logical_or', 'logical_and', 'bitwise_or', 'bitwise_and', 'mul'):
        yield logic, getattr(torch, logic), x, y
    for logic in ('logical_not', 'bitwise_not'):
        yield logic, lambda x, _, logic=logic: getattr(torch, logic)(x), x, y
    many = torch.randint(-100, 100, (6, 7, 300))
    for dims in (None, 0, 1, 2, (0, 2)):
        yield f'sum {dims}', lambda x, _, dims=dims: x.sum(dims), many, many
    yield 'sum of others', lambda x, _: x[:, ::2].sum((1, 2), keepdim=True), many, many
    yield 'sum of 32 bits', lambda x, _: x.int().sum(1), many, many
    a, b = torch.randint(-50, 50, (6, 8)), torch.randint(-50, 50, (6, 8))
    for name, add in {'add': lambda x, y: x + y, 'sub': lambda x, y: x - y, 'times': lambda x, y: torch.add(x, y, alpha=3),
                      'number': lambda x, _: x + 7, 'from number': lambda x, _: 7 - x, 'number times': lambda x, _: torch.add(x, 7, alpha=3), 'row': lambda x, y: x + y[0],
                      'transposed': lambda x, y: x.t() + y.t(), 'others': lambda x, y: x[:, ::2] + y[:, 1::2],
                      'others and number': lambda x, _: x[:, ::2] + 7}.items():
        yield name, add, a, b


def main():
    torch.manual_seed(1)
    h, count = hashlib.sha256(), 0
    for name, f, a, b in cases():
        wanted, found = f(a, b), f(on_device(a), on_device(b)).cpu()
        if not torch.allclose(wanted.double(), found.double(), rtol=0, atol=0, equal_nan=True):
            raise SystemExit(f'{name}: {wanted.flatten()[:4]}, and here {found.flatten()[:4]}')
        h.update(name.encode())
        count += 1
    print(f'{count} operations')
    print('final', h.hexdigest())


main()
