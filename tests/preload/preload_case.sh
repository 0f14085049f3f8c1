# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034
# Sourced by the tests of the preloaded library: an installation, folders of their own, programs run
# plain and preloaded, TAP.
set -u
srcdir=$(CDPATH='' cd -- "${srcdir:-.}" && pwd) || exit 99
builddir=$(CDPATH='' cd -- "${builddir:-.}" && pwd) || exit 99
here=$srcdir/tests/preload
sim=$builddir/tests/sim
D=$(mktemp -d "${TMPDIR:-/tmp}/tpck-preload.XXXXXX") || exit 99
SHM=$(mktemp -d /dev/shm/tpck-preload.XXXXXX) || { echo "1..0 # SKIP no /dev/shm"; rm -rf "$D"; exit 77; }
count=0
failed=0
for name in $(env | sed -n 's/^\(\(TRANSPCKPT\|SIMGPU\|LD\)_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
export TRANSPCKPT_SHM="$SHM" TRANSPCKPT_DIR="$D/store" TRANSPCKPT_JOB=j TRANSPCKPT_LINGER_SEC=1 TRANSPCKPT_EXIT_WAIT_SEC=30
export XDG_STATE_HOME="$D/state"

# The library, the forwarder and the programs as they lie once installed.
mkdir -p "$D/inst/lib/transpckpt" "$D/inst/bin" "$D/work"
lib=$D/inst/lib/libtranspckpt.so
forwarder=$D/inst/lib/transpckpt/libcuda.so.1
cp "$builddir/.libs/libtranspckpt.so" "$lib" || exit 99
cp "$builddir/shim/lib/transpckpt/libcuda.so.1" "$forwarder" || exit 99
ln -s "$builddir/transpckptd" "$D/inst/bin/transpckptd"
cp "$builddir/transpckpt" "$D/inst/bin/transpckpt"
ln -s ../lib "$D/inst/bin/.libs" # the command looks beside itself first

# Agents started by what ran here go by themselves; one that does not is ended.
agents_gone() {
    tries=0
    for lock in "$SHM"/*/agent.lock "$SHM"/*/*/agent.lock; do
        [ -s "$lock" ] || continue
        pid=$(cat "$lock")
        while kill -0 "$pid" 2>/dev/null && [ $tries -lt 150 ]; do
            tries=$((tries + 1))
            sleep 0.02
        done
        if [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$(readlink -f "$builddir/transpckptd")" ]; then
            kill -KILL "$pid" 2>/dev/null
        fi
    done
}

finish() {
    agents_gone
    chmod -R u+rwx "$D" "$SHM" 2>/dev/null
    rm -rf "$D" "$SHM"
}
trap finish EXIT
trap 'exit 99' HUP INT TERM

# is WHAT GOT WANTED
is() {
    count=$((count + 1))
    if [ "$2" = "$3" ]; then
        echo "ok $count - $1"
    else
        echo "not ok $count - $1"
        failed=1
        printf 'wanted:\n%s\ngot:\n%s\n' "$3" "$2" | sed 's/^/#   /'
    fi
}

# ok WHAT COMMAND...
ok() {
    what=$1
    shift
    count=$((count + 1))
    if "$@" >"$D/said" 2>&1; then
        echo "ok $count - $what"
    else
        echo "not ok $count - $what"
        failed=1
        echo "# command: $*"
        head -n 40 "$D/said" | sed 's/^/#   /'
    fi
}

skip() {
    count=$((count + 1))
    echo "ok $count - $1 # SKIP $2"
}

done_testing() {
    echo "1..$count"
    exit $failed
}

# with LIBRARIES COMMAND...: on the software device, preloaded (nothing is, with "").
with() {
    libraries=$1
    shift
    "$sim/simgpu-run" env ${libraries:+LD_PRELOAD="$libraries"} "$@"
}
