/* SPDX-License-Identifier: Apache-2.0 */
/* The end of running forward: the real files become what the overlay says they were at the boundary. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/door.h"
#include "runtime/base/kernel.h"
#include "runtime/base/log.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"
#include "runtime/replay/stash.h"

/* The folders above a path that must be there: the iterations that are done again may have removed them. */
static void parents_settle(const char *path)
{
	char above[TPCK_FOLLOW_PATH];
	const char *slash = strrchr(path, '/');

	if (!slash || slash == path || (size_t)(slash - path) >= sizeof above)
		return;
	snprintf(above, sizeof above, "%.*s", (int)(slash - path), path);
	if (!tpck_sys_faccessat(AT_FDCWD, above, F_OK))
		return;
	parents_settle(above);
	tpck_sys_mkdirat(AT_FDCWD, above, 0777 & ~tpck_overlay_mask());
}

static bool same_prefix(int a, int b, uint64_t bytes)
{
	char one[65536], two[65536];

	for (uint64_t at = 0; at < bytes;) {
		size_t want = bytes - at < sizeof one ? bytes - at : sizeof one;

		if (tpck_sys_pread(a, one, want, at) != (long)want ||
		    tpck_sys_pread(b, two, want, at) != (long)want || memcmp(one, two, want) != 0)
			return false;
		at += want;
	}
	return true;
}

/* Where numbers that were read back are gone (TRANSPCKPT_RECORD_FULL=forget) the scratch file has zeros in their place. Whether the real one, of the same
 * size, has something else there; *others: and elsewhere, too. */
enum { FORGOTTEN_LEAST = TPCK_STASH_LEAST };
static bool has_forgotten(int fd, int scratch, uint64_t bytes, bool *others)
{
	char real[65536], mine[65536];
	uint64_t zeros = 0; /* in a row, up to here */
	bool differs = false, forgotten = false;

	*others = false;
	for (uint64_t at = 0; at < bytes;) {
		size_t want = bytes - at < sizeof real ? bytes - at : sizeof real;

		if (tpck_sys_pread(fd, real, want, at) != (long)want || tpck_sys_pread(scratch, mine, want, at) != (long)want)
			return false;
		for (size_t i = 0; i < want; i++) {
			zeros = mine[i] ? 0 : zeros + 1;
			differs = zeros && (differs || real[i]);
			forgotten |= differs && zeros >= FORGOTTEN_LEAST;
			*others |= mine[i] && mine[i] != real[i];
		}
		at += want;
	}
	return forgotten;
}

/* The program's own file is the only place that has what was saved there. */
static bool stays(const struct tpck_overlay_entry *entry, int fd, const struct stat *real, const struct stat *scratch)
{
	bool others;

	if (!tpck_stash_forgotten() || real->st_size != scratch->st_size || !has_forgotten(fd, entry->fd, (uint64_t)real->st_size, &others))
		return false;
	if (others)
		tpck_log_warn("%s stays as it is: of what it had at this step the record has only a part (TRANSPCKPT_RECORD_FULL=forget)", entry->path);
	return true;
}

static void attributes_settle(int from, int to)
{
	char names[4096], value[4096];
	ssize_t size = tpck_sys_flistxattr(from, names, sizeof names), bytes;

	for (const char *name = names; size > 0 && name < names + size; name += strlen(name) + 1) {
		bytes = tpck_sys_fgetxattr(from, name, value, sizeof value);
		if (bytes >= 0)
			tpck_sys_fsetxattr(to, name, value, bytes, 0);
	}
}

