#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=6G minutes=60 about=600s
# What chance, time and threads do to PyTorch programs, each killed four times.
LONG=1 KILLS=4 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill_habits.py" all
