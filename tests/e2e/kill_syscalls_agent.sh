#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 about=22s
# The agent killed at the N-th call of each system call that matters, for many N.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_syscalls.py" agent
