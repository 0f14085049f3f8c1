# SPDX-License-Identifier: Apache-2.0
"""accelerate of several ranks: save_state and load_state, three states kept, and a pointer behind each."""
import os

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
from safetensors.torch import load_file

import rank_saver
import saver


def run(last):
    set_seed(1)
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(
        project_dir=".", automatic_checkpoint_naming=True, total_limit=3))
    first = rank_saver.last_of("latest")
    accelerator.project_configuration.iteration = first + 1
    model = torch.nn.Linear(100, 300)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    accelerator.backward(model(torch.ones(4, 100)).mean())
    optimizer.step()

    def tensors():
        return [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]

    if first:
        accelerator.load_state(f"checkpoints/checkpoint_{first}")
        rank_saver.all_hold(first, tensors())
    rank_saver.begin(first)
    for i in range(first + 1, last + 1):
        rank_saver.fill(tensors(), i)
        scheduler.step()
        accelerator.save_state()
        rank_saver.point("latest", f"checkpoint_{i}")
        rank_saver.fill(tensors(), -1)
        accelerator.load_state(f"checkpoints/checkpoint_{i}")
        rank_saver.all_hold(i, tensors())
        rank_saver.saved(i)


def model_of(path):
    return saver.number(load_file(path).values())


def optimizer_of(path):
    return saver.number([t for s in torch.load(path)["state"].values() for t in s.values()])


def whole(name):
    """What the pointer names has the parts of all ranks."""
    folder = f"checkpoints/{name}"
    numbers = {model_of(f"{folder}/model.safetensors"), optimizer_of(f"{folder}/optimizer.bin")}
    for part in ("scheduler.bin", *(f"random_states_{rank}.pkl" for rank in range(int(os.environ["RANKS"])))):
        torch.load(f"{folder}/{part}", weights_only=False)
    if len(numbers) != 1:
        raise saver.Torn(f"{numbers}")
    return numbers.pop()


def look():
    found = saver.pointed("latest", whole)
    for folder in saver.there("checkpoints/checkpoint_*"):
        for name, load in (("model.safetensors", model_of), ("optimizer.bin", optimizer_of)):
            if os.path.exists(f"{folder}/{name}"):
                found += saver.unless_gone(f"{folder}/{name}", load)
    return found


if __name__ == "__main__":
    rank_saver.main(run)
