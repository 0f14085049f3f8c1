#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A test that needs more memory in /dev/shm than there is takes a tmpfs of its own, or is skipped with what it needs.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
builddir=$(cd "${builddir:-.}" && pwd) || exit 99
D=$(mktemp -d "${TMPDIR:-/tmp}/tpck-room.XXXXXX") || exit 99
trap 'rm -rf "$D"' EXIT
MUCH=99999999
n=0
failed=0
ok() {
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        sed 's/^/#   /' "$D/said"
        failed=1
    fi
}

cat >"$D/case.sh" <<END
#!/bin/sh
. "$srcdir/tests/e2e/need_shm.sh"
need_shm $MUCH "\$@"
said="\$#: \$2, \$(df -P -m /dev/shm | awk 'NR == 2 { print \$4 }')"
head -c 2M /dev/zero >/dev/shm/in_use
need_shm $MUCH "\$@"
echo "\$said"
END
cat >"$D/case.py" <<END
import os, sys
sys.path.insert(0, "$srcdir/tests/e2e")
import job
job.need_shm($MUCH)
found = os.statvfs("/dev/shm")
said = f"{len(sys.argv) - 1}: {sys.argv[2]}, {found.f_bavail * found.f_frsize >> 20}"
with open("/dev/shm/in_use", "wb") as f:
    f.write(bytes(2 << 20))
job.need_shm.cache_clear()
job.need_shm($MUCH)
print(said)
END
mkdir "$D/bin"
printf '#!/bin/sh\nexit 1\n' >"$D/bin/unshare"
chmod 755 "$D/bin/unshare" "$D/case.sh"
unset TPCK_OWN_SHM

for kind in "" "${PYTHON3:-python3}"; do
    test="$D/case.${kind:+py}"
    [ -n "$kind" ] || test="$D/case.sh"
    PATH="$D/bin:$PATH" ${kind:+"$kind"} "$test" a "b c" >"$D/said" 2>&1
    [ $? -eq 77 ] && grep -q "SKIP needs $MUCH MiB free in /dev/shm, which has [0-9][0-9]*" "$D/said"
    ok $? "${test##*/}: where no mounts are allowed it is skipped and says why"
done
if ! unshare --mount mount -t tmpfs tmpfs /dev/shm 2>/dev/null; then
    echo "1..$n"
    echo "# mounts are not allowed here"
    exit $failed
fi
for kind in "" "${PYTHON3:-python3}"; do
    test="$D/case.${kind:+py}"
    [ -n "$kind" ] || test="$D/case.sh"
    timeout 30 ${kind:+"$kind"} "$test" a "b c" >"$D/said" 2>&1 && grep -q "2: b c, $MUCH\$" "$D/said"
    ok $? "${test##*/}: it has a tmpfs of its own, also when that is in use, and its arguments"
done
# shellcheck disable=SC2016 # for the shell inside
unshare --mount sh -c 'mount -t tmpfs -o size=4m tmpfs /dev/shm && "$0" && df -P -k /dev/shm | awk "NR == 2 { exit \$3 != 0 }"' \
    "$builddir/tests/unit/huge_test" >"$D/said" 2>&1
ok $? "a test in C with 4 MiB has a tmpfs of its own"
echo "1..$n"
exit $failed
