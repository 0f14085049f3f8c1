#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.3 memory=4G minutes=30 about=190s
# Every job of tests/torch/witness.py.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/witness.py" all
