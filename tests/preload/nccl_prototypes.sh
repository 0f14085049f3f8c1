#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The rows of NCCL's tables and the types that the hooks are built with are those of each nccl.h that there is: simgpu's, and
# the vendor's where one is installed (NCCL_HEADERS: folders of more).
. "${srcdir:-.}/tests/preload/preload_case.sh"
cd "$D/work" || exit 99
cat >rows.c <<'END'
#include <nccl.h>
#include <assert.h>
#include <stdint.h>
#ifdef STANDIN
typedef CUstream cudaStream_t;
typedef void ncclConfig_t;
typedef struct ncclWindow_vidmem *ncclWindow_t;
typedef struct ncclSimInfo ncclSimInfo_t;
#endif
#if NCCL_VERSION_CODE < 23000 || defined STANDIN
typedef struct ncclWaitSignalDesc ncclWaitSignalDesc_t;
#endif
#if NCCL_VERSION_CODE < 22907 || defined STANDIN
typedef int ncclCommMemStat_t;
#endif
#define TPCK_HOOK_TWICE(symbol, ret, params, args) ret symbol params;
#include "hooks/nccl_collective.def"
#include "hooks/nccl_comm.def"
static_assert(ncclSuccess == 0 && ncclSystemError == 2 && ncclInProgress == 7 && ncclAvg == 4, "values");
static_assert(sizeof(ncclUniqueId) == 128 && sizeof(ncclDataType_t) == 4 && sizeof(ncclRedOp_t) == 4 &&
              sizeof(ncclResult_t) == 4 && sizeof(ncclScalarResidence_t) == 4 && NCCL_SPLIT_NOCOLOR == -1, "sizes");
END
# What the device API takes can be seen by C++ only.
cat >device.cc <<'END'
#include <nccl.h>
#include <nccl_device.h>
#if NCCL_VERSION_CODE < 22900
struct ncclCommProperties;
typedef ncclCommProperties ncclCommProperties_t;
#endif
#define TPCK_HOOK_TWICE(symbol, ret, params, args) extern "C" ret symbol params;
#include "hooks/nccl_device.def"
static_assert(sizeof(ncclTeam_t) == 12, "returned by value");
END
agree() {
    what=$1
    shift
    # shellcheck disable=SC2086 # flags are words
    ok "$what" ${CC:-cc} -std=gnu11 -Wall -Wextra -Werror -Wno-strict-prototypes -fsyntax-only "$@" -I"$srcdir" ${CUDA_CPPFLAGS:-} rows.c
}
agree "simgpu's" -DSTANDIN -I"$srcdir/tests/sim/standin"
sed 's/size_t count/int count/' "$srcdir/hooks/nccl_collective.def" >other.def
sed 's,hooks/nccl_collective.def,other.def,' rows.c >other.c
# shellcheck disable=SC2086 # flags are words
ok "rows that differ would not compile" sh -c "! ${CC:-cc} -std=gnu11 -fsyntax-only -DSTANDIN -I'$srcdir/tests/sim/standin' -I. ${CUDA_CPPFLAGS:-} other.c"
found=0
for folder in ${NCCL_HEADERS:-} /usr/include /usr/local/include /usr/local/cuda/include \
    "$HOME"/.cache/transpckpt/torch/lib/python3*/site-packages/nvidia/nccl/include; do
    [ -r "$folder/nccl.h" ] || continue
    version=$(sed -n 's/^#define NCCL_VERSION_CODE *//p' "$folder/nccl.h")
    found=1
    # Else communicators would be NCCL's own handles there.
    library=$folder/../lib/libnccl.so.2
    if [ -r "$library" ]; then
        known=$(cat "$srcdir"/hooks/nccl_*.def | grep -oE 'TPCK_HOOK_TWICE\( *[A-Za-z0-9_]*' | sed 's/.*( *//'
            sed -n '/^static const char harmless/,/;$/p' "$srcdir/hooks/nccl_keys.c" | grep -oE '[A-Z][A-Za-z0-9]*\\0' | sed 's/^/nccl/; s/..$//')
        is "its library exports nothing else" "$(nm -D --defined-only "$library" | sed -n 's/.* [TW] p*\(nccl.*\)/\1/p' | sort -u |
            grep -vxF "$known")" ""
    fi
    # shellcheck disable=SC2086 # flags are words
    if echo '#include <cuda_runtime.h>' | ${CC:-cc} ${CUDA_CPPFLAGS:-} -fsyntax-only -x c - 2>/dev/null; then
        agree "version $version in $folder" -I"$folder"
        # shellcheck disable=SC2086 # flags are words
        if [ -r "$folder/nccl_device.h" ]; then
            ok "its device API" "${CXX:-c++}" -fsyntax-only -w -I"$folder" -I"$srcdir" ${CUDA_CPPFLAGS:-} device.cc
        fi
    else
        skip "version $version in $folder" "no cuda_runtime.h"
    fi
done
[ $found = 1 ] || skip "the vendor's" "no nccl.h is installed"
done_testing
