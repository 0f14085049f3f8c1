#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The classifier killed twenty times; its seed drawn; a loader's thread; memory that comes and goes.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" classifier=20 classifier-drawn-seed classifier-loader-thread \
    classifier-churn
