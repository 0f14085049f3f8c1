#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.3 memory=512M disk
# A step that is not the same moment on all ranks: one has made a collective more. It is given up, with a line; the next one
# counts.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154
. "${srcdir:-.}/tests/e2e/agent_case.sh"
export TRANSPCKPT_DURABLE_INTERVAL=1

# BOTH RANK-1'S: two ranks of one launch; their outputs in out0 and out1
both() {
    # shellcheck disable=SC2086 # options are words
    "$builddir/tests/e2e/agent_trainer" --world 2 --launch 5 --rank 1 $1 $2 >"$D/out1" 2>&1 &
    other=$!
    # shellcheck disable=SC2086 # options are words
    trainer --world 2 --launch 5 --rank 0 $1
    cp "$D/out" "$D/out0"
    wait $other
}
committed() { grep -c "committed step $1 " "$D/agent.err"; }

start_agent
both "--steps 5 --pause 50" "--more-at 3"
ok "both ended" sh -c "grep -q bye '$D/out0' && grep -q bye '$D/out1'"
ok "the step is given up on both" sh -c "grep -q '^abandoned 3' '$D/out0' && grep -q '^abandoned 3' '$D/out1'"
ok "it is no other" sh -c "[ \$(cat '$D/out0' '$D/out1' | grep -c '^abandoned') = 2 ]"
ok "a line says why" logged "step 3 is abandoned: the ranks are not at the same place: communicator 0000000000000007: 30 collectives on its rank 0 and 31 on its rank 1"
ok "it is not committed" [ "$(committed 3)" = 0 ]
ok "the one before and the one behind are" [ "$(committed 2) $(committed 4)" = "1 1" ]

# An agent that dies between the two leaves images that say more than was found out.
rm -f "$D/out" "$D/out1" # the first run's say the same
both "--arg again --steps 4 --pause 800" "--more-at 3" &
ranks=$!
until_true sh -c "grep -q '^abandoned 3' '$D/out' && grep -q '^abandoned 3' '$D/out1'"
stop_agent KILL
# shellcheck disable=SC2046 # one word a process
kill -KILL $(ps -o pid= --ppid "$ranks")
wait "$ranks"
"${PYTHON3:-python3}" - "$SHM" >"$D/changed" <<'END'
import glob, struct, sys
ABANDONED, COMMITTED, FREE = 4, 3, 0
for path in glob.glob(sys.argv[1] + "/j/g*/image.*"):
    with open(path, "r+b") as f:
        state, = struct.unpack("<16xI", f.read(20))
        f.seek(32)
        step, = struct.unpack("<Q", f.read(8))
        if step == 3 and state in (ABANDONED, FREE):
            print(path)
            f.seek(16)
            f.write(struct.pack("<I", COMMITTED))
END
ok "images of both ranks are as if it had died there" [ "$(wc -l <"$D/changed")" = 2 ]
start_agent
both "--arg again --steps 4" ""
ok "an agent that adopts what was being committed compares it, too" sh -c "grep -q '^offer [0-9]* 2$' '$D/out0' && grep -q '^offer [0-9]* 2$' '$D/out1'"
done_testing
