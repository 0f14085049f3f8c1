#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.1 about=6s
# Memory and events that processes share by CUDA's IPC are, preloaded, what they are without the library, faults included;
# each process says in one line that it cannot be resumed.
. "${srcdir:-.}/tests/preload/preload_case.sh"
program=$sim/ipc_test
if ! [ -x "$program" ]; then
    echo "1..0 # SKIP ipc_test has not been built: make check-programs"
    exit 77
fi
unset TRANSPCKPT_JOB # each process is a program of its own
cd "$D/work" || exit 99
for case in memory refusals gone events descriptors; do
    ok "$case: plain" "$program" $case
    # One of the two processes may have to be killed, and then its agent goes on until it sees that.
    ok "$case: preloaded" env LD_PRELOAD="$lib" "$program" $case
    is "$case: one line a process" "$(grep -c 'snapshots from here on cannot be resumed: ' "$D/said")" 2
    is "$case: and no other" "$(grep -vc 'snapshots from here on cannot be resumed: ' "$D/said")" 0
done
done_testing
