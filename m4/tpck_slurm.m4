# SPDX-License-Identifier: Apache-2.0
# TPCK_SLURM: Slurm's header for plugins (HAVE_SLURM, SLURM_CPPFLAGS). Nothing is linked: slurmd and srun have the symbols.
AC_DEFUN([TPCK_SLURM], [
  AC_ARG_WITH([slurm], [AS_HELP_STRING([--with-slurm=DIR], [a folder with include/slurm/spank.h; no: no plugin for Slurm])],
              [], [with_slurm=auto])
  tpck_slurm_found=no
  SLURM_CPPFLAGS=
  AS_CASE([$with_slurm], [auto|yes|no], [], [SLURM_CPPFLAGS="-isystem $with_slurm/include"])
  AS_IF([test "x$with_slurm" != xno], [
    tpck_cppflags="$CPPFLAGS"
    CPPFLAGS="$CPPFLAGS $SLURM_CPPFLAGS"
    AC_CHECK_HEADER([slurm/spank.h], [AC_CHECK_HEADER([slurm/slurm.h], [tpck_slurm_found=yes])])
    CPPFLAGS="$tpck_cppflags"
    AS_IF([test "x$tpck_slurm_found$with_slurm" != xnoauto && test "x$tpck_slurm_found" = xno],
          [AC_MSG_ERROR([no slurm/spank.h found: install libslurm-dev, or name its folder by --with-slurm=DIR])])])
  tpck_slurm_said="$tpck_slurm_found"
  AS_IF([test "x$tpck_slurm_found" = xno], [tpck_slurm_said="no (spank_transpckpt.so is not built: it needs slurm/spank.h)"])
  AC_SUBST([SLURM_CPPFLAGS])
  AM_CONDITIONAL([HAVE_SLURM], [test "x$tpck_slurm_found" = xyes])
])
