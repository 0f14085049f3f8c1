#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A classifier in DistributedDataParallel whose step, with its all-reduce, lies in one CUDA graph, as PyTorch's notes on graphs have it."""
import argparse
import ctypes
import hashlib
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 11  # DDP's own first iterations are not to be captured


def digest(state):
    h = hashlib.sha256()
    for value in state:
        t = value.detach().cpu().contiguous()
        h.update(ctypes.string_at(t.data_ptr(), t.numel() * t.element_size()))
    return h.hexdigest()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=6)
    a = p.parse_args()
    os.environ['TORCH_NCCL_ASYNC_ERROR_HANDLING'] = '0'
    torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
    dist.init_process_group('nccl')
    torch.manual_seed(1)
    side = torch.cuda.Stream()
    x, y = torch.zeros(16, 20, device='cuda'), torch.zeros(16, dtype=torch.long, device='cuda')
    loss = None
    with torch.cuda.stream(side):
        model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.GELU(), torch.nn.Linear(64, 6)).cuda())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)

        def step():
            nonlocal loss
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()

        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode='thread_local'):  # NCCL's watchdog asks for events meanwhile
        step()
    for i in range(a.steps):
        x.copy_(torch.randn(16, 20))
        y.copy_(torch.randint(0, 6, (16,)))
        graph.replay()
        print(f'step {i} loss {loss.item():.6f}', flush=True)
    print('final', digest([*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values())]), flush=True)
    torch.cuda.synchronize()
    del graph
    dist.destroy_process_group()


main()
