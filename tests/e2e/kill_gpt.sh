#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The GPT killed twenty times, with fast and with slow copies.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" gpt=20 gpt-slow-copies=8
