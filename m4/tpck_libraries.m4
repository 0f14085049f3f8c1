# SPDX-License-Identifier: Apache-2.0
# TPCK_LIBRARIES: liburing and json-c for the agent and the command, xxHash (inlined) and zstd (its archive) for both sides, zlib for launch sequences in files, ncurses for the
# command if it is there.
AC_DEFUN([TPCK_LIBRARIES], [
  PKG_CHECK_MODULES([LIBURING], [liburing >= 2.0], [tpck_liburing_found=`$PKG_CONFIG --modversion liburing`])
  PKG_CHECK_MODULES([JSON_C], [json-c], [tpck_json_found=`$PKG_CONFIG --modversion json-c`])
  AC_CHECK_HEADER([xxhash.h], [tpck_xxhash_found=yes],
                  [AC_MSG_ERROR([xxhash.h is missing: install libxxhash-dev])])
  PKG_CHECK_MODULES([ZLIB], [zlib], [tpck_zlib_found=`$PKG_CONFIG --modversion zlib`])
  # Reading what is packed is linked into the preloaded library: no other library is to come into the trainer.
  PKG_CHECK_MODULES([ZSTD], [libzstd >= 1.4], [TPCK_ZSTD_ARCHIVE],
                    [tpck_zstd_found="no (the record is not packed: install libzstd-dev)"])
  PKG_CHECK_MODULES([NCURSES], [ncursesw],
                    [tpck_ncurses_found=`$PKG_CONFIG --modversion ncursesw`
                     AC_DEFINE([HAVE_NCURSES], [1], [Define to 1 if transpckpt top draws on terminals.])],
                    [tpck_ncurses_found="no (transpckpt top prints plain lines)"])
])

# Whether libzstd.a can be linked into a shared object.
AC_DEFUN([TPCK_ZSTD_ARCHIVE], [
  tpck_saved_libs=$LIBS
  tpck_saved_flags=$CFLAGS
  LIBS="-l:libzstd.a $LIBS"
  CFLAGS="$CFLAGS $ZSTD_CFLAGS -fPIC -shared"
  AC_LINK_IFELSE([AC_LANG_SOURCE([[
#include <zstd.h>
size_t f(void *to, size_t room, const void *from, size_t bytes);
size_t f(void *to, size_t room, const void *from, size_t bytes) { return ZSTD_decompress(to, room, from, bytes); }
]])], [tpck_zstd_found=`$PKG_CONFIG --modversion libzstd`
    ZSTD_LIBS="-l:libzstd.a"
    AC_DEFINE([HAVE_ZSTD], [1], [Define to 1 where zstd is, to be linked into the preloaded library.])],
    [tpck_zstd_found="no (the record is not packed: libzstd.a is missing, or cannot be linked into a library)"
     ZSTD_LIBS=])
  LIBS=$tpck_saved_libs
  CFLAGS=$tpck_saved_flags
])
