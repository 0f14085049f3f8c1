/* SPDX-License-Identifier: Apache-2.0 */
/* The overlay: what the program wrote, renamed and removed while it runs forward, in scratch files. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/door.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/follow/follow.h"
#include "runtime/base/log.h"
#include "runtime/base/readable.h"
#include "runtime/files/files.h"
#include "runtime/follow/follow_private.h"
#include "runtime/follow/syscalls.h"
#include "runtime/track/threads.h"

enum { BUCKETS = 4096 };

_Atomic bool tpck_overlay_scratch;
static tpck_spin lock;   /* never held across anything that can wait for the application */
static struct tpck_overlay_entry *entries[BUCKETS] TPCK_LARGE;
static char difference[300] TPCK_LARGE;
static mode_t mask;
static _Atomic dev_t scratch_device; /* of what is in memory only */

static int scratch_new(mode_t mode)
{
	int fd = tpck_sys_high(tpck_sys_memfd_create(TPCK_SCRATCH_NAME, 1u /* MFD_CLOEXEC */));

	if (fd >= 0)
		(void)!fchmod(fd, mode & 07777);
	return fd;
}

static void entry_gets(struct tpck_overlay_entry *entry, int fd)
{
	struct stat made;

	entry->fd = fd;
	entry->inode = 0;
	if (fd >= 0 && !tpck_sys_fstatat(fd, "", &made, AT_EMPTY_PATH)) {
		entry->inode = made.st_ino;
		scratch_device = made.st_dev;
	}
}

/* How many names the scratch file has: to the kernel it has none, and programs take a file without a name for one that somebody
 * has removed. */
static nlink_t names_of(ino_t inode)
{
	nlink_t names = 0;

	tpck_spin_lock(&lock);
	for (unsigned b = 0; b < BUCKETS; b++)
		for (const struct tpck_overlay_entry *entry = entries[b]; entry; entry = entry->next)
			names += entry->inode == inode && entry->fd >= 0;
	tpck_spin_unlock(&lock);
	return names;
}

nlink_t tpck_overlay_names(dev_t device, ino_t inode)
{
	return device == scratch_device ? names_of(inode) : 0;
}

/* Another open file description of a scratch file. */
static int scratch_reopen(int fd, int flags)
{
	char link[64];

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	return tpck_sys_openat(AT_FDCWD, link, flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW | O_DIRECT), 0);
}

bool tpck_overlay_active(void)
{
	return atomic_load_explicit(&tpck_overlay_scratch, memory_order_relaxed);
}

void tpck_overlay_end(void)
{
	tpck_syscalls_end();
	atomic_store(&tpck_overlay_scratch, false);
	tpck_files_pause(false);
	tpck_seen_end();
}

mode_t tpck_overlay_mask(void)
{
	return mask;
}

/* The times of files lag behind the clock by a tick. */
#define TICK_NS 10000000u
static uint64_t forward_ns;

uint64_t tpck_follow_forward_ns(void)
{
	return forward_ns;
}

int tpck_follow_forward(const char *scratch, bool output_again, bool settles)
{
	/* The files that a resume begins from are those at their paths. */
	if (settles && !tpck_files_settle())
		tpck_log_warn("some files of the run before are not at their paths yet");
	tpck_files_pause(true);
	tpck_folders_forward(scratch);
	mask = umask(022);
	umask(mask);
	forward_ns = tpck_clock_realtime_ns() - TICK_NS;
	atomic_store(&tpck_overlay_scratch, true);
	return output_again ? 0 : tpck_output_divert();
}

void tpck_follow_abandon(void)
{
	tpck_output_back();
	tpck_overlay_end();
	tpck_services_abandon();
	tpck_temporary_abandon();
}

const char *tpck_follow_difference(void)
{
	return difference[0] ? difference : NULL;
}

void tpck_overlay_differs(const char *what, const char *path)
{
	if (!difference[0])
		snprintf(difference, sizeof difference, "%s %.200s", what, path);
}

struct tpck_overlay_entry *tpck_overlay_find(uint64_t digest)
{
	struct tpck_overlay_entry *entry;

	tpck_spin_lock(&lock);
	entry = entries[digest % BUCKETS];
	while (entry && entry->digest != digest)
		entry = entry->next;
	tpck_spin_unlock(&lock);
	return entry;
}

