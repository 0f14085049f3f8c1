#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 memory=512M disk about=7s
# No space, no right, no agent: one line each, and what was good stays good.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154
. "${srcdir:-.}/tests/e2e/agent_case.sh"

start_agent
trainer --steps 3 --kill-at 3 --bytes 5000000
until_true published step-000000000002.g1

# the agent dies while the process runs
"$builddir/tests/e2e/agent_trainer" --steps 12 --pause 50 --bytes 5000000 >"$D/running" 2>&1 &
running=$!
until_true grep -q "^held 4" "$D/running"
stop_agent KILL
start_agent
until_true grep -q "^held 12" "$D/running"
ok "a running process is adopted by the next agent" until_true logged "adopted session .*is running"
wait $running
ok "and ends well" test $? -eq 0
ok "agents say so when one serves already" "$agent" --job j
stop_agent
rm -rf "${SHM:?}/j"

# no room in memory
export TRANSPCKPT_MEMORY=60M TRANSPCKPT_DURABLE_INTERVAL=1000
start_agent
trainer --steps 2 --exit-at 1 --bytes 30000000
ok "one image where only one fits, with the reason" said "ready 1 images.*TRANSPCKPT_MEMORY allows"
ok "it became durable at the end" until_true published step-000000000001.g3
# The agent knows it a moment later, and the stand-in asks for room once.
until_true logged "step 1 is durable"
trainer --steps 3 --exit-at 2 --bytes 30000000
ok "the next run goes on from it" said "^offer 3 1"
ok "what is durable makes room" said "ready 1 images"
until_true published step-000000000002.g4
stop_agent
export TRANSPCKPT_DURABLE_INTERVAL=1
start_agent
trainer --steps 6 --kill-at 6 --bytes 30000000 --wait-durable
ok "the only image is used again and again" said "^durable 5"
trainer --steps 2 --kill-at 2 --bytes 100000000 --arg a
ok "none where none fits" said "ready 0 images of 0 bytes: .*TRANSPCKPT_MEMORY allows"
stop_agent
unset TRANSPCKPT_MEMORY
export TRANSPCKPT_DURABLE_INTERVAL=1s
rm -rf "${SHM:?}/j"

# large images: the first snapshot does not wait for the room of those behind it
start_agent
trainer --steps 3 --exit-at 2 --bytes 100000000 --more-images --arg large
ok "of large images one is there first" said "ready 1 images of 100000000 bytes$"
ok "and then all" said "ready 3 images of 100000000 bytes$"
stop_agent
rm -rf "${SHM:?}/j"

# a store that is no folder
rm -rf "$TRANSPCKPT_DIR"
: >"$TRANSPCKPT_DIR"
: >"$D/agent.err"
start_agent
trainer --steps 3 --kill-at 3
ok "a store that is a file: said at the start" said "notice snapshots stay in memory only"
ok "snapshots go on" said "^held 2"
until_true logged "not durable yet"
ok "said once" sh -c "[ \$(grep -c 'not durable yet' $D/agent.err) -eq 1 ]"
trainer --kill-at 0
ok "memory alone offers" said "^offer 1 2"
rm "$TRANSPCKPT_DIR"
ok "made durable once the store works" until_true logged "store works again"
stop_agent
rm -rf "${SHM:?}/j"

if [ "$(id -u)" -eq 0 ]; then
    rm -rf "$J"
    mkdir -p "$J"
    chown 12345 "$J"
    start_agent
    trainer --steps 3 --kill-at 3 --arg b
    ok "somebody else's store is not touched" said "belongs to user 12345"
    stop_agent
    rm -rf "${SHM:?}/j" "$J"

    mkdir -p "$D/small"
    if mount -t tmpfs -o size=14m none "$D/small" 2>/dev/null; then
        export TRANSPCKPT_DIR="$D/small"
        J=$D/small/j
        : >"$D/agent.err"
        start_agent
        trainer --steps 3 --kill-at 3
        until_true published step-000000000002.g1
        ok "the first fits" published step-000000000002.g1
        trainer --steps 5 --kill-at 5
        ok "full disk: said" until_true logged "No space left"
        ok "full disk: nothing half is left" test ! -e "$J/step-000000000004.g2"
        stop_agent
        rm -rf "${SHM:?}/j"
        start_agent
        trainer --kill-at 0
        ok "full disk: the previous one is offered" said "^offer 1 2"
        stop_agent
        umount "$D/small"
        rm -rf "${SHM:?}/j"
        export TRANSPCKPT_DIR="$D/store"
        J=$D/store/j
    fi
    # Not below /dev/shm: where something is mounted there Slurm cannot give a job its own.
    mkdir -p "$D/full"
    if mount -t tmpfs -o size=100m none "$D/full" 2>/dev/null; then
        export TRANSPCKPT_SHM="$D/full"
        "$agent" --job j --foreground 2>>"$D/agent.err" &
        AGENT=$!
        until_true test -S "$D/full/j/agent.sock"
        trainer --steps 2 --kill-at 2 --bytes 90000000 --arg c
        ok "full tmpfs: said" said "ready 0 images.*tmpfs"
        stop_agent
        umount "$D/full"
        export TRANSPCKPT_SHM="$SHM"
    fi
fi
done_testing
