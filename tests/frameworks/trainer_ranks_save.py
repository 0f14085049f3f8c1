# SPDX-License-Identifier: Apache-2.0
"""transformers' Trainer of several ranks, DistributedDataParallel on the CPU: a checkpoint at each step, the last three kept, begun again
from the last one that is there."""
import os

import torch.distributed as dist
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

import rank_saver
import saver
import trainer_save


class Numbers(trainer_save.Numbers):
    def on_save(self, args, state, control, **_):
        rank_saver.saved(state.global_step)

    def on_train_begin(self, args, state, control, model=None, optimizer=None, **_):
        rank_saver.begin(state.global_step)
        if state.global_step:
            rank_saver.all_hold(state.global_step, model.parameters())


def run(last):
    set_seed(1)
    arguments = TrainingArguments(
        output_dir="out", max_steps=last, save_steps=1, save_total_limit=3, per_device_train_batch_size=4, report_to=[],
        disable_tqdm=True, logging_steps=10**6, use_cpu=True, ddp_backend="gloo")
    begin = get_last_checkpoint("out") if os.path.isdir("out") else None
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    dist.barrier()
    # One that was being written when it was killed is no checkpoint: this is what its last file is for.
    while begin and not os.path.exists(f"{begin}/trainer_state.json"):
        dist.barrier()
        if dist.get_rank() == 0:
            os.rename(begin, f"{begin}.part")
        dist.barrier()
        begin = get_last_checkpoint("out")
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=16))
    Trainer(model=model, args=arguments, train_dataset=trainer_save.Data(), callbacks=[Numbers()]).train(resume_from_checkpoint=begin)


def look():
    # The first rank does not wait for the others' before it says that all is there.
    return trainer_save.look(lambda path: trainer_save.whole(path, ["rng_state_0.pth"]))


if __name__ == "__main__":
    rank_saver.main(run)
