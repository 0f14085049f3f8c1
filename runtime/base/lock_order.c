/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/base/lock_order.h"

#ifdef TPCK_LOCK_ORDER

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/kernel.h"

static const struct row {
	enum tpck_lock_rank rank;
	const char *name, *file, *lock; /* file: NULL: any */
} rows[] = {
#define TPCK_LOCK(name, file, lock) {TPCK_RANK_##name, #name, file, lock},
#define TPCK_LOCK_ALSO(name, file, lock) {TPCK_RANK_##name, #name, file, lock},
#include "runtime/base/locks.def"
};

enum { DEEPEST = 16, TEXT = 400 };
static __thread struct {
	int process; /* a forked child begins with none */
	unsigned count;
	struct held {
		const struct row *row;
		const void *at;
	} locks[DEEPEST];
} held __attribute__((tls_model("initial-exec")));

static _Atomic bool seen[TPCK_RANKS][TPCK_RANKS];

/* Where to, in place of the end of the process: the pairs, a line each as "OUTER INNER". */
static const char *collected(void)
{
	return getenv("TPCK_LOCK_ORDER_PAIRS");
}

static void write_line(const char *path, const char *text)
{
	int fd = path ? tpck_sys_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644) : 2;

	(void)!tpck_sys_write(fd, text, strlen(text));
	if (path && fd >= 0)
		tpck_sys_close(fd);
}

static void complain(const char *text)
{
	write_line(NULL, text);
	write_line(getenv("TPCK_LOCK_ORDER_LOG"), text);
	__builtin_trap();
}

static const struct row *row_of(const char *file, const char *lock)
{
	size_t length = strlen(file);

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		size_t ends = rows[i].file ? strlen(rows[i].file) : 0;

		if (strcmp(rows[i].lock, lock) == 0 && ends <= length && (!ends || strcmp(file + length - ends, rows[i].file) == 0))
			return &rows[i];
	}
	return NULL;
}

/* Whether that is an earlier lock of an array. */
static bool is_next(const struct held *before, const void *at)
{
	return strchr(before->row->lock, '[') && (uintptr_t)at < (uintptr_t)before->at;
}

void tpck_lock_order_takes(const void *at, const char *file, const char *lock)
{
	const struct row *row = row_of(file, lock);
	int process = tpck_sys_getpid(), saved = errno;
	char text[TEXT];

	if (held.process != process)
		held.count = 0;
	held.process = process;
	/* A test's own. */
	if (!row && strstr(file, "tests/"))
		return;
	if (!row) {
		snprintf(text, sizeof text, "lock order: %s of %s is not in runtime/base/locks.def\n", lock, file);
		complain(text);
		return;
	}
	for (unsigned i = 0; i < held.count; i++)
		if (collected()) {
			if (atomic_exchange(&seen[held.locks[i].row->rank][row->rank], true))
				continue;
			snprintf(text, sizeof text, "%s %s\n", held.locks[i].row->name, row->name);
			write_line(collected(), text);
		} else if (held.locks[i].row->rank > row->rank || (held.locks[i].row->rank == row->rank && !is_next(&held.locks[i], at))) {
			snprintf(text, sizeof text, "lock order: %s is taken in %s while %s is held\n", row->name, file, held.locks[i].row->name);
			complain(text);
		}
	if (held.count < DEEPEST)
		held.locks[held.count++] = (struct held){row, at};
	errno = saved;
}

void tpck_lock_order_gives(const void *at)
{
	for (unsigned i = held.count; i-- > 0;)
		if (held.locks[i].at == at) {
			memmove(&held.locks[i], &held.locks[i + 1], (held.count - i - 1) * sizeof held.locks[0]);
			held.count--;
			return;
		}
}

#endif
