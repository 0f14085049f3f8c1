#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 minutes=30 about=250s
# Somebody who does things for a trainer at his own pace, every way and case of tests/e2e/paces.py.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/paces.py" all
