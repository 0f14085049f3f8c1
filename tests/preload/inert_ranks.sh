#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.3 about=7s
# A job of several ranks, whichever launcher says that it is one, leaves the same bytes, logs, checkpoints and output as
# without the library, and its ranks are one generation. What only looks like one is followed by itself.
. "${srcdir:-.}/tests/e2e/need_shm.sh"
need_shm 1024 "$@"
. "${srcdir:-.}/tests/preload/preload_case.sh"
trainers=$builddir/tests/trainers
if ! [ -x "$trainers/gpt_ranks" ]; then
    echo "1..0 # SKIP the trainers have not been built: make check-programs"
    exit 77
fi
cd "$D/work" || exit 99
for name in RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT $(env | sed -n 's/^\(\(SLURM\|PMI\|OMPI\)_[A-Z_]*\)=.*/\1/p'); do
    unset "$name"
done

# FOLDER LIBRARIES LAUNCHER RANKS OPTIONS...: each rank's out.RR and err.RR beside what it wrote
job() {
    into=$1
    libraries=$2
    launcher=$3
    ranks=$4
    shift 4
    rm -rf run "$into" && mkdir run
    timeout 120 "${PYTHON3:-python3}" "$srcdir/tests/trainers/launch.py" --as "$launcher" --outputs run "$ranks" \
        "$sim/simgpu-run" env ${libraries:+LD_PRELOAD="$libraries"} "$trainers/gpt_ranks" --seed 3 --steps 8 \
        --save-every 3 --width 16 --context 16 --bigrams 64 --out run/out "$@" >/dev/null 2>&1
    echo "$?" >run/status
    mv run "$into"
}

# LAUNCHER RANKS OPTIONS...
together() {
    launcher=$1
    ranks=$2
    shift 2
    what="$launcher, $ranks ranks${*:+, $*}"
    TRANSPCKPT_JOB=$launcher
    export TRANSPCKPT_JOB
    job plain "" "$launcher" "$ranks" "$@"
    job preloaded "$lib" "$launcher" "$ranks" "$@"
    is "$what: it trained" "$(cat plain/status) $(find plain/out -name 'final_r*.bin' -size +0 | wc -l)" "0 $ranks"
    is "$what: no line" "$(cat preloaded/err.*)" ""
    ok "$what: the same bytes" diff -r plain preloaded
    # The agent hears of a rank beside its work; so short a job may have ended by then.
    for _ in $(seq 100); do
        programs=$(find "$D/store/$launcher/programs" -name '*.state' | wc -l)
        [ "$programs" -lt "$ranks" ] || break
        sleep 0.1
    done
    is "$what: one generation of so many programs" "$(cat "$D/store/$launcher/generation") $programs" "1 $ranks"
}

together torchrun 2
together openmpi 2 --zero
together pmi 2 --tp 2
together slurm 2 --pp 2

# A batch script is one process, whatever its allocation has; and so is a step of one task in it.
once() {
    TRANSPCKPT_JOB=$1
    export TRANSPCKPT_JOB
    shift
    env "$@" "$sim/simgpu-run" env LD_PRELOAD="$lib" timeout 60 "$trainers/gpt" --steps 8 --out one >one.out 2>one.err </dev/null
    echo "status $?" >>one.err
}
once batch SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_PROCID=0 SLURM_LOCALID=0
is "a batch script of an allocation for four tasks: no line" "$(cat one.err)" "status 0"
ok "a batch script of an allocation for four tasks: followed" test -d "$D/store/batch"
once step SLURM_JOB_ID=7 SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1
is "a step of one task: no line" "$(cat one.err)" "status 0"
ok "a step of one task: followed" test -d "$D/store/step"
done_testing
