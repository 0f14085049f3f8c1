#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1 memory=4G minutes=60 about=400s
# What the makers of CPython, PyTorch and safetensors test of files, the slow tests too.
ALL=1 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/frameworks/suites.py"
