#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 about=13s
"""What `show --state` says of trainers: which tensors their optimizers name, alive and from the disk after a kill; and
nothing where names are not looked at."""
import glob
import json
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import job


def state(place, on_disk=False):
    rows = place.shown("--state")
    return rows[0].get("state_of_snapshot") if rows and ("pid" not in rows[0]) == on_disk else None


def by_role(found):
    roles = {}
    for tensor in found["tensors"]:
        roles.setdefault(tensor["role"], []).append(tensor)
    return roles


def told(found):
    """Bytes by role over all classes, and blocks' bytes that have none."""
    total = {"": 0}
    for one in found["classes"].values():
        total[""] += one["without_role"]
        for role, sums in one["roles"].items():
            total[role] = total.get(role, 0) + sums["bytes"]
    return total


def check(checks, found, what, optimizer, tensors, lists):
    """Every parameter has a gradient, and so many lists that are written; all of the same sizes, in the same places."""
    roles = by_role(found)
    gradients, states = roles.get("gradients", []), roles.get("optimizer state", [])
    checks.ok(len(gradients) == tensors and len(states) == lists * tensors and
              set(roles) == {"gradients", "optimizer state"},
              f"{what}: {tensors} gradients and {lists} lists of the optimizer's",
              {role: len(those) for role, those in roles.items()})
    sizes = {t["position"]: t["elements"] for t in gradients}
    checks.ok(sorted(sizes) == list(range(tensors)) and all(t["elements"] == sizes.get(t["position"]) for t in states),
              f"{what}: each in its place")
    ends = sorted((t["address"], t["address"] + 4 * t["elements"]) for t in found["tensors"])
    checks.ok(all(a[1] <= b[0] for a, b in zip(ends, ends[1:])), f"{what}: and none overlaps another")
    checks.ok([o["family"] for o in found["optimizers"]] == [optimizer] and
              found["optimizers"][0]["parameters"] == tensors, f"{what}: of {optimizer}", found["optimizers"])
    sums = told(found)
    checks.ok(sums["optimizer state"] == lists * sums["gradients"] == lists * 4 * sum(sizes.values()),
              f"{what}: bytes by role are those of the tensors", sums)


def trainer(checks, name, optimizer, tensors, lists, *arguments):
    with job.Place(TRANSPCKPT_DURABLE_INTERVAL="0.2s", TRANSPCKPT_LINGER_SEC="1") as place:
        this = job.Job(place, name, "--seed", "5", "--steps", "3000", *arguments)
        start = this.start()
        found = []

        def there():
            found[:] = [s for s in [state(place)] if s and s["step"] >= 24 and "optimizer" in s["classes"]]
            return found

        start.until(there)
        start.kill()
        if not checks.ok(found, f"{name} has a snapshot whose state is shown", start.said()):
            return
        check(checks, found[0], name, optimizer, tensors, lists)
        checks.ok("optimizer" in found[0]["classes"] and
                  "optimizer state" in found[0]["classes"]["optimizer"]["roles"] and
                  "gradients" not in found[0]["classes"]["optimizer"]["roles"],
                  f"{name}: classes by content agree: gradients change before the optimizer, its state in it")
        place.agent_settles()
        stored = state(place, on_disk=True)
        if checks.ok(stored and stored["step"] >= found[0]["step"], f"{name}: the state of a checkpoint on disk is shown"):
            check(checks, stored, f"{name} on disk", optimizer, tensors, lists)


def built(place, *flags):
    """The loop of roles_adam.cu."""
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "roles_adam.cu")
    program = os.path.join(place.root, "adam")
    subprocess.run([os.path.join(place.build, "tests/sim/simnvcc"), "-std=c++17", "-O2", *flags, "-c", "-o", program + ".o",
                    source], check=True)
    subprocess.run([os.path.join(place.build, "tests/sim/simnvcc"), "-std=c++17", "-O2", "--image", source, "-o", program + ".image"], check=True)
    subprocess.run([*os.environ.get("CXX", "c++").split(), "-L" + os.path.join(place.build, "tests/sim/lib"), "-o", program,
                    program + ".o", "-lcudart", os.path.join(place.build, "tests/sim/lib/libcuda.so.1")], check=True)
    return program


