#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The trainers as nvcc built them, on a real GPU: the demonstration's table, then every case of kill_resume.py.
# Environment: srcdir, builddir. Exit status 77 without a GPU.
srcdir=${srcdir:-.}
builddir=${builddir:-.}
PYTHON3=${PYTHON3:-python3}
if ! [ -x "$builddir/tests/gpu/gpt" ]; then
    echo "1..0 # SKIP no nvcc: the trainers have not been built for hardware"
    exit 77
fi
if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "1..0 # SKIP no GPU here"
    exit 77
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | sed 's/^/# /'
DEVICE=gpu PYTHONDONTWRITEBYTECODE=1
TPCK_TEST_TIMES=${TPCK_TEST_TIMES:-40}
export builddir DEVICE PYTHONDONTWRITEBYTECODE TPCK_TEST_TIMES
"$PYTHON3" "$srcdir/tests/e2e/demo.py" || exit 1
failed=0
for case in $("$PYTHON3" "$srcdir/tests/e2e/kill_resume.py" | grep -v slow-copies); do
    "$PYTHON3" "$srcdir/tests/e2e/kill_resume.py" "$case=${KILLS:-8}" || failed=1
done
exit $failed
