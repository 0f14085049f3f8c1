# SPDX-License-Identifier: Apache-2.0
# TPCK_CUDA: where cuda.h is (CUDA_CPPFLAGS, CUDA_INC) and whether there is an nvcc (NVCC, HAVE_NVCC).
# Only headers are needed; nothing here links a CUDA library.
AC_DEFUN([TPCK_CUDA], [
  AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=DIR], [a folder with include/cuda.h, or that include folder])],
              [], [with_cuda=auto])
  tpck_cuda_found=no
  for tpck_dir in "$with_cuda" "$CUDA_HOME" "$CUDA_PATH" /usr/local/cuda /usr; do
    for tpck_inc in "$tpck_dir/include" "$tpck_dir"; do
      AS_IF([test "x$tpck_cuda_found" = xno && test -r "$tpck_inc/cuda.h"], [tpck_cuda_found="$tpck_inc"])
    done
  done
  AS_IF([test "x$tpck_cuda_found" = xno],
        [AC_MSG_ERROR([no cuda.h found: name its folder by --with-cuda=DIR, or let ./bootstrap.sh build fetch the headers])])
  CUDA_INC="$tpck_cuda_found"
  CUDA_CPPFLAGS="-isystem $tpck_cuda_found"
  AC_SUBST([CUDA_INC])
  AC_SUBST([CUDA_CPPFLAGS])
  AC_PATH_PROG([NVCC], [nvcc], [], [$PATH:/usr/local/cuda/bin])
  AS_IF([test -n "$NVCC" && ! "$NVCC" --version >/dev/null 2>&1],
        [AC_MSG_WARN([$NVCC does not run: device kernels for hardware are not built])
         NVCC=])
  AM_CONDITIONAL([HAVE_NVCC], [test -n "$NVCC"])
])
