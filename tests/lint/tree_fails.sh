#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Each rule of tree.py, broken once in a copy of the tree, is reported.
set -u
srcdir=$(cd "${srcdir:-.}" && pwd) || exit 99
lint=$srcdir/tests/lint/tree.py
indentation=$srcdir/tests/lint/indentation.py
D=$(mktemp -d "${TMPDIR:-/tmp}/tpck-lint.XXXXXX") || exit 99
trap 'rm -rf "$D"' EXIT
for room in runtime kernels shim hooks agent tools doc; do
    mkdir -p "$D/$room" && cp -R "$srcdir/$room/." "$D/$room/" || exit 99
done
mkdir -p "$D/tests/fuzz" && cp -R "$srcdir/tests/fuzz/." "$D/tests/fuzz/" || exit 99
chmod -R u+w "$D"
cp "${builddir:-.}/config.h" "$D/" || exit 99

cd "$D" || exit 99
echo '#include "hooks/hooks.h"' >>runtime/engine/engine.h
echo '#include "runtime/store/tier.h"' >>runtime/track/arena.h
echo '#include "runtime/engine/engine.h"' >>runtime/store/tier.h
echo '#include "engine.h"' >>runtime/engine/attach.c
echo '#include "agent/session/sessions.h"' >>agent/loop/loop.h
echo '#include "agent/programs/met_programs.h"' >>agent/home/home.h
echo '#include "agent/peers/peers.h"' >>agent/files/publisher.h
echo '#include "agent/durable/flush.h"' >>agent/session/live.h
echo '#include "agent/peers/peers.h"' >>agent/durable/flush.h
echo '#include "agent/copies/copies.h"' >>agent/peers/peers.h
echo '#include "agent/salvage/salvage.h"' >>agent/accord/joint_launches.h
echo '#include <cuda.h>' >>shim/table.h
echo '/* They are lost. */' >>shim/doors.h
printf '/* This is lost, too. */\n/*\n * Those are of nobody.\n */\n/* Those that wait are said. */\n' >>shim/driver.h
printf '\n- an item\n' >>doc/store.md && yes '  and its lines' | head -10 >>doc/store.md
printf '\n- It is lost.\n- Its end\n' >>doc/slurm.md
printf '\n%0121d\n\n| %0121d |\n' 0 0 >>doc/ranks.md
printf 'See \140runtime/base/gone.c\140.\n' >>doc/outside.md
printf '\nMore is in doc/gone.md, and in doc/store.md, "Nothing".\n' >>doc/record.md
sed -i '/runtime\/policy/d' doc/architecture.md
printf '/* SPDX-License-Identifier: Apache-2.0 */\n/* A file. */\n#include <stdio.h>\n' >tools/cli/helpers.c
printf 'int x;\nvoid y(void) { pthread_mutex_lock(&nowhere); }\n' >shim/bare.c
cp shim/bare.c tools/cli/bare.c && cp shim/bare.c tools/cli/main.c
printf '/* SPDX-License-Identifier: Apache-2.0 */\n/* A header. */\n#ifndef A_H\n#define A_H\nextern size_t alone;\n#endif\n' >shim/lonely.h
# shellcheck disable=SC2016 # a line for another script
printf '#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n# A script.\nrm $1\nunused=1\n' >tools/cli/careless.sh
# shellcheck disable=SC2028 # the escape is for the C compiler
echo 'void stop(void) { if (!"exit(2)") return; /* exit(3) */ exit(4); }' >>shim/table.c
echo 'int asked(int fd) { return close(fd) + (int)syscall(SYS_dup, fd); }' >>runtime/base/huge.c
echo 'TPCK_HOOK_EXPORT(futimes, path)' >>hooks/libc.def
echo 'TPCK_EXPORT int acct(const char *path) { return !path; }' >>hooks/libc_path.c
echo 'TPCK_USE(cuNothing)' >>hooks/cuda_used.def
echo 'int made(void) { return open("x", O_WRONLY | O_CREAT, 0600); }' >>agent/durable/stasher.c
echo 'void gone(char *path, struct tpck_tier *tier) { snprintf(path, 9, "%s/x", tier->root); }' >>agent/durable/drain.c
echo 'int looked(void) { return tpck_sys_openat(AT_FDCWD, "x", O_RDONLY, 0); }' >>runtime/view/view.c
# Each row of what is behind the door: the file, and a way past it.
rows='runtime/store/durable_tier.c stat("x", 0)
runtime/store/history.c tpck_file_write("x", 0)
runtime/engine/attach.c tpck_sys_openat(AT_FDCWD, engine->keep, 0)
runtime/base/key.c tpck_sys_openat(AT_FDCWD, state, 0)
runtime/engine/adopt.c opendir(names)
runtime/follow/record.c tpck_sys_openat(AT_FDCWD, kept, 0)
runtime/follow/lists.c tpck_sys_openat(AT_FDCWD, making, 0)
runtime/follow/leftovers.c tpck_sys_unlinkat(AT_FDCWD, leaving, 0)
runtime/follow/learnt.c tpck_sys_openat(AT_FDCWD, name, 0)
runtime/follow/reconcile.c tpck_sys_openat(AT_FDCWD, version, 0)
runtime/follow/overlay.c tpck_sys_openat(AT_FDCWD, version, 0)
runtime/replay/stash.c tpck_sys_openat(AT_FDCWD, made.store, 0)
agent/peers/alone.c access("x", 0)
agent/peers/agents_folder.c opendir("x")
agent/copies/takeover.c unlink(mark)
agent/copies/sent_files.c unlink(path)
runtime/peer/rendezvous.c utimensat(0, "x", 0, 0)'
printf '%s\n' "$rows" | while read -r file call; do echo "int past(void) { return (int)$call; }" >>"$file"; done
echo 'void root(void) { tpck_settings_read(0, 0); }' >>tools/spank/epilog.c
echo 'int tpck_news_parse(const char *text, size_t size);' >>runtime/store/file_names.h
echo 'int news(const char *text) { int x; return sscanf(text, "%d", &x); }' >>runtime/policy/interval.c
printf 'tpck_gone_parse names\ntpck_file_write -\ntpck_owed_judge names\ntpck_there_is nowhere\n' >>tests/fuzz/parsers.txt
printf '/* SPDX-License-Identifier: Apache-2.0 */\n/* A target. */\nint LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return 0; }\n' >tests/fuzz/lost.c
printf 'tests_fuzz_lost_SOURCES = \\\n  tests/fuzz/lost.c tests/fuzz/names.c\n' >>tests/fuzz/Makefile.inc
"${PYTHON3:-python3}" "$lint" "$D" "$D" >said 2>&1
status=$?

