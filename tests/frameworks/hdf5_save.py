# SPDX-License-Identifier: Apache-2.0
"""HDF5 by h5py: a file made anew over itself, one per step, one that is opened again to be changed, and a pointer."""
import os

import h5py
import numpy

import saver


def save(i):
    array = numpy.full((300, 1000), float(i))
    with h5py.File("model.h5", "w") as f:
        f["weight"] = array
        f.create_dataset("group/packed", data=array, compression="gzip", compression_opts=1)
    with h5py.File(f"step-{i}.hdf5", "w") as f:
        f["weight"] = numpy.full((300, 1000), -1.0)
    with h5py.File(f"step-{i}.hdf5", "r+") as f:
        f["weight"][...] = array
        f.attrs["step"] = float(i)
    with open("latest", "w", encoding="utf-8") as f:
        f.write(f"step-{i}.hdf5")
    if os.path.exists(f"step-{i - 2}.hdf5"):
        os.remove(f"step-{i - 2}.hdf5")
    if loaded("model.h5") != i or loaded(f"step-{i}.hdf5") != i:
        raise saver.Torn("the job itself sees another one")


def loaded(path):
    with h5py.File(path, "r", locking=False) as f:
        arrays = [f["weight"][...]]
        if "group" in f:
            arrays.append(f["group/packed"][...])
    return saver.number(arrays)


def look():
    return (saver.unless_gone("model.h5", loaded) if os.path.exists("model.h5") else []) + saver.pointed("latest", loaded)


run = saver.each(save)

if __name__ == "__main__":
    saver.main(run)
