#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 about=24s
# A resume that diverges starts the same program as it was started first, or ends with a line; one that
# differs by chance is tried again; one that goes on draws what the first run drew, and hears what it heard.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/divergence.py" again chance draws early
