#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=4G minutes=20 about=60s
"""Training loops that others wrote: in the manner of nanoGPT, and those of Lightning, accelerate and transformers. Each is
killed at random instants and started again by the same command, and must end as one that was never killed.

  kill_loops.py [CASE[=KILLS]...]    environment: as for kill.py; LOOPS_PYTHON is a Python with PyTorch and these packages

Exits with 77 where there is none.
"""
import os
import random
import subprocess
import sys

import kill
from script_job import job

CASES = {
    'nanogpt': ['nanogpt.py', '--steps', '60'],
    'nanogpt_fp16': ['nanogpt.py', '--steps', '60', '--dtype', 'float16'],
    'lightning': ['lightning_fit.py', '--epochs', '20'],
    'lightning_bf16': ['lightning_fit.py', '--epochs', '20', '--precision', 'bf16-mixed', '--accumulate', '2'],
    'accelerate': ['accelerate_loop.py', '--epochs', '40'],
    'transformers': ['transformers_trainer.py', '--steps', '60'],
}
# Two of these run without arguments, others each time; a start takes some ten seconds.
USUAL = ['nanogpt=2', 'lightning=2', 'accelerate=2', 'transformers=2']
WHERE = 'import os, torch, accelerate, lightning, numpy, transformers; print(os.path.dirname(torch.__file__))'


def find_python():
    """A Python with the packages, and the folder of its PyTorch, which need not be of the same installation."""
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    for python in (os.environ.get('LOOPS_PYTHON'), os.path.join(cache, 'transpckpt', 'loops', 'bin', 'python')):
        if python and os.access(python, os.X_OK):
            found = subprocess.run([python, '-W', 'ignore', '-c', WHERE], capture_output=True, text=True)
            if found.returncode == 0:
                return python, found.stdout.split()[-1]
    return None, None


def main():
    python, torch = find_python()
    if not python:
        print('no Python with lightning, accelerate and transformers: ./bootstrap.sh torch installs one')
        sys.exit(job.SKIP)
    os.environ['SIMGPU_TORCH'] = torch
    rng = random.Random(os.environ.setdefault('SEED', str(random.randrange(1 << 32))))
    kill.main(rng.sample(USUAL, 2), lambda python, name, *how: kill.judge_script(python, CASES[name], {'SIMGPU_TORCH': torch}, *how), python)


if __name__ == '__main__':
    main()
