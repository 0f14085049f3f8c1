# SPDX-License-Identifier: Apache-2.0
# TPCK_PLACE: ends configure where the path of the source or build folder has characters that make's rules, commands or
# LD_PRELOAD cannot take. bootstrap.sh says the same before it begins.
AC_DEFUN([TPCK_PLACE], [
  for tpck_place in "$srcdir" .; do
    for tpck_place in "`cd "$tpck_place" && pwd`" "`cd "$tpck_place" && pwd -P`"; do
      tpck_bad=`printf '%s' "$tpck_place" | LC_ALL=C tr '\n' ' ' | LC_ALL=C tr -d 'A-Za-z0-9/._+@~\200-\377-'`
      AS_IF([test -n "$tpck_bad"],
        [AC_MSG_ERROR([cannot build: the path of the sources or of the build folder, "$tpck_place", has characters that a build does not take: "$tpck_bad". Take one that has only letters, digits and . _ + @ ~ - in its whole path])])
    done
  done])
