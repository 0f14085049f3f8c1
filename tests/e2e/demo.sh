#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A demonstration for people: a GPT in training is killed again and again, and ends with the bytes of a run that was
# left alone. Argument: the build folder. ./bootstrap.sh demo calls it.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 1
builddir=$(CDPATH='' cd -- "${1:-.}" && pwd) || exit 1
export builddir
PYTHONDONTWRITEBYTECODE=1 exec "${PYTHON3:-python3}" "$here/demo.py"
