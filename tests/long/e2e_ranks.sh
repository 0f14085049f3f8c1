#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.6 minutes=30 about=240s
# Every layout of ranks on one node, killed.
LAYOUTS=all exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/ranks.py" every_step layouts by_the_clock
