#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=7G minutes=90 about=1400s
# Parsers and inputs that nobody has thought of: each target of tests/fuzz for two minutes.
command -v clang >/dev/null || exit 77
FUZZ_JOBS=2 FUZZ_SEC=${FUZZ_SEC:-120} exec make -C "${builddir:-.}" fuzz
