# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034
# Sourced by the agent's tests: folders of their own, an agent, a trainer, TAP.
set -u
. "${srcdir:-.}/tests/e2e/need_shm.sh"
need_shm 1024 "$@"
builddir=${builddir:-.}
D=$(mktemp -d "${TMPDIR:-/tmp}/tpck-agent.XXXXXX")
SHM=$(mktemp -d /dev/shm/tpck-agent.XXXXXX) || { echo "1..0 # SKIP no /dev/shm"; exit 77; }
AGENT=
# A name of its own: whoever ends all agents of the machine does not mean those under test.
agent="$D/agent-under-test"
ln -s "$(cd "$builddir" && pwd)/transpckptd" "$agent"
count=0
failed=0
for name in $(env | sed -n 's/^\(TRANSPCKPT_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
export TRANSPCKPT_SHM="$SHM" TRANSPCKPT_DIR="$D/store" TRANSPCKPT_JOB=j TRANSPCKPT_LOG=debug TRANSPCKPT_LINGER_SEC=60
# Often enough for tests that are not about how often.
export XDG_STATE_HOME="$D/state" TRANSPCKPT_CONF="" MALLOC_PERTURB_=165 TRANSPCKPT_DURABLE_INTERVAL=1s
J=$TRANSPCKPT_DIR/j
command="$builddir/transpckpt"

finish() {
    stop_agent KILL
    for lock in "$SHM"/*/agent.lock; do
        [ -s "$lock" ] || continue
        pid=$(cat "$lock")
        # One that was killed left a number that may be another process's by now.
        [ "$(readlink "/proc/$pid/exe")" = "$(readlink -f "$agent")" ] && kill -KILL "$pid" 2>/dev/null
    done
    rm -rf "$SHM" "$D"
}
trap finish EXIT

# ok WHAT COMMAND...
ok() {
    what=$1
    shift
    count=$((count + 1))
    if "$@" >"$D/said" 2>&1; then
        echo "ok $count - $what"
    else
        echo "not ok $count - $what"
        failed=1
        echo "# command: $*"
        sed 's/^/#   /' "$D/said"
        [ -f "$D/out" ] && tail -n 12 "$D/out" | sed 's/^/# trainer: /'
        for log in "$D/agent.err" "$SHM/j/agent.log"; do
            [ -f "$log" ] && tail -n 15 "$log" | sed 's/^/# agent: /'
        done
    fi
}

done_testing() {
    ok "no complaint of a sanitizer" sh -c "! grep -E 'Sanitizer|runtime error' '$D/agent.err'"
    echo "1..$count"
    exit $failed
}

# Waits for a command to succeed; on a busy machine that may be a minute and more.
until_true() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -gt 5000 ] && return 1
        sleep 0.02
    done
}

# In the foreground of a job of ours, so that it can be waited for.
start_agent() {
    rm -f "$SHM/j/agent.sock"
    "$agent" --job j --foreground 2>>"$D/agent.err" &
    AGENT=$!
    until_true agent_listens
}

agent_listens() { [ -S "$SHM/j/agent.sock" ]; }

stop_agent() {
    [ -n "$AGENT" ] || return 0
    kill "-${1:-TERM}" "$AGENT" 2>/dev/null
    wait "$AGENT" 2>/dev/null
    AGENT=
}

# The trainer's output is in $D/out, its status in $status.
trainer() {
    "$builddir/tests/e2e/agent_trainer" "$@" >"$D/out" 2>&1
    status=$?
}

said() { grep -q -- "$1" "$D/out"; }
said_not() { ! grep -q -- "$1" "$D/out"; }
logged() { grep -q -- "$1" "$D/agent.err"; }
ended() { [ "$status" -eq "$1" ]; }
published() { [ -f "$J/$1/MANIFEST" ]; }
not_published() { [ ! -f "$J/$1/MANIFEST" ]; }
