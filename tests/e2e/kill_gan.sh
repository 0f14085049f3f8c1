#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two optimizers in turn, with skipped steps, killed twenty times; and with extensions that keep state of their own.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" gan=20 gan-long-growth gan-extensions
