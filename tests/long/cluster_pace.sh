#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.3 memory=2G minutes=20 about=80s alone
# What copies leave of the network to the program, every case of tests/cluster/pace.py.
CASE=every exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/pace.py"
