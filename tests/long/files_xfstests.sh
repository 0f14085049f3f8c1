#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1 memory=1G minutes=60 about=400s disk
# fsx and fsstress on files that are taken and files that are not; XFSTESTS names a folder with the sources of xfstests.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/files/xfstests.py"
