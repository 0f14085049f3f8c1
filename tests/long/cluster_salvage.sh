#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 memory=2G minutes=40 about=500s
# Every case of salvage, of tests/cluster/salvage.py.
CASE=every exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/salvage.py"
