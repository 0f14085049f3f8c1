#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bootstrap.sh and configure say in words that they cannot build in a path with spaces and the like, before they begin, and
# take one of letters of any language.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
D=$(mktemp -d "${TMPDIR:-/tmp}/tpck-paths.XXXXXX") || exit 99
trap 'rm -rf "$D"' EXIT
n=0
failed=0
# Nothing is installed or built here, even if a check is missing: the first thing that bootstrap.sh makes ends it.
mkdir "$D/bin" || exit 99
printf '#!/bin/sh\necho installed\n' >"$D/bin/dpkg-query"
printf '#!/bin/sh\necho "begins with $*"\nexit 9\n' >"$D/bin/mkdir"
chmod 755 "$D/bin/dpkg-query" "$D/bin/mkdir"

# bootstrap FOLDER: the script of a clone in that folder
bootstrap() { PATH="$D/bin:$PATH" "$1/bootstrap.sh" build ${2+"$2"} >"$D/said" 2>&1 </dev/null; }
# A compiler that is not there ends configure after its look at the paths.
configure() (cd "$2" && "$1/configure" CC="$D/none" >"$D/said" 2>&1 </dev/null)

ok() {
    n=$((n + 1))
    if [ "$1" -eq 0 ]; then
        printf '%s\n' "ok $n - $2"
    else
        printf '%s\n' "not ok $n - $2"
        sed 's/^/#   /' "$D/said"
        failed=1
    fi
}
# refused WHAT PATH CHARACTER; the exit status is that of the command before
refused() {
    status=$?
    [ $status -eq 1 ] && grep -qF "cannot build" "$D/said" && grep -qF "\"$2\"" "$D/said" && grep -qF "does not take: \"$3\"" "$D/said" &&
        ! grep -q 'begins with' "$D/said"
    ok $? "$1: $2"
}

for bad in ' ' '	' : "'" '"' '$' '&' '#' '*' '%' '=' ','; do
    bootstrap "$srcdir" "$D/a${bad}b"
    refused "bootstrap.sh, a build folder" "$D/a${bad}b" "$bad"
done

folder="$D/a b"
command mkdir -p "$folder/clone" "$D/good"
cp "$srcdir/bootstrap.sh" "$folder/clone/"
bootstrap "$folder/clone" "$D/good"
refused "bootstrap.sh, sources" "$folder/clone" ' '
ln -s "$folder/clone" "$D/link"
bootstrap "$D/link" "$D/good"
refused "bootstrap.sh, sources by a link" "$folder/clone" ' '
configure "$srcdir" "$folder"
refused "configure, a build folder" "$folder" ' '
ln -s "$srcdir" "$folder/link"
configure "$folder/link" "$D/good"
refused "configure, sources" "$folder/link" ' '

good="$D/Überaus_gut-1.0+x@y~/b"
command mkdir -p "$good"
bootstrap "$srcdir" "$good"
[ $? -eq 9 ] && grep -qF "begins with -p $good" "$D/said"
ok $? "bootstrap.sh takes another one"
configure "$srcdir" "$good"
! grep -qF "cannot build" "$D/said" && grep -q "C compiler" "$D/said"
ok $? "configure takes it"
echo "1..$n"
exit $failed
