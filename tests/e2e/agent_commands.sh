#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 memory=512M disk
# The command: run keeps statuses and restarts, ls, show, verify and rm tell what is there.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154
. "${srcdir:-.}/tests/e2e/agent_case.sh"

# shellcheck disable=SC2317
# json EXPRESSION: of $D/json, as Python sees it
json() { "${PYTHON3:-python3}" -c "import json,sys; d=json.load(open('$D/json')); sys.exit(not ($1))"; }
status_of() {
    "$@" >"$D/run.out" 2>"$D/run.err"
    status=$?
}

# What is preloaded is another test's subject: here it is a library that is loaded anyway.
libc=$(awk '/libc[.-].*so/ { print $6; exit }' /proc/self/maps)
mkdir -p "$D/bin/.libs/transpckpt"
cp "$builddir/transpckpt" "$D/bin"
cp "$libc" "$D/bin/.libs/libtranspckpt.so"
cli="$D/bin/transpckpt"
# shellcheck disable=SC2016
status_of env ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD="$libc" "$cli" run -- sh -c 'echo "$LD_PRELOAD"'
ok "the library comes first" grep -qx "$D/bin/.libs/libtranspckpt.so:$libc" "$D/run.out"
cp "$libc" "$D/bin/.libs/transpckpt/libcuda.so.1"
# shellcheck disable=SC2016
status_of "$cli" run -- sh -c 'echo "$LD_PRELOAD"'
ok "the forwarder before it" grep -qx "$D/bin/.libs/transpckpt/libcuda.so.1:$D/bin/.libs/libtranspckpt.so" "$D/run.out"
status_of "$cli" run -- sh -c 'exit 7'
ok "run keeps the status" ended 7
status_of "$cli" run --restarts 1 -- sh -c 'kill -TERM $$'
ok "128 and the signal" ended 143
ok "one line a restart" test "$(grep -c 'starting it again' "$D/run.err")" -eq 1
status_of "$cli" run --restarts 5 -- sh -c "echo x >>$D/times; [ \$(wc -l <$D/times) -ge 3 ]"
ok "restarts until it ends well" ended 0
ok "and no longer" test "$(wc -l <"$D/times")" -eq 3
status_of "$cli" run -- /no/such/command
ok "a command that is not there" ended 127
status_of "$cli" run --restarts x -- true
ok "a wrong number" ended 2
"$cli" run --restarts 9 -- sh -c "trap 'exit 5' TERM; echo >$D/up; while :; do sleep 0.05; done" 2>/dev/null &
running=$!
until_true test -f "$D/up"
kill -TERM $running
wait $running
ok "a signal is passed on and ends it" test $? -eq 5
ok "addresses are not randomised" sh -c "$cli run -- sh -c 'cat /proc/self/personality' 2>/dev/null | grep -q '^0004'"
ok "unless told so" sh -c "$cli run --aslr -- sh -c 'cat /proc/self/personality' 2>/dev/null | grep -q '^0000'"

export TRANSPCKPT_KEEP=20
start_agent
"$builddir/tests/e2e/agent_trainer" --steps 400 --pause 100 --bytes 5000000 >"$D/running" 2>&1 &
running=$!
until_true grep -q "^held 5" "$D/running"
until_true "$command" verify 2>/dev/null
"$command" ls --json >"$D/json"
ok "ls: committed in memory while it runs" json "any(r['state'] == 'committed' and r['where'] == ['memory'] for r in d)"
"$command" show --json >"$D/json"
ok "show: a running process" json "d[0]['running'] and d[0]['pid'] == $running and d[0]['images'] == 3"
ok "show, for people" sh -c "$command show | grep -q 'process $running, generation 1'"
# The process's parent does not wait for it.
"${PYTHON3:-python3}" -c 'import os, sys, time
with open(sys.argv[1], "w") as f:
    f.write(str(os.spawnv(os.P_NOWAIT, sys.argv[2], sys.argv[2:])))
