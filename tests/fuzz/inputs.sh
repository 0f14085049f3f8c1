#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 memory=1G about=5s
# Each fuzz target with the inputs of its corpus: none ends it, and none leaves memory behind.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
D=$(mktemp -d "${TMPDIR:-/tmp}/tpck-fuzz.XXXXXX") || exit 99
trap 'rm -rf "$D"' EXIT
export TMPDIR="$D"
n=0
failed=0
for corpus in "$srcdir"/tests/fuzz/corpus/*/; do
    name=$(basename "$corpus")
    n=$((n + 1))
    if "${builddir:-.}/tests/fuzz/$name" "$corpus" >"$D/out" 2>"$D/err"; then
        echo "ok $n - $name: $(cat "$D/out")"
    else
        echo "not ok $n - $name"
        sed 's/^/# /' "$D/err" | tail -n 40
        failed=1
    fi
done
echo "1..$n"
[ "$n" -gt 0 ] || exit 1
exit $failed
