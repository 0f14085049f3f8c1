#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=6G minutes=40 about=300s
# Every PyTorch script of tests/torch/scripts.py, with each allocator.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/scripts.py" all
