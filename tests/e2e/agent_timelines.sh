#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.7 memory=512M disk
# Timelines: fences, crash loops, changed arguments, other programs, logs that diverged.
# shellcheck source=tests/e2e/agent_case.sh disable=SC2154
. "${srcdir:-.}/tests/e2e/agent_case.sh"
export TRANSPCKPT_DURABLE_INTERVAL=1

start_agent
trainer --steps 7 --kill-at 7 --wait-durable
ok "steps became durable one by one" said "^durable 6"
ok "retention kept the last three" sh -c "[ \$(ls $J/step-*/MANIFEST | wc -l) -eq 3 ]"
ok "and what they refer to" "$command" verify
until_true logged "kept"
trainer --want 5 --steps 6 --kill-at 6
ok "goes on from step 5 of generation 1" said "^offer 1 5"
trainer --kill-at 0
ok "step 6 of the timeline that was left is not offered" said "^offer 1 5"
trainer --kill-at 0
ok "two deaths at step 5: the one before is next, or none" said "not resuming at step 5"
ok "that is step 4" said "^offer 1 4"
trainer --kill-at 0
ok "still step 4" said "^offer 1 4"
trainer --kill-at 0
ok "then it stops" said "again and again"
ok "without an offer" said_not "^offer"
trainer --steps 3 --kill-at 3
ok "from the start" said_not "^offer"
trainer --kill-at 0
ok "progress ends the loop" said "^offer [0-9]* 2"
trainer --arg 200 --kill-at 0
ok "another argument is another run, and is said" said "notice not resuming: argument 1 is '200', was not given"
ok "and no offer" said_not "^offer"
trainer --executable /opt/other --kill-at 0
trainer --arg 100 --steps 2 --kill-at 2
trainer --arg 200 --kill-at 0
ok "the first difference is named" said "argument 1 is '200', was"
trainer --rank 1 --kill-at 0
ok "another rank says nothing" said_not "^notice"
trainer --steps 2 --arg x --kill-at 2 --unresumable
trainer --arg x --kill-at 0
ok "a snapshot that cannot be resumed is not offered, with its reason" said "cannot be resumed: "
trainer --steps 3 --arg y --digests --lie
ok "bytes that the device did not have are not committed" said "^abandoned 1"

# Killed on the way there, as by whoever takes the machine away: nobody's fault, so it takes more of them.
trainer --arg z --steps 4 --kill-at 4 --wait-durable
way=$(ls -d "$J"/step-000000000003.g*)
for _ in 1 2 3 4; do
    trainer --arg z --kill-forward
    said "^offer [0-9]* 3" || break
done
ok "four deaths on the way to step 3: it is offered all the same" said "^offer [0-9]* 3"
ok "each is told" until_true logged "died on the way to step 3, 4 times in a row; an earlier step is next"
trainer --arg z --kill-forward
ok "then the one before is next, and it is said how to come back" said "not resuming at step 3: .*TRANSPCKPT_RESUME=3"
ok "that is step 2" said "^offer [0-9]* 2"
trainer --arg z --want 3 --kill-forward
ok "who asks for step 3 gets it" said "^offer [0-9]* 3"
for _ in 1 2 3; do trainer --arg z --kill-forward; done
trainer --arg z --steps 9 --kill-at 9 --wait-durable
ok "two of them: from the start, and they are kept" said "not resuming: .* they are kept"
ok "so it is" test -f "$way/MANIFEST"
trainer --arg z --want 3 --kill-forward
ok "and offered" said "^offer [0-9]* 3"
stop_agent
done_testing
