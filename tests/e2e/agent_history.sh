#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 memory=512M disk about=3s
# The job's history: what happened is in it, in order, whoever died meanwhile and whichever place was away.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154,SC2317
. "${srcdir:-.}/tests/e2e/agent_case.sh"

near=$D/near
far=$D/far
export TRANSPCKPT_DIR="node:$near,site:$far" TRANSPCKPT_DURABLE_INTERVAL=1000000
# events FILE EXPRESSION: of the list e of its events, n of their names
events() { "${PYTHON3:-python3}" -c "import json, sys
e = []
for line in open('$1'):
    if line.endswith('}\\n'): e.append(json.loads(line))
n = [x['event'] for x in e]
if not ($2): sys.exit('%s\n%s' % (n, e))"; }
has() { events "$1" "$2" 2>/dev/null; }

start_agent
trainer --steps 12 --kill-at 8
ok "killed" until_true has "$near/j/history" "'copied' in n"
ok "started, died, durable, copied" events "$near/j/history" "n == ['started', 'died', 'durable', 'copied']"
ok "what was lost and what was kept" events "$near/j/history" "(e[1]['how'], e[1]['kept_step'], e[1]['lost'], e[1]['iterations']) == ('was killed', 7, 1, 8)"
ok "what it took" events "$near/j/history" "e[2]['step'] == 7 and e[2]['bytes'] > 9 << 20 and e[2]['new_bytes'] > 9 << 20 and e[2]['write_sec'] > 0 and e[2]['verify_sec'] > 0 and e[2]['captured'] == 7"
ok "where it was copied to" events "$near/j/history" "(e[3]['tier'], e[3]['step'], e[3]['generation']) == ('site', 7, 1)"
trainer --steps 12 --kill-at 11
ok "resumed from memory" events "$SHM/j/history" "(n[4:6], e[4]['from'], e[4]['from_level'], e[5]['from_step'], e[5]['from_generation']) == (['started', 'resumed'], 'memory', 0, 7, 1)"
until_true has "$far/j/history" "n.count('copied') == 2"
trainer --steps 14 --status 3
ok "one that fails" until_true has "$near/j/history" "n.count('died') == 3 and e[[i for i, x in enumerate(n) if x == 'died'][2]].get('status') == 3"
trainer --steps 16
ok "and ends" until_true has "$near/j/history" "n[-1] == 'ended' and n.count('started') == 4 and n.count('resumed') == 3"
ok "each tier has it" until_true cmp "$near/j/history" "$far/j/history"
ok "and memory" cmp "$near/j/history" "$SHM/j/history"

# The agent dies and another one takes over.
"$builddir/tests/e2e/agent_trainer" --steps 400 --pause 100 >"$D/running" 2>&1 &
running=$!
until_true grep -q "^held 3" "$D/running"
stop_agent KILL
start_agent
ok "taken over" until_true has "$near/j/history" "n[-1] == 'taken over' and e[-1]['generation'] == 5 and e[-1]['agent'] != e[0]['agent']"
kill -KILL $running
wait $running 2>/dev/null
ok "and its death is known" until_true has "$far/j/history" "n.count('died') == 4"

# A torn line, and then more.
printf '{"at_ns":1,"event":"to' >>"$near/j/history"
trainer --kill-at 0
ok "a torn line is passed over" until_true has "$near/j/history" "n.count('died') == 5"
ok "and closed" grep -qx '{"at_ns":1,"event":"to' "$near/j/history"

# The first tier goes with the memory: the history is in the other one, and comes back.
stop_agent
rm -rf "${SHM:?}/j" "${near:?}/j"
start_agent
ok "a tier that was lost gets the history" until_true cmp "$near/j/history" "$far/j/history"
trainer --kill-at 0
ok "and what it resumes from" events "$SHM/j/history" "(n[0], e[0]['from'], e[0]['from_level']) == ('started', 'site', 2)"
stop_agent
rm -rf "${SHM:?}/j"

# A store that is away.
mv "$near" "$D/away"
: >"$near"
start_agent
trainer --steps 60 --kill-at 55
until_true logged "is not durable yet"
ok "memory has it meanwhile" until_true has "$SHM/j/history" "n[-1] == 'store failed' and e[-1]['tier'] == 'node' and e[-1]['why']"
stop_agent KILL
rm "$near"
mv "$D/away" "$near"
start_agent
ok "and the store has it afterwards" until_true grep -q "store failed" "$near/j/history"
ok "once" events "$near/j/history" "sorted(x['generation'] for x in e if x['event'] == 'died') == [1, 2, 3, 5, 6, 7, 8]"
ok "in order" until_true sh -c "grep -v -e at_ns.:1, '$near/j/history' | tail -n 3 | grep -q '\"event\":\"durable\"'"
stop_agent
done_testing
