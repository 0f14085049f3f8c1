#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.9 memory=2G minutes=60 about=900s
# Every case of ranks on several nodes, of tests/cluster/apart.py.
CASE=every exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/apart.py"
