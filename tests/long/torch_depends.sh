#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=6G minutes=30 about=150s
# Every step, tensor and launch of tests/torch/depends.py that a run depends on.
ALL=1 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/depends.py"
