# SPDX-License-Identifier: Apache-2.0
"""torch.save: the zip format over itself, the old format beside a pointer, and what torch.load makes of them."""
import os

import torch

import saver

SHAPE = (300, 1000)


def state(i):
    return {"weight": torch.full(SHAPE, float(i)), "moment": [torch.full((1000,), i)], "step": i}


def save(i):
    torch.save(state(i), "model.pt")
    torch.save(state(i), f"old-{i}.pth", _use_new_zipfile_serialization=False)
    with open("latest", "w", encoding="utf-8") as f:
        f.write(f"old-{i}.pth")
    if os.path.exists(f"old-{i - 2}.pth"):
        os.remove(f"old-{i - 2}.pth")
    # As the job itself reads it.
    if saver.number([torch.load("model.pt", mmap=True)["weight"]]) != i:
        raise saver.Torn("the job itself sees another one")


def loaded(path, **how):
    found = torch.load(path, **how)
    return saver.number([found["weight"], *found["moment"], torch.tensor(found["step"])])


def which(path):
    """An inode's number comes again soon after it was given back."""
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def mapped(path):
    """torch opens it twice, for the index and for the map: two files, where another takes its place in between."""
    while True:
        before = which(path)
        try:
            found = loaded(path, mmap=True)
        except Exception:  # pylint: disable=broad-except
            if which(path) == before:
                raise
            continue
        if which(path) == before:
            return found


def look():
    found = []
    if os.path.exists("model.pt"):
        found += [("model.pt", loaded("model.pt")), ("model.pt, mapped", mapped("model.pt"))]
    found += saver.pointed("latest", loaded)
    for path in saver.there("old-*.pth"):
        found += saver.unless_gone(path, loaded)
    return found


run = saver.each(save)

if __name__ == "__main__":
    saver.main(run)
