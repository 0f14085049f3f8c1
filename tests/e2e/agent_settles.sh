#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 about=7s
# Somebody starts where the one before has died with snapshots that are not checked yet: whether it is waited for them. The agent's thread that checks is
# stopped meanwhile, as one is that has much to check.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154,SC2317
. "${srcdir:-.}/tests/e2e/agent_case.sh"

cat >"$D/stop.py" <<'PYTHON'
import ctypes, os, sys, time
agent, go = int(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
libc.ptrace.restype = ctypes.c_long
[thread] = [int(t) for t in os.listdir(f"/proc/{agent}/task") if open(f"/proc/{agent}/task/{t}/comm").read() == "checker\n"]
SEIZE, INTERRUPT, DETACH, ALL = 0x4206, 0x4207, 17, 0x40000000
if libc.ptrace(SEIZE, thread, 0, 0) or libc.ptrace(INTERRUPT, thread, 0, 0):
    sys.exit("ptrace: " + os.strerror(ctypes.get_errno()))
os.waitpid(thread, ALL)
open(go + ".stopped", "w").close()
while not os.path.exists(go):
    time.sleep(0.02)
libc.ptrace(DETACH, thread, 0, 0)
PYTHON

stopped() { [ -e "$D/$1.stopped" ] || ! kill -0 "$stopper" 2>/dev/null; }

# Stops the thread that checks, until the file of that name is there.
stop_checker() {
    python3 "$D/stop.py" "$AGENT" "$D/$1" 2>"$D/stop.err" &
    stopper=$!
    until_true stopped "$1"
    [ -e "$D/$1.stopped" ]
}

committed() { sed -n 's/.*committed step \([0-9]*\) of generation '"$1"'$/\1/p' "$D/agent.err" | sort -n | tail -n 1; }
newest() { sed -n 's/^held //p' "$D/first" | tail -n 1; }
beyond() { [ "$(newest)" -gt "$1" ]; }

# A process of which a snapshot is committed, and a newer one is not, ends. Its iterations take so long.
die_unchecked() {
    "$builddir/tests/e2e/agent_trainer" --arg "$1" --steps 100000 --no-wait --digests --pause 20 --iteration-ns "$2" >"$D/first" 2>&1 &
    first=$!
    until_true grep -q "^held 5" "$D/first"
    generation=$(sed -n 's/^generation //p' "$D/first")
    until_true test -n "$(committed "$generation")"
    stop_checker "$1" || return 1
    before=$(committed "$generation")
    until_true beyond "$before"
    kill -KILL "$first"
    wait "$first" 2>/dev/null
    "$builddir/tests/e2e/agent_trainer" --arg "$1" --steps 1 --kill-at 0 >"$D/out" 2>&1 &
    second=$!
}

start_agent
if ! die_unchecked much 3600000000000; then
    echo "1..0 # SKIP threads cannot be stopped: $(cat "$D/stop.err")"
    exit 77
fi
# The agent has patience with who still runs for three seconds.
sleep 4
ok "a start waits while the last snapshots of who has died are being checked" sh -c "kill -0 $second && ! grep -q generation '$D/out'"
: >"$D/much"
wait "$second" 2>/dev/null
ok "and gets a newer one than was committed when it died" sh -c "[ \"\$(sed -n 's/^offer $generation //p' '$D/out')\" -gt $before ]"
ok "nobody says that it still runs" said_not "still running"
die_unchecked little 1
wait "$second" 2>/dev/null
ok "where checking takes longer than the iterations took it is not waited for" said "^offer $generation $before$"
ok "and a line says so" logged "is not waited for: checking takes"
: >"$D/little"
wait "$stopper"
done_testing
