#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The table of failures of doc/cluster.md is what the code says. The tables of doc/interception.md are what the hook tables and the list of system calls say, and leave no driver symbol and no
# system call of the kernel's header out. A header with one more is noticed, and so is a hook that the list does not know.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
python=${PYTHON3:-python3}
D=$(mktemp -d "${TMPDIR:-/tmp}/tpck-lint.XXXXXX") || exit 99
trap 'rm -rf "$D"' EXIT
n=0
failed=0
# ok WHAT STATUS
ok() {
    n=$((n + 1))
    if [ "$2" -eq 0 ]; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        sed 's/^/#   /' "$D/said"
        failed=1
    fi
}

"$python" "$srcdir/doc/interception_table.py" "$srcdir" --check >"$D/said" 2>&1
ok "the driver's symbols" $?
"$python" "$srcdir/doc/system_calls_table.py" "$srcdir" --check >"$D/said" 2>&1
ok "the system calls" $?

"$python" "$srcdir/doc/failures_table.py" "$srcdir" --check >"$D/said" 2>&1
ok "the classes of failures" $?

mkdir -p "$D/asm" "$D/tree/hooks" "$D/tree/doc" && cp "$srcdir/hooks/libc.def" "$srcdir/hooks/libc_syscall.c" "$srcdir/hooks/system_calls.txt" "$D/tree/hooks/" &&
    cp "$srcdir/doc/interception.md" "$D/tree/doc/" && chmod -R u+w "$D/tree" || exit 99
printf '#include_next <asm/unistd_64.h>\n#define __NR_open_twice 999\n' >"$D/asm/unistd_64.h"
CC="${CC:-cc} -I$D" "$python" "$srcdir/doc/system_calls_table.py" "$srcdir" --check >"$D/said" 2>&1
grep -q '^open_twice is a system call of the kernel' "$D/said"
ok "a new one is noticed" $?
echo 'TPCK_HOOK_EXPORT(umount2, path)' >>"$D/tree/hooks/libc.def"
sed -i 's/^rename renameat /rename /' "$D/tree/hooks/system_calls.txt"
"$python" "$srcdir/doc/system_calls_table.py" "$D/tree" --check >"$D/said" 2>&1
grep -q '^umount2 is passed on by' "$D/said" && grep -q '^renameat has a hook, and' "$D/said" && grep -q 'doc/interception.md is not what' "$D/said"
ok "so is a hook that the list has not, or has otherwise" $?
echo "1..$n"
exit $failed
