#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 memory=1G minutes=60 about=600s
# Programs that save files killed at every one of their system calls, the agent too.
ALL=1 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/files/killed.py"
