# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint: async_save by a process of its own, in gloo."""
import os
import shutil
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

import saver

warnings.filterwarnings("ignore")


def state(i):
    return {"model": {"w": torch.full((300, 1000), float(i)), "b": torch.full((1000,), float(i))}, "step": torch.tensor(float(i))}


def run(first, last):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    # What it starts by the name of the main program is not to begin again.
    sys.modules["__main__"].__spec__ = None
    if hasattr(sys.modules["__main__"], "__file__"):
        del sys.modules["__main__"].__file__
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    for i in range(first, last + 1):
        saving = dcp.async_save(state(i), checkpoint_id=f"step-{i}", async_checkpointer_type=AsyncCheckpointerType.PROCESS)
        saving.result()
        if loaded(f"step-{i}") != i:
            raise saver.Torn("the job itself sees another one")
        with open("latest", "w", encoding="utf-8") as f:
            f.write(f"step-{i}")
        shutil.rmtree(f"step-{i - 6}", ignore_errors=True)
    dist.destroy_process_group()


def loaded(path):
    found = state(-1)
    dcp.load(found, checkpoint_id=path, no_dist=True)
    return saver.number([found["model"]["w"], found["model"]["b"], found["step"]])


def look():
    found = saver.pointed("latest", loaded)
    # One that is being removed is none any more.
    for path in saver.there("step-*/.metadata")[-2:]:
        found += saver.unless_gone(path, lambda p: loaded(os.path.dirname(p)))
    return found


if __name__ == "__main__":
    saver.main(run)
