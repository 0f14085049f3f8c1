#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 minutes=20 about=150s
# The agent killed at every one of the calls in the table of tests/e2e/kill_syscalls.py.
LIMIT_SEC=900 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_syscalls.py" agent
