#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.4 about=44s
# A program that is another one than before is not resumed: data, arguments, environment, executable.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/divergence.py" identity
