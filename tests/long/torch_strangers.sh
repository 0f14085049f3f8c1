#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=6G minutes=90 about=900s
# All scripts of tests/torch/kill_strangers.py, killed three times each.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill_strangers.py" all