bool tpck_follow_has_written(const char *path)
{
	const struct tpck_overlay_entry *entry = tpck_overlay_find(tpck_follow_digest(path));

	return entry && entry->kind == TPCK_KIND_FILE && entry->changed;
}

/* Entries stay for good; one whose descriptor goes meanwhile is counted the next time. */
uint64_t tpck_follow_scratch_bytes(void)
{
	uint64_t bytes = 0;

	for (uint32_t b = 0; b < BUCKETS; b++)
		for (const struct tpck_overlay_entry *entry = entries[b]; entry; entry = entry->next) {
			struct stat found;

			if (entry->kind == TPCK_KIND_FILE && !entry->given && !tpck_sys_fstatat(entry->fd, "", &found, AT_EMPTY_PATH))
				bytes += (uint64_t)found.st_blocks * 512;
		}
	return bytes;
}

static struct tpck_overlay_entry *enter(const char *path, uint64_t digest)
{
	struct tpck_overlay_entry *entry = tpck_overlay_find(digest);

	if (entry)
		return entry;
	entry = calloc(1, sizeof *entry + strlen(path) + 1);
	if (!entry)
		return NULL;
	entry->digest = digest;
	entry->fd = -1;
	strcpy(entry->path, path);
	tpck_spin_lock(&lock);
	entry->next = entries[digest % BUCKETS];
	entries[digest % BUCKETS] = entry;
	tpck_spin_unlock(&lock);
	return entry;
}

static int fail(int code)
{
	errno = code;
	return -1;
}

/* What the overlay knows of the path; symbolic links that the first run found count. */
static struct tpck_overlay_entry *known(const char *path, uint64_t digest)
{
	struct tpck_overlay_entry *entry = tpck_overlay_find(digest);
	const char *target = entry ? NULL : tpck_learnt_link(digest);

	if (!target)
		return entry;
	entry = enter(path, digest);
	if (entry) {
		entry->target = strdup(target);
		entry->kind = entry->target ? TPCK_KIND_LINK : TPCK_KIND_ABSENT;
	}
	return entry;
}

/* Something in its folder comes or goes: if the program made that, it has changed now. Programs tell by these times which
 * of their checkpoints is the oldest. */
static void folder_changes(const char *path)
{
	const char *slash = strrchr(path, '/');
	struct tpck_overlay_entry *folder;
	char above[TPCK_FOLLOW_PATH];

	if (!slash || slash == path || (size_t)(slash - path) >= sizeof above)
		return;
	snprintf(above, sizeof above, "%.*s", (int)(slash - path), path);
	folder = tpck_overlay_find(tpck_follow_digest(above));
	if (folder && folder->kind == TPCK_KIND_FOLDER)
		tpck_sys_clock_gettime(CLOCK_REALTIME, &folder->when);
}

static int by_path(const void *a, const void *b)
{
	return strcmp((*(struct tpck_overlay_entry *const *)a)->path, (*(struct tpck_overlay_entry *const *)b)->path);
}

struct tpck_overlay_entry **tpck_overlay_sorted(uint32_t *count)
{
	struct tpck_overlay_entry **all;
	uint32_t room = 0;

	*count = 0;
	for (unsigned b = 0; b < BUCKETS; b++)
		for (struct tpck_overlay_entry *entry = entries[b]; entry; entry = entry->next)
			room++;
	all = malloc((room + 1) * sizeof(struct tpck_overlay_entry *));
	for (unsigned b = 0; b < BUCKETS && all; b++)
		for (struct tpck_overlay_entry *entry = entries[b]; entry && *count < room; entry = entry->next)
			all[(*count)++] = entry;
	if (all)
		qsort(all, *count, sizeof(struct tpck_overlay_entry *), by_path);
	return all;
}

/* A scratch file with the content that the path has outside, for a program that changes it. NULL with
 * errno. */
static struct tpck_overlay_entry *import(const char *path, uint64_t digest, bool content, bool *existed)
{
	char version[TPCK_FOLLOW_FOLDER + 128];
	enum tpck_source source = tpck_learnt_source(path, digest, version, sizeof version);
	struct stat found = {.st_mode = 0666};
	struct tpck_overlay_entry *entry;
	int from;

