#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.2 about=5s
# Every door by which a program comes to NCCL: open, its communicators are known, so that an error on one is one line that
# names it; shut, nobody says anything. NCCL itself, and what is called like a part of it, is alone with the driver.
. "${srcdir:-.}/tests/preload/preload_case.sh"
cd "$D/work" || exit 99
doors=$here/doors
TRANSPCKPT_RESUME=never SIMGPU_FAULT=nccl_error@1
export TRANSPCKPT_RESUME SIMGPU_FAULT

build() {
    out=$1
    shift
    # shellcheck disable=SC2086 # flags are words
    ${CC:-cc} -std=gnu11 -Wall -Wextra ${CUDA_CPPFLAGS:-} -I"$srcdir/tests/sim" -o "$out" "$@" -L"$sim/lib" -lcudart -ldl || exit 99
}
build linked "$doors/nccl.c" -DLINKED -lnccl
build plinked "$doors/nccl.c" -DLINKED -DPROFILING -lnccl
build static "$doors/nccl.c" -DLINKED "$sim/.libs/libsim_nccl.a" "$sim/.libs/libsim_standin.a" -lpthread
build opened "$doors/nccl.c"
build popened "$doors/nccl.c" -DPROFILING
build plugin.so "$doors/nccl.c" -DPLUGIN -DLINKED -shared -fPIC -lnccl
build plugin_lookup.so "$doors/lookup.c" -DPLUGIN -shared -fPIC
build lookup "$doors/lookup.c"

got="error 2, its memory is its own"
line="transpckpt: NCCL on rank 0 of communicator 0, of 1 ranks: unhandled system error"
mark="transpckpt: snapshots from here on cannot be resumed"
says() { with "$1" timeout 60 "$2" ${3:+"$3"} 2>&1 | sed "s/^\($mark\).*/\1/" | sort; }
heard=$(printf '%s\n%s\n%s\n' "$got" "$line" "$mark" | sort)

is "plain" "$(says '' ./linked)" "$got"
is "linked" "$(says "$lib" ./linked)" "$heard"
is "linked, profiling names" "$(says "$lib" ./plinked)" "$heard"
is "a library that is linked, RTLD_LOCAL" "$(says "$lib" ./opened ./plugin.so)" "$heard"
is "dlopen, RTLD_LOCAL" "$(says "$lib" ./opened)" "$heard"
is "dlopen, profiling names" "$(says "$lib" ./popened)" "$heard"

# NCCL in the program itself is the program's: nobody can tell the two apart, and a line says so.
is "linked statically" "$(with "$lib" timeout 60 ./static 2>&1 | sort)" "error 2, its memory is followed
transpckpt: snapshots from here on cannot be resumed: NCCL is linked into the program, and what it does cannot be told from the program's own work"

# The same with doors shut.
shut() {
    mkdir -p "$D/$1"
    "${PYTHON3:-python3}" "$doors/shut.py" "$lib" "$D/$1/libtranspckpt.so" "$2" || exit 99
    ln -sf ../inst/lib/transpckpt "$D/$1/transpckpt"
    ln -sfn inst/bin "$D/bin"
}
shut no-init ncclCommInitRank
shut no-error ncclCommGetAsyncError
shut no-dlsym dlsym
unknown="transpckpt: NCCL: unhandled system error"
is "linked, a communicator's begin shut" "$(says "$D/no-init/libtranspckpt.so" ./linked)" \
    "$(printf '%s\n%s\n%s\n' "$got" "$unknown" "$mark" | sort)"
is "linked, the error shut" "$(says "$D/no-error/libtranspckpt.so" ./linked)" "$(printf '%s\n%s\n' "$got" "$mark")"
is "dlopen, dlsym shut" "$(says "$D/no-dlsym/libtranspckpt.so" ./opened)" "$got"

# What the program has is a key, and whatever NCCL is told of it is as without the library; where not every call is known to be seen it is
# NCCL's own.
unset SIMGPU_FAULT
build handles "$doors/nccl_handles.c" -lnccl
build tool.so "$doors/nccl_newer.c" -shared -fPIC
build newer.so "$doors/nccl_newer.c" -shared -fPIC -DNEWER=ncclCommFrobnicate
build mangled.so "$doors/nccl_newer.c" -shared -fPIC -DNEWER=_ZN1x3newEP8ncclComm
wanted=$(with "" timeout 60 ./handles)
is "which is a good one" "$(echo "$wanted" | grep -c "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0, device 0")" 4
is "every function is told its own handle" "$(with "$lib" timeout 60 ./handles 2>/dev/null)" "$wanted"
says_it() { with "$1" timeout 60 ./handles "${2:-say}" 2>/dev/null | head -n 1; }
is "a program has a key" "$(says_it "$lib")" key
is "with a tool behind the library, too" "$(says_it "$lib:./tool.so")" key
is "not where there is a function that the tables do not know" "$(says_it "$lib:./newer.so")" own
is "nor where there is one in C++" "$(says_it "$lib:./mangled.so")" own
is "nor where a tool comes first" "$(says_it "./tool.so:$lib")" own
is "nor where a library looks in another order" "$(says_it "$lib" deep)" own
is "nor where a hook is shut" "$(says_it "$D/no-error/libtranspckpt.so")" own

# What it allocates itself is the driver's.
cp plugin_lookup.so libnccl-probe.so
cp plugin_lookup.so libnot_nccl.so
is "a library that is none of NCCL's" "$(with "$lib" ./lookup plugin ./libnot_nccl.so local 2>&1)" "followed"
is "one of NCCL's" "$(with "$lib" ./lookup plugin ./libnccl-probe.so local 2>&1)" "not followed"
done_testing
