# SPDX-License-Identifier: Apache-2.0
"""Orbax' CheckpointManager: each step in a folder that is renamed when it is whole, three kept."""
import os

import numpy
import orbax.checkpoint as ocp

import saver


def manager():
    return ocp.CheckpointManager(os.path.abspath("out"), options=ocp.CheckpointManagerOptions(max_to_keep=3, create=True))


def state(i):
    return {"weight": numpy.full((300, 1000), float(i)), "bias": numpy.full(77, float(i))}


def run(first, last):
    with manager() as keep:
        for i in range(first, last + 1):
            keep.save(i, args=ocp.args.StandardSave(state(i)))
            keep.wait_until_finished()
            if saver.number(keep.restore(i, args=ocp.args.StandardRestore(state(-1))).values()) != i:
                raise saver.Torn("the job itself sees another one")


def look():
    found = []
    steps = [name for name in saver.there("out/*") if os.path.basename(name).isdigit()]
    # What is older is being removed.
    for step in steps[-2:]:
        with ocp.StandardCheckpointer() as reader:
            found += [(f"{p.replace('out/', 'out-')}", n) for p, n in saver.unless_gone(
                step, lambda path: saver.number(reader.restore(os.path.abspath(path) + "/default", state(-1)).values()))]
    return found


if __name__ == "__main__":
    saver.main(run)
