# SPDX-License-Identifier: Apache-2.0
# TPCK_UCX: what agents of several nodes speak to each other with: UCX (HAVE_UCX; its header only, the library is loaded when
# it is needed), and libsodium, which proves who they are (HAVE_SODIUM).
AC_DEFUN([TPCK_UCX], [
  PKG_CHECK_MODULES([UCX], [ucx >= 1.11],
    [tpck_ucx_found=`$PKG_CONFIG --modversion ucx`
     AC_DEFINE([HAVE_UCX], [1], [Define to 1 where UCX's headers are.])],
    [tpck_ucx_found="no (agents of several nodes do not reach each other: install libucx-dev)"])
  PKG_CHECK_MODULES([SODIUM], [libsodium],
    [tpck_sodium_found=`$PKG_CONFIG --modversion libsodium`
     AC_DEFINE([HAVE_SODIUM], [1], [Define to 1 where libsodium is.])],
    [tpck_sodium_found="no (the same: install libsodium-dev)"])
])
