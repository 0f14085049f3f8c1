#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 about=8s disk
# Segments of the log that are full are packed while the process runs: memory has their names only, the store has them, and a start goes on from them,
# from memory and from the store. What is damaged is not gone on from.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154,SC2317
. "${srcdir:-.}/tests/e2e/agent_case.sh"

grep -q '^#define HAVE_ZSTD' "$builddir/config.h" || { echo "1..0 # SKIP this build has no zstd"; exit 0; }
packs() { find "$J/keep" -name "pack.$1.*" ! -name '.*' | sort; }
at_least() { [ "$(packs "$1" | wc -l)" -ge "$2" ]; }
# Full segments that are as they were, and packs that take memory.
whole() { find "$SHM/j/g$1.r0.o0" -name 'log.*' | wc -l; }
in_memory() { find "$SHM/j/g$1.r0.o0" -name 'pack.*' -type f | wc -l; }
start() { trainer --repeats --segment 120000 "$@"; }

export TRANSPCKPT_MILESTONE=40
start_agent
start --steps 60 --kill-at 41 --pause 20
ok "killed" ended 137
ok "full segments came to the store" at_least 1 5
ok "and from memory, where two or three are not full" [ "$(whole 1)" -le 3 ]
ok "which has the names of the others only" [ "$(in_memory 1)" -eq 0 ]
ok "they take little" [ "$(packs 1 | xargs cat | wc -c)" -lt 20000 ]
until_true published step-000000000040.g1
ok "checkpoints have them" grep -q pack.000004 "$J/step-000000000040.g1/MANIFEST"
last=$(sed -n 's/.*"log_sequence": *\([0-9]*\).*/\1/p' "$J/step-000000000040.g1/MANIFEST")
ok "and the one that is not full packed, too" grep -q "pack.$(printf %06d "$last")" "$J/step-000000000040.g1/MANIFEST"
start --steps 60 --kill-at 51 --pause 20
ok "memory offers step 40" said "^offer 1 40"
ok "with a log that is what was written" said "unpacked [1-9]"
ok "killed again" ended 137
ok "what came since is packed, too" at_least 2 1
until_true published step-000000000050.g2
stop_agent
rm -rf "${SHM:?}/j"
start_agent
start --steps 60 --kill-at 56 --pause 20
ok "the store offers step 50" said "^offer 2 50"
ok "with a log that is what was written" said "unpacked [1-9]"
until_true published step-000000000055.g3
stop_agent KILL

# One pack is cut short; then a byte of another one is changed.
second=$(packs 3 | sed -n 2p)
truncate -s 100 "$second"
start_agent
start --steps 60 --kill-at 57
ok "memory with a pack that is cut short is not gone on from" logged "in memory is not usable: .*log.000001"
ok "the store offers the same" said "^offer 3 55"
ok "which is right" said "unpacked [1-9]"
stop_agent KILL
damaged=$(packs 4 | head -n 1)
ok "it was packed again" [ -n "$damaged" ]
printf 'x' | dd of="$damaged" bs=1 seek=70 conv=notrunc status=none
start_agent
start --steps 60 --kill-at 58
ok "nor is memory with a pack that is damaged" logged "in memory is not usable: unpacking .*pack.00000"
ok "the store offers what it has" said "^offer [34] 5"
ok "which is right, too" said "unpacked [1-9]"
done_testing
