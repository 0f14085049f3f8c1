#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands on checkpoints that several nodes have written.
# shellcheck disable=SC2317 # functions that ok calls
. "${srcdir:-.}/tests/e2e/need_shm.sh"
need_shm 256 "$@"
builddir=${builddir:-.}
count=0
failed=0
ok() {
    what=$1
    shift
    count=$((count + 1))
    if "$@"; then
        echo "ok $count - $what"
    else
        echo "not ok $count - $what"
        sed 's/^/#   /' "$D/out" "$D/err"
        failed=1
    fi
}
D=$(mktemp -d) || exit 77
trap 'rm -rf "$D"' EXIT
export TRANSPCKPT_SHM="$D/shm" TRANSPCKPT_DIR="$D/store"
mkdir "$D/shm" "$D/store"
: >"$D/out"
: >"$D/err"

# run STATUS ARGUMENT...: what it says is in $D/out and $D/err
run() {
    wanted=$1
    shift
    "$builddir/transpckpt" "$@" >"$D/out" 2>"$D/err"
    [ $? -eq "$wanted" ]
}
says() {
    grep -qE "$1" "$D/out" "$D/err"
}
lacks() {
    ! says "$1"
}

ok "a store of parts" "$builddir/tests/unit/store_parts_test" "$D/store"
ok "ls" run 0 ls --job j
ok "has a row for each joined checkpoint" says '7 +20 durable .*; 4 ranks'
ok "and none for a part" lacks '7 +30 '
ok "show" run 0 show --state --job j
ok "says how many ranks the newest has" says 'step 20 of generation 7, 4 ranks'
ok "verify" run 0 verify --job j
ok "finds both good" says 'step 20 .*: good'
ok "a manifest that lacks ranks" run 1 verify --job k
ok "is refused, and they are named" says 'MANIFEST lacks ranks 3 of 4'
mv "$D/store/j/step-000000000010.g7/data.1" "$D/aside"
ok "shards that are gone" run 1 verify --job j 10
ok "are one line, with their ranks" says 'data\.1, where shards of ranks 1-2 of 4 are'
ok "and the checkpoint is bad" says 'step 10 .*: BAD'
ok "so is what refers to them" run 1 verify --job j 20
mv "$D/aside" "$D/store/j/step-000000000010.g7/data.1"
M=$D/store/j/step-000000000020.g7
mv "$M/mark.r2.o0" "$D/aside"
ok "a mark that is gone" run 1 verify --job j
ok "is one line, with its ranks" says 'mark\.r2\.o0 of ranks 2 of 4 is gone'
ok "of the one checkpoint" says 'step 10 .*: good'
ok "to list checkpoints" run 0 ls --job j
ok "no mark is needed" says '7 +20 durable .*; 4 ranks'
sed 's/"length":/"lengths":/; s/"data_bytes":/"data-bytes":/' "$D/aside" >"$M/mark.r2.o0"
ok "one that is damaged" run 1 verify --job j
ok "is a line" says 'mark .*mark\.r2\.o0 does not match its digest'
ok "and no other part's fault" says 'step 20 .*: BAD'
ok "to show it takes the first part's" run 0 show --job j
ok "which is good" says 'step 20 of generation 7, 4 ranks'
mv "$D/aside" "$M/mark.r2.o0"
mv "$M/mark.r0.o0" "$D/aside"
ok "without that one" run 1 show --job j
ok "it says why" says 'mark\.r0\.o0 of ranks 0-1 of 4 is gone'
mv "$D/aside" "$M/mark.r0.o0"
ok "rm of the older one" run 0 rm --job j 10
ok "takes its manifest" test ! -e "$D/store/j/step-000000000010.g7/MANIFEST"
ok "leaves the containers of all nodes that the newer one refers to" \
    test -e "$D/store/j/step-000000000010.g7/data.0" -a -e "$D/store/j/step-000000000010.g7/data.1" -a -e "$D/store/j/step-000000000010.g7/data.3"
ok "and takes the marks" test ! -e "$D/store/j/step-000000000010.g7/mark.r1.o0"
ok "the newer one" run 0 verify --job j
ok "is good as before" says 'step 20 .*: good'
ok "the newest one is not removed" run 1 rm --job j 20
ok "but by force" run 0 rm --force --job j 20
ok "with all that it had, and no part of another" \
    test ! -e "$D/store/j/step-000000000020.g7" -a -e "$D/store/j/step-000000000030.g7/data.0"
echo "1..$count"
exit $failed
