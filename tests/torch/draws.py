# SPDX-License-Identifier: Apache-2.0
"""What the device draws, turns around and puts in another order; the first thing that the program asks it for is such a draw."""
import hashlib

import torch

first = torch.randn(4097, device='cuda', generator=torch.Generator('cuda').manual_seed(7))
torch.manual_seed(11)
h = hashlib.sha256()


def note(name, x):
    h.update(name.encode() + repr(x.tolist()).encode())
    return x


def expect(name, good):
    if not good:
        raise SystemExit(name)


note('first', first)
x = torch.arange(2 * 3 * 5, device='cuda').view(2, 3, 5)
weights = torch.rand(20, 50, device='cuda')
rows = torch.arange(64000, device='cuda').view(1000, 64)
for rounds in range(3):
    note('randn', torch.randn(1000, device='cuda'))
    note('exponential', torch.empty(5000, device='cuda').exponential_(0.5))
    note('uniform', torch.rand(33, 65, device='cuda'))
    note('multinomial', torch.multinomial(weights, 12))
    note('multinomial with replacement', torch.multinomial(weights, 12, replacement=True))
    note('multinomial of one row', torch.multinomial(weights[0], 12, replacement=True))
    for count in (5, 1000, 9000):
        order = note('randperm', torch.randperm(count, device='cuda')).cpu()
        expect('randperm', torch.equal(order.sort().values, torch.arange(count)))
    order = torch.randperm(1000, device='cuda')
    expect('indexed', torch.equal(note('indexed', rows[order]).cpu(), rows.cpu()[order.cpu()]))
    for dims in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
        expect('flip', torch.equal(note('flip', x.flip(dims)).cpu(), x.cpu().flip(dims)))
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        y = torch.empty(500, device='cuda', dtype=dtype)
        for draw in (y.normal_, y.uniform_, y.exponential_, y.cauchy_, y.log_normal_):
            note(draw.__name__, draw())
        note('geometric', y.geometric_(0.3))
        expect('arange', torch.equal(torch.arange(3, 90, 7, device='cuda', dtype=dtype).cpu(), torch.arange(3, 90, 7, dtype=dtype)))
    note('dropout', torch.nn.functional.dropout(torch.ones(999, device='cuda'), 0.3))
    note('bernoulli', torch.empty(300, device='cuda').bernoulli_(0.4))
    note('randint', torch.randint(0, 9, (200,), device='cuda'))
print('final', h.hexdigest())
