#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A trainer that resumes from its own checkpoint, killed.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" gpt-own-resume
