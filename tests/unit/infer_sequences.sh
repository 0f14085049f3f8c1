#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Launch sequences of real training jobs, with the truth in their comments: no end of an iteration at a wrong place, with
# names and without, and with names none missed from the fourth on, but for a few that doc/inference.md tells of. More of
# them than come with the sources are read from the folder SEQUENCES, if it is there.
builddir=${builddir:-.} srcdir=${srcdir:-.}
more=${SEQUENCES:-$srcdir/../shared/traces}
failed=0 count=0

run() { # WHAT OPTION... -- FILE...
    count=$((count + 1))
    what=$1
    shift
    if out=$("$builddir/tests/unit/infer_traces" "$@"); then
        echo "ok $count - $what"
    else
        echo "not ok $count - $what"
        failed=1
    fi
    printf '%s\n' "$out" | sed 's/^/#   /'
}

hard=" ema_foreach_every2 freezes graph_two lbfgs_search policy_delayed scaler_loop "
easy_files='' hard_files=''
for file in "$srcdir"/tests/data/sequences/*.gz; do
    name=${file##*/torch-}
    case $hard in
    *" ${name%.tsv.gz} "*) hard_files="$hard_files $file" ;;
    *) easy_files="$easy_files $file" ;;
    esac
done
# shellcheck disable=SC2086 # one word a file
run "torch, with names" $easy_files
# shellcheck disable=SC2086
run "torch, with names, hard ones" --may-miss $hard_files
run "torch, names hidden" --no-names "$srcdir"/tests/data/sequences/*.gz
run "torch, names alone" --no-pattern "$srcdir"/tests/data/sequences/*.gz
if ls "$more"/*.tsv* >/dev/null 2>&1; then
    run "public traces, with names" "$more"/*.tsv*
    run "public traces, names hidden" --no-names "$more"/*.tsv*
    run "public traces, names alone" --no-pattern "$more"/*.tsv*
else
    count=$((count + 1))
    echo "ok $count - public traces # SKIP no folder $more"
fi
count=$((count + 1))
if "${PYTHON3:-python3}" "$srcdir/doc/inference_table.py" --check "$builddir" "$srcdir"/tests/data/sequences/*.gz; then
    echo "ok $count - doc/inference.tsv says the same"
else
    echo "not ok $count - doc/inference.tsv says the same"
    failed=1
fi
echo "1..$count"
exit $failed
