# SPDX-License-Identifier: Apache-2.0
"""A data set of Hugging Face's that is made from a file of JSON lines and mapped, with the library's cache beside it."""
import argparse
import json
import os

os.environ['HF_HOME'] = os.path.abspath('hf')
os.environ['HF_HUB_OFFLINE'] = '1'
import datasets
import torch

p = argparse.ArgumentParser()
p.add_argument('--epochs', type=int, default=10)
a = p.parse_args()
datasets.disable_progress_bars()
torch.manual_seed(7)
if not os.path.exists('rows.jsonl'):
    with open('rows.jsonl', 'w') as f:
        for i in range(512):
            f.write(json.dumps({'a': i % 17, 'b': i * i % 23}) + '\n')
    os.utime('rows.jsonl', (1e9, 1e9))  # as a file that comes from an archive; the cache is named by it


def features(row):
    return {'x': [row['a'] / 17, row['b'] / 23, row['a'] * row['b'] / 400], 'y': float((row['a'] + row['b']) % 2)}


data = datasets.load_dataset('json', data_files='rows.jsonl', split='train').map(features, remove_columns=['a', 'b']).with_format('torch')
model = torch.nn.Sequential(torch.nn.Linear(3, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(a.epochs):
    for i, batch in enumerate(data.shuffle(seed=epoch).iter(batch_size=32)):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(batch['x'].cuda())[:, 0], batch['y'].cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f'epoch {epoch} batch {i} loss {loss.item():.6f}', flush=True)