static bool is_before(struct timespec a, struct timespec b)
{
	return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

/* By the program, as cp -p does, and not by writing to it. */
static bool is_time_given(struct timespec when)
{
	uint64_t ns = (uint64_t)when.tv_sec * 1000000000u + (uint64_t)when.tv_nsec;

	return ns < tpck_follow_forward_ns() || ns > tpck_clock_realtime_ns();
}

static void give_time(const char *path, int fd, struct timespec when)
{
	tpck_sys_utimensat(fd, path, (const struct timespec[2]){when, when}, 0);
}

/* Gives the real file the content of the scratch file; what is right already is not written again, and keeps its time: by that, too, it is known what was
 * saved (doc/files.md). */
int tpck_reconcile_file(struct tpck_overlay_entry *entry)
{
	struct stat scratch, real;
	int fd, result = 0;
	bool right = false;

	parents_settle(entry->path);
	tpck_follow_makes(entry->path);
	fd = tpck_sys_openat(AT_FDCWD, entry->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666 & ~tpck_overlay_mask());
	if (fd < 0)
		return -errno;
	if (tpck_sys_fstatat(entry->fd, "", &scratch, AT_EMPTY_PATH) ||
	    tpck_sys_fstatat(fd, "", &real, AT_EMPTY_PATH)) {
		result = -EIO;
	} else if (real.st_size >= scratch.st_size && same_prefix(fd, entry->fd, (uint64_t)scratch.st_size)) {
		right = real.st_size == scratch.st_size;
		if (!right && tpck_sys_ftruncate(fd, scratch.st_size))
			result = -errno;
	} else if (!stays(entry, fd, &real, &scratch)) {
		result = tpck_follow_copy(entry->fd, fd, (uint64_t)scratch.st_size);
		if (!result && tpck_sys_ftruncate(fd, scratch.st_size))
			result = -errno;
	}
	if (!result && ((real.st_mode ^ scratch.st_mode) & 07777))
		(void)!fchmod(fd, scratch.st_mode & 07777);
	if (!result)
		attributes_settle(entry->fd, fd);
	if (!result && (scratch.st_uid != geteuid() || scratch.st_gid != getegid()))
		(void)!fchown(fd, scratch.st_uid, scratch.st_gid);
	if (!result && right && !is_time_given(scratch.st_mtim))
		entry->stays = real.st_mtim;
	else if (!result)
		give_time(NULL, fd, scratch.st_mtim);
	entry->when = scratch.st_mtim;
	tpck_sys_close(fd);
	return result;
}

/* What is older than what must be as the program has done it. */
static int by_time(const void *a, const void *b)
{
	const struct tpck_overlay_entry *one = *(struct tpck_overlay_entry *const *)a, *two = *(struct tpck_overlay_entry *const *)b;

	return is_before(one->when, two->when) ? -1 : is_before(two->when, one->when);
}

/* A file that was changed behind the boundary is new now, as a folder is; if the program wrote others behind it, it is no newer than those. */
static void times_settle(struct tpck_overlay_entry *const *all, uint32_t count)
{
	struct tpck_overlay_entry **file = malloc(count * sizeof(*file) + 1);
	struct timespec oldest = {0};
	uint32_t files = 0;

	if (!file)
		return;
	for (uint32_t i = 0; i < count; i++)
		if ((all[i]->kind == TPCK_KIND_FILE && all[i]->when.tv_sec && !is_time_given(all[i]->when)) ||
		    (all[i]->kind == TPCK_KIND_FOLDER && all[i]->when.tv_sec))
			file[files++] = all[i];
	qsort(file, files, sizeof(*file), by_time);
	while (files--)
		if (!file[files]->stays.tv_sec)
			give_time(file[files]->path, AT_FDCWD, oldest.tv_sec ? oldest : file[files]->when);
		else if (file[files]->stays.tv_sec && (!oldest.tv_sec || is_before(file[files]->stays, oldest)))
			oldest = file[files]->stays;
	free(file);
}

static int link_to(const char *path, const char *target)
{
	char now[TPCK_FOLLOW_PATH];
	ssize_t got = tpck_sys_readlink(path, now, sizeof now);

	if (got >= 0 && (size_t)got == strlen(target) && memcmp(now, target, (size_t)got) == 0)
		return 0;
	parents_settle(path);
	tpck_follow_makes(path);
	tpck_sys_unlinkat(AT_FDCWD, path, 0);
	return tpck_sys_symlinkat(target, AT_FDCWD, path) ? -errno : 0;
}

static int link_settle(const struct tpck_overlay_entry *entry)
{
	return entry->changed ? link_to(entry->path, entry->target) : 0;
}

static int folder_settle(const struct tpck_overlay_entry *entry)
{
	if (!entry->changed)
		return 0;
	parents_settle(entry->path);
	tpck_follow_makes(entry->path);
	return tpck_sys_mkdirat(AT_FDCWD, entry->path, entry->mode) && errno != EEXIST ? -errno : 0;
}

/* The program had removed or renamed it by the boundary: what is there now was made by the iterations
 * that are done again. */
static int absent_settle(const struct tpck_overlay_entry *entry)
{
	struct stat now;

	if (!entry->changed || tpck_sys_fstatat(AT_FDCWD, entry->path, &now, AT_SYMLINK_NOFOLLOW) ||
	    (!S_ISREG(now.st_mode) && !S_ISLNK(now.st_mode)))
		return 0;
	return tpck_sys_unlinkat(AT_FDCWD, entry->path, 0) ? -errno : 0;
}

/* All entries, by path, while they are settled. */
static struct tpck_overlay_entry **settled;
static uint32_t settled_count;

/* A folder may be another rank's to the overlay, and what this one has in it is its own. */
static bool something_is_in(const char *folder)
{
	size_t length = strlen(folder);
	uint32_t low = 0, high = settled_count;

	/* Up to the first that comes behind "FOLDER/". */
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		int order = strncmp(settled[middle]->path, folder, length);

		if (order < 0 || (!order && settled[middle]->path[length] < '/'))
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < settled_count; low++) {
		const struct tpck_overlay_entry *entry = settled[low];

		if (strncmp(entry->path, folder, length) || entry->path[length] != '/')
			return false;
		if (entry->kind != TPCK_KIND_ABSENT)
			return true;
	}
	return false;
}

