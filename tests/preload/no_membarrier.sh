#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 about=10s
# A kernel, or a filter, that refuses membarrier(), from the start or from some moment on: the trainer does what it does
# without the library, and there are snapshots for as long as it is certain that none misses a call.
. "${srcdir:-.}/tests/e2e/need_shm.sh"
need_shm 1024 "$@"
. "${srcdir:-.}/tests/preload/preload_case.sh"
trainer=$builddir/tests/trainers/classifier
if ! [ -x "$trainer" ]; then
    echo "1..0 # SKIP the trainers have not been built: make check-programs"
    exit 77
fi
if ! strace -f -qq -o /dev/null -e trace=membarrier -e inject=membarrier:error=EPERM true 2>/dev/null; then
    echo "1..0 # SKIP no strace, or it may not trace"
    exit 77
fi
cd "$D/work" || exit 99

# train INTO COMMAND...: two threads launch, so that a boundary needs the other one's barrier
train() {
    into=$1
    shift
    rm -rf out
    "$@" "$trainer" --steps 100 --seed 3 --loader-thread --out out >"$into.out" 2>"$into.err"
    cp out/final.bin "$into.bin"
}
# refused WHEN: strace that refuses it, from that call on
refused() {
    echo "strace -f -qq -o $D/calls -e trace=membarrier -e inject=membarrier:error=EPERM$1"
}

train plain with ""
ok "it trains" test -s plain.bin
for when in "" ":when=3+"; do
    case $when in
    "") words="refused" ;;
    *) words="refused later" ;;
    esac
    TRANSPCKPT_JOB=j${when:+later} TRANSPCKPT_INTERVAL=1 TRANSPCKPT_DURABLE_INTERVAL=1
    export TRANSPCKPT_JOB TRANSPCKPT_INTERVAL TRANSPCKPT_DURABLE_INTERVAL
    # shellcheck disable=SC2046 # words
    train preloaded with "$lib" $(refused "$when")
    ok "$words: the same bytes" cmp plain.bin preloaded.bin
    ok "$words: the same output" cmp plain.out preloaded.out
    ok "$words: it was asked for" grep -q "membarrier.*INJECTED" "$D/calls"
    if [ -z "$when" ]; then
        is "$words: nothing is said" "$(cat preloaded.err)" ""
        ok "$words: snapshots all the same" sh -c "'$D/inst/bin/transpckpt' ls | grep -q durable"
    else
        is "$words: one line says so" "$(grep -c 'no more snapshots: the kernel refuses membarrier()' preloaded.err)" 1
        is "$words: and no other" "$(wc -l <preloaded.err)" 1
        is "$words: no snapshot that may lack a call" "$("$D/inst/bin/transpckpt" ls | grep -c durable)" 0
    fi
done
done_testing
