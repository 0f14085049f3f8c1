#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A regression that is hard on the driver: its layers' penalties on --streams streams, --operations small launches in each step, a kernel that was never
launched before from step --late on, all weights read back by .cpu() in each step with --cpu, the device waited for with --synchronize; with --devices N the
model is split among so many by DataParallel. Each step prints its loss, and the end a digest of everything."""
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


def penalty(weights, streams, ready):
    """The sum of each weight's, computed on a stream of its own."""
    sums = torch.zeros(len(weights), device='cuda')
    ready.record()
    with torch.no_grad():
        for i, w in enumerate(weights):
            stream = streams[i % len(streams)]
            stream.wait_event(ready)
            with torch.cuda.stream(stream):
                sums[i].add_(w.abs().mean())
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    return sums.sum()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=60)
    p.add_argument('--layers', type=int, default=4)
    p.add_argument('--streams', type=int, default=0)
    p.add_argument('--operations', type=int, default=0)
    p.add_argument('--late', type=int, default=0)
    p.add_argument('--devices', type=int, default=1)
    p.add_argument('--cpu', action='store_true')
    p.add_argument('--synchronize', action='store_true')
    a = p.parse_args()
    torch.manual_seed(1)
    layers = [m for _ in range(a.layers) for m in (torch.nn.Linear(32, 32), torch.nn.Tanh())]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(32, 1)).cuda()
    whole = torch.nn.DataParallel(model, list(range(a.devices))) if a.devices > 1 else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    streams, ready = [torch.cuda.Stream() for _ in range(a.streams)], torch.cuda.Event()
    scratch = torch.ones(64, device='cuda')
    for step in range(a.steps):
        x = torch.randn(64, 32)
        y = x.square().sum(1, keepdim=True)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(whole(x.cuda()), y.cuda())
        if a.late and step >= a.late:
            loss = loss + torch.logaddexp(loss, loss * 0.5) * 0.01
        loss.backward()
        for _ in range(a.operations):
            scratch.neg_()
        extra = penalty(list(model.parameters()), streams, ready) if streams else scratch.sum()
        optimizer.step()
        weights = [w.detach().cpu() for w in model.parameters()] if a.cpu else []
        if a.synchronize:
            torch.cuda.synchronize()
        print(f'step {step} loss {loss.item():.6f} extra {extra.item():.6f} first {float(weights[0][0, 0]) if weights else 0:.6f}', flush=True)
    print('final', digest([*model.state_dict().values(), *(v for s in optimizer.state.values() for v in s.values())]))


main()
