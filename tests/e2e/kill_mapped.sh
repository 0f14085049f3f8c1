#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 about=30s
# Trainers whose device memory is mapped by the program itself, or taken and freed by another thread of it, as pinned memory is, killed.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" gpt-mapped classifier-mapped-churn gpt-freeing gpt-pinned
