#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 memory=512M disk
# Whatever happens to the newest durable checkpoint, the one before is offered, and a line says why.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154
. "${srcdir:-.}/tests/e2e/agent_case.sh"

start_agent
trainer --steps 3 --kill-at 3 --bytes 9000000
until_true published step-000000000002.g1
trainer --steps 5 --kill-at 5 --bytes 9000000
until_true published step-000000000004.g2
stop_agent
rm -rf "${SHM:?}/j"
new=step-000000000004.g2
old=step-000000000002.g1
cp -a "$TRANSPCKPT_DIR" "$D/good"

# flip FILE OFFSET: one bit of one byte
flip() {
    byte=$(od -An -tu1 -j "$2" -N1 "$1")
    # shellcheck disable=SC2059
    printf "$(printf '\\%03o' $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# damaged WHAT PATTERN: the older one is offered; the reason is in the log
damaged() {
    : >"$D/agent.err"
    "$command" verify >"$D/verify.out" 2>&1
    verified=$?
    start_agent
    trainer --kill-at 0 --bytes 9000000
    ok "$1: the one before is offered" said "^offer 1 2"
    ok "$1: one line says why" logged "$2"
    ok "$1: verify finds it" test $verified -eq 1
    stop_agent
    rm -rf "${SHM:?}/j"
}

again() {
    rm -rf "$TRANSPCKPT_DIR"
    cp -a "$D/good" "$TRANSPCKPT_DIR"
}

flip "$J/$new/data.0" 100000
damaged "flipped bit" "chunk [0-9]* of .* does not match its digest"
ok "flipped bit: set aside" test -f "$J/quarantine/$new/reason"
again
truncate -s 200000 "$J/$new/data.0"
damaged "truncated container" "ends before byte"
again
rm "$J/$new/data.0"
damaged "missing container" "No such file"
ok "missing container: set aside" test -f "$J/quarantine/$new/reason"
again
flip "$J/$new/data.0" 3
damaged "container header" "is no container"
again
flip "$J/$new/MANIFEST" 300
damaged "flipped bit of the manifest" "manifest"
again
truncate -s 500 "$J/$new/MANIFEST"
damaged "torn manifest" "is no manifest"
again
sed -i 's/"format":1/"format":99/' "$J/$new/MANIFEST"
damaged "unknown format" "has format 99"
ok "unknown format: left where it is" test -f "$J/$new/MANIFEST"
again
rm "$J/$new/MANIFEST"
start_agent
trainer --kill-at 0 --bytes 9000000
ok "unpublished remains: the one before is offered" said "^offer 1 2"
ok "unpublished remains are cleared" until_true test ! -e "$J/$new"
stop_agent
rm -rf "${SHM:?}/j"
again
# A bit of the older one's container that the newer refers to takes both away.
flip "$J/$old/data.0" $((4096 + 4096 + 4194304 + 1000))
"$command" verify >"$D/verify.out" 2>&1
ok "verify names both that need a bad chunk" test "$(grep -c BAD "$D/verify.out")" -eq 2
start_agent
trainer --kill-at 0 --bytes 9000000
ok "nothing good is left: nothing is offered" said_not "^offer"
ok "and that is said" said "cannot be resumed"
stop_agent
done_testing
