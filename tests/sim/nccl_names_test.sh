#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every function of NCCL's header is there twice, as in the vendor's library: weak, so that a profiler may have its own,
# and by its profiling name, which is strong and the same code.
set -u
lib=${builddir:?}/tests/sim/lib/libnccl.so.2
names=$(sed -n 's/^[a-zA-Z].*[ *]\(nccl[A-Z][A-Za-z]*\)(.*/\1/p' "${srcdir:?}/tests/sim/standin/nccl.h")
table=$(nm -D --defined-only "$lib") || exit 99
status=0
n=0
for name in $names; do
    n=$((n + 1))
    at=$(echo "$table" | sed -n "s/ W $name\$//p")
    twin=$(echo "$table" | sed -n "s/ T p$name\$//p")
    if [ -z "$at" ] || [ "$at" != "$twin" ]; then
        echo "not ok - $name: $(echo "$table" | grep " p*$name\$" | tr '\n' ' ')"
        status=1
    fi
done
[ "$n" -ge 30 ] || { echo "not ok - only $n functions in the header"; status=1; }
[ $status != 0 ] || echo "ok - $n functions"
exit $status
