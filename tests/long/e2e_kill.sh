#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.2 minutes=60 about=500s
# Every trainer and habit of tests/e2e/kill_resume.py, killed twenty times each.
export KILLS=20
# shellcheck disable=SC2046 # a list of words
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" $("${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py")
