#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.8 about=4s
# The trainers repeat themselves: the same seed gives the same bytes, and their own --resume goes on as if never stopped.
# TAP. Environment: builddir; RUN is what starts a program on the software device.
set -u
bin=${TRAINERS:-$builddir/tests/trainers}
run=${RUN:-$builddir/tests/sim/simgpu-run}
if ! [ -x "$bin/gpt" ] || ! [ -x "${run%% *}" ]; then
    echo "1..0 # SKIP the trainers have not been built: make trainers"
    exit 77
fi
scratch=$(mktemp -d) || exit 99
trap 'rm -rf "$scratch"' EXIT
n=0
failed=0

report() { # ok what
    n=$((n + 1))
    if [ "$1" = 0 ]; then
        echo "ok $n - $2"
    else
        echo "not ok $n - $2"
        failed=1
    fi
}

same() { # folder folder
    cmp -s "$1/final.bin" "$2/final.bin" && cmp -s "$1/log.txt" "$2/log.txt"
}

# name options...: whole run twice; then left after 10 of 16 steps and resumed from the checkpoint at 8
check() {
    name=$1
    shift
    rm -rf "${scratch:?}"/*
    $run "$bin/$name" --seed 7 --steps 16 --out "$scratch/a" "$@" > "$scratch/a.out" 2>&1 &&
        $run "$bin/$name" --seed 7 --steps 16 --out "$scratch/b" "$@" > "$scratch/b.out" 2>&1 &&
        same "$scratch/a" "$scratch/b" && cmp -s "$scratch/a.out" "$scratch/b.out"
    report $? "$name $*: twice the same bytes"
    $run "$bin/$name" --seed 7 --steps 16 --stop-at 10 --out "$scratch/c" --save-every 4 "$@" > "$scratch/c.out" 2>&1 &&
        ! cmp -s "$scratch/a/final.bin" "$scratch/c/final.bin" &&
        $run "$bin/$name" --seed 7 --steps 16 --out "$scratch/c" --save-every 4 --resume "$@" > "$scratch/d.out" 2>&1 &&
        same "$scratch/a" "$scratch/c" && ! grep -q "^step 7 " "$scratch/d.out"
    report $? "$name $*: resumed by itself, the same bytes"
}

check gpt
check gpt --fused --varlen --async-loss
check gpt --graph --accum 3
check gpt --rename --log-append
check gpt --overwrite --save-best --eval-every 4
check classifier
check classifier --loader-thread
check gan
echo "1..$n"
exit $failed
