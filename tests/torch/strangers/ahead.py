# SPDX-License-Identifier: Apache-2.0
"""Batches that are brought to the device ahead, as NVIDIA's examples do: by a stream of their own and record_stream(); with --thread a thread does so and hands
them on by a queue; with --workers processes load them, into pinned memory."""
import argparse
import queue
import threading

import torch

p = argparse.ArgumentParser()
p.add_argument('--steps', type=int, default=250)
p.add_argument('--thread', action='store_true')
p.add_argument('--workers', type=int, default=0)
a = p.parse_args()
torch.manual_seed(24)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 32 * a.steps

    def __getitem__(self, i):
        row = torch.randn(8, generator=torch.Generator().manual_seed(i))
        return row, row[::2] * 2


class Ahead:
    """The next batch is on its way while this one is used."""

    def __init__(self, batches):
        self.batches, self.stream = iter(batches), torch.cuda.Stream()
        self.bring()

    def bring(self):
        self.next = next(self.batches, None)
        if self.next:
            with torch.cuda.stream(self.stream):
                self.next = [t.cuda(non_blocking=True) for t in self.next]

    def __iter__(self):
        while self.next:
            torch.cuda.current_stream().wait_stream(self.stream)
            batch = self.next
            for t in batch:
                t.record_stream(torch.cuda.current_stream())
            self.bring()
            yield batch


def by_thread(batches, room=3):
    filled = queue.Queue(room)

    def bring():
        stream = torch.cuda.Stream()
        for batch in batches:
            with torch.cuda.stream(stream):
                on_device = [t.cuda(non_blocking=True) for t in batch]
            filled.put((on_device, stream.record_event()))
        filled.put(None)

    threading.Thread(target=bring, daemon=True).start()
    while (item := filled.get()) is not None:
        batch, ready = item
        torch.cuda.current_stream().wait_event(ready)
        for t in batch:
            t.record_stream(torch.cuda.current_stream())
        yield batch


if __name__ == '__main__':
    model = torch.nn.Linear(8, 4).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = torch.utils.data.DataLoader(Rows(), batch_size=32, num_workers=a.workers, pin_memory=True)
    for step, (x, y) in enumerate((by_thread if a.thread else Ahead)(loader)):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f'step {step} loss {loss.item():.6f}', flush=True)
