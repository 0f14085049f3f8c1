#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=6G minutes=60 about=300s
# PyTorch scripts whose kernels have no names, all of tests/torch/kill_nameless.py.
LONG=1 KILLS=2 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill_nameless.py" all
