#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.3 memory=1500M minutes=29 about=180s
# Some cases of tests/cluster/apart.py in which something dies while a start is on its way.
CASE=starts exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/apart.py"
