# SPDX-License-Identifier: Apache-2.0
"""The stage `pytorch`: scripts of users plain, with the library switched off and on, killed and started again."""
import json
import os
import sys

import machine
import programs

TORCH, SCRIPTS = os.path.join(machine.TESTS, "torch"), os.path.join(machine.TESTS, "gpu", "scripts")
ALL, SOME = ["disabled", "on", "killed"], ["on", "killed"]
GPT = [os.path.join(TORCH, "gpt.py"), "--accumulate", "1"]
# What matters most comes first. Name: script, environment, what is done beside the plain run.
CASES = {
    "mlp": ([os.path.join(TORCH, "mlp.py"), "--optimizer", "Adam-fused", "--hidden", "512,512"], {}, ALL),
    "gpt": (GPT, {}, ALL),
    "conv": ([os.path.join(TORCH, "conv.py")], {}, ALL),
    "readback": ([os.path.join(SCRIPTS, "readback.py")], {}, SOME),
    "graph": ([os.path.join(TORCH, "graph.py")], {}, SOME),
    "expandable": (GPT, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, SOME),
    "compiled": ([os.path.join(TORCH, "compiled.py")], {}, SOME),
    "compiled-graphs": ([os.path.join(TORCH, "compiled.py"), "--mode", "reduce-overhead"], {}, SOME),
    "one-connection": (GPT, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, SOME),
    "async": (GPT, {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, SOME),
    "bf16": (GPT + ["--precision", "bf16", "--recompute"], {}, SOME),
    "foreach": (GPT + ["--optimizer", "foreach"], {}, SOME),
    "blocking": (GPT, {"CUDA_LAUNCH_BLOCKING": "1"}, SOME),
}
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


def script(stage, case, argv, environment=None, phases=None, seconds=140, about=30, settings=None):
    """One script, which is given --steps."""
    given = {"python": machine.torch_python(), "script": argv, "phases": phases or ALL, "environment": environment or {}, "settings": settings or {},
             "seconds": float(os.environ.get("RUN_SEC") or RUN_SEC)}
    stage.run(case, [sys.executable, "-B", os.path.join(os.path.dirname(os.path.abspath(__file__)), "script_case.py"), json.dumps(given)], seconds,
              about=about, environment=machine.test_environment(stage.work))


def main(stage):
    if not machine.torch_python():
        stage.say("python", "not there", why="no Python with PyTorch")
        return
    programs.ready(stage, ["digest.fatbin"])
    stage.run("versions", [machine.torch_python(), "-c", VERSIONS], 60)
    for name, (argv, environment, phases) in CASES.items():
        script(stage, name, argv, environment, phases)
