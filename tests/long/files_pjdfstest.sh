#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=2 memory=1G minutes=90 about=900s disk
# What pjdfstest says of system calls on files; PJDFSTEST names a folder with its sources.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/files/pjdfstest.py"
