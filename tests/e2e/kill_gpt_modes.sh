#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 about=12s
# The GPT with other optimizers, graphs, asynchronous losses, lengths and accumulation, killed.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" gpt-fused gpt-graph gpt-async-loss gpt-varlen gpt-accum
