# SPDX-License-Identifier: Apache-2.0
# TPCK_FUZZ: how the programs of tests/fuzz are built, in FUZZ_CFLAGS and FUZZ_LDFLAGS: with the address and the undefined
# behaviour sanitizer where the compiler has them, and with --enable-fuzzing with libFuzzer, which needs clang. FUZZ_UNOPTIMIZED
# stands behind CFLAGS: without libFuzzer the programs run for seconds. Without optimization compilers warn of what cannot be.
AC_DEFUN([TPCK_FUZZ], [
  AC_ARG_ENABLE([fuzzing], [AS_HELP_STRING([--enable-fuzzing], [build the programs of tests/fuzz with libFuzzer])])
  FUZZ_CFLAGS=
  FUZZ_LDFLAGS=
  FUZZ_UNOPTIMIZED="-O0 -Wno-error"
  tpck_fuzz_sanitizers="-fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=undefined,float-cast-overflow -fno-omit-frame-pointer"
  dnl Another sanitizer may not stand beside these.
  AS_IF([test -z "$enable_sanitizers" || test "x$enable_sanitizers" = xno], [
    tpck_fuzz_cflags=$CFLAGS
    CFLAGS="$CFLAGS $tpck_fuzz_sanitizers"
    AC_CACHE_CHECK([whether $CC links with -fsanitize=address,undefined], [tpck_cv_fuzz_sanitizers],
      [AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [tpck_cv_fuzz_sanitizers=yes], [tpck_cv_fuzz_sanitizers=no])])
    CFLAGS=$tpck_fuzz_cflags
    AS_IF([test "x$tpck_cv_fuzz_sanitizers" = xyes],
          [FUZZ_CFLAGS=$tpck_fuzz_sanitizers
           FUZZ_LDFLAGS="-fsanitize=address,undefined"])])
  AS_IF([test "x$enable_fuzzing" = xyes],
        [FUZZ_UNOPTIMIZED=
         FUZZ_CFLAGS="$tpck_fuzz_sanitizers -fsanitize=fuzzer-no-link -DTPCK_LIBFUZZER"
         FUZZ_LDFLAGS="-fsanitize=fuzzer,address,undefined"])
  AC_SUBST([FUZZ_CFLAGS])
  AC_SUBST([FUZZ_LDFLAGS])
  AC_SUBST([FUZZ_UNOPTIMIZED])
])
