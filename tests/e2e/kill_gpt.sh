#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 about=4s
# The GPT killed, with fast and with slow copies.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" gpt=9 gpt-slow-copies=5
