#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 about=4s
# Where the pattern of launches alone is not proof enough, nothing is captured and the command says why.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" gpt-fused:pattern gpt-graph:pattern