/* A path that the program made, and that was not there at the boundary: it was made after it. */
static void created_settle(const char *path, uint64_t digest)
{
	const struct tpck_record_file *first = tpck_learnt_first(digest);
	const struct tpck_overlay_entry *entry = tpck_overlay_find(digest);
	struct stat now;

	if (tpck_temporary(path) || (entry ? entry->kind != TPCK_KIND_ABSENT : first && first->mode) ||
	    tpck_sys_fstatat(AT_FDCWD, path, &now, AT_SYMLINK_NOFOLLOW))
		return;
	if (S_ISREG(now.st_mode) || S_ISLNK(now.st_mode))
		tpck_sys_unlinkat(AT_FDCWD, path, 0);
	else if (S_ISDIR(now.st_mode) && !something_is_in(path))
		tpck_leftovers_folder(path);
}

static bool is_version(const char *path, const struct tpck_record_file *version)
{
	struct stat now;

	return !tpck_sys_fstatat(AT_FDCWD, path, &now, 0) && (uint64_t)now.st_size == version->bytes &&
	       now.st_mtim.tv_sec == version->mtime_s && now.st_mtim.tv_nsec == version->mtime_ns;
}

/* A path that was as the program found it at the boundary, and was changed after it. */
static char unrestored[200];
static int relinked_settle(const char *path, uint64_t digest, const char *target)
{
	const struct tpck_overlay_entry *entry = tpck_overlay_find(digest);

	if (entry && entry->changed)
		return 0;
	snprintf(unrestored, sizeof unrestored, "%s", path);
	return link_to(path, target);
}

static int changed_settle(const char *path, uint64_t digest, const struct tpck_record_file *version)
{
	const struct tpck_overlay_entry *entry = tpck_overlay_find(digest);
	char name[TPCK_FOLLOW_FOLDER + 128], beside[TPCK_FOLLOW_PATH + 16];
	int from, to, result = -ENOENT;
	struct stat kept;

	if ((entry && entry->changed) || is_version(path, version))
		return 0;
	snprintf(unrestored, sizeof unrestored, "%s", path);
	if (!tpck_learnt_kept(version, name, sizeof name) || tpck_kept_stat(name, &kept))
		return result;
	parents_settle(path);
	from = tpck_door_file(name, TPCK_KEPT_NAMES, TPCK_DOOR_READ, 0);
	/* Beside it first: what is there now goes when the version is whole, and is not written into, since it may have other
	 * names. */
	to = from < 0 ? -1 : tpck_overlay_beside(path, beside, sizeof beside);
	result = to < 0 ? -errno : tpck_follow_copy(from, to, version->bytes);
	if (!result && (fchmod(to, kept.st_mode & 07777) || futimens(to, (const struct timespec[2]){kept.st_atim, kept.st_mtim}) ||
			tpck_sys_renameat(AT_FDCWD, beside, AT_FDCWD, path)))
		result = -errno;
	if (result && to >= 0)
		tpck_sys_unlinkat(AT_FDCWD, beside, 0);
	if (from >= 0)
		tpck_sys_close(from);
	if (to >= 0)
		tpck_sys_close(to);
	return result;
}

