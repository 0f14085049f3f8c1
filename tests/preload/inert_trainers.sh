#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 about=15s
# Trainers, and programs that use the device badly, give the same bytes, results and status with the library
# preloaded; also where the device fails, and where the library cannot do its work.
. "${srcdir:-.}/tests/e2e/need_shm.sh"
need_shm 1024 "$@"
. "${srcdir:-.}/tests/preload/preload_case.sh"
trainers=$builddir/tests/trainers
kernels=$sim/test_kernels.simimg
if ! [ -x "$trainers/gpt" ] || ! [ -r "$kernels" ]; then
    echo "1..0 # SKIP the trainers have not been built: make check-programs"
    exit 77
fi
cd "$D/work" || exit 99
# shellcheck disable=SC2086 # flags are words
${CC:-cc} -std=gnu11 -Wall -Wextra ${CUDA_CPPFLAGS:-} -o device "$here/inert/device.c" -L"$sim/lib" -lcuda || exit 99

# once INTO LIBRARIES COMMAND...: INTO.out, .err, .status and the folder INTO.left; it runs in a folder of one name
runs=0
once() {
    into=$1
    libraries=$2
    shift 2
    runs=$((runs + 1))
    rm -rf run "$into.left" && mkdir run
    (
        cd run || exit 99
        TRANSPCKPT_JOB=j$runs
        export TRANSPCKPT_JOB
        with "$libraries" timeout 120 "$@"
    ) >"$into.out" 2>"$into.err" </dev/null
    echo "$?" >"$into.status"
    mv run "$into.left"
}

# compare WHAT LINES: one kind of line on standard error may be ours, in LINES lines at most
compare() {
    count=$((count + 1))
    bad=
    cmp -s plain.out preloaded.out || bad="$bad out"
    cmp -s plain.status preloaded.status || bad="$bad status"
    diff -r plain.left preloaded.left >left.diff 2>&1 || bad="$bad left"
    grep -v '^transpckpt: ' preloaded.err | cmp -s plain.err - || bad="$bad err"
    ours=$(grep -c '^transpckpt: ' preloaded.err)
    [ "$ours" -le "$2" ] || bad="$bad lines:$ours"
    if [ -z "$bad" ]; then
        echo "ok $count - $1"
    else
        echo "not ok $count - $1: differs in$bad"
        failed=1
        diff plain.out preloaded.out | head -n 20 | sed 's/^/#   /'
        diff plain.status preloaded.status | sed 's/^/#   /'
        head -n 10 left.diff | sed 's/^/#   /'
        head -n 20 preloaded.err | sed 's/^/#   /'
    fi
}

# same LINES WHAT COMMAND...
same() {
    lines=$1
    what=$2
    shift 2
    once plain "" "$@"
    once preloaded "$lib" "$@"
    compare "$what" "$lines"
}

# ---- trainers ----
for trainer in gpt classifier gan; do
    same 0 "$trainer" "$trainers/$trainer" --steps 16 --seed 3 --out out --save-every 5
    ok "$trainer: it trained" test -s plain.left/out/final.bin
    ok "$trainer: and was followed" test -d "$D/store/j$runs"
done
same 0 "gpt, in graphs" "$trainers/gpt" --steps 16 --seed 3 --out out --graph --accum 2
same 0 "gpt, sequences of changing length" "$trainers/gpt" --steps 16 --seed 3 --out out --varlen --fused --async-loss
same 0 "classifier, threads" "$trainers/classifier" --steps 16 --seed 3 --out out --loader-thread
# One run resumes by itself where another of its own left off.
once plain "" sh -c "$trainers/gpt --steps 12 --stop-at 8 --save-every 4 --out out && $trainers/gpt --steps 12 --save-every 4 --out out --resume"
once preloaded "$lib" sh -c "$trainers/gpt --steps 12 --stop-at 8 --save-every 4 --out out && $trainers/gpt --steps 12 --save-every 4 --out out --resume"
compare "gpt, resumed by itself" 0
once plain "" "$trainers/gpt" --steps 16 --seed 3 --out out
once preloaded "$forwarder:$lib" "$trainers/gpt" --steps 16 --seed 3 --out out
compare "gpt, the forwarder in front" 0

# ---- results ----
same 1 "bad calls" "$D/work/device" "$kernels" errors
ok "bad calls: to the end" grep -q 'cuModuleUnload(NULL): CUDA_ERROR' plain.out
same 1 "what a capture forbids" "$D/work/device" "$kernels" capture
ok "what a capture forbids: it does" grep -q 'CAPTURE_UNSUPPORTED' plain.out
same 0 "iterations" "$D/work/device" "$kernels" loop
same 0 "children" "$D/work/device" "$kernels" fork
same 1 "memory that comes and goes" "$D/work/device" "$kernels" memory
ok "memory: as much as before" test "$(grep -c "as it should be" plain.out)" -eq 4
SIMGPU_DEVICES=2
export SIMGPU_DEVICES
same 1 "one device uses the other's memory" "$D/work/device" "$kernels" peers
ok "one device uses the other's memory: it may" grep -q 'and comes again, device 1: 3' plain.out
same 1 "one device uses the other's pool" "$D/work/device" "$kernels" pools
ok "one device uses the other's pool: it may" grep -q 'what came behind it, device 1: 3' plain.out
ok "one device uses the other's pool: a line says that there is no going on" grep -q '^transpckpt: .*cannot be resumed: .*cuMemPoolSetAccess' preloaded.err
LATE=1
export LATE
same 1 "one device uses the other's pool, later" "$D/work/device" "$kernels" pools
ok "one device uses the other's pool, later: it may" grep -q 'what was there, device 1: 3' plain.out
unset LATE
unset SIMGPU_DEVICES
for how in contexts release; do
    same 1 "contexts that end ($how)" "$D/work/device" "$kernels" $how
    ok "contexts ($how): the program goes on" grep -q '^59: 0 ' plain.out
    ok "contexts ($how): a line says that snapshots do not" grep -q '^transpckpt: .*ended the context' preloaded.err
