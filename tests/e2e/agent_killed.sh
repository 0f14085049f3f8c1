#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 about=15s disk
# The agent is killed at every write, rename, link, sync and removal: old or new, never torn.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154
. "${srcdir:-.}/tests/e2e/agent_case.sh"
strace=$(command -v strace) || { echo "1..0 # SKIP no strace"; exit 77; }
# LeakSanitizer cannot work under ptrace.
export ASAN_OPTIONS=detect_leaks=0
$strace -f -o "$D/trace" true || { echo "1..0 # SKIP strace is not allowed"; exit 77; }
export TRANSPCKPT_KEEP=1
bytes=100000

start_agent
trainer --steps 3 --kill-at 3 --bytes $bytes
until_true published step-000000000002.g1
stop_agent
rm -rf "${SHM:?}/j"
cp -a "$TRANSPCKPT_DIR" "$D/good"
ok "there is a good one to begin with" published step-000000000002.g1

# An agent that leaves takes its time to remove what it kept, and the next one begins meanwhile.
$strace -f -qq -o "$D/trace" -e trace=unlinkat -e inject=unlinkat:delay_enter=400000 \
    "$agent" --job j --foreground 2>>"$D/agent.err" &
slow=$!
until_true agent_listens
trainer --steps 3 --want 999 --bytes $bytes
ok "one that ended well: the agent leaves" until_true sh -c "! test -S $SHM/j/agent.sock"
start_agent
trainer --steps 30 --kill-at 20 --bytes $bytes
ok "the next agent's files are its own" until_true sh -c "ls $J/step-000000000019.g*/MANIFEST"
ok "and stay" sh -c "ls $SHM/j/g*.r0.o0/control"
wait $slow
ok "nothing of the first is left" sh -c "[ -z \"\$(find $SHM -name '.j.ended*')\" ]"
mkdir -p "$SHM/.j.ended.1/g1.r0.o0"
stop_agent
start_agent
ok "nor of one that was killed at it" until_true test ! -e "$SHM/.j.ended.1"
stop_agent KILL

kills=0
torn=0
# at CALL N: kill at the N-th CALL of a thread; 1 if the agent outlived it
at() {
    rm -rf "$TRANSPCKPT_DIR" "${SHM:?}/j"
    cp -a "$D/good" "$TRANSPCKPT_DIR"
    $strace -f -qq -o "$D/trace" -e trace="$1" -e inject="$1":signal=KILL:when="$2" \
        "$agent" --job j --foreground 2>>"$D/agent.err" &
    AGENT=$!
    tries=0
    until [ -S "$SHM/j/agent.sock" ] || ! kill -0 $AGENT 2>/dev/null || [ $tries -gt 2000 ]; do
        sleep 0.01
        tries=$((tries + 1))
    done
    trainer --steps 4 --kill-at 4 --bytes $bytes --no-wait
    tries=0
    # An agent that is dead is a zombie child until waited for.
    while [ ! -f "$J/step-000000000003.g2/MANIFEST" ] && [ $tries -lt 300 ] &&
          pgrep -P $AGENT >/dev/null; do
        sleep 0.01
        tries=$((tries + 1))
    done
    inner=$(pgrep -P $AGENT)
    [ -n "$inner" ] && kill -TERM "$inner" 2>/dev/null
    wait $AGENT
    outcome=$?
    AGENT=
    [ $(($2 % 2)) -eq 0 ] && rm -rf "${SHM:?}/j"
    start_agent
    trainer --kill-at 0 --bytes $bytes
    if ! { said "^offer 1 2" || said "^offer 2 3"; } || said "offer is wrong"; then
        torn=$((torn + 1))
        echo "# torn: $1 $2"
        sed 's/^/#   /' "$D/out"
        tail -n 5 "$D/agent.err" | sed 's/^/#   /'
    fi
    stop_agent KILL
    [ $outcome -eq 137 ] || return 1
    kills=$((kills + 1))
}

calls="rename link unlink fsync fallocate ftruncate mkdir io_uring_enter linkat renameat2 pwrite64 unlinkat"
for call in ${TPCK_TEST_CALLS:-$calls}; do
    n=1
    while [ $n -le 40 ] && at "$call" $n; do
        n=$((n + 1))
    done
done
echo "# killed $kills times"
ok "never torn" test $torn -eq 0
ok "it was killed often enough to mean something" test $kills -ge 20
done_testing
