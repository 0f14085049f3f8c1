#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 about=8s
# A damaged store: the previous checkpoint is used, the bad one set aside.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/divergence.py" damage
