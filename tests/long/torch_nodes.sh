#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.5 memory=8G minutes=60 about=400s
# PyTorch jobs on two nodes of which one is lost.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill_nodes.py" node leader together rank