	*existed = source == TPCK_SOURCE_VERSION ? !tpck_kept_stat(version, &found)
						 : source != TPCK_SOURCE_ABSENT && !tpck_sys_fstatat(AT_FDCWD, path, &found, 0);
	if (source == TPCK_SOURCE_LOST)
		*existed = true;
	if (source == TPCK_SOURCE_LOST && content)
		tpck_overlay_differs("the content that the first run found is gone:", path);
	entry = enter(path, digest);
	if (!entry)
		return NULL;
	entry_gets(entry, scratch_new(*existed ? found.st_mode : 0666 & ~mask));
	if (entry->fd < 0)
		return NULL;
	entry->kind = TPCK_KIND_FILE;
	if (*existed && content && S_ISREG(found.st_mode)) {
		from = source == TPCK_SOURCE_VERSION ? tpck_door_file(version, TPCK_KEPT_NAMES, TPCK_DOOR_READ, 0)
						     : tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
		if (from < 0 || tpck_follow_copy(from, entry->fd, (uint64_t)found.st_size))
			tpck_overlay_differs("cannot read what the first run found at", path);
		tpck_sys_utimensat(entry->fd, NULL, (const struct timespec[2]){found.st_atim, found.st_mtim}, 0);
		if (from >= 0)
			tpck_sys_close(from);
	}
	return entry;
}

static int open_version(const char *version, int flags)
{
	int fd = tpck_door_file(version, TPCK_KEPT_NAMES, flags, 0);

	return fd < 0 ? fail(-fd) : fd;
}

static int stat_version(const char *version, struct stat *found)
{
	int rc = tpck_kept_stat(version, found);

	return rc ? fail(-rc) : 0;
}

static bool special(const char *path)
{
	struct stat found;

	return !tpck_sys_fstatat(AT_FDCWD, path, &found, 0) && !S_ISREG(found.st_mode);
}

static bool really_folder(const char *path)
{
	struct stat found;

	return !tpck_sys_fstatat(AT_FDCWD, path, &found, 0) && S_ISDIR(found.st_mode);
}

/* A folder that the first run found, and that is gone by now. */
static bool was_folder(const char *path, uint64_t digest)
{
	const struct tpck_record_file *first = tpck_learnt_first(digest);

	return first && S_ISDIR(first->mode) && !really_folder(path);
}

static int open_folder(const char *path, uint64_t digest, int flags)
{
	const struct tpck_overlay_entry *entry = tpck_overlay_find(digest);
	const char *standin;

	if ((entry || was_folder(path, digest)) && !really_folder(path)) {
		standin = tpck_folders_standin(path);
		return standin ? tpck_sys_openat(AT_FDCWD, standin, flags, 0) : fail(EIO);
	}
	return tpck_sys_openat(AT_FDCWD, path, flags, 0);
}

static int open_changing(const char *path, uint64_t digest, int flags, mode_t mode)
{
	struct tpck_overlay_entry *entry = tpck_overlay_find(digest);
	bool existed = entry && entry->kind != TPCK_KIND_ABSENT;

	if (entry && entry->kind == TPCK_KIND_FOLDER)
		return fail(EISDIR);
	if (!entry || entry->kind == TPCK_KIND_ABSENT) {
		char version[TPCK_FOLLOW_FOLDER + 128];
		bool here = !entry && tpck_learnt_source(path, digest, version, sizeof version) != TPCK_SOURCE_ABSENT;

		if (here && !special(path) && !tpck_sys_faccessat(AT_FDCWD, path, F_OK))
			existed = true;
		if (!existed && !(flags & O_CREAT))
			return fail(ENOENT);
		if (existed && flags & O_CREAT && flags & O_EXCL)
			return fail(EEXIST);
		if (entry) {
			entry_gets(entry, scratch_new(mode & ~mask));
			if (entry->fd < 0)
				return -1;
			entry->kind = TPCK_KIND_FILE;
		} else {
			entry = import(path, digest, !(flags & O_TRUNC), &existed);
			if (!entry)
				return -1;
			if (!existed)
				fchmod(entry->fd, mode & ~mask & 07777);
		}
	} else if (flags & O_CREAT && flags & O_EXCL) {
		return fail(EEXIST);
	}
	if (!existed)
		folder_changes(path);
	entry->changed = true;
	tpck_seen_give(entry);
	tpck_seen_put(digest, entry->given ? TPCK_SEEN_REAL : TPCK_SEEN_FILE, entry->fd, entry->inode);
	if (flags & O_TRUNC && tpck_sys_ftruncate(entry->fd, 0))
		return -1;
	if (flags & O_EXCL)
		tpck_syscalls_watch(); /* a temporary file: how will it be renamed? */
	return scratch_reopen(entry->fd, flags);
}

