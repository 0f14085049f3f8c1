#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.9 memory=2G minutes=60 about=600s
# The cases of ranks on several nodes that tests/cluster/apart.py runs by name only.
CASE=by_name exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/apart.py"
