/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of shared memory and semaphores (shm_open, sem_open). What stands beside a living process has the names that this one has, as they are the program's, or
 * chance's, which is recorded: until its takeover a twin has another in place of each (wire/twin_names.h), and so have the processes that it has made. A run
 * that was killed leaves behind what it had made by such names: where the program makes it once more, running forward, what was left goes first.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs.h"
#include "runtime/programs/programs_private.h"
#include "runtime/wire/twin_names.h"

#define FOLDER "/dev/shm"
/* Processes that the living one has made may remove its names as they find it gone. */
#define THEIR_END_NS 1000000000ull
enum { MADE = 4096 };

/* Digests of what this process has made, and of what it knows that a killed run has made; 0: none. */
static _Atomic uint64_t made[MADE] TPCK_LARGE;

/* The process whose names are not the program's own; 0: names are as they are. */
static int32_t stands_beside(void)
{
	struct tpck_standin_page *page = tpck_starts_page();

	return page && atomic_load_explicit(&page->follows, memory_order_acquire) ? page->process : 0;
}

const char *tpck_shared_name(const char *name, char own[TPCK_SHARED_NAME])
{
	int32_t process = stands_beside();
	size_t slashes = process ? strspn(name, "/") : 0;
	const char *bare = name + slashes;
	int bytes;

	if (!process || !*bare || strchr(bare, '/'))
		return name;
	bytes = tpck_twin_name(own, TPCK_SHARED_NAME, process, bare);
	/* Neither such a name nor the program's own, if it is too long, is anything to the kernel. */
	return bytes < TPCK_SHARED_NAME ? own : name;
}

/* ---- what a killed run has left -------------------------------------------------------------------------- */

static bool path_of(const char *kind, const char *name, char path[TPCK_SHARED_PATH])
{
	name += strspn(name, "/");
	return *name && !strchr(name, '/') && snprintf(path, TPCK_SHARED_PATH, FOLDER "/%s%s", kind, name) < TPCK_SHARED_PATH;
}

/* False: it is known, or there is no room for more. */
static bool remember(const char *path)
{
	uint64_t digest = tpck_digest64(path, strlen(path), 0) | 1;

	for (uint32_t i = 0, at = (uint32_t)digest % MADE; i < 16; i++, at = (at + 1) % MADE) {
		uint64_t before = 0;

		if (atomic_load(&made[at]) == digest)
			return false;
		if (atomic_compare_exchange_strong(&made[at], &before, digest))
			return true;
		if (before == digest)
			return false;
	}
	return false;
}

bool tpck_shared_makes(const char *kind, const char *name, bool forward)
{
	char path[TPCK_SHARED_PATH];
	struct stat found;
	int saved = errno;
	bool there;

	if (stands_beside() || !path_of(kind, name, path))
		return false;
	there = !tpck_sys_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW);
	if (there && forward && S_ISREG(found.st_mode) && found.st_uid == geteuid() && tpck_follow_shared(path) && remember(path))
		there = tpck_sys_unlinkat(AT_FDCWD, path, 0) != 0;
	errno = saved;
	return !there;
}

void tpck_shared_made(const char *kind, const char *name, bool forward)
{
	char path[TPCK_SHARED_PATH];
	int saved = errno;

	if (path_of(kind, name, path) && remember(path) && !forward)
		tpck_follow_shares(path);
	errno = saved;
}

/* ---- of a twin -------------------------------------------------------------------------------------------- */

static bool any_own;
static void look_for_own(int folder, const struct tpck_twin_name *name)
{
	(void)folder;
	(void)name;
	any_own = true;
}

static void becomes_real(int folder, const struct tpck_twin_name *name)
{
	char real[256];

	if (snprintf(real, sizeof real, "%s%s", name->kind, name->name) < (int)sizeof real)
		(void)tpck_sys_renameat2(folder, name->entry, folder, real, 0);
}

void tpck_shared_begin(void)
{
	tpck_twin_names_clear();
	if (!tpck_twin_names_hold(tpck_sys_getpid()))
		tpck_log_debug("another start may take away the names that this twin has in /dev/shm");
}

void tpck_shared_real(void)
{
	uint64_t until = tpck_clock_monotonic_ns() + THEIR_END_NS;
	bool first = stands_beside() != 0;

	any_own = false;
	tpck_twin_names_each(tpck_sys_getpid(), look_for_own);
	while (first && any_own && tpck_forward_living_group && !tpck_sys_kill(-tpck_forward_living_group, 0) && tpck_clock_monotonic_ns() < until)
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000000}, NULL);
	if (any_own)
		tpck_twin_names_each(tpck_sys_getpid(), becomes_real);
	if (!first)
		tpck_twin_names_remove(tpck_sys_getpid());
}
