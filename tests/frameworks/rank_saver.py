# SPDX-License-Identifier: Apache-2.0
"""What the programs of several ranks have in common, beside saver.py: torchrun starts each rank as PROGRAM LAST. It goes on behind
the newest save that the program's own way to begin again finds, all of it on all ranks, and saves up to LAST."""
import os
import sys

import torch
import torch.distributed as dist

import saver


def fill(tensors, i):
    """A DTensor's part that is here."""
    with torch.no_grad():
        for tensor in tensors:
            getattr(tensor, "_local_tensor", tensor).fill_(i)


def number(tensors):
    """As saver.number, of what this rank has: a small tensor's part may be empty."""
    local = (getattr(tensor, "_local_tensor", tensor).detach() for tensor in tensors)
    return saver.number([tensor.float() for tensor in local if tensor.numel()])


def all_hold(i, tensors):
    """Each rank has all of it, and so have the others."""
    found = torch.tensor([float(number(tensors))])
    low, high = found.clone(), found.clone()
    dist.all_reduce(low, dist.ReduceOp.MIN)
    dist.all_reduce(high, dist.ReduceOp.MAX)
    if {int(low), int(high)} != {i}:
        raise saver.Torn(f"of save {i} the ranks have loaded {int(low)} to {int(high)}")


def point(pointer, target):
    """As programs do that save by parts: all ranks have theirs, then the first one says so."""
    dist.barrier()
    if dist.get_rank() == 0:
        with open(pointer + ".tmp", "w", encoding="utf-8") as f:
            f.write(target)
        os.rename(pointer + ".tmp", pointer)
    dist.barrier()


def last_of(pointer):
    """The number of the save that it names; 0: there is none. The same on all ranks."""
    text = ["0"]
    if dist.get_rank() == 0 and os.path.exists(pointer):
        with open(pointer, encoding="utf-8") as f:
            text = [f.read()]
    dist.broadcast_object_list(text, 0)
    return int("".join(c for c in text[0] if c.isdigit()))


def begin(number_loaded):
    if dist.get_rank() == 0:
        print(f"begun behind {number_loaded}", flush=True)


def saved(i):
    if dist.get_rank() == 0:
        print(f"saved {i}", flush=True)


def main(run):
    run(int(sys.argv[1]))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
