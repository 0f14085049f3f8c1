#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD TARGET...: each of these fuzz targets, built with libFuzzer in BUILD, looks for new inputs for FUZZ_SEC seconds
# (60), as many beside each other as there are processors, or FUZZ_JOBS. What it learns on the way stays in
# BUILD/tests/fuzz/learnt, and the next run goes on from there. An input that ends a target lies in BUILD/tests/fuzz/found,
# and its report beside it: it belongs into tests/fuzz/corpus, with what mends it.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
build=$1
shift
export srcdir build
export FUZZ_SEC="${FUZZ_SEC:-60}"
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_leaks=1:allocator_may_return_null=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
mkdir -p "$build/tests/fuzz/found" || exit 99

# The output of a target is long, and only its end matters.
# shellcheck disable=SC2016 # another shell's
one='
name=${1##*/}
learnt=$build/tests/fuzz/learnt/$name
found=$build/tests/fuzz/found
corpus=$srcdir/tests/fuzz/corpus/$name
mkdir -p "$learnt" 2>/dev/null
[ -d "$corpus" ] || corpus=
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/tpck-fuzz.XXXXXX") || exit 99
export TMPDIR
trap "rm -rf \"$TMPDIR\"" EXIT
dict=$srcdir/tests/fuzz/$name.dict
[ -r "$dict" ] || dict=
if "$build/tests/fuzz/$name" -max_total_time="$FUZZ_SEC" -timeout=20 -rss_limit_mb=3000 -print_final_stats=1 \
	${dict:+-dict="$dict"} -artifact_prefix="$found/$name-" "$learnt" ${corpus:+"$corpus"} >"$found/$name.log" 2>&1; then
	runs=$(sed -n "s/^stat::number_of_executed_units: *//p" "$found/$name.log")
	seen=$(sed -n "s/.* cov: \([0-9]*\) .*/\1/p" "$found/$name.log" | tail -n 1)
	echo "ok - $name: $runs inputs, $seen places"
	rm -f "$found/$name.log"
else
	echo "not ok - $name: see $found/$name.log"
	grep -E "ERROR: |runtime error|SUMMARY|Test unit written" "$found/$name.log" | sed "s/^/# /"
	exit 1
fi
'
printf '%s\n' "$@" | xargs -n 1 -P "${FUZZ_JOBS:-$(nproc)}" sh -c "$one" sh
status=$?
echo "1..$#"
[ "$status" -eq 0 ] || exit 1
