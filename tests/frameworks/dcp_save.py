# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint: save and async_save into one folder per step, and load."""
import os
import shutil
import warnings

import torch
import torch.distributed.checkpoint as dcp

import saver

warnings.filterwarnings("ignore")


def state(i):
    return {"model": {"w": torch.full((300, 1000), float(i)), "b": torch.full((1000,), float(i))}, "step": torch.tensor(float(i))}


def save(i):
    if i % 2:
        dcp.save(state(i), checkpoint_id=f"step-{i}")
    else:
        dcp.async_save(state(i), checkpoint_id=f"step-{i}").result()
    if loaded(f"step-{i}") != i:
        raise saver.Torn("the job itself sees another one")
    with open("latest", "w", encoding="utf-8") as f:
        f.write(f"step-{i}")
    shutil.rmtree(f"step-{i - 6}", ignore_errors=True)


def loaded(path):
    found = state(-1)
    dcp.load(found, checkpoint_id=path)
    return saver.number([found["model"]["w"], found["model"]["b"], found["step"]])


def look():
    found = saver.pointed("latest", loaded)
    # One that is being removed is none any more.
    for path in saver.there("step-*/.metadata")[-2:]:
        found += saver.unless_gone(path, lambda p: loaded(os.path.dirname(p)))
    return found


run = saver.each(save)

if __name__ == "__main__":
    saver.main(run)
