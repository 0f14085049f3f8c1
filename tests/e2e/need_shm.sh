# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Sourced by tests in shell that need room in /dev/shm; job.py and tests/unit/shm_room.h have the same for theirs.

# need_shm MIB ARGUMENT...: skips the test where /dev/shm has less than that free: containers have 64 MiB unless they are told
# otherwise. Where mounts are allowed the test, with its arguments, is started again with a tmpfs of its own there.
need_shm() {
    need=$1
    shift
    free=$(df -P -k /dev/shm 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) }')
    # What was mounted for it is enough, however much of it is in use later.
    { [ "${free:-0}" -lt "$need" ] && [ "${TPCK_OWN_SHM:-0}" -lt "$need" ]; } || return 0
    # shellcheck disable=SC2016 # for the shell inside
    if unshare --mount mount -t tmpfs tmpfs /dev/shm 2>/dev/null; then
        TPCK_OWN_SHM=$need exec unshare --mount sh -c 'mount -t tmpfs -o size="$0"m tmpfs /dev/shm && exec "$@"' "$need" "$0" "$@"
    fi
    echo "1..0 # SKIP needs $need MiB free in /dev/shm, which has ${free:-none} (docker run --shm-size=2g)"
    exit 77
}
