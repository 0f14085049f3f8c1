# SPDX-License-Identifier: Apache-2.0
# TPCK_LIBRARIES: liburing and json-c for the agent and the command, xxHash (inlined) for both sides, zlib for launch sequences in files, ncurses for the
# command if it is there.
AC_DEFUN([TPCK_LIBRARIES], [
  PKG_CHECK_MODULES([LIBURING], [liburing >= 2.0], [tpck_liburing_found=`$PKG_CONFIG --modversion liburing`])
  PKG_CHECK_MODULES([JSON_C], [json-c], [tpck_json_found=`$PKG_CONFIG --modversion json-c`])
  AC_CHECK_HEADER([xxhash.h], [tpck_xxhash_found=yes],
                  [AC_MSG_ERROR([xxhash.h is missing: install libxxhash-dev])])
  PKG_CHECK_MODULES([ZLIB], [zlib], [tpck_zlib_found=`$PKG_CONFIG --modversion zlib`])
  PKG_CHECK_MODULES([NCURSES], [ncursesw],
                    [tpck_ncurses_found=`$PKG_CONFIG --modversion ncursesw`
                     AC_DEFINE([HAVE_NCURSES], [1], [Define to 1 if transpckpt top draws on terminals.])],
                    [tpck_ncurses_found="no (transpckpt top prints plain lines)"])
])
