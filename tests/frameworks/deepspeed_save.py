# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed on the CPU, ZeRO-1: save_checkpoint, its `latest`, and load_checkpoint."""
import logging
import os
import shutil
import socket

os.environ["DS_ACCELERATOR"] = "cpu"
import deepspeed
import torch

import saver

logging.disable(logging.WARNING)
# None of its operators is compiled here.
deepspeed.ops.__compatible_ops__.clear()
KEPT = 3


def engine():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for name, value in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", port)):
        os.environ[name] = str(value)
    deepspeed.init_distributed("gloo", verbose=False)
    torch.manual_seed(1)
    model = torch.nn.Linear(100, 300)
    made, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config={
        "train_batch_size": 4, "zero_optimization": {"stage": 1}, "zero_allow_untested_optimizer": True})
    return made


def tensors_of(made):
    inner = made.optimizer
    yield from made.module.parameters()
    yield from inner.single_partition_of_fp32_groups
    for state in inner.optimizer.state.values():
        yield from (state["exp_avg"], state["exp_avg_sq"])


def fill(made, i):
    with torch.no_grad():
        for tensor in tensors_of(made):
            tensor.fill_(i)


def run(first, last):
    made = engine()
    for i in range(first, last + 1):
        made.backward(made(torch.ones(4, 100)).square().mean())
        made.step()
        fill(made, i)
        made.save_checkpoint("out", client_state={"number": i}, tag=f"global_step{i}")
        fill(made, -1)
        made.load_checkpoint("out")
        if saver.number(tensors_of(made)) != i:
            raise saver.Torn("the job itself sees another one")
        shutil.rmtree(f"out/global_step{i - KEPT}", ignore_errors=True)


def model_of(path):
    found = torch.load(path, weights_only=False)
    return saver.number([*found["module"].values(), torch.tensor(found["number"])])


def optimizer_of(path):
    found = torch.load(path, weights_only=False)["optimizer_state_dict"]
    return saver.number([*found["single_partition_of_fp32_groups"],
                         *(s[name] for s in found["base_optimizer_state"]["state"].values() for name in ("exp_avg", "exp_avg_sq"))])


NAMES = [("mp_rank_00_model_states.pt", model_of), ("zero_pp_rank_0_mp_rank_00_optim_states.pt", optimizer_of)]


def whole(tag):
    numbers = {load(f"out/{tag}/{name}") for name, load in NAMES}
    if len(numbers) != 1:
        raise saver.Torn(f"{numbers}")
    return numbers.pop()


def look():
    found = saver.pointed("out/latest", whole)
    for name, load in NAMES:
        for path in saver.there(f"out/global_step*/{name}"):
            found += saver.unless_gone(path, load)
    return found


if __name__ == "__main__":
    saver.main(run)
