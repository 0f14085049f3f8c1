#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.0 about=12s
# gpt_ranks in each layout: it repeats itself bit for bit, its own --resume goes on as if never stopped, and it computes
# what one rank does with the same global batch, but for the order of sums. TAP.
# Environment: builddir, srcdir; RUN is what starts a program on the software device; TOLERANCE of the last.
set -u
bin=${TRAINERS:-$builddir/tests/trainers}
run=${RUN:-$builddir/tests/sim/simgpu-run}
launch="${PYTHON3:-python3} ${srcdir:-.}/tests/trainers/launch.py"
tolerance=${TOLERANCE:-1e-5}
steps=10
if ! [ -x "$bin/gpt_ranks" ] || ! [ -x "${run%% *}" ]; then
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
        tail -n 3 "$scratch"/*.out 2>/dev/null | sed 's/^/#   /'
        failed=1
    fi
}

# launcher ranks folder options...
train() {
    launcher=$1
    ranks=$2
    folder=$3
    shift 3
    # shellcheck disable=SC2086 # the commands are words
    timeout 120 $launch --as "$launcher" "$ranks" $run "$bin/gpt_ranks" --seed 7 --steps "$steps" --width 16 --context 16 \
        --bigrams 64 --out "$scratch/$folder" "$@" > "$scratch/$folder.out" 2>&1
}

# ranks folder folder: every rank's
same() {
    [ "$(find "$scratch/$2" -name 'final_r*.bin' -size +0 | wc -l)" = "$1" ] || return 1
    for file in "$scratch/$2"/final_r*.bin "$scratch/$2"/log_r*.txt; do
        cmp "$file" "$scratch/$3/${file##*/}" || return 1
    done
}

# log log: the largest relative difference of a loss or a norm
difference() {
    paste -d ' ' "$1" "$2" | awk -v steps="$steps" '
        function off(a, b) { d = a > b ? a - b : b - a; m = a > b ? a : b; if (!(d <= most * m)) most = d / m }
        { off($4, $(4 + NF / 2)); off($6, $(6 + NF / 2)) }
        END { if (NR != steps) most = "none"; print most + 0 == most ? sprintf("%.3g", most) : "nan" }'
}

# name launcher ranks micro-batches-of-a-step options...: a whole run twice; then left after 7 steps and resumed from the
# checkpoint at 6; then against one rank that takes all micro-batches
check() {
    name=$1
    how=$2
    world=$3
    micros=$4
    shift 4
    rm -rf "${scratch:?}"/*
    train "$how" "$world" a "$@" && train "$how" "$world" b "$@" && same "$world" a b && cmp "$scratch/a.out" "$scratch/b.out"
    report $? "$name: twice the same bytes"
    train "$how" "$world" c --stop-at 7 --save-every 3 "$@" && ! same "$world" a c > /dev/null 2>&1 &&
        train "$how" "$world" c --save-every 3 --resume "$@" && same "$world" a c && ! grep -q '^step 5 ' "$scratch/c.out"
    report $? "$name: resumed by itself, the same bytes"
    train "$how" 1 one --accum "$micros"
    off=$(difference "$scratch/a/log_r00.txt" "$scratch/one/log_r00.txt")
    awk -v off="$off" -v most="$tolerance" 'BEGIN { exit !(off != "nan" && off + 0 <= most + 0) }'
    report $? "$name: as one rank, largest relative difference $off"
}

check "data parallel, 2 ranks" torchrun 2 4 --accum 2
check "data parallel, 4 ranks" openmpi 4 4 --accum 1
check "sharded optimizer, 2 ranks" torchrun 2 2 --accum 1 --zero
check "sharded optimizer, 3 ranks" pmi 3 3 --accum 1 --zero
check "much talk, 2 ranks" torchrun 2 2 --accum 1 --zero --chatty
check "tensor parallel, 2 ranks" slurm 2 2 --accum 2 --tp 2
check "pipeline parallel, 2 ranks" torchrun 2 3 --accum 3 --pp 2
check "tensor, pipeline and data parallel, 8 ranks" torchrun 8 4 --accum 2 --tp 2 --pp 2
check "tensor, pipeline and data parallel, sharded optimizer, 8 ranks" torchrun 8 4 --accum 2 --tp 2 --pp 2 --zero

# An error of the network on one rank, in the middle of a step: it leaves, the launcher ends the others, the job is resumed.
for layout in "30 --accum 2" "40 --accum 2 --zero" "100 --accum 2 --tp 2" "40 --accum 3 --pp 2"; do
    rm -rf "${scratch:?}"/*
    SIMGPU_FAULT=nccl_error@${layout%% *}/1
    layout=${layout#* }
    # shellcheck disable=SC2086 # flags are words
    train torchrun 2 a $layout && {
        export SIMGPU_FAULT
        train torchrun 2 b --save-every 2 --watch $layout
        [ $? = 4 ]
    } && grep -q '^gpt_ranks: rank 1: ' "$scratch/b.out" && unset SIMGPU_FAULT &&
        train torchrun 2 b --save-every 2 --watch --resume $layout && same 2 a b && grep -q 'from step [2468]$' "$scratch/b.out"
    report $? "$layout: a network that fails, then resumed"
    unset SIMGPU_FAULT
done

# One rank that fails ends the job, whatever the others wait for.
# shellcheck disable=SC2016,SC2086 # the ranks' shells expand it; the command is words
timeout 60 $launch 2 sh -c '[ "$RANK" = 0 ] || exit 3; exec sleep 600'
[ $? = 3 ]
report $? "the launcher ends all when one fails"
echo "1..$n"
exit $failed
