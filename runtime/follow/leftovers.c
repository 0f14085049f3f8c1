/* SPDX-License-Identifier: Apache-2.0 */
/* The end of running forward: folders that the program made after the boundary, and what is in them under names that nobody
 * saw it get. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/door.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"

static bool identity_of(int folder, const char *name, unsigned short type, struct tpck_leftover *identity)
{
	struct statx found = {0};

	if (tpck_sys_statx(folder, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_INO | STATX_BTIME, &found) ||
	    (found.stx_mode & S_IFMT) != type)
		return false;
	*identity = (struct tpck_leftover){.inode = found.stx_ino};
	if (found.stx_mask & STATX_BTIME) {
		identity->born_s = found.stx_btime.tv_sec;
		identity->born_ns = found.stx_btime.tv_nsec;
	}
	return true;
}

static bool same(const struct tpck_leftover *a, const struct tpck_leftover *b)
{
	return a->inode == b->inode && a->born_s == b->born_s && a->born_ns == b->born_ns;
}

void tpck_leftovers_made(int fd)
{
	int saved = errno;
	struct tpck_leftover made;
	char entry[80];

	if (tpck_follow_recording() && identity_of(fd, "", S_IFREG, &made)) {
		snprintf(entry, sizeof entry, "%llu %lld %u", made.inode, made.born_s, made.born_ns);
		tpck_lists_add("made", entry);
	}
	errno = saved;
}

const char *tpck_leftovers_parse(const char *entry, struct tpck_leftover *identity)
{
	int at = 0;

	return sscanf(entry, "%llu %lld %u %n", &identity->inode, &identity->born_s, &identity->born_ns, &at) >= 3 ? entry + at : NULL;
}

static struct tpck_leftover looked_for;
static int look(const char *entry)
{
	struct tpck_leftover made;

	return tpck_leftovers_parse(entry, &made) && same(&made, &looked_for);
}

/* The files in it that the program made, and nothing else. */
static void own_files_remove(const char *path)
{
	int fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	char buffer[4096];
	ssize_t got;

	while (fd >= 0 && (got = tpck_sys_getdents(fd, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const char *name = ((struct dirent64 *)at)->d_name;

			if (identity_of(fd, name, S_IFREG, &looked_for) && tpck_lists_each("made", look) > 0)
				tpck_sys_unlinkat(fd, name, 0);
		}
	if (fd >= 0)
		tpck_sys_close(fd);
}

static void folder_remove(const char *path)
{
	if (!tpck_sys_unlinkat(AT_FDCWD, path, AT_REMOVEDIR) || (errno != ENOTEMPTY && errno != EEXIST))
		return;
	own_files_remove(path);
	tpck_sys_unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

/* Folders that are to go from this boundary on, of all ranks, each with its identity. The latest of this one is kept, to say
 * if it did not go. */
static char leaving[TPCK_FOLLOW_FOLDER + 80] TPCK_LARGE;
static bool added;
static char last_path[TPCK_FOLLOW_PATH] TPCK_LARGE;
static struct tpck_leftover last;

static int others_folder(const char *entry)
{
	struct tpck_leftover then, now;
	const char *path = tpck_leftovers_parse(entry, &then);

	if (path && *path == '/' && identity_of(AT_FDCWD, path, S_IFDIR, &now) && same(&then, &now))
		folder_remove(path);
	return 0;
}

void tpck_leftovers_begin(uint64_t step)
{
	const char *own = strrchr(tpck_follow_keep, '/');

	added = false;
	leaving[0] = '\0';
	if (own)
		snprintf(leaving, sizeof leaving, "%.*s/leaving.g%llu.s%llu", (int)(own - tpck_follow_keep), tpck_follow_keep,
			 (unsigned long long)tpck_lists_timeline(), (unsigned long long)step);
}

void tpck_leftovers_folder(const char *path)
{
	char entry[TPCK_FOLLOW_PATH + 80];

	folder_remove(path);
	if (!leaving[0] || !identity_of(AT_FDCWD, path, S_IFDIR, &last))
		return;
	/* Who removes what is in it after this has been written removes the folder; who did before has left it empty. */
	snprintf(last_path, sizeof last_path, "%s", path);
	snprintf(entry, sizeof entry, "%llu %lld %u %s", last.inode, last.born_s, last.born_ns, path);
	tpck_lists_add_to(leaving, TPCK_BESIDE_NAMES, entry);
	added = true;
	folder_remove(path);
}

void tpck_leftovers_of_others(void)
{
	if (leaving[0])
		(void)tpck_lists_each_in(leaving, TPCK_BESIDE_NAMES, others_folder);
}

void tpck_leftovers_end(void)
{
	struct tpck_leftover now;

	if (!added)
		return;
	(void)tpck_door_remove(leaving, TPCK_BESIDE_NAMES);
	added = false;
	if (identity_of(AT_FDCWD, last_path, S_IFDIR, &now) && same(&last, &now))
		tpck_log_warn("%s was made after this step, and what is in it was not made by the program alone: it stays there", last_path);
}
