#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.1 minutes=20 about=94s disk
# Several tiers: what the first one gets is copied to the others, each at its own pace; a resume comes from the
# fastest that is good; and a tier that does not work costs its copies, no more.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154,SC2012,SC2317
. "${srcdir:-.}/tests/e2e/agent_case.sh"

far=$D/far
third=$D/third
near=$D/near
export TRANSPCKPT_DIR="node:$near,site:$far,$third" TRANSPCKPT_KEEP=2
in_tier() { [ -f "$1/j/$2/MANIFEST" ]; }
row() { "$command" ls --json | "${PYTHON3:-python3}" -c "import json, sys
print(' '.join(r['where'] and ','.join(r['where']) for r in json.load(sys.stdin) if r['step'] == $1))"; }
# Waits until the first tier has a step; $name is the checkpoint's.
published_name() {
    until_true sh -c "ls $near/j/step-0000000000$1.g*/MANIFEST"
    name=$(cd "$near/j" && ls -d step-0000000000"$1".g* | tail -1)
}

start_agent
trainer --steps 12 --kill-at 8
ok "killed at step 8" ended 137
ok "the first tier has step 7" until_true in_tier "$near" step-000000000007.g1
ok "the second one gets it" until_true in_tier "$far" step-000000000007.g1
ok "and the third" until_true in_tier "$third" step-000000000007.g1
ok "ls says where it is" sh -c "[ '$(row 7)' = memory,node,site,node2 ]"
ok "all are good" "$command" verify
ok "verify names tiers" sh -c "$command verify | grep -q 'step 7 (generation 1) in site: good'"
ok "doctor looks at each" sh -c "[ \$($command doctor | grep -c 'tier .*survives') = 3 ]"
stop_agent

# The node is lost, and with it memory and the first tier.
rm -rf "${SHM:?}/j" "$near/j"
start_agent
trainer --steps 30 --kill-at 20
ok "the second tier offers step 7" said "^offer 1 7"
ok "generations go on" until_true in_tier "$near" step-000000000019.g2
ok "what follows is copied too" until_true in_tier "$far" step-000000000019.g2
ok "and again all are good" "$command" verify
stop_agent
rm -rf "${SHM:?}/j"

# A bit of the first tier's copy is lost.
container=$(ls -S "$near"/j/step-000000000019.g2/*data* | head -1)
printf X | dd of="$container" bs=1 seek=2000000 conv=notrunc 2>/dev/null
start_agent
trainer --kill-at 0
ok "the same step is offered from the next tier" said "^offer 2 19"
ok "the bad copy is set aside" until_true test -d "$near/j/quarantine/step-000000000019.g2"
ok "the good one stays" in_tier "$far" step-000000000019.g2
stop_agent
rm -rf "${SHM:?}/j"

# What one tier lacks it gets at the start.
rm -rf "$third/j"
start_agent
trainer --steps 26 --kill-at 25
ok "a tier that was lost gets the newest" until_true sh -c "ls $third/j/step-000000000024.g*/MANIFEST"
stop_agent
rm -rf "$third/j"
start_agent
trainer --kill-at 0
ok "at the start too" until_true sh -c "ls $third/j/step-000000000024.g*/MANIFEST"
stop_agent
rm -rf "${SHM:?}/j"

# A tier that cannot be written.
rm -rf "${far:?}/j" "${third:?}/j"
: >"$third/j"
start_agent
trainer --steps 40 --kill-at 33
ok "it goes on" ended 137
published_name 32
latest=$name
ok "the others get theirs" until_true in_tier "$far" "$latest"
ok "one line says which does not" sh -c "[ \$(grep -c \"not copied to tier 'node2'\" $D/agent.err) = 1 ]"
rm "$third/j"
ok "and it is made up for" until_true in_tier "$third" "$latest"
ok "with a line" until_true grep -q "tier 'node2' works again" "$D/agent.err"
ok "all that is left is good" "$command" verify
stop_agent

# An agent that is killed while it copies leaves nothing that looks whole.
rm -rf "${SHM:?}/j" "${far:?}/j" "${third:?}/j"
if command -v strace >/dev/null && strace -f true 2>/dev/null; then
    # A process that nobody has waited for is still there.
    copied_or_killed() {
        in_tier "$far" "$latest" && return
        case "$(cat "/proc/$traced/stat" 2>/dev/null)" in *") Z "* | "") ;; *) return 1 ;; esac
    }
    kills=0
    for when in 1 3 5 7 9; do
        rm -rf "${SHM:?}/j" "${far:?}/j"
        timeout 60 strace -f -qq -o /dev/null -e trace=fsync -e inject=fsync:signal=KILL:when=$when \
            "$agent" --foreground --job j >/dev/null 2>&1 &
        traced=$!
        until_true test -S "$SHM/j/agent.sock"
        trainer --kill-at 0
        until_true copied_or_killed
        kill $traced 2>/dev/null
        wait $traced 2>/dev/null
        [ $? = 137 ] && kills=$((kills + 1))
        ok "killed at sync $when: what is there is good" "$command" verify
    done
    ok "killed, $kills times" test $kills -ge 3
    start_agent
    trainer --kill-at 0
    ok "the next agent finishes" until_true in_tier "$far" "$latest"
    ok "and leaves no remains" until_true sh -c "[ -z \"\$(find $far/j -name '*.tmp.*')\" ]"
    ok "all are good" "$command" verify
    stop_agent
