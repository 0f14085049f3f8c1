# SPDX-License-Identifier: Apache-2.0
"""DCP of several ranks: the states of fully_shard and of DistributedDataParallel by `save`, by `async_save` of a thread and, with
PROCESS=1, of a process, and `load`; a pointer behind each."""
import os
import shutil
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import rank_saver
import saver

warnings.filterwarnings("ignore")
KEPT = 3


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(100, 301), torch.nn.Linear(301, 30))


class Trained:
    """One that is sharded and one that each rank has."""

    def __init__(self):
        sharded = net()
        fully_shard(sharded, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        self.models = [sharded, DistributedDataParallel(net())]
        self.optimizers = [torch.optim.AdamW(model.parameters()) for model in self.models]

    def step(self):
        for model, optimizer in zip(self.models, self.optimizers):
            model(torch.ones(4, 100)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    def tensors(self):
        for model, optimizer in zip(self.models, self.optimizers):
            yield from model.parameters()
            for state in optimizer.state.values():
                yield from state.values()

    def state(self):
        found = {}
        for name, model, optimizer in zip(("sharded", "copied"), self.models, self.optimizers):
            weights, moments = get_state_dict(model, optimizer)
            found[name] = {"model": weights, "optimizer": moments}
        return found

    def load(self, path):
        state = self.state()
        dcp.load(state, checkpoint_id=path)
        for name, model, optimizer in zip(("sharded", "copied"), self.models, self.optimizers):
            set_state_dict(model, optimizer, model_state_dict=state[name]["model"], optim_state_dict=state[name]["optimizer"])


def write(i, state):
    path = f"step-{i}"
    if os.environ.get("PROCESS"):
        dcp.async_save(state, checkpoint_id=path, async_checkpointer_type=AsyncCheckpointerType.PROCESS).result()
    elif i % 2:
        dcp.save(state, checkpoint_id=path)
    else:
        dcp.async_save(state, checkpoint_id=path).result()


def run(last):
    # Threads and processes that save speak to each other past the program: by gloo.
    dist.init_process_group("gloo")
    trained = Trained()
    trained.step()
    first = rank_saver.last_of("latest")
    if first:
        trained.load(f"step-{first}")
        rank_saver.all_hold(first, trained.tensors())
    rank_saver.begin(first)
    for i in range(first + 1, last + 1):
        rank_saver.fill(trained.tensors(), i)
        write(i, trained.state())
        rank_saver.point("latest", f"step-{i}")
        rank_saver.fill(trained.tensors(), -1)
        trained.load(f"step-{i}")
        rank_saver.all_hold(i, trained.tensors())
        if dist.get_rank() == 0:
            shutil.rmtree(f"step-{i - KEPT}", ignore_errors=True)
        rank_saver.saved(i)


def loaded(path):
    """By one process, which has nothing to do with ranks."""
    reader = dcp.FileSystemReader(path)
    found = {name: torch.full(kept.size, -1.0) for name, kept in reader.read_metadata().state_dict_metadata.items() if hasattr(kept, "size")}
    dcp.load(found, storage_reader=reader, no_dist=True)
    return saver.number(found.values())


def look():
    found = saver.pointed("latest", loaded)
    # One that is being removed is none any more.
    for path in saver.there("step-*/.metadata")[-2:]:
        found += saver.unless_gone(path, lambda p: loaded(os.path.dirname(p)))
    return found


if __name__ == "__main__":
    rank_saver.main(run)
