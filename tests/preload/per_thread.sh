#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program whose default stream is each thread's own calls other symbols of the driver: its results are the same with the library
# preloaded, and it is followed.
. "${srcdir:-.}/tests/preload/preload_case.sh"
kernels=$sim/test_kernels.simimg
if ! [ -r "$kernels" ]; then
    echo "1..0 # SKIP the kernels have not been built: make check-programs"
    exit 77
fi
cd "$D/work" || exit 99
# shellcheck disable=SC2086 # flags are words
${CC:-cc} -std=gnu11 -Wall -Wextra ${CUDA_CPPFLAGS:-} -DCUDA_API_PER_THREAD_DEFAULT_STREAM -o device "$here/inert/device.c" \
    -L"$sim/lib" -lcuda || exit 99
ok "it calls the symbols of per-thread streams" sh -c "nm -D --undefined-only device | grep -q ' cuStreamSynchronize_ptsz'"
for mode in errors capture loop memory; do
    with "" timeout 120 ./device "$kernels" $mode >plain 2>&1
    echo "status $?" >>plain
    TRANSPCKPT_JOB=$mode TRANSPCKPT_LOG=error with "$lib" timeout 120 ./device "$kernels" $mode >preloaded 2>&1
    echo "status $?" >>preloaded
    ok "$mode: the same results" diff plain preloaded
    ok "$mode: it is followed" test -d "$D/store/$mode"
done
ok "it comes to the end" grep -q 'status 0' plain
done_testing
