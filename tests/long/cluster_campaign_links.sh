#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.9 memory=2G minutes=60 about=400s
# Random jobs over links that delay and lose packets, eight of them; SEED= repeats.
LINKS=1 SCENARIOS="${SCENARIOS:-8}" exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/cluster/campaign.py"
