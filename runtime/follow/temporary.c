/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary files that only their program reads, and the programs that it starts. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/follow/follow_private.h"
#include "runtime/replay/forward.h"
#include "runtime/track/threads.h"

enum { MOST = 1024 };

static char *made[MOST] TPCK_LARGE;
static _Atomic uint32_t count;
static tpck_spin lock;

/* Whether the path lies right in a folder for temporary files. */
static bool temporary_place(const char *path)
{
	const char *const usual[] = {getenv("TMPDIR"), "/tmp", "/var/tmp"};
	size_t length = (size_t)(strrchr(path, '/') - path);
	char place[TPCK_FOLLOW_PATH];
	bool absent;

	for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
		if (!usual[i] || *usual[i] != '/' || strlen(usual[i]) >= sizeof place)
			continue;
		if (tpck_names_canonical(strcpy(place, usual[i]), true, &absent) && strlen(place) == length &&
		    memcmp(place, path, length) == 0)
			return true;
	}
	return false;
}

static int remove_one(const char *path, const struct stat *found, int flag, struct FTW *at)
{
	(void)flag;
	(void)at;
	return tpck_sys_unlinkat(AT_FDCWD, path, S_ISDIR(found->st_mode) ? AT_REMOVEDIR : 0);
}

static void remove_all(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path is there from here on. */
static bool begins(const char *path)
{
	char *copy = count < MOST ? strdup(path) : NULL;
	uint32_t known;

	if (!copy)
		return false;
	tpck_follow_creates(path);
	tpck_spin_lock(&lock);
	known = atomic_load(&count);
	if (known < MOST) {
		made[known] = copy;
		atomic_store(&count, known + 1);
	}
	tpck_spin_unlock(&lock);
	if (known == MOST)
		free(copy);
	return known < MOST;
}

bool tpck_temporary_named(const char *path)
{
	struct stat found;
	int saved = errno;
	bool named = !tpck_learnt_first(tpck_follow_digest(path)) && temporary_place(path) &&
		     tpck_sys_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) && errno == ENOENT && begins(path);

	errno = saved;
	return named;
}

bool tpck_temporary_begins(const char *path, mode_t mode, mode_t wanted)
{
	const struct tpck_record_file *first = tpck_learnt_first(tpck_follow_digest(path));
	struct stat found;

	if ((mode & 0777) != wanted || !temporary_place(path) || (first && first->mode))
		return false;
	if (!tpck_sys_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW)) {
		/* A run that was killed left it, or, beside a twin, the living one has it. */
		if (tpck_forward_follows() || found.st_uid != geteuid() || (found.st_mode & 0777) != wanted || !tpck_follow_created(path))
			return false;
		remove_all(path);
	}
	return begins(path);
}

void tpck_temporary_abandon(void)
{
	uint32_t known = atomic_load(&count);

	for (uint32_t i = 0; i < known; i++)
		remove_all(made[i]);
}

bool tpck_temporary(const char *path)
{
	uint32_t known = atomic_load(&count);

	for (uint32_t i = 0; i < known; i++) {
		size_t length = strlen(made[i]);

		if (strncmp(path, made[i], length) == 0 && (path[length] == '\0' || path[length] == '/'))
			return true;
	}
	return false;
}

bool tpck_follow_scratch(const char *path)
{
	return tpck_temporary(path);
}

void tpck_temporary_forget(void)
{
	atomic_store(&count, 0);
}

void tpck_temporary_forked(void)
{
	tpck_spin_unlock(&lock);
}
