#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cuGetProcAddress with every name, version and flag: the function that the driver means is the one whose hook is
# given, and every hooked function is reached that way.
. "${srcdir:-.}/tests/preload/preload_case.sh"
cd "$D/work" || exit 99
# shellcheck disable=SC2086 # flags are words
${CC:-cc} -std=gnu11 -Wall -Wextra ${CUDA_CPPFLAGS:-} -o proc "$here/doors/proc.c" -ldl || exit 99
# The names that are asked for: base names, which are symbols without the suffix that tells versions apart.
sed 's/#.*//; s/_pt[sd][sz]$//; s/_v[0-9]*$//' "$srcdir/shim/driver_symbols.txt" | sed '/^$/d' | sort -u >bases
sort -u "$srcdir/shim/driver_symbols.txt" bases | sed '/^#/d; /^$/d' >names
# At the versions at which a hooked function came, and at some before, between and after.
grep -ohE ', [0-9]{4,5}, CUresult' "$srcdir"/hooks/*.def | tr -dc '0-9\n' >since
printf '%s\n' 0 2000 7000 11030 12080 13000 99000 | sort -nu - since >versions
"${PYTHON3:-python3}" "$srcdir/shim/make_exports.py" map "$srcdir"/hooks/cuda_[b-t]*.def |
    sed -n 's/^[[:space:]]*\(cu[A-Za-z0-9_]*\);/\1/p' | sort >hooked.wanted

with '' ./proc names versions none >plain 2>plain.err
is "plain: it answers" "$?" 0
ok "plain: thousands of answers" test "$(wc -l <plain)" -gt 5000
ok "plain: old and new at their versions" sh -c '
    grep -q "^cuMemAlloc 2000 0: 0 0 cuMemAlloc, 0 cuMemAlloc, 0 cuMemAlloc$" plain &&
    grep -q "^cuMemAlloc 3020 0: 0 0 cuMemAlloc_v2, 0 cuMemAlloc_v2, 0 cuMemAlloc_v2$" plain &&
    grep -q "^cuMemcpyAsync 7000 2: 0 0 cuMemcpyAsync_ptsz, " plain &&
    grep -q "^cuNothing 12000 0: 0 1 nothing, 500 nothing, 500 nothing$" plain'
for how in "$lib" "$forwarder:$lib"; do
    case $how in *:*) name="forwarder in front" ;; *) name="preloaded" ;; esac
    with "$how" ./proc names versions hooked >preloaded 2>preloaded.err
    is "$name: it answers" "$?" 0
    ok "$name: every answer means the same function" cmp plain preloaded
    ok "$name: and says the same" diff plain.err preloaded.err
    sort hooked >hooked.got
    is "$name: hooked functions that no question reaches" "$(comm -13 hooked.got hooked.wanted)" ""
done
done_testing
