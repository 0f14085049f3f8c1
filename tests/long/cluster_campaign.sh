#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.9 memory=2G minutes=90 about=900s
# Random jobs on random nodes with random losses, twenty of them; SEED= repeats.
SCENARIOS="${SCENARIOS:-20}" exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/campaign.py"
