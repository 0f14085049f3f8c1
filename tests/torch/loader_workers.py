#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A loader with two workers, for all of the training or anew each epoch. Each worker may write a line of what it has read, to a file of its own."""
import argparse
import hashlib
import os

import torch
from torch.utils.data import DataLoader

from loader_points import Points


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--batches', type=int, default=1000)
    p.add_argument('--epochs', type=int, default=1)
    p.add_argument('--context', default='fork')
    p.add_argument('--persistent', action='store_true')
    p.add_argument('--write-from', type=int, default=-1, help='samples that each worker reads before it writes')
    a = p.parse_args()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(Points(8 * a.batches, a.write_from, os.getcwd()), batch_size=8, shuffle=True, num_workers=2, pin_memory=True, persistent_workers=a.persistent,
                        multiprocessing_context=a.context)
    done = 0
    for epoch in range(a.epochs):
        for x in loader:
            loss = model(x.cuda(non_blocking=True)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            print(f'epoch {epoch} iteration {done} loss {loss.item():.6f}', flush=True)
    print('final', hashlib.sha256(repr([t.detach().cpu().tolist() for t in model.state_dict().values()]).encode()).hexdigest())


if __name__ == '__main__':
    main()
