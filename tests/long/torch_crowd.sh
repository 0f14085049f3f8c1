#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=6G minutes=60 about=200s
# PyTorch scripts that are hard on the driver, all of tests/torch/kill_crowd.py.
LONG=1 KILLS=2 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill_crowd.py" all
