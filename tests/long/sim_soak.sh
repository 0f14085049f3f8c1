#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.5 memory=1G minutes=20 about=120s
# simgpu used by many threads for a while.
SOAK_ROUNDS=400000 exec "${builddir:-.}/tests/sim/soak_test"
