#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.4 about=39s
# Each witness of where iterations end, alone: kernel names, and the pattern of launches with names removed.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/e2e/kill_resume.py" gpt:names classifier:names gan:names \
    gpt:pattern gpt-accum:pattern gpt-varlen:pattern gpt-async-loss:pattern classifier:pattern gan:pattern
