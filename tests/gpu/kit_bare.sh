#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 memory=3G minutes=10 about=60s
# The kit for machines with a GPU where nothing is installed: in a root folder that has glibc, a shell and Python, and with the software
# device for a driver, its stages find out and write down what they are to. Needs root, and leave to mount.
srcdir=${srcdir:-.}
builddir=${builddir:-.}
PYTHON3=${PYTHON3:-python3}
if [ "$(id -u)" != 0 ] || ! unshare --mount true 2>/dev/null || ! chroot=$(command -v chroot) || ! timeout=$(command -v timeout); then
	echo "1..0 # SKIP needs root, and leave to mount and to change the root"
	exit 77
fi
if [ -z "$TPCK_KIT_BARE" ]; then
	TPCK_KIT_BARE=1 exec unshare --mount --propagation private "$0" "$@"
fi
srcdir=$(cd "$srcdir" && pwd)
builddir=$(cd "$builddir" && pwd)
root=$(mktemp -d "${TMPDIR:-/tmp}/tpck-bare.XXXXXX") || exit 1
trap 'umount -R -l "$root" 2>/dev/null; rm -rf --one-file-system "$root"' EXIT
mount -t tmpfs -o size=1g tmpfs "$root" || exit 1
if ! "$PYTHON3" -B "$srcdir/tests/gpu/make_kit.py" "$srcdir" "$builddir" "$root/kit"; then
	echo "not ok 1 - the kit is made"
	exit 1
fi
"$PYTHON3" -B "$srcdir/tests/gpu/bare_root.py" "$root" "$builddir/tests/sim/lib/simgpu-device" || exit 1
# The software device takes the place of a driver, and its compiler's programs that of nvcc's.
mkdir "$root/driver" "$root/programs"
cp "$builddir/tests/sim/lib/libcuda.so.1" "$builddir/tests/sim/lib/libcudart.so.13" "$builddir/tests/sim/lib/simgpu-device" \
	"$builddir/tests/sim/lib/kernels.rules" "$root/driver"
for name in gpt classifier; do
	cp "$builddir/tests/trainers/$name" "$root/programs"
done
cp "$builddir/kernels/digest.simgpu" "$root/programs/digest.fatbin"
cp "$builddir/tests/gpu/probes/kernels.simimg" "$root/programs/kernels.fatbin"

stage() {
	env -i PATH=/bin HOME=/tmp DRIVER=/driver PROGRAMS=/programs MIB=128 TIMES=1 PATIENCE="${PATIENCE:-3}" LIMIT="${LIMIT:-60}" RESULTS="${RESULTS:-/kit/results}" KILLS=3 \
		"$chroot" "$root" /bin/sh /kit/run.sh "$@" >"$root/said" 2>&1
	echo "# $1: status $?"
	sed 's/^/#   /' "$root/said"
}
stage probes machine device doctor names digest vmm tmpfs address-0 'hazard-*-lazy-8-2' 'hazard-event-launches-1-40' 'hazard-event-blocking-32-2'
stage trainers gpt-not-killed classifier
PATIENCE=1 stage self
PATIENCE=1 LIMIT=1.5 RESULTS=/cut stage self
LIMIT=1 RESULTS=/late stage trainers 'gpt*'
# One that is ended from outside leaves nobody behind either.
env -i PATH=/bin HOME=/tmp RESULTS=/ended "$timeout" 1 "$chroot" "$root" /bin/sh /kit/run.sh self >/dev/null 2>&1
echo "# ended: status $?"
env -i PATH=/bin "$chroot" "$root" /bin/sh /kit/run.sh report >"$root/report" || echo "# report: status $?"
"$PYTHON3" -B "$srcdir/tests/gpu/kit_found.py" "$root"