time.sleep(60)' "$D/unwaited" "$builddir/tests/e2e/agent_trainer" --steps 5 --kill-at 5 --arg unwaited >/dev/null &
careless=$!
until_true sh -c "grep -q '^State:.Z' /proc/\$(cat $D/unwaited)/status"
"$command" show --json >"$D/json"
ok "show: a process that is dead, waited for or not" json "[r['running'] for r in d if r['pid'] == $(cat "$D/unwaited")] == [False]"
kill -KILL $careless
kill -KILL $running
wait $running 2>/dev/null
until_true logged "is durable"
until_true sh -c "$command ls --json >$D/json && grep -q '\"disk\"' $D/json"
trainer --steps 60 --bytes 5000000 --kill-at 50
stop_agent
"$command" ls --json >"$D/json"
ok "ls: two places" json "any(r['where'] == ['memory', 'disk'] and r['state'] == 'durable' for r in d)"
ok "ls: steps and generations" json "{r['generation'] for r in d} >= {1, 2} and max(r['step'] for r in d) == 49"
ok "ls: what a resume runs forward" json "all(r['forward_iterations'] == r['step'] for r in d)"
ok "verify" "$command" verify
newest=$("${PYTHON3:-python3}" -c "import json; d=[r for r in json.load(open('$D/json')) if 'disk' in r['where']]; r=d[-1]; print('%d.g%d' % (r['step'], r['generation']))")
status_of "$command" rm --job j "$newest"
ok "rm refuses the newest" ended 1
ok "and says so in a line" test "$(wc -l <"$D/run.err")" -eq 1
status_of "$command" rm --job j 123456
ok "rm of what is not there" ended 1
status_of "$command" rm --job j --force "$newest"
ok "rm with force" ended 0
"$command" verify --json >"$D/json"
ok "the rest verifies" json "all(r['good'] for r in d)"
status_of "$command" verify "$newest"
ok "what was removed is gone" ended 1
"$command" doctor --json >"$D/json"
ok "doctor speaks JSON" json "any(r['what'] == 'memory tier' for r in d)"
TRANSPCKPT_KEEP=many "$command" doctor >"$D/run.out" 2>"$D/run.err"
ok "doctor names a wrong setting" grep -q "TRANSPCKPT_KEEP=many" "$D/run.err"
TRANSPCKPT_SHM=/proc/x "$command" doctor >"$D/run.out" 2>"$D/run.err"
ok "and what stands in the way" grep -q "^bad.*memory tier" "$D/run.out"
TRANSPCKPT_DIR="node:$D/store,s3:/lustre" "$command" doctor >"$D/run.out" 2>"$D/run.err"
ok "and a tier whose kind there is not" grep -q "no kind of tier" "$D/run.err"
TRANSPCKPT_PEERS=1 TRANSPCKPT_NODES="127.0.0.1:4700,[::1,no.such.host.invalid" "$command" doctor >"$D/run.out" 2>"$D/run.err"
ok "and each node that cannot be reached so" sh -c "[ \$(grep -c '^note.*TRANSPCKPT_NODES' '$D/run.out') = 2 ]"
ok "and which is this one" grep -q "^good.*TRANSPCKPT_NODES.*this node as 127.0.0.1:4700" "$D/run.out"
TRANSPCKPT_PEERS=1 TRANSPCKPT_NODES="192.0.2.1" "$command" doctor >"$D/run.out" 2>"$D/run.err"
ok "or that it is none" grep -q "^note.*TRANSPCKPT_NODES.*not among them" "$D/run.out"
TRANSPCKPT_PEERS=1 TRANSPCKPT_TRANSPORT=tcp "$command" doctor >"$D/run.out" 2>"$D/run.err"
ok "doctor says how agents reach each other" grep -Eq "peers .*(agents reach each other over TCP$|without libsodium)" "$D/run.out"
ok "doctor says nothing of twins where there is to be none" sh -c "! grep -q '^[a-z]* *twin ' '$D/run.out'"
TRANSPCKPT_TWIN=1 SLURM_MEM_PER_NODE=4096 "$command" doctor >"$D/run.out" 2>"$D/run.err"
ok "and what one takes where there is" grep -q "^good.* twin .*a second context on the device" "$D/run.out"
ok "and that Slurm limits it" grep -q "^note.* twin .*SLURM_MEM_PER_NODE is 4096 MiB" "$D/run.out"
if unshare --mount mount -t tmpfs tmpfs /sys/fs/cgroup 2>/dev/null; then
    group=$(sed -n 's/^0:://p' /proc/self/cgroup)
    for together in 0 1; do
        TRANSPCKPT_TWIN=1 unshare --mount sh -c "mount -t tmpfs tmpfs /sys/fs/cgroup && mkdir -p '/sys/fs/cgroup$group' &&
            echo $together >'/sys/fs/cgroup$group/memory.oom.group' && exec '$command' doctor" >"$D/together.$together" 2>&1
    done
    ok "and that the kernel would end both" grep -q "^note.* twin .*memory.oom.group of control group .* is 1" "$D/together.1"
    ok "where it would" sh -c "grep -q 'twin .*a second context' '$D/together.0' && ! grep -q 'oom.group' '$D/together.0'"
fi
status_of "$command" frobnicate
ok "no verb" ended 2
done_testing
