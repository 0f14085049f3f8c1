/* SPDX-License-Identifier: Apache-2.0 */
/* TAP for the store's unit tests, and a folder that goes away. */
#ifndef TPCK_TESTS_UNIT_STORE_TAP_H
#define TPCK_TESTS_UNIT_STORE_TAP_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_count, tap_failed;

static inline bool tap_ok(bool good, const char *what, const char *detail)
{
	printf("%sok %d - %s\n", good ? "" : "not ", ++tap_count, what);
	if (!good) {
		tap_failed++;
		if (detail && detail[0])
			printf("#   %s\n", detail);
	}
	return good;
}
#define ok(good, what) tap_ok(good, what, err.text)

static inline int tap_done(void)
{
	printf("1..%d\n", tap_count);
	return tap_failed ? 1 : 0;
}

static inline char *tap_folder(const char *under)
{
	static char path[8][128];
	static int turn;
	char *p = path[turn++ % 8];

	snprintf(p, sizeof path[0], "%s/tpck-store.XXXXXX", under);
	if (!mkdtemp(p)) {
		printf("1..0 # SKIP no folder under %s\n", under);
		exit(77);
	}
	return p;
}

#endif
