/* SPDX-License-Identifier: Apache-2.0 */
/* TAP for the store's unit tests, and a folder that goes away. */
#ifndef TPCK_TESTS_UNIT_STORE_TAP_H
#define TPCK_TESTS_UNIT_STORE_TAP_H

#include <fts.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static char tap_folders[8][128];
static pid_t tap_folders_of;

/* What is left of them when the test ends; a child that it forked ends earlier. */
static inline void tap_remove_folders(void)
{
	char *roots[9] = {NULL};
	int count = 0;
	FTSENT *at;
	FTS *walk;

	for (int i = 0; i < 8; i++)
		if (*tap_folders[i])
			roots[count++] = tap_folders[i];
	walk = getpid() == tap_folders_of ? fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL) : NULL;
	while (walk && (at = fts_read(walk)))
		if (at->fts_info != FTS_D)
			(void)remove(at->fts_path);
	if (walk)
		fts_close(walk);
}

static inline char *tap_folder(const char *under)
{
	static int turn;
	char *p = tap_folders[turn++ % 8];

	if (!tap_folders_of)
		atexit(tap_remove_folders);
	tap_folders_of = getpid();
	snprintf(p, sizeof tap_folders[0], "%s/tpck-store.XXXXXX", under);
	if (!mkdtemp(p)) {
		printf("1..0 # SKIP no folder under %s\n", under);
		exit(77);
	}
	return p;
}

#endif
