#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small classifier without a fixed seed, trained by somebody with a habit: where chance, time and threads get into a
program. What was drawn is printed at the end, and a run that is given it does the same."""
import argparse
import ctypes
import gc
import hashlib
import json
import mmap
import random
import tempfile
import threading
import time
import uuid

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES, WIDTH, BATCH = 4, 16, 8


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


class Draws:
    """What chance or time decided, in order; or what a former run was given by them."""

    def __init__(self, given):
        self.given, self.made = given, []

    def __call__(self, draw):
        self.made.append(self.given[len(self.made)] if self.given is not None else draw())
        return self.made[-1]


def network():
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, CLASSES)).cuda()


def train(model, optimizer, x, y):
    loss = F.cross_entropy(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def batch():
    return torch.randn(BATCH, WIDTH), torch.randint(0, CLASSES, (BATCH,))


class Points(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        if i % 3 == 0:
            time.sleep(random.random() / 300)
        g = torch.Generator().manual_seed(i)
        return i, torch.randn(WIDTH, generator=g), torch.randint(0, CLASSES, (), generator=g)


def plain(a, draws, model, optimizer):
    for _ in range(a.steps):
        yield train(model, optimizer, *batch())


def words(a, draws, model, optimizer):
    """Parameters in the order of a set of their names, which Python's hash secret decides."""
    named = dict(model.named_parameters())
    order = draws(lambda: list(set(named)))
    optimizer = torch.optim.Adam([{'params': [named[n]], 'lr': 1e-3 * (i + 1)} for i, n in enumerate(order)])
    yield from plain(a, draws, model, optimizer)


def objects(a, draws, model, optimizer):
    """Parameters in the order of a set of objects, which addresses decide."""
    named = {p: n for n, p in model.named_parameters()}
    order = draws(lambda: [named[p] for p in set(model.parameters())])
    by_name = dict(model.named_parameters())
    optimizer = torch.optim.Adam([{'params': [by_name[n]], 'lr': 1e-3 * (i + 1)} for i, n in enumerate(order)])
    yield from plain(a, draws, model, optimizer)


def entropy(a, draws, model, optimizer):
    """Seeds from everywhere, at every step."""
    for _ in range(a.steps):
        random.seed(draws(lambda: uuid.uuid4().int & 0xffffffff))
        torch.manual_seed(draws(lambda: random.SystemRandom().getrandbits(32)))
        torch.cuda.manual_seed(draws(lambda: torch.Generator().seed() & 0xffffffff))
        yield train(model, optimizer, *batch())


def widths(a, draws, model, optimizer):
    """Batches whose size is drawn on the CPU."""
    for _ in range(a.steps):
        n = draws(lambda: random.randint(3, 40))
        yield train(model, optimizer, torch.randn(n, WIDTH), torch.randint(0, CLASSES, (n,)))


def clock(a, draws, model, optimizer):
    """Looks at the loss when some time has passed."""
    seen, last = 0.0, time.time()
    for _ in range(a.steps):
        loss = train(model, optimizer, *batch())
        if draws(lambda: time.time() - last > 0.03):
            last = time.time()
            seen += loss.item()
            with torch.no_grad():
                model[0].bias.add_(seen / 1000)
        yield loss


def timing(a, draws, model, optimizer):
    """Measures two ways of the same and takes the faster one, again and again, as tuners do."""
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(a.steps):
        x, y = batch()
        took = []
        for part in (x.cuda(), x.cuda().double()):
            begun.record()
            (part * 2 + 1).sum()
            ended.record()
            ended.synchronize()
            took.append(begun.elapsed_time(ended))
        x = x * 2 if draws(lambda: took[0] < took[1]) else x + x + 1
        yield train(model, optimizer, x, y)


def memory(a, draws, model, optimizer):
    """Sizes its batch by the memory that is free."""
    for _ in range(a.steps):
        free, total = torch.cuda.mem_get_info()
        n = draws(lambda: 4 + (free >> 21) % 7 + total % 3)
        yield train(model, optimizer, torch.randn(n, WIDTH), torch.randint(0, CLASSES, (n,)))


def mapped(a, draws, model, optimizer):
    """Batches out of a file that is mapped."""
    g = torch.Generator().manual_seed(5)
    with tempfile.NamedTemporaryFile() as f:
        f.write(bytes(torch.randint(0, 256, (40000,), generator=g, dtype=torch.uint8).tolist()))
        f.flush()
        data = torch.frombuffer(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ), dtype=torch.uint8)
        for _ in range(a.steps):
            rows = [data[i:i + WIDTH].float() for i in torch.randint(len(data) - WIDTH, (BATCH,)).tolist()]
            yield train(model, optimizer, torch.stack(rows), torch.tensor([int(r.sum()) % CLASSES for r in rows]))


