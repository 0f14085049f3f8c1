#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 memory=2G minutes=30 about=200s
# The cases of agents over MPI that tests/cluster/mpi.py runs by name only.
CASE=by_name exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/mpi.py"
