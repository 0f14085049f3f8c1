#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.5 about=4s
# A call that is given a pointer which cannot be read, a path that runs into memory that is not there above all, gives what the
# kernel gives it without the library: in a program that meets no device, in one that does, and with a file that is pending.
. "${srcdir:-.}/tests/preload/preload_case.sh"
cd "$D/work" || exit 99
${CC:-cc} -std=gnu11 -Wall -Wextra -Wno-nonnull -O1 -o pointers "$here/pointers/pointers.c" -ldl || exit 99

# once LIBRARIES INTO MODE...: in a folder that has one name
once() {
    libraries=$1
    into=$2
    shift 2
    rm -rf run && mkdir run
    (cd run && with "$libraries" timeout 120 ../pointers "$@") >"$into" 2>"$into.err" </dev/null
    echo "status $?" >>"$into"
}

# What ends the program without the library may end it with it.
same() {
    what=$1
    shift
    once "" plain "$@"
    once "$lib" preloaded "$@"
    count=$((count + 1))
    awk 'NR == FNR { plain[FNR] = $0; next }
        plain[FNR] !~ /: signal / && plain[FNR] != $0 { print plain[FNR] "; preloaded:" substr($0, index($0, ":") + 1) }
        END { if (FNR != length(plain) || FNR < 100) print "there are " FNR " lines and " length(plain) }' plain preloaded >differs
    if [ -s differs ]; then
        echo "not ok $count - $what: $(wc -l <differs) of $(wc -l <plain) differ"
        failed=1
        head -n 40 differs preloaded.err | sed 's/^/#   /'
    else
        echo "ok $count - $what: $(wc -l <plain) calls"
    fi
}

same "nothing is pending"
same "a file is pending" pending step-1.pt
same "a file is pending, and a device was met" device step-1.pt
TRANSPCKPT_FILES=none
export TRANSPCKPT_FILES
same "no files are taken, and a device was met" device step-1.pt
done_testing
