#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# needs: cores=0.6 about=4s
# Programs that are no trainers say, do and leave behind the same with the library preloaded: shells, Python, a
# compiler, and a program of many habits.
# shellcheck disable=SC2016 # what is in single quotes is for another shell
. "${srcdir:-.}/tests/preload/preload_case.sh"
cd "$D/work" || exit 99
# shellcheck disable=SC2086 # flags are words
${CC:-cc} -std=gnu11 -Wall -Wextra -Wno-nonnull -Wno-unused-result -O1 -o behave "$here/inert/behave.c" -ldl -lpthread || exit 99
printf 'void nothing(void);\nvoid nothing(void) {}\n' >nothing.c
${CC:-cc} -shared -fPIC -o nothing.so nothing.c || exit 99
unset TRANSPCKPT_RESUME

# once FOLDER LIBRARIES COMMAND...: into FOLDER.out, .err, .status and .left; the working folder has one name
once() {
    into=$1
    libraries=$2
    shift 2
    rm -rf run && mkdir run
    (
        cd run || exit 99
        exec env ${libraries:+LD_PRELOAD="$libraries"} timeout 60 "$@"
    ) >"$into.out" 2>"$into.err" </dev/null
    echo "$?" >"$into.status"
    (cd run && find . -printf '%p %y %m %s %l\n' | sort && find . -type f | sort | xargs -r cksum) >"$into.left" 2>&1
}

# same WHAT COMMAND...
same() {
    what=$1
    shift
    once plain "" "$@"
    for libraries in "$lib" "$D/work/nothing.so:$lib" "$forwarder:$lib:$D/work/nothing.so"; do
        once preloaded "$libraries" "$@"
        count=$((count + 1))
        bad=
        for part in out err status left; do
            cmp -s "plain.$part" "preloaded.$part" || bad="$bad $part"
        done
        if [ -z "$bad" ]; then
            echo "ok $count - $what"
        else
            echo "not ok $count - $what: differs in$bad, with $libraries"
            failed=1
            for part in $bad; do diff "plain.$part" "preloaded.$part" | head -n 20 | sed 's/^/#   /'; done
        fi
    done
}

for habit in $(./behave); do same "$habit" ../behave "$habit"; done

same "a shell script" sh -c '
    set -e
    umask 022; mkdir -p a/b; echo text >a/b/file; cp -p a/b/file a/copy; mv a/copy a/moved; ln -s b a/link
    cat <<END | sort -r | tr a-z A-Z >a/sorted
one
two
END
    for i in 1 2 3; do (echo "in a subshell $i" >>a/log; exit $i) || echo "status $?"; done
    rm a/moved; test ! -e a/moved; ls a; find . -type f | sort; wc -c <a/log
    head -c 100000 /dev/urandom | wc -c; dd if=/dev/zero of=a/zero bs=4096 count=3 2>/dev/null
    tar -cf - a | tar -tf - | sort; echo warned >&2; trap "echo trapped" EXIT; exit 9'
same "a pipe that breaks" sh -c 'yes | head -n 1; yes 2>/dev/null | true; echo done'
same "a command that is not there" /nonexistent/command
same "a process group killed by a signal" sh -c 'kill -TERM $$'
same "background jobs" sh -c 'sleep 0.01 & a=$!; (exit 5) & b=$!; wait $a; wait $b; echo $?; jobs'
if command -v python3 >/dev/null; then
    same "python" python3 -c '
import os, sys, subprocess, tempfile, threading, random, time, json, multiprocessing, signal
print(len(os.urandom(100000)), len(open("/dev/urandom", "rb").read(70000)), random.Random(5).random())
open("text", "w").write("text\n"); os.rename("text", "renamed"); os.makedirs("a/b"); print(sorted(os.listdir(".")))
print(subprocess.run(["sh", "-c", "echo $0 $1; exit 3", "x", "y"], capture_output=True))
print(subprocess.run("echo shell", shell=True, close_fds=False).returncode)
t = [threading.Thread(target=lambda i=i: open(f"t{i}", "w").write(str(i))) for i in range(8)]
[x.start() for x in t]; [x.join() for x in t]
p = multiprocessing.get_context("fork").Process(target=sys.exit, args=(4,)); p.start(); p.join(); print(p.exitcode)
p = os.fork()
if p == 0: os._exit(7)
print(os.waitpid(p, 0)[1] >> 8, os.stat("renamed").st_size, time.time() > 1e9, os.path.exists("nothing"))
try: open("/nonexistent/x", "w")
except OSError as e: print(e)
import ctypes, ctypes.util; print(ctypes.CDLL(None).getpid() == os.getpid())
sys.stderr.write("to stderr\n"); sys.exit(5)'
    same "python ended by an exception" python3 -c 'import os; open("f", "w").write("x"); raise ValueError(os.path.basename("a/b"))'
else
    skip "python" "no python3"
fi
printf '#include <stdio.h>\nint main(void) { puts("compiled"); return 6; }\n' >hello.c
same "a compiler" sh -c "${CC:-cc} -O2 -g -Wall -c ../hello.c -o hello.o && ${CC:-cc} hello.o -o hello && ./hello; echo \$?; rm hello hello.o"
same "make" sh -c 'printf "all: a b\n\n%%:\n\techo \$@ >\$@; cat \$@\n" >makefile; make -s -j2 2>&1 | sort; make -s; make nothing 2>&1; make -f none 2>&1'
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    cp behave setuid && chown 65534 setuid && chmod 4755 setuid && chmod 755 "$D" "$D/work" "$D/inst" "$D/inst/lib"
    same "a setuid program" ../setuid exit
    same "another user" setpriv --reuid=65534 --regid=65534 --clear-groups ../behave exit
else
    skip "a setuid program" "only root can make one"
fi
same "many processes" sh -c 'i=0; while [ $i -lt 60 ]; do /bin/true; i=$((i + 1)); done; echo $i'
TRANSPCKPT_DISABLE=1
export TRANSPCKPT_DISABLE
same "switched off" ../behave calls
same "switched off: children" ../behave children
unset TRANSPCKPT_DISABLE
same "no settings at all" env -u TRANSPCKPT_SHM -u TRANSPCKPT_DIR -u TRANSPCKPT_JOB -u HOME ../behave exit
is "nothing in the memory tier" "$(find "$SHM" -mindepth 1)" ""
is "nothing in the store" "$(find "$D/store" -mindepth 1 2>/dev/null)" ""
done_testing
