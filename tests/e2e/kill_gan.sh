#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 about=7s
# Two optimizers in turn, with skipped steps, killed; and with extensions that keep state of their own.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" gan gan-long-growth gan-extensions
