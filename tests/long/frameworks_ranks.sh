#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.2 memory=6G minutes=60 about=600s
# Savers of several ranks under torchrun, killed.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/frameworks/savers_ranks.py" dcp dcp4 dcp_process accelerate trainer zero1 zero3
