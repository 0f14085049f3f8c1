# SPDX-License-Identifier: Apache-2.0
"""The stage `nccl`: jobs of one rank, of a trainer in C and of PyTorch, whose step is captured in a graph or not."""
import os
import socket

import machine
import programs
import pytorch
import trainers


def one_rank():
    """As torchrun --nproc-per-node 1 sets it, with a port that is free now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(s.getsockname()[1]), "NCCL_DEBUG": os.environ.get("NCCL_DEBUG", "WARN")}


def of_trainer(stage):
    folder = machine.nccl_folder()
    if folder is None or not programs.ready(stage, ["gpt", "gpt_ranks"]):
        stage.say("ranks", "not there", why="no libnccl.so.2")
        return
    environment = machine.test_environment(stage.work)
    if folder:
        environment["LD_LIBRARY_PATH"] = os.environ.get("LD_LIBRARY_PATH", "")
        machine.prepend(environment, "LD_LIBRARY_PATH", folder)
    for name in ("ranks", "ranks-zero", "ranks-chatty"):
        trainers.kill_resume(stage, name, name, int(os.environ.get("KILLS") or 4), 90, environment)


def main(stage):
    of_trainer(stage)
    if not machine.torch_python():
        stage.say("python", "not there", why="no Python with PyTorch")
        return
    ddp = os.path.join(pytorch.TORCH, "ddp.py")
    pytorch.script(stage, "ddp", [ddp], one_rank(), pytorch.SOME)
    pytorch.script(stage, "ddp-graph", [os.path.join(pytorch.SCRIPTS, "ddp_graph.py")], one_rank(), pytorch.SOME)
    pytorch.script(stage, "fsdp", [ddp, "--fsdp"], one_rank(), pytorch.SOME)
    pytorch.script(stage, "ddp-registers", [ddp], {**one_rank(), "NCCL_LOCAL_REGISTER": "1", "NCCL_GRAPH_REGISTER": "1", "NCCL_CUMEM_ENABLE": "1"},
                   pytorch.SOME)
