#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A classifier trained by several ranks, each on its part of the data: DistributedDataParallel or fully_shard, AdamW,
clipping, and its own checkpoints now and then. For torchrun, or anything else that sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT."""
import argparse
import ctypes
import hashlib
import multiprocessing
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Linear(20, width)
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(3))
        self.last = torch.nn.Linear(width, 6)

    def forward(self, x):
        x = torch.relu(self.first(x))
        for block in self.blocks:
            x = x + torch.relu(block(x))
        return self.last(x)


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = whole(value).detach().float().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def save(model, optimizer, folder, step):
    """As the manuals do: all ranks theirs of what is sharded, else rank 0."""
    path = os.path.join(folder, f'step-{step}')
    if not isinstance(model, DistributedDataParallel):
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({'model': weights, 'optimizer': moments}, checkpoint_id=path)
    elif dist.get_rank() == 0:
        os.makedirs(folder, exist_ok=True)
        torch.save({'model': model.module.state_dict(), 'optimizer': optimizer.state_dict(), 'step': step}, path + '.pt')


def write_down(rank, losses):
    """In a process of the rank's own."""
    losses.send('ready')
    with open(f'losses.{rank}', 'a', encoding='ascii') as to:
        for step, loss in iter(losses.recv, None):
            to.write(f'{step} {loss}\n')
            to.flush()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=6)
    p.add_argument('--width', type=int, default=64)
    p.add_argument('--fsdp', action='store_true')
    p.add_argument('--bf16', action='store_true')
    p.add_argument('--loading', type=float, default=0, help='seconds in which a batch comes from the disk')
    p.add_argument('--save-every', type=int)
    p.add_argument('--out', default='out')
    p.add_argument('--writer', action='store_true', help='a process of each rank writes its losses down')
    a = p.parse_args()
    rank, ranks = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    torch.cuda.set_device(int(os.environ['LOCAL_RANK']) % torch.cuda.device_count())
    device = torch.device('cuda', torch.cuda.current_device())
    dist.init_process_group('nccl', device_id=device)
    torch.manual_seed(rank)  # what differs between ranks is made equal by the wrapper
    model = Net(a.width).to(device)
    if a.fsdp:
        for w in model.parameters():
            dist.broadcast(w.detach(), 0)
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model, device_ids=[device.index], gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if a.writer:
        theirs, losses = multiprocessing.Pipe()
        writer = multiprocessing.get_context('spawn').Process(target=write_down, args=(rank, theirs), daemon=True)
        writer.start()
        losses.recv()  # one that is killed before would write down later what it was sent
    data = torch.Generator().manual_seed(100 + rank)
    for step in range(a.steps):
        time.sleep(a.loading)
        x, y = torch.randn(16, 20, generator=data).to(device), torch.randint(0, 6, (16,), generator=data).to(device)
        optimizer.zero_grad()
        with torch.autocast('cuda', torch.bfloat16, enabled=a.bf16):
            loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if a.writer:
            losses.send((step, round(loss.item(), 6)))
        print(f'rank {rank} of {ranks} step {step} loss {loss.item():.6f} mean {mean.item():.6f}', flush=True)
        if a.save_every and step % a.save_every == a.save_every - 1:
            save(model, optimizer, a.out, step + 1)
    state = list(model.state_dict().values()) + [v for s in optimizer.state_dict()['state'].values() for v in s.values()]
    print(f'rank {rank} final {digest(state)}', flush=True)
    if a.writer:
        losses.send(None)
        writer.join()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
