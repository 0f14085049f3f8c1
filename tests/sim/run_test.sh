#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The scripts: a program compiled by simnvcc, linked both ways, run by simgpu-run with the user's environment left alone.
set -eu
sim=${builddir:?}/tests/sim
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$sim/simnvcc" -O1 -g -I. -DUNUSED=1 -c "${srcdir:?}/tests/sim/runtime_test.cu" -o "$dir/t.o"
${CXX:-c++} "$dir/t.o" -L"$sim/lib" -lcudart -o "$dir/shared"
${CXX:-c++} "$dir/t.o" "$sim/lib/libcudart_static.a" -ldl -lpthread -o "$dir/static"
"$sim/simgpu-run" "$dir/shared"
"$sim/simgpu-run" "$dir/static"

# Two devices, by the runtime.
"$sim/simnvcc" -O1 -c "${srcdir:?}/tests/sim/devices_test.cu" -o "$dir/devices.o"
${CXX:-c++} "$dir/devices.o" -L"$sim/lib" -lcudart -lpthread -o "$dir/devices"
SIMGPU_DEVICES=2 "$sim/simgpu-run" "$dir/devices"

# shellcheck disable=SC2016
test "$(LD_LIBRARY_PATH=/nowhere LD_PRELOAD='' "$sim/simgpu-run" sh -c 'echo "$LD_LIBRARY_PATH"')" = "$sim/lib:/nowhere"
if "$sim/simgpu-run" 2>/dev/null; then exit 1; fi

# What is enqueued, as `transpckpt infer` reads it, and what a program says in between.
SIMGPU_RECORD=$dir/recorded "$sim/simgpu-run" "$dir/shared"
for kind in kernel memcpy memset; do
	grep -q "^$kind	" "$dir/recorded"
done
grep -q '	cuGraphLaunch	' "$dir/recorded"
"$builddir/transpckpt" infer "$dir/recorded" >"$dir/ends" 2>"$dir/summary"
test ! -s "$dir/ends"
grep -q "^$dir/recorded: $(grep -vc '^#' "$dir/recorded") operations" "$dir/summary"
SIMGPU_RECORD=$dir/marked "$sim/simgpu-run" "${PYTHON3:-python3}" -c '
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
cuda.simgpu_mark(b"step 1 begin")'
grep -qx '# step 1 begin' "$dir/marked"
