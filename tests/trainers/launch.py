#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts a command as several ranks on this machine; when one fails the others are ended.

launch.py [--as torchrun|openmpi|pmi|slurm] [--outputs FOLDER]
          [--nnodes NODES --node-rank NODE --master-addr ADDRESS --master-port PORT] RANKS COMMAND...

The ranks learn who they are as from the launcher that is named; torchrun also tells them where rank 0 listens. The
status is that of the first rank that failed. With --nnodes these are the RANKS of one node of several; on each of
them one launch.py is started, which does not hear of the others' ends. All are told where rank 0 listens, by whatever
launcher: users of mpirun and srun pass that on themselves.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time

# Rank, world, rank and ranks on this node, and the node's number where the launcher says it.
NAMES = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"),
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    "pmi": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"),
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def surroundings(args):
    """What all ranks of a node are told."""
    known = {name for names in NAMES.values() for name in names} | {"MASTER_ADDR", "MASTER_PORT"}
    env = {k: v for k, v in os.environ.items() if k not in known}
    if args.nnodes > 1:
        env.update(MASTER_ADDR=args.master_addr, MASTER_PORT=args.master_port)
    elif args.launcher == "torchrun":
        env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    if args.launcher == "slurm":
        # On several nodes it has to be the same number on all.
        env.update(SLURM_JOB_ID=args.master_port if args.nnodes > 1 else str(os.getpid()), SLURM_STEP_ID="0",
                   SLURM_STEP_NUM_TASKS=str(args.nnodes * args.ranks), SLURM_STEP_NUM_NODES=str(args.nnodes))
    return env


def who(args, local):
    """What one rank is told beside that."""
    here = f"{args.ranks}(x{args.nnodes})" if args.launcher == "slurm" and args.nnodes > 1 else args.ranks
    values = (args.node_rank * args.ranks + local, args.nnodes * args.ranks, local, here, args.node_rank)
    return {name: str(value) for name, value in zip(NAMES[args.launcher], values)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--as", dest="launcher", choices=NAMES, default="torchrun")
    parser.add_argument("--outputs", help="folder for each rank's out.RR and err.RR")
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--master-addr", help="of the node of rank 0")
    parser.add_argument("--master-port")
    parser.add_argument("ranks", type=int, help="on this node")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if not 0 <= args.node_rank < args.nnodes or (args.nnodes > 1 and not (args.master_addr and args.master_port)):
        parser.error("of several nodes each has a number below theirs, and a master's address and port")
    env = surroundings(args)
    if args.outputs:
        os.makedirs(args.outputs, exist_ok=True)
    running = []

    def end(*_):
        for p in running:
            if p.poll() is None:
                p.kill()
        sys.exit(143)

    signal.signal(signal.SIGTERM, end)
    for local in range(args.ranks):
        rank = args.node_rank * args.ranks + local
        out = open(f"{args.outputs}/out.{rank:02d}", "wb") if args.outputs else None
        err = open(f"{args.outputs}/err.{rank:02d}", "wb") if args.outputs else None
        running.append(subprocess.Popen(args.command, env={**env, **who(args, local)}, stdout=out, stderr=err))
    status = 0
    left = list(running)
    while left:
        time.sleep(0.005)
        for p in [p for p in left if p.poll() is not None]:
            left.remove(p)
            if p.returncode and not status:
                status = p.returncode if p.returncode > 0 else 128 - p.returncode
                for other in left:
                    other.kill()
    return status


sys.exit(main())
