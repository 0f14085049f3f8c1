#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: disk
# A process that is no trainer pays little for the library: few system calls and instructions beyond those of
# preloading an empty library, no thread, no process, no file.
. "${srcdir:-.}/tests/preload/preload_case.sh"
cd "$D/work" || exit 99
printf 'int main(void) { return 0; }\n' >nothing.c
printf 'void nothing(void);\nvoid nothing(void) {}\n' >empty.c
${CC:-cc} -O2 -o nothing nothing.c || exit 99
${CC:-cc} -shared -fPIC -o empty.so empty.c || exit 99

# ---- system calls ----
# Beyond the empty library there are 27 here: who it is (process, thread, user: 7), what it is (executable, folder,
# arguments: 7), settings (2), two mappings for the record (2), whether this program is to be resumed (3), whether its job
# has files pending (1), the user's key (4), and one wake-up of nobody. The rest is room for other loaders and kernels. The first
# start of all makes the key.
MAY_COST=38
calls() {
    strace -f -o trace env LD_PRELOAD="$1" "$2" ${3:+"$3"} >/dev/null 2>&1 || return 1
    sed -n '/execve("\.\/nothing"/,$p' trace >of_program
    grep -c '(' of_program
}
if command -v strace >/dev/null && strace -o trace true 2>/dev/null; then
    LD_PRELOAD="$lib" ./nothing
    empty=$(calls "$D/work/empty.so" ./nothing)
    ours=$(calls "$lib" ./nothing)
    echo "# system calls: $empty with an empty library, $ours with ours"
    ok "at most $MAY_COST system calls more" test $((ours - empty)) -le $MAY_COST
    is "no thread, no process" "$(grep -cE '[^a-z_](clone|clone3|fork|vfork|execve)\(' of_program)" 1
    is "nothing is written, made or connected" \
        "$(grep -E '[^a-z_](write|writev|pwrite64|mkdir|mkdirat|socket|connect|unlink|rename|renameat2?|symlink|ftruncate)\(|O_CREAT|O_WRONLY|O_RDWR' of_program |
        grep -v '/files/table", O_RDWR|O_NOFOLLOW|O_CLOEXEC) = -1 ENOENT')" ""
    is "no signal is touched" "$(grep -cE 'rt_sigaction|rt_sigprocmask|sigaltstack' of_program)" \
        "$(calls "$D/work/empty.so" ./nothing >/dev/null; grep -cE 'rt_sigaction|rt_sigprocmask|sigaltstack' of_program)"
    calls "$lib" ./nothing >/dev/null
    is "every descriptor is closed again" "$(awk '
        /openat\(|memfd_create\(|socket\(/ && $NF ~ /^[0-9]+$/ { open[$NF] = 1 }
        /close\(/ { split($0, part, /[()]/); delete open[part[2]] }
        END { n = 0; for (d in open) n++; print n }' of_program)" 0
    TRANSPCKPT_DISABLE=1
    export TRANSPCKPT_DISABLE
    off=$(calls "$lib" ./nothing)
    unset TRANSPCKPT_DISABLE
    echo "# system calls switched off: $off"
    ok "switched off, no more than switched on" test "$off" -le "$ours"

    # Whether what is opened has been published by the job is asked for once in a while, not at each opening.
    printf '#include <fcntl.h>\n#include <unistd.h>\nint main(int n, char **v) { for (int i = 0; i < 300 * (n - 1); i++) close(open(v[1], O_RDONLY)); return 0; }\n' >open.c
    ${CC:-cc} -O2 -o open open.c || exit 99
    for what in empty full; do
        printf '%s' "${what#empty}" >file
        strace -f -o opened env LD_PRELOAD="$lib" ./open "$D/work/file"
        is "300 openings" "$(grep -c '/file", O_RDONLY' opened)" 300
        looks=$(grep -cE 'stat[a-z0-9]*\([0-9]' opened)
        echo "# looks at a file that is $what: $looks"
        ok "a file that is $what is not looked at each time it is opened" test "$looks" -le 250
    done
else
    skip "system calls" "no strace"
fi

# ---- pages ----
# Each costs a microsecond or two, which is most of what the library costs a short program. Beyond the empty library there are 19
# here; before what the start touches was put together (runtime/base/layout.h) there were 41.
MAY_TOUCH=27
cat >faults.c <<'END'
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct rusage used;
	pid_t child;

	(void)argc;
	child = fork();
	if (!child)
		execv(argv[1], argv + 1);
	wait4(child, NULL, 0, &used);
	return printf("%ld\n", used.ru_minflt) < 0;
}
END
${CC:-cc} -O2 -o faults faults.c || exit 99
faults() { # the middle one of 51: where things lie is chance
    for _ in $(seq 51); do ./faults "$(command -v env)" -i TRANSPCKPT_SHM="$SHM" TRANSPCKPT_DIR="$D/store" LD_PRELOAD="$1" ./nothing; done | sort -n | sed -n 26p
}
empty=$(faults "$D/work/empty.so")
ours=$(faults "$lib")
echo "# page faults: $empty with an empty library, $ours with ours"
ok "at most $MAY_TOUCH pages more" test $((ours - empty)) -le $MAY_TOUCH
# Which is so as long as large variables lie behind the small ones.
if command -v readelf >/dev/null; then
    begins=$(readelf -SW "$lib" | awk '$2 == ".bss" { print $4 } $3 == ".bss" { print $5 }')
    "${NM:-nm}" -S "$lib" | awk -v begins="$begins" 'NF == 4 && tolower($3) == "b" && "x" $1 >= "x" begins { print "x" $1, "x" $2, $4 }' | sort >variables
    first=$(awk '$2 >= "x0000000000000100" { print $1; exit }' variables)
    is "no small variable lies behind a large one" "$(awk -v first="$first" '$1 > first && $2 < "x0000000000000100" { print $3 }' variables)" ""
fi

# ---- instructions, with an environment of known size: the program's identity is made from it ----
# 133000 here. Valgrind 3.19 has no openat2, by which a start asks whether the store is on a block device; without an answer
# a child looks there, by a clone that valgrind refuses. What is counted then is a start that does not look.
MAY_RUN=200000
instructions() {
    env -i PATH="$PATH" XDG_STATE_HOME="$D/state" TRANSPCKPT_SHM="$SHM" TRANSPCKPT_DIR="$D/store" TRANSPCKPT_RESUME="$2" LD_PRELOAD="$1" \
        valgrind --tool=callgrind --callgrind-out-file=/dev/null --log-file=grind ./nothing >/dev/null 2>&1 || return 1
    sed -n 's/.*Collected : \([0-9]*\)$/\1/p' grind
}
resume=auto
if command -v valgrind >/dev/null && empty=$(instructions "$D/work/empty.so" auto) &&
    { ours=$(instructions "$lib" auto) || { resume=never && ours=$(instructions "$lib" never); }; } &&
    [ -n "$empty" ] && [ -n "$ours" ]; then
    echo "# instructions: $empty with an empty library, $ours with ours (TRANSPCKPT_RESUME=$resume)"
    ok "at most $MAY_RUN instructions more" test $((ours - empty)) -le $MAY_RUN
else
    skip "instructions" "no valgrind, or it does not run here"
fi

is "no file is left in the memory tier" "$(find "$SHM" -mindepth 1)" ""
is "no file is left in the store" "$(find "$D/store" -mindepth 1 2>/dev/null)" ""
done_testing
