#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.5 memory=8G minutes=60 about=400s
# PyTorch jobs on two nodes: one is lost, with a spare node or without, or ranks are killed.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill_nodes.py" node leader together rank twin spare spare_leader
