#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The manual lists every setting with its help and default, and every option that a verb takes.
srcdir=${srcdir:-.}
builddir=${builddir:-.}
count=0
failed=0
ok() {
    what=$1
    shift
    count=$((count + 1))
    if "$@"; then
        echo "ok $count - $what"
    else
        echo "not ok $count - $what"
        failed=1
    fi
}
D=$(mktemp -d) || exit 77
trap 'rm -rf "$D"' EXIT
page=$srcdir/doc/man/transpckpt.conf.7

sed -n 's/^TPCK_SETTING([^,]*, *\([A-Z_]*\),.*/TRANSPCKPT_\1/p' "$srcdir/runtime/base/settings.def" >"$D/table"
sed '1,/^\.SH SETTINGS/d' "$page" | sed -n 's/^\.B \(TRANSPCKPT_[A-Z_]*\)$/\1/p' >"$D/page"
ok "there are settings" test -s "$D/table"
ok "the page lists those of the table, in its order" diff "$D/table" "$D/page"

# The help of each row, its first letter raised, is a line of the page.
sed -n 's/^TPCK_SETTING(.*"\([^"]*\)")$/\1./p' "$srcdir/runtime/base/settings.def" | while read -r help; do
    first=$(printf '%s' "$help" | cut -c1 | tr '[:lower:]' '[:upper:]')
    rest=$(printf '%s' "$help" | cut -c2-)
    grep -qF -- "$first$rest" "$page" || echo "$help"
done >"$D/missing"
ok "with the table's words" test ! -s "$D/missing"
sed 's/^/# missing: /' "$D/missing"

for verb in run ls show verify rm doctor; do
    man=$srcdir/doc/man/transpckpt-$verb.1
    "$builddir/transpckpt" $verb --help >"$D/help"
    ok "$verb --help" grep -q "^usage: transpckpt $verb" "$D/help"
    grep -o -- '--[a-z][a-z]*' "$D/help" | sort -u | while read -r option; do
        sed 's/\\-/-/g' "$man" | grep -q -- "$option" || echo "$option"
    done >"$D/missing"
    ok "$verb: the page has every option" test ! -s "$D/missing"
done

# What a reader looks for, in the order of man-pages(7).
# shellcheck disable=SC2317 # by way of ok
sections() {
    page=$1
    shift
    for section in "$@"; do
        echo "$section"
    done >"$D/wanted"
    sed -n 's/^\.SH //p' "$page" | grep -xF -f "$D/wanted" >"$D/sections"
    cmp -s "$D/wanted" "$D/sections"
}
for page in "$srcdir"/doc/man/*; do
    case $page in
    *.conf.7 | *.8) middle=FILES ;;
    *-ls.1 | *-report.1 | */transpckptd.1) middle='EXIT STATUS,FILES' ;;
    *) middle='EXIT STATUS' ;;
    esac
    IFS=,
    # shellcheck disable=SC2086 # a list with commas
    ok "${page##*/}: sections" sections "$page" NAME SYNOPSIS DESCRIPTION $middle EXAMPLES 'SEE ALSO'
    unset IFS
done
echo "1..$count"
exit $failed