n=0
failed=0
reports() {
    n=$((n + 1))
    if grep -qF -- "$1" said; then
        echo "ok $n - $1"
    else
        echo "not ok $n - $1"
        failed=1
    fi
}
reports 'runtime/engine may not know hooks'
reports 'runtime/track may not know runtime/store'
reports 'runtime/store may not know runtime/engine'
reports '"engine.h" is not named from the top of the tree'
reports 'agent/loop may not know agent/session'
reports 'agent/home may not know agent/programs'
reports 'agent/files may not know agent/peers'
reports 'agent/session may not know agent/durable'
reports 'agent/durable may not know agent/peers'
reports 'agent/peers may not know agent/copies'
reports 'agent/accord may not know agent/salvage'
reports 'shim/bare.c:2: &nowhere has no rank in runtime/base/locks.def'
reports 'shim/bare.c: lock_order.h is not included'
reports 'shim/table.h:27: cuda.h belongs to hooks/'
reports 'shim/doors.h:28: a comment begins with a pronoun'
said_of=$(wc -l <shim/driver.h)
reports "shim/driver.h:$((said_of - 4)): a comment begins with a pronoun"
reports "shim/driver.h:$((said_of - 2)): a comment begins with a pronoun"
[ "$(grep -c 'shim/driver.h:.*pronoun' said)" -eq 2 ] || failed=1
reports "doc/store.md:$(($(wc -l <doc/store.md) - 10)): a block of 11 lines: 10 at most"
reports "doc/ranks.md:$(($(wc -l <doc/ranks.md) - 2)): a line of 121 characters: 120 at most"
[ "$(grep -c 'doc/.* at most' said)" -eq 2 ] || failed=1
reports "doc/slurm.md:$(($(wc -l <doc/slurm.md) - 1)): a block begins with a pronoun"
reports "doc/outside.md:$(wc -l <doc/outside.md): there is no runtime/base/gone.c"
reports "doc/record.md:$(wc -l <doc/record.md): there is no doc/gone.md"
reports "doc/record.md:$(wc -l <doc/record.md): doc/store.md has no heading \"Nothing\""
reports 'doc/architecture.md: the table of rooms has no row for runtime/policy'
reports 'doc/architecture.md: the picture has no runtime/policy'
reports 'tools/cli/helpers.c: config.h is not its first include'
reports 'tools/cli/helpers.c: say what is in it'
reports 'shim/bare.c, tools/cli/bare.c: give all but one of them a name of their own'
grep -q 'tools/cli/main.c.*of their own' said && failed=1
reports 'shim/bare.c:1: no SPDX line at its head'
reports 'shim/lonely.h: its guard is not TPCK_SHIM_LONELY_H'
reports 'lonely.h:5:8: error: unknown type name'
reports 'shim/table.c:55: exit'
asked=$(wc -l <runtime/base/huge.c)
reports "runtime/base/huge.c:$asked: close() is hooked"
reports "runtime/base/huge.c:$asked: syscall() is hooked"
reports 'futimes has a row, but no exported body'
reports 'acct is exported, but has no row in a table'
reports 'cuNothing is not in shim/driver_symbols.txt'
reports 'cuNothing is not in tools/cli/device/driver.def'
reports 'O_WRONLY | O_CREAT: a file of ours is made with O_EXCL or O_NOFOLLOW'
reports 'not by way of tpck_door_open()'
for file in $(printf '%s\n' "$rows" | sed 's/ .*//'); do
    reports "$file:$(wc -l <"$file"): not by way of tpck_door_open()"
