#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step that lies in one CUDA graph, replayed with new data in its inputs."""
import argparse
import ctypes
import hashlib

import torch


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
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 40), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(40, 5)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    x, y = torch.zeros(16, 20, device='cuda'), torch.zeros(16, dtype=torch.long, device='cuda')
    loss = None

    def step():
        nonlocal loss
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for i in range(a.steps):
        x.copy_(torch.randn(16, 20))
        y.copy_(torch.randint(0, 5, (16,)))
        graph.replay()
        print(f'step {i} loss {loss.item():.6f}', flush=True)
    state = list(model.state_dict().values())
    for w in model.parameters():
        state += list(optimizer.state[w].values())
    print('final', digest(state))


main()
