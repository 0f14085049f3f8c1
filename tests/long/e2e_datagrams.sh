#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 minutes=15 about=60s
# Datagrams that a trainer sends, by every way of tests/e2e/datagrams.py.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/datagrams.py" all
