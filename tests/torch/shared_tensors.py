#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors of the device in two processes: one draws batches, the other trains on them, each sees what the other writes, and
memory is free when the process that was sent it has let go of it."""
import argparse
import ctypes
import hashlib

import torch
import torch.multiprocessing as mp


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        t = t.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()[:16]


def write_into(sent, back):
    """Writes into what it is sent, sends back what it makes of it, and keeps it until it is told not to."""
    a, big = sent.get()
    back.put((digest(a), digest(big)))
    sent.get()
    a.mul_(2)
    big[1] = a[0]
    made = torch.cat([a.flatten(), big[1].flatten()])
    torch.cuda.synchronize()
    back.put(made)
    sent.get()
    del a
    back.put('let go of one')
    sent.get()
    del big, made
    torch.cuda.ipc_collect()
    back.put('let go of all')


def draw_batches(seed, sent, back, looks):
    """Batches are drawn ahead into the same two places; the trainer has each alone until it gives it back. Now and then it
    asks for what this process sees of its model."""
    model, steps = sent.get()

    def told():
        while (what := sent.get()) == 'look':
            looks.put(digest(*model.parameters()))
        return what

    g = torch.Generator().manual_seed(seed)
    ring = [(torch.empty(64, 32, device='cuda'), torch.empty(64, dtype=torch.int64, device='cuda')) for _ in range(2)]
    events = []
    for step in range(steps):
        x, y = ring[step % len(ring)]
        if step >= len(ring):
            back.put(('given back', told(), digest(x, y)))
        x.copy_(torch.randn(64, 32, generator=g))
        y.copy_(torch.randint(0, 12, (64,), generator=g))
        events.append(torch.cuda.Event(interprocess=True, enable_timing=False))
        events[-1].record()
        back.put((step, x, y, events[-1]))
    told()
    back.put({n: p.detach() * 1 for n, p in model.named_parameters()})
    del model
    sent.get()
    del x, y, ring
    torch.cuda.ipc_collect()
    back.put(torch.cuda.memory_allocated())


def other(seed, *queues):
    write_into(*queues[:2])
    draw_batches(seed, *queues)


def in_place(sent, back):
    before = torch.cuda.memory_allocated()
    a = torch.randn(3, 100).cuda()
    big = torch.zeros(2, 3 << 20, device='cuda')
    size = torch.cuda.memory_allocated() - before
    sent.put((a, big[:, :100]))
    print('sent', back.get() == (digest(a), digest(big[:, :100])))
    was = digest(a)
    sent.put(None)
    made = back.get()
    print('written', digest(a) != was, digest(big[1, :100]) == digest(a[0]), digest(made) == digest(torch.cat([a.flatten(), a[0]])))
    print('values', digest(a, big, made))
    del made
    # The other process has them still: what this one lets go of is not free.
    del a, big
    torch.cuda.ipc_collect()
    print('kept', torch.cuda.memory_allocated() - before == size)
    sent.put(None)
    print(back.get())
    torch.cuda.ipc_collect()
    print('kept in part', 0 < torch.cuda.memory_allocated() - before < size)
    sent.put(None)
    print(back.get())
    torch.cuda.ipc_collect()
    print('left', torch.cuda.memory_allocated() - before)


def train(a, sent, back, looks):
    model = torch.nn.Sequential(torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Linear(256, 12)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sent.put((model, a.steps))
    done, right = [], 0
    for step in range(a.steps):
        if step >= 2:
            what, n, seen = back.get()
            right += (what, seen) == ('given back', done[n])
        n, x, y, event = back.get()
        event.wait()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # The batch is the trainer's until it is given back, to write into as well.
        x.mul_(2)
        y.add_(1)
        torch.cuda.synchronize()
        done.append(digest(x, y))
        print('step %d of batch %d loss %.6f' % (step, n, loss.item()), flush=True)
        del x, y, event
        if step % 10 == 9:
            sent.put('look')
            print('seen', looks.get() == digest(*model.parameters()))
        if step < a.steps - 2:
            sent.put(step)
    print('given back', right, len(set(done)))
    sent.put(None)
    copy = back.get()
    torch.save({n: t.cpu() for n, t in copy.items()}, a.out)
    print('copied', digest(*copy.values()) == digest(*model.parameters()))
    del copy
    sent.put(None)
    print('left there', back.get())
    print('final', digest(*model.parameters()))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=30)
    p.add_argument('--seed', type=int, default=1)
    p.add_argument('--out', default='model.pt')
    a = p.parse_args()
    torch.manual_seed(a.seed)
    ctx = mp.get_context('spawn')
    queues = [ctx.SimpleQueue() for _ in range(3)]
    p = ctx.Process(target=other, args=(a.seed, *queues))
    p.start()
    in_place(*queues[:2])
    train(a, *queues)
    p.join()
    print('ended', p.exitcode)


if __name__ == '__main__':
    main()
