/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting until the thread that launched last rests, by what the kernel says of it. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/track/settle.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"

enum { SKIPPED_MAX = 1024, YIELDS = 8, PAUSE_NS = 20000 };

struct tpck_thread *_Atomic tpck_settle_last;
static _Atomic uint32_t in_vain; /* changes to leave out after the next wait that is in vain */
static _Atomic uint32_t left_out; /* of them, those to come */

/* A thread that is gone rests; so does one of which nothing can be learnt. */
static bool rests(int fd)
{
	char text[128], *state;
	ssize_t got = tpck_sys_pread(fd, text, sizeof text - 1, 0);

	if (got <= 0)
		return true;
	text[got] = '\0';
	/* "tid (name) state": the name, 15 bytes at most, may hold anything. */
	state = strrchr(text, ')');
	return !state || strlen(state) < 3 || state[2] != 'R';
}

static bool wait_for(pid_t tid, uint64_t limit_ns)
{
	const struct timespec pause = {0, PAUSE_NS};
	uint64_t begun = tpck_clock_monotonic_ns();
	char path[64];
	bool settled;
	int fd;

	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return true;
	for (int looks = 0; !(settled = rests(fd)) && tpck_clock_monotonic_ns() - begun < limit_ns; looks++)
		if (looks < YIELDS)
			sched_yield();
		else
			tpck_sys_nanosleep(&pause, NULL);
	tpck_sys_close(fd);
	return settled;
}

void tpck_settle_wait(struct tpck_thread *self, uint64_t limit_ns, bool always)
{
	struct tpck_thread *before = atomic_exchange(&tpck_settle_last, self);
	uint32_t left = atomic_load(&left_out), next;
	int saved = errno;

	if (!before || before == self || !atomic_load(&before->alive))
		return;
	while (left && !always)
		if (atomic_compare_exchange_weak(&left_out, &left, left - 1))
			return;
	if (wait_for(before->tid, limit_ns)) {
		atomic_store(&in_vain, 0);
	} else if (!always) {
		next = atomic_load(&in_vain) ? atomic_load(&in_vain) * 2 : 1;
		atomic_store(&in_vain, next < SKIPPED_MAX ? next : SKIPPED_MAX);
		atomic_store(&left_out, next < SKIPPED_MAX ? next : SKIPPED_MAX);
	}
	errno = saved;
}
