# SPDX-License-Identifier: Apache-2.0
# TPCK_UCX: what agents of several nodes speak to each other with: UCX (HAVE_UCX), Open MPI (HAVE_OPENMPI; of both the headers only,
# the library is loaded when it is needed), libsodium, which proves who they are (HAVE_SODIUM), and ISA-L, which
# makes fragments of snapshots (HAVE_ISAL).
AC_DEFUN([TPCK_UCX], [
  PKG_CHECK_MODULES([UCX], [ucx >= 1.11],
    [tpck_ucx_found=`$PKG_CONFIG --modversion ucx`
     AC_DEFINE([HAVE_UCX], [1], [Define to 1 where UCX's headers are.])],
    [tpck_ucx_found="no (agents do not use UCX: install libucx-dev)"])
  PKG_CHECK_MODULES([OPENMPI], [ompi-c >= 4.1],
    [tpck_openmpi_found=`$PKG_CONFIG --modversion ompi-c`
     AC_DEFINE([HAVE_OPENMPI], [1], [Define to 1 where Open MPI's headers are.])],
    [tpck_openmpi_found="no (agents do not use MPI: install libopenmpi-dev)"])
  PKG_CHECK_MODULES([SODIUM], [libsodium],
    [tpck_sodium_found=`$PKG_CONFIG --modversion libsodium`
     AC_DEFINE([HAVE_SODIUM], [1], [Define to 1 where libsodium is.])],
    [tpck_sodium_found="no (agents of several nodes do not reach each other: install libsodium-dev)"])
  PKG_CHECK_MODULES([ISAL], [libisal],
    [tpck_isal_found=`$PKG_CONFIG --modversion libisal`
     AC_DEFINE([HAVE_ISAL], [1], [Define to 1 where ISA-L is.])],
    [tpck_isal_found="no (peers keep whole copies where TRANSPCKPT_PEERS is K+M: install libisal-dev)"])
])
