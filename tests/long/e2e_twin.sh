#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.5 memory=4G minutes=60 about=600s
# Programs and ranks that have twins: all stages and layouts, and all PyTorch jobs of several ranks.
python="${PYTHON3:-python3}" tests="${srcdir:-.}/tests"
"$python" "$tests/e2e/twin.py" killed second agent hurt ends errors programs differs damaged manners place shown executes terminal || status=1
LAYOUTS=all "$python" "$tests/e2e/twin_ranks.py" || status=1
"$python" "$tests/torch/kill_twin_ranks.py" ddp ddp4 fsdp zero1 zero3
case $? in 0 | 77) ;; *) status=1 ;; esac
exit "${status:-0}"
