#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=8G minutes=60 about=600s
# PyTorch jobs of two and four ranks under torchrun, all of tests/torch/kill_ranks.py.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill_ranks.py" ddp ddp4 fsdp fsdp4 zero1 zero1x4 zero3 zero3x4
