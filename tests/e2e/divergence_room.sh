#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.4 about=12s
# No room, no permission, wrong settings: one line, the trainer unharmed.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/divergence.py" room
