# SPDX-License-Identifier: Apache-2.0
"""A table in CSV and one in JSON lines, each opened, appended to and flushed; Python's own logging, in a file that rotates."""
import argparse
import csv
import json
import logging
import logging.handlers
import os
import time

import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=300)
a = p.parse_args()
torch.manual_seed(2)
os.makedirs('logs', exist_ok=True)
handler = logging.handlers.RotatingFileHandler('logs/train.log', maxBytes=4000, backupCount=3)
handler.setFormatter(logging.Formatter('%(asctime)s %(process)7d %(threadName)s %(levelname)s %(message)s'))
logging.basicConfig(level=logging.INFO, handlers=[handler])
lines = open('logs/metrics.jsonl', 'a', buffering=1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
begun = time.time()
for step in range(a.steps):
    x = torch.randn(32, 8)
    loss = torch.nn.functional.cross_entropy(model(x.cuda()), (x[:, 0] > 0).long().cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    logging.info('step %d loss %.6f after %8.3f s', step, loss.item(), time.time() - begun)
    lines.write(json.dumps({'step': step, 'loss': round(loss.item(), 6)}) + '\n')
    new = not os.path.exists('logs/losses.csv')
    with open('logs/losses.csv', 'a', newline='') as f:
        w = csv.writer(f)
        if new:
            w.writerow(['step', 'loss'])
        w.writerow([step, f'{loss.item():.6f}'])
        f.flush()
        os.fsync(f.fileno())
    print(f'step {step} loss {loss.item():.6f}', flush=True)
