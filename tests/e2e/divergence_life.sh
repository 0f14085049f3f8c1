#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 about=16s
# Two programs under one preload, agents that die, tiers that are lost, an ordinary user.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/divergence.py" life
