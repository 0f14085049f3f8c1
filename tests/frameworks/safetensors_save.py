# SPDX-License-Identifier: Apache-2.0
"""safetensors: save_file over itself and in numbered folders."""
import os

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import saver


def save(i):
    tensors = {"a": torch.full((300, 1000), float(i)), "b": torch.full((77,), float(i))}
    save_file(tensors, "model.safetensors", metadata={"step": str(i)})
    os.makedirs(f"checkpoint-{i}", exist_ok=True)
    save_file(tensors, f"checkpoint-{i}/model-00001-of-00001.safetensors")
    with open(f"checkpoint-{i}/model.safetensors.index.json", "w", encoding="utf-8") as f:
        f.write(f'{{"step": {i}}}')
    if saver.number(load_file("model.safetensors").values()) != i:
        raise saver.Torn("the job itself sees another one")


def loaded(path):
    # safetensors opens what it reads twice: one file, whatever is put at the path meanwhile.
    with open(path, "rb") as pinned, safe_open(f"/proc/self/fd/{pinned.fileno()}", "pt") as f:
        step = (f.metadata() or {}).get("step")
        tensors = [f.get_tensor(name) for name in f.keys()]
    return saver.number(tensors + ([torch.tensor(int(step))] if step else []))


def look():
    found = [("model.safetensors", loaded("model.safetensors"))] if os.path.exists("model.safetensors") else []
    for path in saver.there("checkpoint-*/*.safetensors"):
        found.append((path, loaded(path)))
    for index in saver.there("checkpoint-*/*.index.json"):
        found.append((index, loaded(os.path.join(os.path.dirname(index), "model-00001-of-00001.safetensors"))))
    return found


run = saver.each(save)

if __name__ == "__main__":
    saver.main(run)