fi

# A bit of the first tier is lost before it is copied.
start_agent
trainer --steps 50 --kill-at 44
published_name 43
newest=$name
until_true in_tier "$far" "$newest"
stop_agent
rm -rf "${SHM:?}/j" "${far:?}/j"
container=$(ls -S "$near/j/$newest"/*data* | head -1)
printf X | dd of="$container" bs=1 seek=2000000 conv=notrunc 2>/dev/null
start_agent
ok "it is not passed on" until_true grep -q "not copied to tier 'site'.*does not match" "$D/agent.err"
ok "but set aside where it came from" until_true test -d "$near/j/quarantine/$newest"
ok "the next older one is" until_true sh -c "ls $far/j/*/MANIFEST"
ok "all that is left is good" "$command" verify
stop_agent

# Removal is from all of them.
start_agent
trainer --steps 70 --kill-at 60
published_name 59
newest=$name
ok "copied" until_true in_tier "$far" "$newest"
stop_agent
rm -rf "${SHM:?}/j"
ok "the newest is not removed" sh -c "! $command rm --job j $newest"
ok "not from the second tier either" in_tier "$far" "$newest"
older=$(cd "$far/j" && ls -d step-*.g*/MANIFEST | sort | head -1 | xargs dirname)
ok "an older one is" "$command" rm --job j "$older"
ok "from the first tier" sh -c "! test -e $near/j/$older/MANIFEST"
ok "and from the second" sh -c "! test -e $far/j/$older/MANIFEST"
ok "what is left is good" "$command" verify

# A tier that hangs: a disk of its own, which is frozen.
rm -rf "${SHM:?}/j" "${near:?}/j" "${far:?}/j" "${third:?}/j"
end_disk() {
    fsfreeze -u "$far" 2>/dev/null
    stop_agent
    umount "$far" 2>/dev/null
    finish
}
in_every_tier() { "$command" show | grep -q "step $1 is in every tier; node has $1; site has $1; node2 has $1"; }
: >"$D/agent.err"
export TRANSPCKPT_STALL_SEC=1
truncate -s 300M "$D/disk"
if mkfs.ext4 -q -F "$D/disk" 2>/dev/null && mount -o loop "$D/disk" "$far" 2>/dev/null; then
    trap end_disk EXIT
    start_agent
    "$builddir/tests/e2e/agent_trainer" --steps 80 --kill-at 70 --pause 100 >"$D/out" 2>&1 &
    running=$!
    ok "all tiers have something" until_true sh -c "ls $near/j/step-*/MANIFEST && ls $far/j/step-*/MANIFEST && ls $third/j/step-*/MANIFEST"
    fsfreeze -f "$far"
    ok "one line says that it is behind" until_true grep -q "tier 'site' is behind: copying.* has been going on for" "$D/agent.err"
    wait $running
    ok "the first tier gets what comes" until_true in_tier "$near" step-000000000069.g1
    ok "the third one, too" until_true in_tier "$third" step-000000000069.g1
    # On a slow disk a copy before that one may have taken long, too, and have its own line.
    ok "once" sh -c "[ -z \"\$(grep \"tier 'site' is behind\" $D/agent.err | sed 's/for [0-9]* s.*//' | sort | uniq -d)\" ]"
    ok "what the first one keeps is bounded" sh -c "[ \$(ls $near/j/step-*/MANIFEST | wc -l) -le 4 ]"
    ok "the other one has not got the newest" sh -c "! ls $far/j/step-000000000069.g1/MANIFEST"
    fsfreeze -u "$far"
    ok "once it gets on, it is made up for" until_true in_tier "$far" step-000000000069.g1
    ok "what was on its way was still there" sh -c "! grep \"not copied to tier 'site'\" $D/agent.err"
    ok "and show says that nothing is behind" until_true in_every_tier 69
    stop_agent
    umount "$far"
    trap finish EXIT
fi
unset TRANSPCKPT_STALL_SEC
done_testing
