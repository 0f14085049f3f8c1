#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 memory=2G minutes=40 about=300s
# The cases of salvage that tests/cluster/salvage.py runs by name only.
CASE=by_name exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/salvage.py"
