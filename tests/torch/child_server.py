#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A forked child that serves its parent at a port, and says how often it was asked for a number that is none further, as nobody but another process does."""
import argparse
import os
import socket
import time

import torch


def serve(port, ends):
    """Until its parent is gone."""
    server = socket.create_server(('127.0.0.1', port))
    last = late = 0
    server.settimeout(0.2)
    while os.getppid() == ends:
        try:
            with server.accept()[0] as talk:
                number = int(talk.makefile('r').readline())
                late += number <= last
                last = max(number, last)
                talk.sendall(f'{late}\n'.encode())
        except TimeoutError:
            continue
    os._exit(0)


def ask(port, number):
    while True:
        try:
            with socket.create_connection(('127.0.0.1', port)) as talk:
                talk.sendall(f'{number}\n'.encode())
                return int(talk.makefile('r').readline())
        except ConnectionRefusedError:
            time.sleep(0.02)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--steps', type=int, default=1000)
    p.add_argument('--port', type=int, required=True)
    a = p.parse_args()
    torch.manual_seed(1)
    model = torch.nn.Linear(12, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(a.steps):
        loss = model(torch.randn(8, 12).cuda()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 20:
            me = os.getpid()
            if os.fork() == 0:
                serve(a.port, me)
        print(f'step {step} loss {loss.item():.6f} late {ask(a.port, step) if step > 20 and step % 50 == 0 else 0}', flush=True)


main()
