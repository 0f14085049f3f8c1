#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.3 memory=3G minutes=30 about=330s
# What a script sends to others, by every way, killed twice.
exec "${PYTHON3:-python3}" "${srcdir:-.}/tests/torch/kill_posts.py" all
