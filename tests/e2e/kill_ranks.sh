#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 about=5s
# The GPT of several ranks with one, over NCCL, killed.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" ranks ranks-chatty ranks-zero
