#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.3 about=22s
# The classifier killed; its seed drawn; a loader's thread; memory that comes and goes.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" classifier classifier-drawn-seed classifier-loader-thread \
    classifier-churn