done
same 0 "a heap for kernels as large as ever" "$D/work/device" "$kernels" heap
HEAP=1
export HEAP
same 1 "a larger heap for kernels" "$D/work/device" "$kernels" heap
ok "a larger heap: a line says that there is no going on" grep -q '^transpckpt: .*cannot be resumed: kernels of the program take memory' preloaded.err
unset HEAP
same 0 "host memory that kernels may write to" "$D/work/device" "$kernels" mapped
MAPPED=1
export MAPPED
same 1 "host memory that a kernel writes to" "$D/work/device" "$kernels" mapped
ok "host memory that a kernel writes to: a line says that there is no going on" grep -q '^transpckpt: .*cannot be resumed: host memory' preloaded.err
ok "host memory that a kernel writes to: it does" grep -qx 1 plain.out
unset MAPPED
once plain "" "$D/work/device" "$kernels" waits
once preloaded "$lib" "$D/work/device" "$kernels" waits
compare "streams that wait for values in memory" 1
ok "streams that wait for values: nobody refuses any" sh -c '! grep -q "do not see values" preloaded.err'
SIMGPU_FAULT=dead_memops
export SIMGPU_FAULT
for BATCH in "" 1; do
    [ -z "$BATCH" ] || export BATCH
    same 1 "waits for values that are dead in mapped memory${BATCH:+, several at once first}" "$D/work/device" "$kernels" waits
    ok "waits that are dead${BATCH:+, several at once first}: a line says that there are no snapshots" grep -q '^transpckpt: no snapshots from here on: .*do not see values' preloaded.err
done
unset BATCH
for GRAPHS in 0 1 2; do
    export GRAPHS
    # In the third the graph waited elsewhere before, which marks.
    same $((1 + GRAPHS / 2)) "waits for values that are dead in mapped memory, in graphs made in way $GRAPHS" "$D/work/device" "$kernels" waits
    ok "waits that are dead, in graphs made in way $GRAPHS: a line says that there are no snapshots" grep -q '^transpckpt: no snapshots from here on: .*do not see values' preloaded.err
done
unset SIMGPU_FAULT
once plain "" "$D/work/device" "$kernels" waits
once preloaded "$lib" "$D/work/device" "$kernels" waits
compare "graphs that wait for values in memory" 1
ok "graphs that wait for values: a line says that there is no going on" grep -q '^transpckpt: .*cannot be resumed: a graph of the program waits for values' preloaded.err
unset GRAPHS
CLOSE_FROM=100
export CLOSE_FROM
same 1 "descriptors closed while training" "$D/work/device" "$kernels" loop
unset CLOSE_FROM
same 1 "no descriptor left" "$D/work/device" "$kernels" full

# ---- faults; an allocation of ours counts too, so only the first can be made to fail at the same call ----
for fault in oom@1 launch@1 launch@77 sticky@1 sticky@50 lost@1 lost@60 stall@5:50 refuse_hint move_hint; do
    SIMGPU_FAULT=$fault
    export SIMGPU_FAULT
    same 1 "$fault" "$D/work/device" "$kernels" loop
    case $fault in
    launch@77 | sticky@50 | lost@60) same 1 "gpt, $fault" "$trainers/gpt" --steps 16 --seed 3 --out out ;;
    esac
done
unset SIMGPU_FAULT

touch "$D/file"
# ---- the library cannot work: the trainer does, and one line says why ----
# trouble WHAT PATTERN NAME=VALUE...
trouble() {
    what=$1
    pattern=$2
    shift 2
    once preloaded "" env "$@" LD_PRELOAD="$lib" "$trainers/gpt" --steps 16 --seed 3 --out out
    compare "$what" 1
    ok "$what: one line says so" grep -q "^transpckpt: .*$pattern" preloaded.err
}
once plain "" "$trainers/gpt" --steps 16 --seed 3 --out out
trouble "no agent" "starting the agent /nonexistent: No such file" TRANSPCKPT_AGENT=/nonexistent
trouble "an agent that fails at once" "does not answer" TRANSPCKPT_AGENT=/bin/false
trouble "a bad value" "TRANSPCKPT_INTERVAL=banana is not" TRANSPCKPT_INTERVAL=banana
trouble "an unknown setting" "TRANSPCKPT_FOO is no setting" TRANSPCKPT_FOO=1
trouble "no configuration file" "TRANSPCKPT_CONF=/nonexistent" TRANSPCKPT_CONF=/nonexistent
trouble "the store is a file" "$D/file" TRANSPCKPT_DIR="$D/file"
trouble "the memory tier is a file" "$D/file" TRANSPCKPT_SHM="$D/file"
trouble "the memory tier cannot be made" "/proc/nothing" TRANSPCKPT_SHM=/proc/nothing
mkdir -p "$SHM/theirs"
if [ "$(id -u)" -eq 0 ] && chown 65534 "$SHM/theirs"; then
    trouble "the memory tier is another user's" "$SHM/theirs" TRANSPCKPT_SHM="$SHM/theirs"
else
    chmod 500 "$SHM/theirs"
    trouble "the memory tier is not writable" "$SHM/theirs" TRANSPCKPT_SHM="$SHM/theirs"
fi
done_testing
