# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed of several ranks on the CPU, ZeRO-1, or STAGE=3: save_checkpoint, its `latest`, and load_checkpoint."""
import glob
import logging
import os
import re
import shutil

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import torch

import rank_saver
import saver

logging.disable(logging.WARNING)
# None of its operators is compiled here.
deepspeed.ops.__compatible_ops__.clear()
KEPT = 3
STAGE = int(os.environ.get("STAGE", 1))


def engine():
    deepspeed.init_distributed("gloo", verbose=False)
    torch.manual_seed(1)
    config = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": STAGE}, "zero_allow_untested_optimizer": True}
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=STAGE == 3):
        model = torch.nn.Linear(100, 300)
    made, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
    return made


def tensors_of(made):
    inner = made.optimizer
    if STAGE < 3:
        yield from made.module.parameters()
        yield from inner.single_partition_of_fp32_groups
    else:
        yield from (p.ds_tensor for p in made.module.parameters())
        yield from inner.fp32_partitioned_groups_flat
    for state in inner.optimizer.state.values():
        yield from (state["exp_avg"], state["exp_avg_sq"])


def run(last):
    made = engine()
    made.backward(made(torch.ones(4, 100)).square().mean())
    made.step()
    first = rank_saver.last_of("out/latest")
    if first:
        made.load_checkpoint("out")
        rank_saver.all_hold(first, tensors_of(made))
    rank_saver.begin(first)
    for i in range(first + 1, last + 1):
        rank_saver.fill(tensors_of(made), i)
        made.save_checkpoint("out", client_state={"number": i}, tag=f"global_step{i}")
        rank_saver.fill(tensors_of(made), -1)
        made.load_checkpoint("out")
        rank_saver.all_hold(i, tensors_of(made))
        if deepspeed.comm.get_rank() == 0:
            shutil.rmtree(f"out/global_step{i - KEPT}", ignore_errors=True)
        deepspeed.comm.barrier()
        rank_saver.saved(i)


def model_of(path):
    found = torch.load(path, weights_only=False)
    return saver.number([*(t for t in found["module"].values() if t.numel()), torch.tensor(found["number"])])


def optimizer_of(path):
    found = torch.load(path, weights_only=False)["optimizer_state_dict"]
    if "single_partition_of_fp32_groups" in found:
        tensors = [*found["single_partition_of_fp32_groups"]]
        states = found["base_optimizer_state"]["state"].values()
    else:
        tensors = [*found["fp32_flat_groups"]]
        states = found["optimizer_state_dict"]["state"].values()
    return saver.number([*tensors, *(s[name] for s in states for name in ("exp_avg", "exp_avg_sq"))])


def loader_of(path):
    return optimizer_of if path.endswith("_optim_states.pt") else model_of


def whole(tag):
    paths = glob.glob(f"out/{tag}/*_states.pt")
    numbers = {loader_of(path)(path) for path in paths}
    ranks = {int(m[1]) for path in paths for m in [re.search(r"zero_pp_rank_(\d+)_.*optim_states", path)] if m}
    if len(numbers) != 1 or ranks != set(range(int(os.environ["RANKS"]))):
        raise saver.Torn(f"{numbers}, the parts of ranks {ranks}")
    return numbers.pop()


def look():
    found = saver.pointed("out/latest", whole)
    for path in saver.there("out/global_step*/*_states.pt"):
        found += saver.unless_gone(path, loader_of(path))
    return found


if __name__ == "__main__":
    rank_saver.main(run)
