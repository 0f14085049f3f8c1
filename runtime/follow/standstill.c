/* SPDX-License-Identifier: Apache-2.0 */
/* What changes files waits while the real ones come to be what the overlay says: threads that do not use the device go on at the boundary, and what they
 * wrote to a scratch file that has been copied would be lost. */
#include "config.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/log.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"

/* Longer than any call on a file in memory takes, so that one that never ends, as in a thread that was cancelled, holds nothing up for good. */
#define PATIENCE_NS 5000000000ull

static _Atomic uint32_t changing; /* calls that are being made */
static _Atomic pid_t settling;    /* the process whose files are settled, which a forked child is not; 0: none */
static __thread __attribute__((tls_model("initial-exec"))) unsigned depth;
static __thread __attribute__((tls_model("initial-exec"))) bool settles;

static void rest(void)
{
	struct timespec pause = {0, 200000};

	tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

bool tpck_follow_changes_slow(void)
{
	if (settles)
		return false;
	if (depth++)
		return true;
	atomic_fetch_add(&changing, 1);
	while (atomic_load(&settling) && atomic_load(&settling) == tpck_sys_getpid()) {
		atomic_fetch_sub(&changing, 1);
		rest();
		atomic_fetch_add(&changing, 1);
	}
	return true;
}

bool tpck_follow_writes_to_slow(int fd)
{
	struct stat found;

	/* A pipe may take it much later. */
	return !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && S_ISREG(found.st_mode) && tpck_follow_changes_slow();
}

void tpck_follow_changed_slow(void)
{
	if (!--depth)
		atomic_fetch_sub(&changing, 1);
}

void tpck_standstill_begin(void)
{
	uint64_t end = tpck_clock_monotonic_ns() + PATIENCE_NS;

	settles = true;
	atomic_store(&settling, tpck_sys_getpid());
	while (atomic_load(&changing) && tpck_clock_monotonic_ns() < end)
		rest();
	if (atomic_load(&changing))
		tpck_log_warn("a thread has been changing a file for long: what it writes just now may be missing there");
}

void tpck_standstill_end(void)
{
	atomic_store(&settling, 0);
	settles = false;
}
