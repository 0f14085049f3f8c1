/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of the kernel's that a call of ours earns do not reach the program. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/unsignalled.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static const uint64_t earned = 1ull << (SIGXFSZ - 1) | 1ull << (SIGPIPE - 1);

void tpck_unsignalled_begin(struct tpck_unsignalled *before)
{
	int saved = errno;

	*before = (struct tpck_unsignalled){0};
	tpck_sys_sigprocmask(SIG_BLOCK, &earned, &before->mask, sizeof earned);
	tpck_sys_sigpending(&before->pending, sizeof earned);
	errno = saved;
}

void tpck_unsignalled_end(const struct tpck_unsignalled *before)
{
	const struct timespec at_once = {0};
	uint64_t pending = 0, ours;
	int saved = errno;

	/* One that was pending before is the program's. */
	tpck_sys_sigpending(&pending, sizeof pending);
	ours = pending & earned & ~before->pending;
	while (ours && tpck_sys_sigtimedwait(&ours, NULL, &at_once, sizeof ours) > 0)
		;
	tpck_sys_sigprocmask(SIG_SETMASK, &before->mask, NULL, sizeof before->mask);
	errno = saved;
}
