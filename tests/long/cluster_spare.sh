#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1 memory=3G minutes=60 about=1100s slurm
# Every case of spare nodes and of twins on several nodes, and those of Slurm.
python="${PYTHON3:-python3}" tests="${srcdir:-.}/tests"
CASE=every "$python" "$tests/cluster/spare.py" || status=1
CASE=every "$python" "$tests/cluster/twins.py" || status=1
CASE="twin spare" "$python" "$tests/slurm/nodes.py"
case $? in 0 | 77) ;; *) status=1 ;; esac
exit "${status:-0}"