/* One of several names of a scratch file: a name of the real file, too. `before`: those that are settled. */
static int linked_settle(struct tpck_overlay_entry *entry, struct tpck_overlay_entry *const *before, uint32_t count)
{
	struct stat own, other, real, now;

	if (tpck_sys_fstatat(entry->fd, "", &own, AT_EMPTY_PATH))
		return -EIO;
	for (uint32_t i = 0; i < count; i++) {
		if (before[i]->kind != TPCK_KIND_FILE || !before[i]->linked ||
		    tpck_sys_fstatat(before[i]->fd, "", &other, AT_EMPTY_PATH) || other.st_ino != own.st_ino ||
		    tpck_sys_fstatat(AT_FDCWD, before[i]->path, &real, AT_SYMLINK_NOFOLLOW))
			continue;
		if (!tpck_sys_fstatat(AT_FDCWD, entry->path, &now, AT_SYMLINK_NOFOLLOW) && now.st_ino == real.st_ino &&
		    now.st_dev == real.st_dev)
			return 0;
		parents_settle(entry->path);
		tpck_follow_makes(entry->path);
		tpck_sys_unlinkat(AT_FDCWD, entry->path, 0);
		return tpck_sys_linkat(AT_FDCWD, before[i]->path, AT_FDCWD, entry->path, 0) ? -errno : 0;
	}
	/* The first of them: what is there may be another file's name by now. */
	if (!tpck_sys_fstatat(AT_FDCWD, entry->path, &now, AT_SYMLINK_NOFOLLOW) && now.st_nlink > 1)
		tpck_sys_unlinkat(AT_FDCWD, entry->path, 0);
	return tpck_reconcile_file(entry);
}

/* The i-th of all; those before it are settled. */
static int entry_settle(struct tpck_overlay_entry *const *all, uint32_t i)
{
	struct tpck_overlay_entry *entry = all[i];

	switch (entry->kind) {
	case TPCK_KIND_FILE:
		if (!entry->changed || entry->given)
			return 0;
		return entry->linked ? linked_settle(entry, all, i) : tpck_reconcile_file(entry);
	case TPCK_KIND_FOLDER:
		return folder_settle(entry);
	case TPCK_KIND_LINK:
	case TPCK_KIND_SOCKET:
		return strcmp(entry->target, entry->path) == 0 ? 0 : link_settle(entry);
	case TPCK_KIND_ABSENT:
		break;
	}
	return absent_settle(entry);
}

static int all_settle(uint64_t step, char *why, size_t size)
{
	struct tpck_overlay_entry **all;
	uint32_t all_count;
	int result;

	all = tpck_overlay_sorted(&all_count);
	if (!all)
		return -ENOMEM;
	for (uint32_t i = 0; i < all_count; i++) {
		result = entry_settle(all, i);
		/* What is there from now on is the program's own, also under a name that the first run did not know. */
		tpck_follow_known(all[i]->digest, false, false);
		if (result) {
			snprintf(why, size, "cannot bring %s to its state at the boundary: %s", all[i]->path, strerror(-result));
			return result;
		}
	}
	settled = all;
	settled_count = all_count;
	tpck_leftovers_begin(step);
	tpck_follow_each_created(created_settle);
	settled = NULL;
	settled_count = 0;
	tpck_leftovers_of_others();
	result = tpck_follow_each_relinked(relinked_settle);
	if (!result)
		result = tpck_follow_each_changed(changed_settle);
	if (result) {
		snprintf(why, size, "cannot bring %s to its state at the boundary: %s", unrestored, strerror(-result));
		return result;
	}
	times_settle(all, all_count);
	if (tpck_still_open_settle(all, all_count, why, size))
		return -EIO;
	tpck_output_flush();
	tpck_output_back();
	tpck_overlay_end();
	tpck_temporary_forget();
	tpck_follow_goes_on();
	for (uint32_t i = 0; i < all_count; i++)
		if (all[i]->fd >= 0) {
			tpck_sys_close(all[i]->fd);
			all[i]->fd = -1;
		}
	free(all);
	return 0;
}

int tpck_follow_inject(uint64_t step, char *why, size_t size)
{
	int result;

	tpck_standstill_begin();
	result = all_settle(step, why, size);
	tpck_standstill_end();
	return result;
}

void tpck_follow_injected(void)
{
	tpck_leftovers_end();
	tpck_services_live();
}
