#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a script of PyTorch with algorithms that repeat themselves, so that two runs can be compared: repeatable.py SCRIPT [ARGUMENT]..."""
import os
import runpy
import sys

os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
import torch

torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name='__main__')
