#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=6G minutes=60 about=500s
# Others' training loops, all of tests/torch/kill_loops.py, killed three times each.
KILLS=3 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill_loops.py" nanogpt nanogpt_fp16 lightning lightning_bf16 accelerate transformers
