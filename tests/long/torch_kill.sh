#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=6G minutes=90 about=1200s
# Each PyTorch script of tests/torch/kill.py killed four times, those that are asked for by name too.
LONG=1 KILLS=4 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill.py" all
