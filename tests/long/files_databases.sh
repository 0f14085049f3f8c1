#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 memory=1G minutes=60 about=150s disk
# Databases that are killed a hundred times each, by each kind of journal, in a folder of checkpoints and with every file taken.
KILLS=100 exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/files/databases.py"