def logged(place):
    """Of each iteration whose end is in the log, what its optimizer was told: {what: value} of the first launch."""
    told, now = {}, {}
    for path in sorted(glob.glob(os.path.join(place.shm, "j", "g*", "log.*"))):
        with open(path, "rb") as f:
            segment = f.read()
        used, at = struct.unpack_from("<Q", segment, 40)[0], 48
        while at < used:
            size, kind, _, _, order = struct.unpack_from("<IHHII", segment, at)
            if kind == 11:
                now = {what: value for launch, what, value in struct.iter_unpack("<IId", segment[at + 16:at + 16 + size])
                       if launch == 0}
            elif kind == 2:
                told[order] = now
            at += 16 + (size + 15) // 16 * 16
    return told


def known_kernel(checks):
    """A kernel whose layout is in the tables: exact roles, and its scalars. One of that name with another size: none."""
    for flags in ([], ["-DENUMERATED"], ["-DANOTHER_SIZE"]):
        with job.Place() as place:
            program = built(place, *flags)
            argv = [*place.runner, os.path.join(place.build, "transpckpt"), "run", "--", program, "100000", program + ".image"]
            start = job.Start(place, argv, place.root, place.environment, "start")
            found = []

            def there():
                found[:] = [s for s in [state(place)] if s and s["step"] >= 24]
                return found

            start.until(there)
            start.kill()
            if not checks.ok(found, "the loop has a snapshot whose state is shown", start.said()):
                continue
            if flags == ["-DANOTHER_SIZE"]:
                checks.ok(not found[0]["tensors"] and not found[0]["optimizers"],
                          "where the kernel has another size nothing has a role", found[0]["tensors"])
                continue
            says = {role: [[t["address"], t["elements"]] for t in sorted(those, key=lambda t: t["position"])]
                    for role, those in by_role(found[0]).items()}
            checks.ok(says == json.loads(start.printed().splitlines()[0]),
                      "every tensor has the role and place that the loop says", says)
            told, step = logged(place), found[0]["step"]
            optimizer = found[0]["optimizers"][0]
            checks.ok(optimizer["family"] == "llm.c adamw" and optimizer["beta1"] == 0.75 and optimizer["beta2"] == 0.875 and
                      optimizer["eps"] == 0.0625 and optimizer["weight_decay"] == 0.25,
                      "the optimizer's scalars are the loop's", optimizer)
            checks.ok(told.get(step, {}).get(0) == optimizer["lr"] and len({t[0] for t in told.values() if t}) >= 2,
                      "the log has them for each iteration, the image those of its own", told.get(step), optimizer)
            start = job.Start(place, argv, place.root, place.environment, "again")
            start.until(lambda: job.LIVE.search(start.said()), 60)
            checks.ok(job.LIVE.search(start.said()), "and it is resumed", start.said())
            start.kill()


def nameless(checks):
    with job.Place() as place:
        this = job.Job(place, "gan", "--seed", "5", "--steps", "3000")
        start = this.start(environment={"TRANSPCKPT_INFER": "pattern"})
        found = []

        def there():
            found[:] = [s for s in [state(place)] if s]
            return found

        start.until(there)
        start.kill()
        checks.ok(found and not found[0]["tensors"] and not found[0]["optimizers"],
                  "without names there are snapshots and no roles", start.said())


def main():
    checks = job.Checks()
    trainer(checks, "gpt", "adamw_kernel", 29, 3)
    trainer(checks, "classifier", "sgd_momentum_kernel", 10, 2)
    known_kernel(checks)
    nameless(checks)
    checks.end()


if __name__ == "__main__":
    main()
