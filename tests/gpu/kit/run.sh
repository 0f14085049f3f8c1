#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a stage of the kit; without arguments it says which there are.
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 1
exec "${PYTHON3:-python3}" -B "$here/tests/gpu/kit/kit.py" "$@"
