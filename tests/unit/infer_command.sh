#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# transpckpt infer on a sequence made here, whose iterations are known, and on files that are none.
. "${srcdir:-.}/tests/unit/infer_case.sh"

infer "$work/known.tsv" >"$work/out" 2>"$work/err"
ok $? "a known sequence is read"
cut -f1 "$work/out" >"$work/ends"
same "$work/wanted" "$work/ends" "from the second iteration on every end is where it should be, none elsewhere"
grep -q 'period 8, 2 launches of the optimizer, found by names' "$work/err"
ok $? "the summary: $(cut -c1-120 "$work/err" | tail -1)"

gzip -c "$work/known.tsv" >"$work/known.tsv.gz"
infer "$work/known.tsv.gz" 2>"$work/err" | cut -f1 >"$work/ends"
same "$work/wanted" "$work/ends" "the same compressed"

infer --json "$work/known.tsv" "$work/known.tsv.gz" >"$work/json"
"${PYTHON3:-python3}" - "$work/json" "$work/wanted" <<'P'
import json, sys
rows = json.load(open(sys.argv[1]))
wanted = [int(line) for line in open(sys.argv[2])]
sys.exit(not (len(rows) == 2 and all([b["after"] for b in row["boundaries"]] == wanted and row["sure"] and
                                     all(b["known_at"] - b["after"] in (0, 1) for b in row["boundaries"]) for row in rows)))
P
ok $? "as JSON, each end known at once or by the next operation"

infer --no-names "$work/known.tsv" >"$work/out" 2>"$work/err"
test ! -s "$work/out" && grep -q 'not sure: ' "$work/err"
ok $? "with names hidden it says why it is not sure"

infer --explain 15 "$work/known.tsv" 2>/dev/null >"$work/out"
grep -q '^> *15 .*an optimizer' "$work/out" && grep -q '^an iteration ends here: behind operation 15' "$work/out"
ok $? "why an iteration ends at an operation"
infer --explain 12 "$work/known.tsv" 2>/dev/null | grep -q '^the next end: behind operation 15'
ok $? "why none ends at another"

bad() { # WHAT PATTERN [ARGUMENT]...
    what=$1 pattern=$2
    shift 2
    infer "$@" >"$work/out" 2>"$work/err"
    status=$?
    test $status -ne 0 && test ! -s "$work/out" && grep -q "$pattern" "$work/err"
    ok $? "$what: $(head -1 "$work/err" | sed "s|$work/||g" | cut -c1-90)"
}
echo 'kernel	a	1,1,1' >"$work/short.tsv"
sed 's/^kernel	k_forward/kernal	k_forward/' "$work/known.tsv" >"$work/kind.tsv"
head -c 150 "$work/known.tsv.gz" >"$work/cut.tsv.gz"
bad "a line that is too short" 'short.tsv:1: fewer than 11 fields' "$work/short.tsv"
bad "a kind that is unknown" 'kind.tsv:2: the first field' "$work/kind.tsv"
bad "a file that is cut short" 'cut.tsv.gz: it is cut short or damaged' "$work/cut.tsv.gz"
bad "a file that is not there" 'No such file' "$work/nothing"
bad "a folder" 'Is a directory' "$work"
bad "an operation beyond the end" 'has no operation 4000, only 80' --explain 4000 "$work/known.tsv"
bad "an operation that is no number" "not 'x'" --explain x "$work/known.tsv"
bad "no file" 'usage:'
done_testing
