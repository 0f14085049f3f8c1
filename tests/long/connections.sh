#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=1.5 memory=4G minutes=120 about=2400s
# Suites of every kind on a device whose streams share one connection, and on one that has 32 (8 is what all tests have): trainers in C, ranks, PyTorch and
# its ranks, a cluster, other stacks. CONNECTIONS="1 32", SUITES="e2e/kill_resume.py ..." for some.
export srcdir="${srcdir:-.}"
PYTHON3=${PYTHON3:-python3}
number=0
for connections in ${CONNECTIONS:-1 32}; do
	for suite in ${SUITES:-e2e/kill_resume.py e2e/ranks.py e2e/digests.py cluster/lost.py cluster/apart.py cluster/salvage.py cluster/mpi.py torch/kill.py torch/kill_ranks.py torch/kill_habits.py torch/scripts.py stacks/stacks.py}; do
		number=$((number + 1))
		names=
		if [ "$suite" = e2e/kill_resume.py ]; then
			names=$("$PYTHON3" -B "$srcdir/tests/$suite" | sed 's/$/=3/')
		fi
		# shellcheck disable=SC2086 # a list of words
		said=$(CUDA_DEVICE_MAX_CONNECTIONS=$connections "$PYTHON3" -B "$srcdir/tests/$suite" $names 2>&1)
		status=$?
		checks=$(printf '%s\n' "$said" | grep -c '^ok ')
		if [ $status = 77 ]; then
			echo "ok $number - $suite with $connections # SKIP"
		elif [ $status = 0 ] && [ "$checks" -gt 0 ]; then
			echo "ok $number - $suite with $connections: $checks checks"
		else
			echo "not ok $number - $suite with $connections"
			failed=1
			printf '%s\n' "$said" | sed 's/^/#   /'
		fi
	done
done
echo "1..$number"
exit "${failed:-0}"