done
reports "agent/durable/drain.c:$(wc -l <agent/durable/drain.c): a path below a tier's root is what tpck_tier_path() gives"
reports 'in what user_run() calls only'
reports 'tpck_news_parse has no line in tests/fuzz/parsers.txt'
reports 'runtime/policy/interval.c:36: it calls sscanf(), and has no line in tests/fuzz/parsers.txt'
reports 'tpck_gone_parse is no parser any more'
reports 'tpck_file_write has neither a target nor a reason'
reports 'tests/fuzz/names.c does not call tpck_owed_judge'
reports 'there is no tests/fuzz/nowhere.c'
reports 'tests/fuzz/lost.c: it is not in fuzz_targets of tests/fuzz/Makefile.inc'
reports 'there is no input for it in tests/fuzz/corpus/lost'
reports "tests/fuzz/Makefile.inc:$(wc -l <tests/fuzz/Makefile.inc): one file a line"
if command -v shellcheck >/dev/null; then reports 'tools/cli/careless.sh:4'; fi
[ "$(grep -c 'shim/table.c:.*exit' said)" -eq 1 ] && [ "$status" -eq 1 ] || failed=1
cp said "$D/tree" && cp "$srcdir/.clang-format" "$D/" || exit 99
printf 'int f(void)\n{\n    return 1;\n}\n' >shim/spaces.c
printf 'int f(void)\n{\n\treturn 1;\n}\n' >shim/tabs.c
srcdir="$D" "${PYTHON3:-python3}" "$indentation" shim/spaces.c shim/tabs.c >said
if [ $? -ne 77 ]; then
    reports 'shim/spaces.c:3:'
    [ "$(grep -c 'shim/' said)" -eq 1 ] || failed=1
fi
[ $failed -eq 0 ] || sed 's/^/# /' tree said
echo "1..$n"
exit $failed
