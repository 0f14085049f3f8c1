# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer: a checkpoint at each step, the last three kept, begun again from the last one that is there."""
import glob
import json
import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint
from safetensors.torch import load_file

import saver


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        ids = torch.arange(8) + i
        return {"input_ids": ids, "labels": ids}


class Numbers(TrainerCallback):
    """The step's number in every tensor."""

    def on_step_end(self, args, state, control, model=None, optimizer=None, **_):
        with torch.no_grad():
            for tensor in [*model.parameters(), *(t for s in optimizer.state.values() for t in s.values())]:
                tensor.fill_(state.global_step)


def run(first, last):
    del first
    set_seed(1)
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=16))
    arguments = TrainingArguments(
        output_dir="out", max_steps=last, save_steps=1, save_total_limit=3, per_device_train_batch_size=8, report_to=[],
        disable_tqdm=True, logging_steps=10**6, use_cpu=True)
    begin = get_last_checkpoint("out") if os.path.isdir("out") else None
    # One that was being written when it was killed is no checkpoint: this is what its last file is for.
    while begin and not os.path.exists(f"{begin}/trainer_state.json"):
        os.rename(begin, f"{begin}.part")
        begin = get_last_checkpoint("out")
    Trainer(model=model, args=arguments, train_dataset=Data(), callbacks=[Numbers()]).train(resume_from_checkpoint=begin)


def model_of(path):
    return saver.number(load_file(path).values())


def optimizer_of(path):
    found = torch.load(path)
    return saver.number([t for s in found["state"].values() for t in s.values()])


def state_of(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)["global_step"]


def whole(path, chance=("rng_state.pth",)):
    """Its last file is there: so is all else, of one step."""
    folder = os.path.dirname(path)
    numbers = {state_of(path), model_of(f"{folder}/model.safetensors"), optimizer_of(f"{folder}/optimizer.pt")}
    torch.load(f"{folder}/scheduler.pt")
    for name in chance:
        torch.load(f"{folder}/{name}", weights_only=False)
    if len(numbers) != 1:
        raise saver.Torn(f"{numbers}")
    return numbers.pop()


def look(all_of=whole):
    found = []
    for folder in saver.there("out/checkpoint-*[0-9]"):
        for name, load in (("model.safetensors", model_of), ("optimizer.pt", optimizer_of), ("trainer_state.json", state_of)):
            if os.path.exists(f"{folder}/{name}"):
                found += saver.unless_gone(f"{folder}/{name}", load)
        if os.path.exists(f"{folder}/trainer_state.json") and not glob.glob(f"{folder}/.removing"):
            # Removed one by one, in any order, once there are newer ones.
            if folder in saver.there("out/checkpoint-*[0-9]")[-2:]:
                found += saver.unless_gone(f"{folder}/trainer_state.json", all_of)
    return found


if __name__ == "__main__":
    saver.main(run)
