#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=20s
"""Roles of tensors with PyTorch: what `show --state` says is held against what the script itself says of where its
parameters, gradients and moments lie, tensor by tensor.

  roles.py [OPTIMIZER...]     environment: as for scripts.py

Exits with 77 where there is no PyTorch.
"""
import json
import os
import sys

import scripts
from script_job import job

HERE = os.path.dirname(os.path.abspath(__file__))
SCALARS = {
    "adamw-fused": {"lr": 0.002, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0.1},
    "adamw-scaled": {"lr": 0.002, "beta1": 0.9},
    "adam-foreach": {"beta1": 0.875, "beta2": 0.9375},
    "adam-decay": {},
    "adam-loop": {},
    "sgd-fused": {"lr": 0.25, "momentum": 0.5},
    "sgd-foreach": {"lr": 0.25},
    "momentum": {"lr": 0.25, "momentum": 0.5},
    "rmsprop": {},
    "adadelta": None,  # nothing is known of it
}

# What runs without arguments; each takes some ten seconds, most of them PyTorch's start.
USUAL = ["adamw-fused", "adamw-scaled", "adam-decay", "adam-loop", "momentum", "adadelta"]


def roles_of(found):
    """[address, elements] by role, in places' order, as the script prints them."""
    roles = {}
    for tensor in sorted(found["tensors"], key=lambda t: t["position"]):
        if tensor["role"] not in ("steps", "lr", "grad_scale", "found_inf"):
            roles.setdefault(tensor["role"], []).append([tensor["address"], tensor["elements"]])
    return roles


def case(checks, python, kind):
    with job.Place() as place:
        argv = [*place.runner, os.path.join(place.build, "transpckpt"), "run", "--", python, "-W", "ignore",
                os.path.join(HERE, "optimizers.py"), kind, "2000"]
        start = job.Start(place, argv, place.root, {**place.environment, "OMP_NUM_THREADS": "1"}, "start")
        found = []

        def there():
            rows = place.shown("--state")
            found[:] = [row["state_of_snapshot"] for row in rows if "state_of_snapshot" in row]
            return found and found[0]["step"] >= 8 and (found[0]["tensors"] or SCALARS[kind] is None)

        got = start.until(there, 120)
        if start.running():
            start.kill()
        if not checks.ok(got, f"{kind}: a snapshot's state is shown", start.said()[-2000:], found and found[0]["step"]):
            return
        # The first steps' tensors may lie elsewhere; those of the last lines are where they stay.
        printed = [json.loads(line) for line in start.printed().splitlines() if line.endswith("}")]
        if SCALARS[kind] is None:
            checks.ok(not found[0]["tensors"], f"{kind}: nothing is claimed of an optimizer that is not known")
            return
        says = roles_of(found[0])
        scales = {line.pop("scale", None) for line in printed}
        checks.ok(says in printed[4:], f"{kind}: every tensor has the role and place that the script says",
                  "said:", says, "is:", printed[-1])
        scalars = {key: found[0]["optimizers"][0].get(key) for key in SCALARS[kind]}
        checks.ok(len(found[0]["optimizers"]) == 1 and all(value is not None and abs(value - SCALARS[kind][key]) < 1e-6
                                                           for key, value in scalars.items()),
                  f"{kind}: the optimizer's scalars are the script's", found[0]["optimizers"])
        told = found[0]["optimizers"][0] if found[0]["optimizers"] else {}
        if kind == "adamw-scaled":
            checks.ok(told.get("grad_scale") in scales and "found_inf" in told, f"{kind}: and the scaler's numbers", told, scales)


def main():
    python = scripts.find_python()
    if not python:
        job.skip("no Python with PyTorch: ./bootstrap.sh torch installs it")
    checks = job.Checks()
    for kind in sys.argv[1:] or USUAL:
        case(checks, python, kind)
    checks.end()


if __name__ == "__main__":
    main()
