# SPDX-License-Identifier: Apache-2.0
"""What the workers of loader_workers.py read, where one that is executed anew finds it."""
import os

import torch
from torch.utils.data import Dataset, get_worker_info


class Points(Dataset):
    def __init__(self, n, write_from, folder):
        self.x = torch.randn(n, 12, generator=torch.Generator().manual_seed(3))
        self.write_from, self.folder, self.read = write_from, folder, 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        self.read += 1
        if 0 <= self.write_from < self.read:
            with open(os.path.join(self.folder, f'worker{get_worker_info().id}'), 'a', encoding='ascii') as f:
                f.write(f'{i}\n')
        return self.x[i] + 0.01 * torch.randn(12)
