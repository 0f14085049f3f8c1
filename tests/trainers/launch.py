#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts a command as several ranks on this machine; when one fails the others are ended.

launch.py [--as torchrun|openmpi|pmi|slurm] [--outputs FOLDER] RANKS COMMAND...

The ranks learn who they are as from the launcher that is named; torchrun also tells them where rank 0 listens. The
status is that of the first rank that failed.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time

NAMES = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    "openmpi": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "pmi": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    "slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def surroundings(launcher, ranks):
    known = {name for names in NAMES.values() for name in names} | {"MASTER_ADDR", "MASTER_PORT"}
    env = {k: v for k, v in os.environ.items() if k not in known}
    if launcher == "torchrun":
        env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    if launcher == "slurm":
        env.update(SLURM_JOB_ID=str(os.getpid()), SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS=str(ranks))
    return env


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--as", dest="launcher", choices=NAMES, default="torchrun")
    parser.add_argument("--outputs", help="folder for each rank's out.RR and err.RR")
    parser.add_argument("ranks", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    env = surroundings(args.launcher, args.ranks)
    if args.outputs:
        os.makedirs(args.outputs, exist_ok=True)
    running = []

    def end(*_):
        for p in running:
            if p.poll() is None:
                p.kill()
        sys.exit(143)

    signal.signal(signal.SIGTERM, end)
    for rank in range(args.ranks):
        who = dict(zip(NAMES[args.launcher], (str(rank), str(args.ranks), str(rank))))
        out = open(f"{args.outputs}/out.{rank:02d}", "wb") if args.outputs else None
        err = open(f"{args.outputs}/err.{rank:02d}", "wb") if args.outputs else None
        running.append(subprocess.Popen(args.command, env={**env, **who}, stdout=out, stderr=err))
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
