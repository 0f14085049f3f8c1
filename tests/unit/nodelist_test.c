/* SPDX-License-Identifier: Apache-2.0 */
/* Slurm's lists of nodes: what each stands for, what is none, and none that takes long. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/peer/nodelist.h"
#include "tests/unit/store_tap.h"

static char got[4096];
static size_t visits;

static void add(void *context, const char *name)
{
	size_t used = strlen(got);

	(void)context;
	visits++;
	snprintf(got + used, sizeof got - used, "%s%s", used ? " " : "", name);
}

static void is_list(const char *list, size_t most, long long count, const char *names)
{
	char what[300];
	long long found;

	got[0] = '\0';
	visits = 0;
	found = tpck_nodelist_each(list, most, add, NULL);
	snprintf(what, sizeof what, "'%.60s', at most %zu: %lld names: %.60s", list, most, count, names);
	tap_ok(found == count && strcmp(got, names) == 0 && (found < 0 || visits == ((size_t)found < most ? (size_t)found : most)), what, got);
}

static void is_none(const char *list)
{
	is_list(list, 100, -EINVAL, "");
}

/* Any text: names come as often as is said, and none is empty or too long. */
static void any_text(void)
{
	static const char letters[] = "a1-[],0.9n[";
	unsigned seed = 7, lists = 0, bad = 0;

	for (unsigned i = 0; i < 200000; i++) {
		char text[24];
		size_t length = 1 + (size_t)(rand_r(&seed) % 20);
		long long count;

		for (size_t k = 0; k < length; k++)
			text[k] = letters[(size_t)rand_r(&seed) % (sizeof letters - 1)];
		text[length] = '\0';
		got[0] = '\0';
		visits = 0;
		count = tpck_nodelist_each(text, 50, add, NULL);
		lists += count > 0;
		bad += count == 0 || (count < 0 ? visits != 0 : visits != (size_t)(count < 50 ? count : 50));
	}
	snprintf(got, sizeof got, "%u are lists, %u are wrong", lists, bad);
	tap_ok(bad == 0 && lists > 1000, "any text is a list of so many names as it says, or none", got);
}

int main(void)
{
	char text[2048], name[300];

	is_list("n1", 100, 1, "n1");
	is_list("login2,n[01-03,7]", 100, 5, "login2 n01 n02 n03 n7");
	is_list("n[1-2,5],a-b.c_d[009-011]", 100, 6, "n1 n2 n5 a-b.c_d009 a-b.c_d010 a-b.c_d011");
	is_list("r[1-2]n[8-9]x", 100, 4, "r1n8x r1n9x r2n8x r2n9x");
	is_list("r[1,3][0-1]", 100, 4, "r10 r11 r30 r31");
	is_list("[7-8]", 100, 2, "7 8");
	is_list("n[9-11]", 100, 3, "n9 n10 n11");
	is_list("n[000]", 100, 1, "n000");
	is_list("a,b,c,d", 2, 4, "a b");
	is_list("n[1-4],m", 0, 5, "");
	is_list("n[0-999999999999999999]", 3, 1000000000000000000ll, "n0 n1 n2");
	is_list("n[1-900000000000000000],n[1-900000000000000000][0-99]", 1, LLONG_MAX, "n1");
	is_list("n[0-99999999][0-99999999][0-99999999]", 2, LLONG_MAX, "n000 n001");
	tap_ok(tpck_nodelist_each("n[1-5]", 10, NULL, NULL) == 5, "names can be counted only", NULL);
	is_none("");
	is_none(",");
	is_none("a,");
	is_none(",a");
	is_none("a,,b");
	is_none("n[");
	is_none("n[]");
	is_none("n[1");
	is_none("n[1-");
	is_none("n[1-]");
	is_none("n[-1]");
	is_none("n[1,]");
	is_none("n[,1]");
	is_none("n[3-2]");
	is_none("n[1-2-3]");
	is_none("n[1]]");
	is_none("n]");
	is_none("n[[1]]");
	is_none("n[1 2]");
	is_none("n[a-b]");
	is_none("n 1");
	is_none("n;reboot");
	is_none("../n");
	is_none("n:1");
	is_none("n[0-9999999999999999999]");
	is_none("n[00000000000000000001]");
	is_none("n[1][1][1][1][1][1]");
	memset(name, 'a', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	is_none(name);
	name[TPCK_NODELIST_NAME - 1] = '\0';
	is_list(name, 1, 1, name);
	snprintf(text, sizeof text, "%.240s[1-2]", name);
	is_none(text);
	any_text();
	return tap_done();
}
