#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 minutes=30 about=160s
# What a forked process of a trainer appends to a file, by every way of tests/e2e/rows.py.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/rows.py" all
