#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# By hand: clones what is committed into places that others may have, builds there and runs tests. Each place is a build, so
# it takes long.
#
#   places.sh [PLACE...]    long   a path of 200 characters below a folder of mode 0700
#                           small  the same clone, with a /dev/shm of 64 MiB
#                           user   a user without rights, in a home of mode 0700 and a path of other characters than ASCII's
#                                  letters, where there is no CUDA toolkit and no nvcc
#
# TESTS= names the tests, as for `make check`; those of `make check-quick` otherwise. Without root, `small` and `user` are
# skipped. KEEP=1 leaves the folder and names it.
# shellcheck disable=SC2317 # functions that a trap or "$@" calls
set -u
srcdir=$(cd "$(dirname "$0")/../.." && pwd) || exit 99
D=$(mktemp -d /tmp/tpck-places.XXXXXX) || exit 99
chmod 755 "$D"
failed=0
n=0

finish() {
    if [ -n "${KEEP:-}" ]; then
        echo "# left for you: $D"
    else
        rm -rf "$D"
    fi
}
trap finish EXIT
trap 'exit 99' HUP INT TERM

# at_200 FOLDER: a path below it that has 200 characters
at_200() {
    path=$1/clone
    while [ ${#path} -lt 140 ]; do path=$path/a-folder-whose-name-is-rather-long-as-the-names-of-some-are; done
    while [ ${#path} -lt 199 ]; do path=${path}x; done
    printf '%s\n' "${path}y"
}

# tested PLACE CLONE COMMAND...: by which command tests are run in that clone; the log is beside it
tested() {
    place=$1
    clone=$2
    shift 2
    n=$((n + 1))
    log=$D/$place.log
    # shellcheck disable=SC2016 # for the shell inside
    "$@" sh -c 'cd "$1" || exit 99
        [ -e build/inst/bin/transpckpt ] || ./bootstrap.sh build || exit
        cd build && if [ -n "$2" ]; then make -k check TESTS="$2"; else make -k check-quick; fi' sh "$clone" "${TESTS:-}" >"$log" 2>&1 </dev/null
    status=$?
    counts=$(awk '/^# (PASS|SKIP|FAIL|ERROR):/ { printf "%s%s %s", comma, tolower(substr($2, 1, length($2) - 1)), $3; comma = ", " }' "$log")
    if [ $status -eq 0 ]; then
        echo "ok $n - $place: $counts"
        grep '^SKIP: ' "$log" | while read -r _ test; do
            echo "#   $test: $(sed -n '1p' "$clone/build/${test%.*}.log" 2>/dev/null)"
        done
    else
        failed=1
        echo "not ok $n - $place: ${counts:-it is not built}"
        { grep -E '^(FAIL|ERROR): ' "$log" || tail -n 20 "$log"; } | sed 's/^/#   /'
        grep -hE -A 8 '^(not ok|Traceback)' "$clone"/build/tests/*/*.log 2>/dev/null | cut -c 1-300 | sed 's/^/#   /'
    fi
}

skipped() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2"
}

allowed() { [ "$(id -u)" -eq 0 ] && unshare --mount true 2>/dev/null; }

# Mounts come before the user: what hides the toolkit is a folder of nothing.
as_user() {
    # shellcheck disable=SC2016 # for the shell inside
    unshare --mount sh -c 'for cuda in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda; do
            [ ! -d "$cuda" ] || mount -t tmpfs -o ro none "$(readlink -f "$cuda")" || exit 99
        done
        home=$1
        shift
        exec env -u CUDA_HOME -u CUDA_PATH HOME="$home" USER=nobody LOGNAME=nobody PATH=/usr/local/bin:/usr/bin:/bin \
            setpriv --reuid=65534 --regid=65534 --clear-groups "$@"' sh "$@"
}

[ $# -gt 0 ] || set -- long small user
mkdir -m 700 "$D/home" "$D/nobody" || exit 99
long=$(at_200 "$D/home")
user="$D/nobody/Öffentlich_+x@y~1/clone"
for place in "$@"; do
    case $place in
    long | small)
        [ -d "$long" ] || git clone -q "$srcdir" "$long" || exit 99
        if [ "$place" = long ]; then
            tested long "$long" env
        elif allowed; then
            # shellcheck disable=SC2016 # for the shell inside
            tested small "$long" unshare --mount sh -c 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"' sh
        else
            skipped small "not root, or mounts are not allowed"
        fi
        ;;
    user)
        if allowed; then
            git clone -q "$srcdir" "$user" && chown -R 65534:65534 "$D/nobody" || exit 99
            tested user "$user" as_user "$D/nobody"
        else
            skipped user "not root, or mounts are not allowed"
        fi
        ;;
    *)
        echo "places.sh: no place is called $place; there are long, small, user" >&2
        exit 2
        ;;
    esac
done
echo "1..$n"
exit $failed
