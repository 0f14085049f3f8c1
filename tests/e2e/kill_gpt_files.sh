#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 about=6s
# The GPT with every habit of writing files, killed.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" gpt-log-append gpt-overwrite gpt-rename gpt-save-best gpt-save-much=6
