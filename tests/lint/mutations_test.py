#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What mutations.py takes for a fault that may be made and what not, and that a switched program is the old one until a
switch is on."""
import os
import shlex
import subprocess
import sys
import tempfile

import mutations

SNIPPET = r"""
#include <stdbool.h>
#include <stdio.h>
#define SMALL(x) ((x) < 3 && \
	(x) > 1)
_Static_assert(sizeof(int) == 4, "a < b");
struct row { char name[16]; int width; };
static const int table[2] = {1, 2};
enum { FIRST = 3 };
/* if (a == 1) return 7; */
static void tpck_log_warn(const char *format, int n) { (void)format; (void)n; }
static int said; // said == 2
static void say(int n) { said += n; }

static int between(const struct row *row, int low)
{
	char name[8];
	int width = 2, other[4] = {5};
	long int *more[3];
	char *names[3];

	_Static_assert(sizeof name == 8, "");
	(void)more, (void)names;
	tpck_log_warn("width < 3 && low == 4", row->width > 3);
	if (low <= row->width &&
	    row->width < low + width)
		say('1'); /* say(2); */
	switch (low) {
	case 6:
		say(sizeof(char[9]));
	}
	return other[0];
}

static bool odd(unsigned n)
{
	return n & 1;
}

static const char *word(const struct row *row)
{
	return row->width ? "if (x) say(1);" : row->name;
}
"""

MAIN = r"""
int main(void)
{
	struct row row = {"name", table[0] + FIRST};
	const char *named = word(&row);

	printf("%d %d\n", SMALL(2), odd(5));
	for (int low = 2; low <= 6; low++) {
		printf("%d", between(&row, low));
		printf(" %d\n", said);
	}
	printf("%s\n", named ? named : "none");
	return 0;
}
"""

BOTH = "low <= row->width &&\n\t    row->width < low + width"
EXPECTED = [
    (18, "constant", "2", "(2 + 1)"), (18, "constant", "5", "(5 + 1)"),
    (25, "condition", BOTH, f"!({BOTH})"), (25, "condition", BOTH, BOTH.replace("<=", "<", 1)),
    (25, "condition", BOTH, BOTH.replace("&&", "||")), (25, "condition", BOTH, BOTH.replace("width < low", "width <= low")),
    (27, "call", "say('1')", "(void)0"), (30, "call", "say(sizeof(char[9]))", "(void)0"),
    (32, "return", "other[0]", "-5"), (32, "constant", "0", "1"),
    (37, "return", "n & 1", "!(n & 1)"), (37, "constant", "1", "0"),
    (42, "return", 'row->width ? "if (x) say(1);" : row->name', "NULL"), (42, "condition", "row->width", "!(row->width)"),
]


def ok(good, what, *details):
    ok.count += 1
    ok.failed += not good
    print(f"{'ok' if good else 'not ok'} {ok.count} - {what}")
    for detail in () if good else details:
        print("\n".join("#   " + line for line in str(detail).splitlines()))


ok.count = ok.failed = 0


def compiled(folder, name, text):
    path = os.path.join(folder, name)
    done = subprocess.run(shlex.split(os.environ.get("CC", "cc")) + ["-std=gnu11", "-w", "-x", "c", "-", "-o", path], input=text,
                          text=True, capture_output=True, check=False)
    if done.returncode:
        print(done.stderr)
        sys.exit(1)
    return path


def printed(program):
    return subprocess.run([program], capture_output=True, text=True, check=False).stdout


def main():
    found = mutations.points(SNIPPET)
    got = [(SNIPPET.count("\n", 0, p.begin), p.kind, p.old, p.new) for p in found]
    expected = [(line - 1, *rest) for line, *rest in EXPECTED]
    ok(got == expected, "conditions, constants, calls and returned values in the bodies of functions, and nothing else",
       *(f"not found: {e}" for e in expected if e not in got), *(f"found: {g}" for g in got if g not in expected))
    ok(all(SNIPPET[p.begin:p.end] == p.old for p in found), "each says where it is")
    with tempfile.TemporaryDirectory(prefix="tpck-mutations.") as folder:
        switches = os.path.join(folder, "switches")
        plain = printed(compiled(folder, "plain", SNIPPET + MAIN))
        for number, point in enumerate(found):
            alone = printed(compiled(folder, "alone", mutations.mutated(SNIPPET + MAIN, point)))
            program = compiled(folder, "switched", mutations.switched(SNIPPET + MAIN, [(number, point)], switches, len(found)))
            said = []
            for on in (None, number):
                marks = bytearray(b"0" * len(found) + b"." * len(found))
                if on is not None:
                    marks[on] = ord("1")
                with open(switches, "wb") as f:
                    f.write(marks)
                said.append(printed(program))
                with open(switches, "rb") as f:
                    reached = [n for n, mark in enumerate(f.read()[len(found):]) if mark == ord("r")]
            what = f"{point.kind} '{' '.join(point.old.split())}': "
            ok(said == [plain, alone] and plain, what + "off it is not there, on it is", plain, alone, said)
            ok(alone != plain, what + "the program notices", alone)
            ok(reached == [number], what + "it is known to be reached", reached)
    print(f"1..{ok.count}")
    return 1 if ok.failed else 0


sys.exit(main())
