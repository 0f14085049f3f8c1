#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.9 memory=2G minutes=60 about=400s
# Random jobs whose agents speak over MPI, eight of them; SEED= repeats.
TRANSPORT=mpi SCENARIOS="${SCENARIOS:-8}" exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/campaign.py"
