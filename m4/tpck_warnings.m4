# SPDX-License-Identifier: Apache-2.0
# TPCK_WARNINGS: the warnings that the tree is kept free of, in TPCK_CFLAGS and TPCK_CXXFLAGS.
AC_DEFUN([TPCK_WARNINGS], [
  AC_ARG_ENABLE([werror], [AS_HELP_STRING([--disable-werror], [let warnings pass])],
                [], [enable_werror=yes])
  TPCK_CFLAGS="-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -fvisibility=hidden -fno-strict-aliasing"
  TPCK_CXXFLAGS="-Wall -Wextra"
  AS_IF([test "x$enable_werror" = xyes],
        [TPCK_CFLAGS="$TPCK_CFLAGS -Werror"; TPCK_CXXFLAGS="$TPCK_CXXFLAGS -Werror"])
  AC_ARG_ENABLE([lock-order], [AS_HELP_STRING([--enable-lock-order], [end a process that takes locks in another order than runtime/base/locks.def])])
  AS_IF([test "x$enable_lock_order" = xyes], [CPPFLAGS="$CPPFLAGS -DTPCK_LOCK_ORDER"])
  AC_ARG_ENABLE([sanitizers], [AS_HELP_STRING([--enable-sanitizers=LIST], [build with -fsanitize=LIST])])
  AS_IF([test -n "$enable_sanitizers" && test "x$enable_sanitizers" != xno],
        [TPCK_CFLAGS="$TPCK_CFLAGS -fsanitize=$enable_sanitizers -fno-omit-frame-pointer"
         LDFLAGS="$LDFLAGS -fsanitize=$enable_sanitizers"
         dnl The thread sanitizer of gcc knows no fences, and says so of each.
         AS_CASE([$enable_sanitizers], [*thread*], [TPCK_CFLAGS="$TPCK_CFLAGS -Wno-tsan"])])
  AC_SUBST([TPCK_CFLAGS])
  AC_SUBST([TPCK_CXXFLAGS])
])
