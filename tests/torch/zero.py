#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A classifier trained by DeepSpeed: ZeRO of a stage, AdamW, clipping, its own checkpoints. For torchrun or DeepSpeed's launcher."""
import argparse
import os

import deepspeed
import torch


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


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--local_rank', type=int, default=0)
    p.add_argument('--stage', type=int, default=1)
    p.add_argument('--steps', type=int, default=6)
    p.add_argument('--width', type=int, default=64)
    p.add_argument('--bf16', action='store_true')
    p.add_argument('--save-every', type=int, default=0)
    p.add_argument('--out', default='out')
    a = p.parse_args()
    config = {'train_micro_batch_size_per_gpu': 16, 'gradient_accumulation_steps': 1, 'gradient_clipping': 1.0, 'steps_per_print': 1 << 30,
              'zero_allow_untested_optimizer': True, 'bf16': {'enabled': a.bf16},
              # The usual buckets are for models of another size: two GiB, and none of this one's tensors would ever be parted.
              'zero_optimization': {'stage': a.stage, 'reduce_bucket_size': 100000, 'allgather_bucket_size': 100000}}
    if a.stage == 3:
        config['zero_optimization'].update(stage3_prefetch_bucket_size=10000, stage3_max_live_parameters=20000,
                                           stage3_param_persistence_threshold=1000)
    deepspeed.init_distributed()
    rank, ranks = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
    torch.manual_seed(1)
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=a.stage == 3):
        model = Net(a.width)
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters(), lr=0.01), config=config)
    data = torch.Generator().manual_seed(100 + rank)
    for step in range(a.steps):
        x = torch.randn(16, 20, generator=data).to(engine.device)
        y = torch.randint(0, 6, (16,), generator=data).to(engine.device)
        loss = torch.nn.functional.cross_entropy(engine(x), y)
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        deepspeed.comm.all_reduce(mean, op=deepspeed.comm.ReduceOp.AVG)
        print(f'rank {rank} of {ranks} step {step} loss {loss.item():.6f} mean {mean.item():.6f}', flush=True)
        if a.save_every and step % a.save_every == a.save_every - 1:
            engine.save_checkpoint(a.out, client_state={'step': step})
    engine.save_checkpoint(a.out, tag='last')
    deepspeed.comm.barrier()
    deepspeed.comm.destroy_process_group()


main()
