#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The table of doc/interception.md is what the hook tables say, and leaves no driver symbol out.
exec "${PYTHON3:-python3}" "${srcdir:-.}/doc/interception_table.py" "${srcdir:-.}" --check
