#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 about=9s disk
# A killed process goes on from memory, from the store, at a step that was named; one that ended does not.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154
. "${srcdir:-.}/tests/e2e/agent_case.sh"

# Kept for good, however many come after.
export TRANSPCKPT_MILESTONE=40
start_agent
trainer --steps 9 --kill-at 6 --digests
ok "killed while filling step 6" ended 137
ok "marker is there from HELLO on" sh -c "find $J/programs -type f | grep -qv state"
trainer --steps 12 --kill-at 10 --segment 120000
ok "another segment size makes the log differ, which the comparison sees" said "offer is wrong"
until_true published step-000000000005.g1
trainer --steps 60 --kill-at 41
ok "memory offers step 5" said "^offer 1 5"
ok "killed again" ended 137
until_true published step-000000000040.g3
ok "the newest became durable" published step-000000000040.g3
ok "step 40 refers to unchanged chunks" sh -c "[ \$(grep -o 'step-[^/]*/data.0' $J/step-000000000040.g3/MANIFEST | sort -u | wc -l) -ge 2 ]"
stop_agent
ok "SIGTERM leaves the memory tier" sh -c "ls $SHM/j/g3.r0.o0/image.*"
rm -rf "${SHM:?}/j"
start_agent
trainer --steps 70 --kill-at 66
ok "the store offers step 40" said "^offer 3 40"
ok "the log of several segments came back" ended 137
until_true published step-000000000065.g4
stop_agent KILL
start_agent
trainer --kill-at 0
ok "a new agent adopts the memory of a dead process" said "^offer 4 65"
stop_agent
rm -rf "${SHM:?}/j"
start_agent
id=$(basename "$J"/programs/*.state .state)
mkdir -p "$J/keep/$id"
: >"$J/keep/$id/file"
trainer --want 40 --steps 42
ok "a step that was named is offered" said "^offer 3 40"
ok "ended by itself" ended 0
ok "with BYE" said "^bye"
until_true test ! -e "$J/programs/$id"
ok "its marker is gone" sh -c "! find $J/programs -type f | grep -qv state"
ok "and what was kept for its log" until_true test ! -e "$J/keep/$id"
trainer --steps 2 --kill-at 2
ok "nothing is offered after a good end" said_not "^offer"
trainer --want 77 --steps 1 --kill-at 1
ok "a step that is not there is said" said "no checkpoint of step 77"
ok "verify finds everything good" "$command" verify
sleep 3
ok "a dead process's memory lingers, and the agent with it" kill -0 "$AGENT"
kill -USR1 "$AGENT"
ok "told that nobody comes back it ends, and takes the memory along" until_true test ! -e "$SHM/j"
ok "by itself" wait "$AGENT"
done_testing
