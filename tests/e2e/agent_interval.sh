#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 about=12s disk
# TRANSPCKPT_DURABLE_INTERVAL=auto: what was lost with memory, as the store's history has it, makes checkpoints durable more
# often; deaths that memory survives do not; and show says what the interval comes from.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154,SC2317
. "${srcdir:-.}/tests/e2e/agent_case.sh"

unset TRANSPCKPT_DURABLE_INTERVAL
# i EXPRESSION: of the interval of the first tier as show has it, and of all of them, l
i() { "$command" show --json | "${PYTHON3:-python3}" -c "import json, sys
l = json.load(sys.stdin)[-1]['durable_intervals']
i = l[0]
young = (2 * i['cost_sec'] * i['mean_sec']) ** 0.5
if not ($1): sys.exit(str(l))"; }
flushes() { grep -c "is durable:" "$D/agent.err"; }
# Memory and its agent go, and with them whoever watched.
lose_memory() {
    kill -KILL "$1"
    stop_agent KILL
    wait "$1" 2>/dev/null
    rm -rf "${SHM:?}/j"
    start_agent
}
run() {
    "$builddir/tests/e2e/agent_trainer" --steps 4000 --pause 10 --bytes 3000000 --arg "$1" >"$D/running" 2>&1 &
    running=$!
}

start_agent
before=$(flushes)
run a
until_true logged "is durable"
sleep 4
ok "where nothing is known one failure in a day is, and one checkpoint in four seconds is enough" test $(($(flushes) - before)) -eq 1
ok "show has what it comes from" i "i['setting'] == 'auto' and i['failures'] == 0 and i['prior_sec'] == 86400 and 86400 <= i['mean_sec'] < 86500 and i['cost_sec'] > 0"
ok "and the result" i "abs(i['interval_sec'] - max(young, 10 * i['cost_sec'], 1)) < 1e-6 and i['formula_sec'] == i['interval_sec'] > 5"
"$command" show >"$D/shown"
ok "in words" grep -q "sqrt(2 x [0-9.]* s x 24\.[0-9] h) by Young and Daly: .*what memory kept was lost 0 times in" "$D/shown"
kill -KILL $running
wait $running 2>/dev/null
until_true logged "was killed"
run a
until_true grep -q "^held" "$D/running"
ok "a death that memory survives is none" i "i['failures'] == 0"
lose_memory $running
run a
until_true grep -q "^held" "$D/running"
ok "one that takes it is one" until_true i "i['failures'] == 1 and 43200 <= i['mean_sec'] < 43300"
lose_memory $running
run a
until_true grep -q "^held" "$D/running"
ok "two are two, and a third of a day" until_true i "i['failures'] == 2 and 28800 <= i['mean_sec'] < 28900"
kill -KILL $running
wait $running 2>/dev/null
stop_agent
ok "the same without an agent, from the history" i "i['failures'] == 2 and i['cost_sec'] > 0 and 28800 <= i['mean_sec'] < 28900"

# A cluster where that happens every second.
rm -rf "${SHM:?}/j"
awk 'BEGIN { for (n = 1; n <= 4000; n++)
    printf "{\"at_ns\":%d000000000,\"event\":\"started\",\"program\":\"p\",\"generation\":%d,\"from_generation\":%d,\"from_step\":1,\"from_level\":1}\n", 1600000000 + n, 1000000 + n, 1000000 + n - 1 }' >>"$J/history"
start_agent
before=$(flushes)
run a
until_true sh -c "[ \$(grep -c 'is durable:' '$D/agent.err') -ge $((before + 1)) ]"
ok "many losses in the history" until_true i "i['failures'] > 4000 and i['mean_sec'] < 23"
# As often as what they cost here allows.
more() { [ $(($(flushes) - before)) -ge 4 ]; }
ok "and one checkpoint after another" eval "until_true more || until_true more || until_true more"
kill -KILL $running
wait $running 2>/dev/null
stop_agent
export TRANSPCKPT_DURABLE_INTERVAL=7s
rm -rf "${SHM:?}/j"
ok "a setting stands" i "i['setting'] == 'seconds' and i['interval_sec'] == 7"
"$command" show >"$D/shown"
ok "in words, too" grep -q "written to 'disk': every 7.0 s, as TRANSPCKPT_DURABLE_INTERVAL says" "$D/shown"
done_testing
