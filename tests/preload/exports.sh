#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What the library exports is what the hook tables say, no more and no less; the forwarder exports every symbol of
# the driver; neither needs a library that a trainer might lack.
. "${srcdir:-.}/tests/preload/preload_case.sh"
cd "$D/work" || exit 99
command -v "${NM:-nm}" >/dev/null || { echo "1..0 # SKIP no nm"; exit 77; }
exported() { "${NM:-nm}" -D --defined-only "$1" | awk '{ print $3 }' | sed 's/@.*//' | sort; }
rows() { # the tables' own first column, read anew
    cat "$@" | tr '\n' ' ' | sed 's,/\*[^*]*\*\+\([^/*][^*]*\*\+\)*/,,g' |
        grep -oE 'TPCK_(HOOK|HOOK_EXPORT|REFUSE)\( *[A-Za-z_][A-Za-z0-9_]*' | sed 's/.*( *//' | sort
}
for table in "$srcdir"/hooks/*.def; do
    case $table in */cuda_all.def | */cuda_used.def | */nccl_all.def) ;; *) set -- "$@" "$table" ;; esac
done
# NCCL's are exported by their profiling names, too.
twice() {
    cat "$@" | tr '\n' ' ' | grep -oE 'TPCK_HOOK_TWICE\( *[A-Za-z_][A-Za-z0-9_]*' | sed 's/.*( *//' | sed 'p; s/^/p/'
}
{ rows "$@"; twice "$@"; } | sort >tables
exported "$lib" >library
ok "there are tables" test "$(wc -l <tables)" -gt 150
is "a symbol has one row" "$(uniq -d tables)" ""
is "in the tables, not exported" "$(comm -23 tables library)" ""
is "exported, not in the tables" "$(comm -13 tables library)" ""
ok "no symbol has a version" sh -c "! ${NM:-nm} -D --defined-only '$lib' | grep -q @"

sed '/^#/d; /^$/d' "$srcdir/shim/driver_symbols.txt" | sort >symbols
exported "$forwarder" >forwarded
is "a driver symbol is listed once" "$(uniq -d symbols)" ""
is "forwarder: exactly the listed symbols" "$(comm -3 symbols forwarded)" ""
# What it offers beyond the API is for programs that know it (simgpu_mark), or stands for calls of later drivers (cuSim).
exported "$sim/lib/libcuda.so.1" | grep -v "^simgpu_\|^cuSim" >device
is "forwarder: all that the software device's driver exports" "$(comm -23 device forwarded)" ""
if [ -r "$sim/driver_names.txt" ]; then
    sort -u "$sim/driver_names.txt" >vendor
    is "forwarder: all that the vendor's header names" "$(comm -23 vendor forwarded)" ""
fi
# A row for a symbol that the driver does not have would never be called.
grep '^cu' tables >driver_rows
is "hooked driver symbols are the driver's" "$(comm -23 driver_rows symbols)" ""

if command -v readelf >/dev/null; then
    is "the forwarder's name" "$(readelf -d "$forwarder" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" libcuda.so.1
    is "the library has no SONAME, or its own" \
        "$(readelf -d "$lib" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p' | grep -v '^libtranspckpt')" ""
    needs=$(readelf -d "$lib" "$forwarder" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort -u |
        grep -vE '^(libc|libdl|libpthread|librt|libm|ld-linux-x86-64|libgcc_s)\.so')
    is "both need libc alone" "$needs" ""
    is "everything is bound at the start" "$(readelf -d "$lib" | grep -c 'Flags:.*NOW')" 1
    is "no executable stack" "$(readelf -lW "$lib" "$forwarder" | grep GNU_STACK | grep -c E)" 0
    is "no text relocations" "$(readelf -d "$lib" "$forwarder" | grep -c TEXTREL)" 0
fi
done_testing
