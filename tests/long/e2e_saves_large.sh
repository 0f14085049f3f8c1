#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 memory=12G minutes=60 about=540s disk
# A trainer with 2 GiB of state that saves all of it every four iterations: tests/e2e/saves.py, large.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/saves.py" large
