# SPDX-License-Identifier: Apache-2.0
"""numpy: savez over itself, a memmap made anew and renamed into place, and tofile."""
import os

import numpy

import saver


def save(i):
    array = numpy.full((300, 1000), float(i))
    numpy.savez("state.npz", a=array, b=numpy.full(77, i))
    numpy.savez_compressed(f"ckpt-{i}.npz", a=array)
    mapped = numpy.memmap("mapped.tmp.pt", dtype="float32", mode="w+", shape=(300, 1000))
    mapped[:] = i
    mapped.flush()
    del mapped
    os.replace("mapped.tmp.pt", "mapped.pt")
    array.tofile("raw.pt")
    os.makedirs(f"step-{i}", exist_ok=True)
    numpy.save(f"step-{i}/array.npy", array)
    with open("latest", "w", encoding="utf-8") as f:
        f.write(f"step-{i}/array.npy")
    with numpy.load("state.npz") as npz:
        seen = [npz["a"], npz["b"], numpy.memmap("mapped.pt", dtype="float32", mode="r"), numpy.fromfile("raw.pt")]
    if saver.number(seen) != i:
        raise saver.Torn("the job itself sees another one")


def archive(path):
    with numpy.load(path) as npz:
        return saver.number([npz[name] for name in npz.files])


def raw(path, kind, size):
    array = numpy.fromfile(path, kind)
    if len(array) != size:
        raise saver.Torn(f"{len(array)} elements")
    return saver.number([array])


def look():
    found = []
    for path in saver.there("*.npz"):
        found.append((path, archive(path)))
    if os.path.exists("mapped.pt"):
        found.append(("mapped.pt", raw("mapped.pt", "float32", 300000)))
    if os.path.exists("raw.pt"):
        found.append(("raw.pt", raw("raw.pt", "float64", 300000)))
    found += saver.pointed("latest", lambda path: saver.number([numpy.load(path)]))
    for path in saver.there("step-*/array.npy"):
        found.append((path, saver.number([numpy.load(path)])))
    return found


run = saver.each(save)

if __name__ == "__main__":
    saver.main(run)
