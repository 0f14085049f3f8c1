#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 memory=2G minutes=30 about=360s
# Every case of agents over MPI, of tests/cluster/mpi.py.
CASE=every exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/mpi.py"
