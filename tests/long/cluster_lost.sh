#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 memory=2G minutes=40 about=480s
# Every case of lost nodes, of tests/cluster/lost.py.
CASE=every exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/lost.py"
