#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 memory=4G minutes=20 about=35s
# The kit's stages that need PyTorch, on simgpu: a case of each, short; ALL=1 adds some. Skipped where PyTorch is not installed.
srcdir=$(cd "${srcdir:-.}" && pwd)
builddir=$(cd "${builddir:-.}" && pwd)
PYTHON3=${PYTHON3:-python3}
python=${TORCH_PYTHON:-${XDG_CACHE_HOME:-$HOME/.cache}/transpckpt/torch/bin/python}
if ! "$python" -c 'import torch; assert torch.version.cuda' 2>/dev/null; then
	echo "1..0 # SKIP no Python with PyTorch: ./bootstrap.sh torch installs one"
	exit 77
fi
if [ "$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')" -lt 2097152 ]; then
	echo "1..0 # SKIP needs 2 GiB free in /dev/shm"
	exit 77
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/tpck-kit-torch.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
if ! "$PYTHON3" -B "$srcdir/tests/gpu/make_kit.py" "$srcdir" "$builddir" "$work/kit"; then
	echo "not ok 1 - the kit is made"
	exit 1
fi
mkdir "$work/programs"
cp "$builddir/tests/trainers/gpt" "$builddir/tests/trainers/gpt_ranks" "$work/programs"
cp "$builddir/kernels/digest.simgpu" "$work/programs/digest.fatbin"
# The software device's NCCL and the rest come by its wrapper: the kit is given a Python that begins with that.
printf '#!/bin/sh\nexec "%s/tests/sim/simgpu-run" "%s" "$@"\n' "$builddir" "$python" >"$work/python"
chmod +x "$work/python"
number=0
stage() {
	wanted=$1
	shift
	number=$((number + 1))
	if DRIVER="$builddir/tests/sim/lib" PROGRAMS="$work/programs" TORCH_PYTHON="$work/python" RUN_SEC=1 PATIENCE=3 TIMES=1 GIB=0.005 KILLS=2 TMPDIR="$work" \
		"$work/kit/run.sh" "$@" >"$work/said" 2>&1 && [ "$(grep -c '^passed' "$work/said")" = "$wanted" ]; then
		echo "ok $number - $*"
	else
		echo "not ok $number - $*"
		failed=1
	fi
	cut -c1-500 "$work/said" | sed 's/^/#   /'
}
stage 1 pytorch versions
stage 1 nccl ranks
stage 2 large room 0.005GiB
if [ -n "$ALL" ]; then
	stage 2 pytorch readback compiled-graphs
	stage 2 nccl ddp fsdp
fi
echo "1..$number"
exit "${failed:-0}"
