# SPDX-License-Identifier: Apache-2.0
"""accelerate's save_state and load_state, three states kept."""
import os

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from safetensors.torch import load_file

import saver


def run(first, last):
    set_seed(1)
    config = ProjectConfiguration(project_dir=".", automatic_checkpoint_naming=True, total_limit=3, iteration=first)
    accelerator = Accelerator(cpu=True, project_config=config)
    model = torch.nn.Linear(100, 300)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    for i in range(first, last + 1):
        accelerator.backward(model(torch.ones(4, 100)).mean())
        optimizer.step()
        scheduler.step()
        tensors = [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]
        with torch.no_grad():
            for tensor in tensors:
                tensor.fill_(i)
        accelerator.save_state()
        with torch.no_grad():
            for tensor in tensors:
                tensor.fill_(-1)
        accelerator.load_state(f"checkpoints/checkpoint_{i}")
        if saver.number(model.parameters()) != i:
            raise saver.Torn("the job itself sees another one")


def model_of(path):
    return saver.number(load_file(path).values())


def optimizer_of(path):
    return saver.number([t for s in torch.load(path)["state"].values() for t in s.values()])


def look():
    found = []
    for folder in saver.there("checkpoints/checkpoint_*"):
        for name, load in (("model.safetensors", model_of), ("optimizer.bin", optimizer_of)):
            if os.path.exists(f"{folder}/{name}"):
                found += saver.unless_gone(f"{folder}/{name}", load)
        for name in ("scheduler.bin", "random_states_0.pkl"):
            if os.path.exists(f"{folder}/{name}"):
                found += [(f"{p}", int(folder.rpartition("_")[2])) for p, _ in saver.unless_gone(
                    f"{folder}/{name}", lambda path: torch.load(path, weights_only=False))]
    return found


if __name__ == "__main__":
    saver.main(run)
