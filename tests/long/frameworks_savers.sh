#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1 memory=4G minutes=60 about=600s
# Each saver of tests/frameworks killed twelve times.
KILLS=12 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/frameworks/savers.py" all
