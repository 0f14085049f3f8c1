# SPDX-License-Identifier: Apache-2.0
"""The stage `pytorch`: scripts of users plain, with the library switched off and on, killed and started again. Those of JAX and CuPy are among
them, where their Python has them."""
import concurrent.futures
import json
import os
import sys

import machine
import programs

TORCH, SCRIPTS = os.path.join(machine.TESTS, "torch"), os.path.join(machine.TESTS, "gpu", "scripts")
ALL, SOME = ["disabled", "on", "killed"], ["on", "killed"]
GPT = [os.path.join(TORCH, "gpt.py"), "--accumulate", "1"]
REPEATABLE_JAX = {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"}
# Where no iteration is found copies are boundaries, after half of this.
SOON = {"TRANSPCKPT_STALL_SEC": "1"}
# A snapshot each iteration, and nothing to a disk meanwhile: what that costs is to be seen.
EACH = {"TRANSPCKPT_INTERVAL": "1", "TRANSPCKPT_DURABLE_INTERVAL": "3600s", "TRANSPCKPT_EXIT_WAIT_SEC": "5", "TRANSPCKPT_MEMORY": "85%"}
STRANGERS = os.path.join(TORCH, "strangers")
# What matters most comes first. Name: script, environment, what is done beside the plain run, maybe settings of the library.
CASES = {
    "mlp": ([os.path.join(TORCH, "mlp.py"), "--optimizer", "Adam-fused", "--hidden", "512,512"], {}, ALL),
    "gpt": (GPT, {}, ALL),
    "conv": ([os.path.join(TORCH, "conv.py")], {}, ALL),
    "readback": ([os.path.join(SCRIPTS, "readback.py")], {}, SOME),
    "graph": ([os.path.join(TORCH, "graph.py")], {}, SOME),
    "expandable": (GPT, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TRANSPCKPT_LOG": "debug"}, SOME),
    "compiled": ([os.path.join(TORCH, "compiled.py")], {}, SOME),
    "compiled-graphs": ([os.path.join(TORCH, "compiled.py"), "--mode", "reduce-overhead"], {}, SOME),
    "one-connection": (GPT, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, SOME),
    "async": (GPT, {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, SOME),
    "bf16": (GPT + ["--precision", "bf16", "--recompute"], {}, SOME),
    "foreach": (GPT + ["--optimizer", "foreach"], {}, SOME),
    "blocking": (GPT, {"CUDA_LAUNCH_BLOCKING": "1"}, SOME),
    "gpt2-not-killed": ([os.path.join(SCRIPTS, "gpt2.py")], {}, ["on"]),
    "gpt2": ([os.path.join(SCRIPTS, "gpt2.py")], {}, SOME),
    "gpt2-each-not-killed": ([os.path.join(SCRIPTS, "gpt2.py")], {}, ["on"], EACH),
    "gpt2-each": ([os.path.join(SCRIPTS, "gpt2.py")], {}, SOME, EACH),
    "saves": ([os.path.join(SCRIPTS, "saves.py")], {}, SOME),
    "by-memory": (GPT, {"TRANSPCKPT_INFER": "memory"}, SOME),
    "savers": ([os.path.join(STRANGERS, "savers.py")], {}, SOME),
    "timed": ([os.path.join(STRANGERS, "timed.py")], {}, SOME),
    "nanogpt": ([os.path.join(TORCH, "nanogpt.py")], {}, SOME),
    "resnet": ([os.path.join(SCRIPTS, "resnet.py")], {}, SOME),
    "transformers": ([os.path.join(TORCH, "transformers_trainer.py")], {}, SOME),
    "jax": ([os.path.join(SCRIPTS, "jax_mlp.py")], {**REPEATABLE_JAX, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", **SOON}, SOME),
    "jax-most-memory": ([os.path.join(SCRIPTS, "jax_mlp.py")], {**REPEATABLE_JAX, **SOON}, SOME),
    "cupy": ([os.path.join(machine.TESTS, "stacks", "cupy_loop.py"), "--allocator", "async"], {}, SOME),
    "numba": ([os.path.join(machine.TESTS, "stacks", "numba_kernels.py")], {}, SOME),
}
# Scripts that need no PyTorch, and what they need.
OWN = {"jax": "jax, optax", "jax-most-memory": "jax, optax", "cupy": "cupy", "numba": "numba.cuda"}
# How many cases at the same time: no figure of time is worth anything then.
TOGETHER = int(os.environ.get("TOGETHER") or 1)
# A run's steps are to take so long: time for the library to learn, and to be killed in.
RUN_SEC = 4


VERSIONS = """
import json, torch
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name(), "archs": torch.cuda.get_arch_list()}))
for name, of in (("nccl", torch.cuda.nccl.version), ("cudnn", torch.backends.cudnn.version)):
    try:
        print(json.dumps({name: str(of())}))
    except Exception as error:
        print(json.dumps({name: str(error)[:200]}))
"""


def script(stage, case, argv, environment=None, phases=None, seconds=140, about=30, settings=None, killed=None, tests=None):
    """One script, which is given --steps. `killed` are settings where it is to be killed, `tests` is machine.test_environment's, where it was made already."""
    if case in OWN and not machine.said_by([machine.torch_python(), "-c", f"import {OWN[case]}; print(1)"]):
        if stage.wanted(case):
            stage.say(case, "not there", why=f"no {OWN[case]} there")
        return
    given = {"python": machine.torch_python(), "script": argv, "phases": phases or ALL, "environment": environment or {}, "settings": settings or {}, "killed": killed or {},
             "own": case in OWN, "seconds": float(os.environ.get("RUN_SEC") or RUN_SEC)}
    stage.run(case, [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "script_case.py"), json.dumps(given)], seconds,
              about=about, environment=tests or machine.test_environment(stage.work))


def main(stage):
    if not machine.torch_python():
        stage.say("python", "not there", why="no Python with PyTorch")
        return
    programs.ready(stage, ["digest.fatbin"])
    stage.run("versions", [machine.torch_python(), "-c", VERSIONS], 60)
    tests = machine.test_environment(stage.work)
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        list(pool.map(lambda name: script(stage, name, CASES[name][0], *CASES[name][1:3], settings=dict(*CASES[name][3:]), tests=tests), CASES))