/* A file without a name (O_TMPFILE) in a folder that is in the overlay alone. */
static int nameless(int flags, mode_t mode)
{
	int fd = scratch_new(mode & ~mask), opened = fd < 0 ? fd : scratch_reopen(fd, flags & ~O_TMPFILE), saved = errno;

	if (fd >= 0)
		tpck_sys_close(fd);
	errno = saved;
	return opened;
}

int tpck_overlay_open(const char *path, uint64_t digest, int flags, mode_t mode)
{
	char version[TPCK_FOLLOW_FOLDER + 128];
	struct tpck_overlay_entry *entry;
	bool changes = (flags & O_ACCMODE) != O_RDONLY || flags & (O_TRUNC | O_CREAT);
	enum tpck_source source;

	entry = known(path, digest);
	if ((flags & O_TMPFILE) == O_TMPFILE)
		return ((entry && entry->kind == TPCK_KIND_FOLDER) || was_folder(path, digest)) && !really_folder(path)
			       ? nameless(flags, mode)
			       : tpck_sys_openat(AT_FDCWD, path, flags, mode);
	if (entry && entry->kind == TPCK_KIND_LINK)
		return fail(changes && flags & O_EXCL ? EEXIST : ELOOP); /* it is not to be followed */
	if (entry && entry->kind == TPCK_KIND_SOCKET && (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
		return fail(EEXIST);
	/* A named pipe can be opened, and of a socket the kernel says that it cannot. Nothing is made where somebody has taken it away. */
	if (entry && entry->kind == TPCK_KIND_SOCKET)
		return tpck_sys_openat(AT_FDCWD, entry->target, flags & ~O_CREAT, 0);
	source = entry ? TPCK_SOURCE_REAL : tpck_learnt_source(path, digest, version, sizeof version);
	if (!changes && ((entry && entry->kind == TPCK_KIND_ABSENT) || source == TPCK_SOURCE_ABSENT))
		return fail(ENOENT);
	if ((entry && entry->kind == TPCK_KIND_FOLDER) ||
	    (!entry && source == TPCK_SOURCE_REAL && (really_folder(path) || was_folder(path, digest))))
		return changes ? fail(EISDIR) : open_folder(path, digest, flags);
	if (!entry && source == TPCK_SOURCE_REAL && special(path))
		return tpck_sys_openat(AT_FDCWD, path, flags, mode);
	if (changes)
		return open_changing(path, digest, flags, mode);
	if (entry)
		return flags & O_DIRECTORY ? fail(ENOTDIR) : scratch_reopen(entry->fd, flags);
	if (source == TPCK_SOURCE_VERSION)
		return open_version(version, flags);
	if (source == TPCK_SOURCE_LOST)
		tpck_overlay_differs("the file is another than the first run read:", path);
	return tpck_sys_openat(AT_FDCWD, path, flags, mode);
}

static int absent(const char *path, uint64_t digest)
{
	struct tpck_overlay_entry *entry = enter(path, digest);

	if (!entry)
		return fail(ENOMEM);
	if (entry->fd < 0 || entry->given || !tpck_seen_keeps(digest, entry->fd, entry->inode)) {
		if (entry->fd >= 0)
			tpck_sys_close(entry->fd);
		tpck_seen_put(digest, TPCK_SEEN_ABSENT, -1, 0);
	}
	entry->fd = -1;
	if (entry->kind == TPCK_KIND_SOCKET && entry->target)
		(void)tpck_sys_unlinkat(AT_FDCWD, entry->target, 0);
	free(entry->target);
	entry->target = NULL;
	entry->linked = entry->given = false;
	if (entry->kind == TPCK_KIND_FOLDER)
		tpck_folders_gone(path);
	entry->kind = TPCK_KIND_ABSENT;
	entry->changed = true;
	folder_changes(path);
	return 0;
}

/* The entry of a path that is there, made from the outside if need be; NULL with errno. */
static struct tpck_overlay_entry *present(const char *path, uint64_t digest)
{
	struct tpck_overlay_entry *entry = known(path, digest);
	bool existed = true;
	struct stat found;

	if (entry) {
		if (entry->kind == TPCK_KIND_ABSENT) {
			errno = ENOENT;
			return NULL;
		}
		return entry;
	}
	if (tpck_overlay_stat(path, digest, &found) == -1)
		return NULL;
	if (!tpck_sys_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) && S_ISLNK(found.st_mode)) {
		char target[TPCK_FOLLOW_PATH];
		ssize_t got = tpck_sys_readlink(path, target, sizeof target - 1);

		entry = got > 0 ? enter(path, digest) : NULL;
		if (entry) {
			target[got] = '\0';
			entry->target = strdup(target);
			entry->kind = entry->target ? TPCK_KIND_LINK : TPCK_KIND_ABSENT;
		}
		return entry;
	}
	if (special(path) || was_folder(path, digest)) {
		entry = enter(path, digest);
		if (entry)
			entry->kind = TPCK_KIND_FOLDER;
		return entry;
	}
	if (tpck_sys_faccessat(AT_FDCWD, path, F_OK) && tpck_learnt_first(digest) == NULL) {
		errno = ENOENT;
		return NULL;
	}
	return import(path, digest, true, &existed);
}

static int move(struct tpck_overlay_entry *source, const char *to, uint64_t to_digest)
{
	struct tpck_overlay_entry *target = enter(to, to_digest);

	if (!target)
		return fail(ENOMEM);
	if (target == source)
		return 0;
	if (target->fd >= 0)
		tpck_sys_close(target->fd);
	free(target->target);
	target->fd = source->fd;
	target->inode = source->inode;
	target->kind = source->kind;
	target->mode = source->mode;
	target->target = source->target;
	target->linked = source->linked;
	target->when = source->when;
	folder_changes(to);
	target->changed = true;
	tpck_seen_put(to_digest, target->kind == TPCK_KIND_FILE && !source->given ? TPCK_SEEN_FILE : TPCK_SEEN_REAL, target->fd, target->inode);
	source->fd = -1;
	source->given = false;
	source->target = NULL;
	return absent(source->path, source->digest);
}

/* A folder that the program itself made: all that is in it is the overlay's. */
static int move_folder(struct tpck_overlay_entry *folder, const char *to)
{
	size_t length = strlen(folder->path);
	struct tpck_overlay_entry **all;
	char path[TPCK_FOLLOW_PATH];
	uint32_t count;
	int result = 0;

	if (!folder->changed) {
		tpck_overlay_differs("a folder that was there before is renamed:", folder->path);
		return fail(EXDEV);
	}
	all = tpck_overlay_sorted(&count);
	if (!all)
		return fail(ENOMEM);
	for (uint32_t i = 0; i < count && !result; i++) {
		const char *rest = all[i]->path + length;

		if (strncmp(all[i]->path, folder->path, length) != 0 || (*rest && *rest != '/') ||
		    all[i]->kind == TPCK_KIND_ABSENT)
			continue;
		if (snprintf(path, sizeof path, "%s%s", to, rest) >= (int)sizeof path)
			result = fail(ENAMETOOLONG);
		else
			result = move(all[i], path, tpck_follow_digest(path));
	}
	free(all);
	return result;
}

int tpck_overlay_rename(const char *from, uint64_t from_digest, const char *to, uint64_t to_digest)
{
	struct tpck_overlay_entry *source = present(from, from_digest);
	const struct tpck_overlay_entry *target = tpck_overlay_find(to_digest);

	if (!source)
		return -1;
	if (target && target->kind == TPCK_KIND_FOLDER && source->kind != TPCK_KIND_FOLDER)
		return fail(EISDIR);
	tpck_syscalls_unwatch();
	return source->kind == TPCK_KIND_FOLDER ? move_folder(source, to) : move(source, to, to_digest);
}

int tpck_overlay_take(const char *from, const char *to, uint64_t to_digest)
{
	int in = tpck_sys_openat(AT_FDCWD, from, O_RDONLY | O_CLOEXEC, 0), out = -1, result = -1;
	struct stat found;

	if (in < 0)
		return -1;
	if (!tpck_sys_fstatat(in, "", &found, AT_EMPTY_PATH) && S_ISREG(found.st_mode)) {
		absent(to, to_digest);
		out = open_changing(to, to_digest, O_WRONLY | O_CREAT, found.st_mode & 07777);
	} else {
		tpck_overlay_differs("a temporary folder is renamed:", from);
		errno = EXDEV;
	}
	if (out >= 0 && !tpck_follow_copy(in, out, (uint64_t)found.st_size) && !fchmod(out, found.st_mode & 07777))
		result = tpck_sys_unlinkat(AT_FDCWD, from, 0);
	if (out >= 0)
		tpck_sys_close(out);
	tpck_sys_close(in);
	return result;
}

int tpck_overlay_beside(const char *path, char *beside, size_t size)
{
	int fd = -1;

	for (unsigned i = 0; i < 1000 && fd < 0; i++) {
		if (snprintf(beside, size, "%s.transpckpt.%u", path, i) >= (int)size) {
			errno = ENAMETOOLONG;
			break;
		}
		fd = tpck_sys_openat(AT_FDCWD, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	return fd;
}

int tpck_overlay_give(const char *from, uint64_t from_digest, const char *to)
{
	int in = tpck_overlay_open(from, from_digest, O_RDONLY | O_CLOEXEC, 0), out = -1, result = -1;
	char beside[TPCK_FOLLOW_PATH];
	struct stat found;

	if (in < 0)
		return -1;
	if (tpck_sys_fstatat(in, "", &found, AT_EMPTY_PATH) || !S_ISREG(found.st_mode)) {
		tpck_overlay_differs("a folder is renamed to be a real one:", from);
		errno = EXDEV;
	} else {
		out = tpck_overlay_beside(to, beside, sizeof beside);
	}
	if (out >= 0 && !tpck_follow_copy(in, out, (uint64_t)found.st_size) && !fchmod(out, found.st_mode & 07777) &&
	    !tpck_sys_renameat(AT_FDCWD, beside, AT_FDCWD, to))
		result = tpck_overlay_unlink(from, from_digest, 0);
	else if (out >= 0)
		tpck_sys_unlinkat(AT_FDCWD, beside, 0);
	if (out >= 0)
		tpck_sys_close(out);
	tpck_sys_close(in);
	return result;
}

/* What goes needs no content: only that it was there, and what it was. */
int tpck_overlay_unlink(const char *path, uint64_t digest, int flags)
{
	const struct tpck_record_file *first = tpck_learnt_first(digest);
	const struct tpck_overlay_entry *entry = known(path, digest);
	struct stat now;
	bool folder;

	if (entry) {
		if (entry->kind == TPCK_KIND_ABSENT)
			return fail(ENOENT);
		folder = entry->kind == TPCK_KIND_FOLDER;
	} else if (first) {
		if (!first->mode)
			return fail(ENOENT);
		folder = S_ISDIR(first->mode);
	} else {
		if (tpck_sys_fstatat(AT_FDCWD, path, &now, AT_SYMLINK_NOFOLLOW))
			return -1;
		folder = S_ISDIR(now.st_mode);
	}
	if (folder && !(flags & AT_REMOVEDIR))
		return fail(EISDIR);
	if (!folder && flags & AT_REMOVEDIR)
		return fail(ENOTDIR);
	tpck_syscalls_unwatch();
	return absent(path, digest);
}

void tpck_follow_hide(const char *path)
{
	if (tpck_overlay_active())
		(void)absent(path, tpck_follow_digest(path));
}

static bool there(const char *path, uint64_t digest)
{
	struct stat found;
	int known = tpck_overlay_stat(path, digest, &found);

	return known == 0 ||
	       (known == TPCK_OVERLAY_REAL && !tpck_sys_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW));
}

int tpck_overlay_mkdir(const char *path, uint64_t digest, mode_t mode)
{
	struct tpck_overlay_entry *entry;

	if (there(path, digest))
		return fail(EEXIST);
	entry = enter(path, digest);
	if (!entry)
		return fail(ENOMEM);
	entry->kind = TPCK_KIND_FOLDER;
	entry->mode = mode & ~mask & 07777;
	entry->changed = true;
	tpck_sys_clock_gettime(CLOCK_REALTIME, &entry->when);
	folder_changes(path);
	tpck_services_folder(path);
	return 0;
}

int tpck_overlay_symlink(const char *target, const char *path, uint64_t digest)
{
	struct tpck_overlay_entry *entry;

	if (!*target)
		return fail(ENOENT);
	if (there(path, digest))
		return fail(EEXIST);
	entry = enter(path, digest);
	if (entry)
		entry->target = strdup(target);
	if (!entry || !entry->target)
		return fail(ENOMEM);
	entry->kind = TPCK_KIND_LINK;
	entry->changed = true;
	folder_changes(path);
	return 0;
}

int tpck_overlay_socket(const char *target, const char *path, uint64_t digest)
{
	struct tpck_overlay_entry *entry = tpck_overlay_find(digest);
	char *copy;

	/* Of what the overlay does not know the living process has said by its own that nothing was there. */
	if (entry && entry->kind != TPCK_KIND_ABSENT)
		return fail(EADDRINUSE);
	entry = enter(path, digest);
	copy = entry ? strdup(target) : NULL;
	if (!copy)
		return fail(ENOMEM);
	entry->target = copy;
	entry->kind = TPCK_KIND_SOCKET;
	entry->changed = true;
	/* The program may have taken away what was there before. */
	tpck_seen_put(digest, TPCK_SEEN_REAL, -1, 0);
	folder_changes(path);
	return 0;
}

/* Both names have one scratch file. */
int tpck_overlay_link(const char *from, uint64_t from_digest, const char *to, uint64_t to_digest)
{
	struct tpck_overlay_entry *source, *entry;
	int fd;

	if (there(to, to_digest))
		return fail(EEXIST);
	source = present(from, from_digest);
	if (!source)
		return -1;
	if (source->kind == TPCK_KIND_LINK)
		return tpck_overlay_symlink(source->target, to, to_digest);
	if (source->kind != TPCK_KIND_FILE)
		return fail(EPERM);
	entry = enter(to, to_digest);
	fd = entry ? tpck_sys_high(tpck_sys_dup(source->fd)) : -1;
	if (fd < 0)
		return fail(ENOMEM);
	entry_gets(entry, fd);
	entry->kind = TPCK_KIND_FILE;
	entry->changed = source->changed = true;
	entry->linked = source->linked = true;
	tpck_seen_put(to_digest, TPCK_SEEN_FILE, entry->fd, entry->inode);
	folder_changes(to);
	return 0;
}

int tpck_overlay_chmod(const char *path, uint64_t digest, mode_t mode)
{
	struct tpck_overlay_entry *entry;
	struct stat found;

	/* The first run has done it already. */
	if (!tpck_overlay_find(digest) && tpck_overlay_stat(path, digest, &found) == TPCK_OVERLAY_REAL &&
	    !tpck_sys_fstatat(AT_FDCWD, path, &found, 0) && ((found.st_mode ^ mode) & 07777) == 0)
		return 0;
	entry = present(path, digest);
	if (!entry)
		return -1;
	entry->changed = true;
	entry->mode = mode & 07777;
	if (entry->kind == TPCK_KIND_SOCKET)
		return tpck_sys_fchmodat(AT_FDCWD, entry->target, mode & 07777);
	return entry->kind == TPCK_KIND_FILE ? fchmod(entry->fd, mode & 07777) : 0;
}

int tpck_overlay_times(const char *path, uint64_t digest, const struct timespec times[2])
{
	struct tpck_overlay_entry *entry = tpck_overlay_find(digest);

	if (!entry || entry->kind != TPCK_KIND_FILE)
		return there(path, digest) ? 0 : fail(ENOENT);
	entry->changed = true;
	return tpck_sys_utimensat(entry->fd, NULL, times, 0);
}

const char *tpck_overlay_place(char *path, uint64_t digest, bool changes)
{
	struct tpck_overlay_entry *entry = changes ? present(path, digest) : known(path, digest);
	char version[TPCK_FOLLOW_FOLDER + 128];
	const char *standin;

	if (!entry && changes)
		return NULL;
	if (!entry) {
		switch (tpck_learnt_source(path, digest, version, sizeof version)) {
		case TPCK_SOURCE_ABSENT:
			errno = ENOENT;
			return NULL;
		case TPCK_SOURCE_VERSION:
			return strcpy(path, version);
		case TPCK_SOURCE_LOST:
		case TPCK_SOURCE_REAL:
			break;
		}
		return path;
	}
	entry->changed = entry->changed || changes;
	switch (entry->kind) {
	case TPCK_KIND_ABSENT:
		errno = ENOENT;
		return NULL;
	case TPCK_KIND_LINK:
		errno = EOPNOTSUPP;
		return NULL;
	case TPCK_KIND_FILE:
		snprintf(path, TPCK_FOLLOW_PATH, "/proc/self/fd/%d", entry->fd);
		return path;
	case TPCK_KIND_SOCKET:
		snprintf(path, TPCK_FOLLOW_PATH, "%s", entry->target);
		return path;
	case TPCK_KIND_FOLDER:
		break;
	}
	standin = really_folder(path) ? NULL : tpck_folders_standin(path);
	return standin ? strcpy(path, standin) : path;
}

ssize_t tpck_overlay_readlink(const char *path, uint64_t digest, char *target, size_t size)
{
	const struct tpck_record_file *first = tpck_learnt_first(digest);
	const struct tpck_overlay_entry *entry = known(path, digest);
	size_t length;

	if (entry && entry->kind == TPCK_KIND_LINK) {
		length = strlen(entry->target) < size ? strlen(entry->target) : size;
		if (!tpck_readable(target, length))
			return fail(EFAULT);
		memcpy(target, entry->target, length);
		return (ssize_t)length;
	}
	if (entry)
		return fail(entry->kind == TPCK_KIND_ABSENT ? ENOENT : EINVAL);
	/* Whatever is there now, it was no link. */
	return first ? fail(first->mode ? EINVAL : ENOENT) : TPCK_OVERLAY_REAL;
}

static int folder_stat(const char *path, mode_t mode, struct stat *found)
{
	const char *standin;

	if (!tpck_sys_fstatat(AT_FDCWD, path, found, 0) && S_ISDIR(found->st_mode))
		return 0;
	standin = tpck_folders_standin(path);
	if (!standin || tpck_sys_fstatat(AT_FDCWD, standin, found, 0))
		return fail(EIO);
	found->st_mode = S_IFDIR | mode;
	return 0;
}

static int link_stat(const struct tpck_overlay_entry *entry, struct stat *found)
{
	memset(found, 0, sizeof *found);
	found->st_mode = S_IFLNK | 0777;
	found->st_nlink = 1;
	found->st_size = (off_t)strlen(entry->target);
	return 0;
}

static int scratch_stat(const struct tpck_overlay_entry *entry, struct stat *found)
{
	int result = tpck_sys_fstatat(entry->fd, "", found, AT_EMPTY_PATH);

	if (!result)
		found->st_nlink = entry->linked ? names_of(found->st_ino) : 1;
	return result;
}

static bool of_others(const char *path, uint64_t digest, struct stat *found)
{
	const struct tpck_record_file *then = tpck_learnt_of_others(digest);

	if (!then || tpck_sys_fstatat(AT_FDCWD, path, found, 0))
		return false;
	found->st_mode = then->mode;
	found->st_size = (off_t)then->bytes;
	found->st_blocks = (blkcnt_t)((then->bytes + 511) / 512);
	found->st_mtim = (struct timespec){then->mtime_s, then->mtime_ns};
	return true;
}

int tpck_overlay_stat(const char *path, uint64_t digest, struct stat *found)
{
	char version[TPCK_FOLLOW_FOLDER + 128];
	const struct tpck_overlay_entry *entry = known(path, digest);

	if (entry && entry->kind == TPCK_KIND_ABSENT)
		return fail(ENOENT);
	if (entry && entry->kind == TPCK_KIND_FILE)
		return scratch_stat(entry, found);
	if (entry && entry->kind == TPCK_KIND_LINK)
		return link_stat(entry, found);
	if (entry && entry->kind == TPCK_KIND_SOCKET)
		return tpck_sys_fstatat(AT_FDCWD, entry->target, found, AT_SYMLINK_NOFOLLOW);
	if (entry) {
		int result = folder_stat(path, entry->changed ? entry->mode : 0777 & ~mask, found);

		if (!result && entry->when.tv_sec)
			found->st_mtim = found->st_ctim = entry->when;
		return result;
	}
	switch (tpck_learnt_source(path, digest, version, sizeof version)) {
	case TPCK_SOURCE_ABSENT:
		return fail(ENOENT);
	case TPCK_SOURCE_VERSION:
		return stat_version(version, found);
	case TPCK_SOURCE_LOST:
		/* What others had made by then and the program only looked at: nobody has kept its content. */
		if (of_others(path, digest, found))
			return 0;
		break;
	case TPCK_SOURCE_REAL:
		break;
	}
	if (was_folder(path, digest))
		return folder_stat(path, tpck_learnt_first(digest)->mode & 07777, found);
	return TPCK_OVERLAY_REAL;
}

void tpck_overlay_forked(void)
{
	tpck_spin_unlock(&lock);
}

void tpck_follow_forked(void)
{
	tpck_overlay_forked();
	tpck_learnt_forked();
	tpck_early_forked();
	tpck_temporary_forked();
	tpck_names_forked();
	tpck_folders_forked();
	tpck_record_forked();
}
