#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.3 memory=3G minutes=40 about=400s
# What processes of a script write to files, by every way, killed twice.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill_writes.py" all