def cycles(a, draws, model, optimizer):
    """Tensors in reference cycles, which the collector frees when it comes by."""
    gc.set_threshold(150)
    for i in range(a.steps):
        loss = train(model, optimizer, *batch())
        ring = [torch.full((64 + i % 5 * 300,), float(i), device='cuda') * loss.detach() for _ in range(3)]
        ring.append(ring)
        yield loss


def counts(a, draws, model, optimizer):
    """Sizes tensors by how many objects the collector has counted, among them those that the backward thread gives back."""
    gc.disable()
    before = gc.get_count()[0]
    for i in range(a.steps):
        loss = train(model, optimizer, *batch())
        now = gc.get_count()[0]
        extra = torch.ones(8 + draws(lambda: now - before) % 50, device='cuda')
        before = gc.get_count()[0]
        with torch.no_grad():
            model[0].bias.add_(extra.sum() / 1e6)
        yield loss


def recorded(a, draws, model, optimizer):
    """Batches copied ahead on a stream of their own from pinned memory, and their memory given back when events say so."""
    ahead = torch.cuda.Stream()
    for i in range(a.steps):
        rows = draws(lambda: random.randint(BATCH, 60 * BATCH))
        with torch.cuda.stream(ahead):
            x = torch.randn(rows, WIDTH).pin_memory().cuda(non_blocking=True)
            y = torch.randint(0, CLASSES, (rows,)).pin_memory().cuda(non_blocking=True)
            spare = torch.full((rows * 700,), float(i), device='cuda')
        torch.cuda.current_stream().wait_stream(ahead)
        for t in (x, y, spare):
            t.record_stream(torch.cuda.current_stream())
        del t
        loss = train(model, optimizer, x, y) + spare.mean() * 0
        yield loss


def workers(a, draws, model, optimizer):
    """Two workers that are not equally fast, their batches as they come (--unordered) or in order."""
    loader = DataLoader(Points(), batch_size=BATCH, shuffle=True, num_workers=2, pin_memory=True,
                        **({'in_order': False} if a.unordered else {}))
    for _, (index, x, y) in zip(range(a.steps), loader):
        chosen = draws(index.tolist)
        if chosen != index.tolist():
            index, x, y = (torch.stack(part) for part in zip(*[tuple(map(torch.as_tensor, Points()[i])) for i in chosen]))
        yield train(model, optimizer, x, y)


def threads(a, draws, model, optimizer):
    """Two models, each trained by a thread."""
    def work(own, seed):
        mine = torch.optim.Adam(own.parameters())
        g = torch.Generator().manual_seed(seed)
        own.eval()  # dropout would draw from the generator that all threads share
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(a.steps):
                losses.append(train(own, mine, torch.randn(BATCH, WIDTH, generator=g), torch.randint(0, CLASSES, (BATCH,), generator=g)).item())

    losses, other = [], network()
    both = [threading.Thread(target=work, args=(m, i)) for i, m in enumerate((model, other))]
    for t in both:
        t.start()
    while any(t.is_alive() for t in both):
        seen = len(losses)
        time.sleep(0.01)
        if len(losses) > seen:
            print('losses', len(losses), flush=True)
    for t in both:
        t.join()
    with torch.no_grad():
        model[0].bias.add_(other[0].bias)
    return ()


HABITS = {f.__name__: f for f in (plain, words, objects, entropy, widths, clock, timing, memory, mapped, cycles, counts, recorded, workers, threads)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument('habit', choices=HABITS)
    p.add_argument('--steps', type=int, default=200)
    p.add_argument('--unordered', action='store_true')
    p.add_argument('--given', type=json.loads)
    a = p.parse_args()
    draws = Draws(a.given)
    torch.manual_seed(draws(torch.seed)) if a.given is not None else draws(torch.seed)
    random.seed(draws(lambda: random.SystemRandom().getrandbits(32)))
    if a.habit != 'threads':  # a seed for the CPU is one for the device too, so draw that after it
        torch.cuda.init()
        torch.cuda.manual_seed(draws(lambda: torch.cuda.seed() or torch.cuda.initial_seed()))
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for i, loss in enumerate(HABITS[a.habit](a, draws, model, optimizer)):
        if i % 5 == 0:
            print(f'step {i} loss {loss.item():.6f}', flush=True)
    print('drawn', json.dumps(draws.made))
    print('final', digest(model.state_dict().values()))


main()
