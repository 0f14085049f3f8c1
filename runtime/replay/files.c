/* SPDX-License-Identifier: Apache-2.0 */
/* Files, output and paths: the overlay and the calls that go through it. */
#include "config.h"

#include "runtime/replay/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/base/log.h"
#include "runtime/replay/contents.h"
#include "runtime/replay/files_private.h"
#include "runtime/track/threads.h"

enum { PATH_SIZE = 4096 };

static struct tpck_log *journal;
static char keep_folder[TPCK_FILES_FOLDER];
static uint64_t timeline;

/* ---- paths ---------------------------------------------------------------------------------- */

bool tpck_files_absolute(int folder, const char *path, char *out, size_t size)
{
	char base[PATH_SIZE] = "";
	char link[64];
	ssize_t got;
	int written;

	if (!path || !*path)
		return false;
	if (*path == '/') {
		written = snprintf(out, size, "%s", path);
	} else {
		if (folder == AT_FDCWD) {
			if (syscall(SYS_getcwd, base, sizeof base) < 0)
				return false;
		} else {
			snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
			got = syscall(SYS_readlink, link, base, sizeof base - 1);
			if (got < 0)
				return false;
			base[got] = '\0';
			tpck_overlay_behind(base, sizeof base);
		}
		while (path[0] == '.' && path[1] == '/') {
			path += 2;
			while (*path == '/')
				path++;
		}
		written = snprintf(out, size, "%s/%s", base, path);
	}
	if (written < 0 || (size_t)written >= size)
		return false;
	/* "a//b" and "a/b/" are "a/b". */
	written = 0;
	for (const char *p = out; *p; p++)
		if (*p != '/' || (p[1] != '/' && (p[1] || !written)))
			out[written++] = *p;
	out[written] = '\0';
	return true;
}

/* Kernel interfaces and our own folders are never followed. */
static bool followed(const char *absolute)
{
	static const char *const outside[] = {"/proc/", "/sys/", "/dev/", "/run/"};

	for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
		if (strncmp(absolute, outside[i], strlen(outside[i])) == 0)
			return false;
	return !keep_folder[0] || strncmp(absolute, keep_folder, strlen(keep_folder)) != 0;
}

static bool resolve(int folder, const char *path, char *absolute, uint64_t *digest)
{
	if (!tpck_files_absolute(folder, path, absolute, PATH_SIZE) || !followed(absolute))
		return false;
	*digest = tpck_digest64(absolute, strlen(absolute), 0);
	return true;
}

/* ---- recording ------------------------------------------------------------------------------ */

enum { TOUCHED_BITS = 16, READ_BIT = 1, NOTED_BIT = 2, STATE_BITS = 3 };

/* Paths touched so far: the digest, with its lowest bits telling whether the program may have read it, and
 * whether replay/contents.h knows. */
static _Atomic uint64_t touched[1 << TOUCHED_BITS];
static _Atomic uint32_t touched_count;

static _Atomic uint64_t *touched_slot(uint64_t digest)
{
	uint32_t slot = (uint32_t)(digest >> (64 - TOUCHED_BITS));

	digest &= ~(uint64_t)STATE_BITS;
	for (;;) {
		uint64_t found = atomic_load(&touched[slot]);

		if (!found || (found & ~(uint64_t)STATE_BITS) == digest)
			return &touched[slot];
		slot = (slot + 1) & ((1u << TOUCHED_BITS) - 1);
	}
}

void tpck_files_record(struct tpck_log *into, const char *keep, uint64_t of_timeline)
{
	journal = into;
	timeline = of_timeline;
	snprintf(keep_folder, sizeof keep_folder, "%s", keep);
}

void tpck_files_known(uint64_t digest, bool noted)
{
	_Atomic uint64_t *slot = touched_slot(digest);

	if (!atomic_load(slot)) {
		if (atomic_fetch_add(&touched_count, 1) >= (1u << TOUCHED_BITS) * 3 / 4)
			return;
		atomic_store(slot, (digest & ~(uint64_t)STATE_BITS) | READ_BIT);
	}
	if (noted)
		atomic_fetch_or(slot, NOTED_BIT);
}

void tpck_files_forget(void)
{
	memset(touched, 0, sizeof touched);
	atomic_store(&touched_count, 0);
}

static void note_first(const char *absolute, uint64_t digest, _Atomic uint64_t *slot)
{
	struct tpck_record_file record = {.path = digest};
	struct tpck_thread *self = tpck_thread_peek();
	struct stat found;
	uint64_t none = 0;

	if (atomic_load(&touched_count) > (1u << TOUCHED_BITS) * 3 / 4)
		return;
	if (!atomic_compare_exchange_strong(slot, &none, digest & ~(uint64_t)STATE_BITS))
		return;
	atomic_fetch_add(&touched_count, 1);
	if (!syscall(SYS_newfstatat, AT_FDCWD, absolute, &found, 0)) {
		record.mode = found.st_mode;
		record.bytes = (uint64_t)found.st_size;
		record.mtime_s = found.st_mtim.tv_sec;
		record.mtime_ns = found.st_mtim.tv_nsec;
	}
	tpck_log_append(journal, TPCK_RECORD_FILE, TPCK_FILE_FIRST, self ? self->id : 0, 0, &record, sizeof record);
}

void tpck_files_version_name(char *path, size_t size, uint64_t digest, uint64_t bytes, int64_t s, int64_t ns)
{
	snprintf(path, size, "%s/%016llx-%llu-%lld.%09lld", keep_folder, (unsigned long long)digest,
		 (unsigned long long)bytes, (long long)s, (long long)ns);
}

/* Keeps the version that is at the path now, before it goes away. `gone`: the name goes, the inode
 * stays (a link will do). */
static void keep_version(const char *absolute, uint64_t digest, bool gone)
{
	char kept[PATH_SIZE];
	struct stat found;
	int from, to;

	if (!keep_folder[0] || syscall(SYS_newfstatat, AT_FDCWD, absolute, &found, 0) ||
	    !S_ISREG(found.st_mode))
		return;
	tpck_files_version_name(kept, sizeof kept, digest, (uint64_t)found.st_size, found.st_mtim.tv_sec,
				found.st_mtim.tv_nsec);
	if (!syscall(SYS_faccessat, AT_FDCWD, kept, F_OK))
		return;
	if (gone && !syscall(SYS_linkat, AT_FDCWD, absolute, AT_FDCWD, kept, 0))
		return;
	from = (int)syscall(SYS_openat, AT_FDCWD, absolute, O_RDONLY | O_CLOEXEC, 0);
	to = (int)syscall(SYS_openat, AT_FDCWD, kept, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (from < 0 || to < 0 || tpck_files_copy(from, to, (uint64_t)found.st_size)) {
		tpck_log_warn("cannot keep the version of %s that was read: %m; snapshots from here on may not be resumable",
			      absolute);
		if (to >= 0)
			syscall(SYS_unlinkat, AT_FDCWD, kept, 0);
	}
	if (from >= 0)
		syscall(SYS_close, from);
	if (to >= 0)
		syscall(SYS_close, to);
}

/* ftruncate first, so that a reflink or copy_file_range can do the rest. */
int tpck_files_copy(int from, int to, uint64_t bytes)
{
	loff_t at = 0, put = 0;

	while ((uint64_t)at < bytes) {
		ssize_t moved = syscall(SYS_copy_file_range, from, &at, to, &put, bytes - (uint64_t)at, 0);

		if (moved <= 0) {
			char buffer[65536];

			moved = syscall(SYS_pread64, from, buffer, sizeof buffer, at);
			if (moved <= 0)
				return moved ? -errno : -EIO;
			if (syscall(SYS_pwrite64, to, buffer, moved, put) != moved)
				return -EIO;
			at += moved;
			put += moved;
		}
	}
	return 0;
}

/* What the program is about to do with the path, while recording. */
static void recording(const char *absolute, uint64_t digest, bool reads, bool destroys, bool gone)
{
	int saved = errno;
	_Atomic uint64_t *slot = touched_slot(digest);

	if (!journal || tpck_log_failed(journal))
		return;
	if (!atomic_load(slot))
		note_first(absolute, digest, slot);
	if (reads && atomic_load(slot))
		atomic_fetch_or(slot, READ_BIT);
	if (destroys && atomic_load(slot) & READ_BIT)
		keep_version(absolute, digest, gone);
	errno = saved;
}

static void created_name(char *path, size_t size)
{
	snprintf(path, size, "%s/created.g%llu", keep_folder, (unsigned long long)timeline);
}

/* A path comes to be that was not there: should the program be resumed from before, it must not be
 * there again, and only this list tells it from one that somebody else made. Paths end with NUL. */
static void note_created(const char *absolute)
{
	char path[TPCK_FILES_FOLDER + 40];
	int saved = errno, fd;

	if (!journal || !keep_folder[0] || tpck_log_failed(journal) ||
	    !syscall(SYS_faccessat, AT_FDCWD, absolute, F_OK)) {
		errno = saved;
		return;
	}
	created_name(path, sizeof path);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0) {
		(void)!syscall(SYS_write, fd, absolute, strlen(absolute) + 1);
		syscall(SYS_close, fd);
	}
	errno = saved;
}

void tpck_files_each_created(void (*call)(const char *path, uint64_t digest))
{
	char path[PATH_SIZE];
	size_t length = 0;
	FILE *list;
	int c;

	created_name(path, sizeof path);
	list = keep_folder[0] ? fopen(path, "re") : NULL;
	while (list && (c = getc(list)) != EOF) {
		if (length < sizeof path - 1)
			path[length++] = (char)c;
		if (c)
			continue;
		call(path, tpck_digest64(path, strlen(path), 0));
		length = 0;
	}
	if (list)
		fclose(list);
}

/* The program opens it to read what is there. */
static void note_read(const char *absolute, uint64_t digest)
{
	_Atomic uint64_t *slot = touched_slot(digest);
	int saved = errno;

	if (journal && atomic_load(slot) && !(atomic_fetch_or(slot, NOTED_BIT) & NOTED_BIT))
		tpck_contents_note(absolute, digest);
	errno = saved;
}

static bool writes(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
}

static void recording_open(const char *absolute, uint64_t digest, int flags)
{
	/* What is appended to or updated in place needs its old content when it is run again. */
	bool old_needed = writes(flags) && !(flags & O_TRUNC);

	recording(absolute, digest, !writes(flags) || old_needed, false, false);
	if (writes(flags))
		recording(absolute, digest, false, true, false);
	else
		note_read(absolute, digest);
	if (flags & O_CREAT)
		note_created(absolute);
}

/* ---- the calls ------------------------------------------------------------------------------ */

static int real_open(int folder, const char *path, int flags, mode_t mode)
{
	return (int)syscall(SYS_openat, folder, path, flags, mode);
}

int tpck_files_open(int folder, const char *path, int flags, mode_t mode)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (!resolve(folder, path, absolute, &digest) || flags & O_PATH)
		return real_open(folder, path, flags, mode);
	if (tpck_overlay_active())
		return tpck_overlay_open(absolute, digest, flags, mode);
	if (flags & O_DIRECTORY)
		return real_open(folder, path, flags, mode);
	recording_open(absolute, digest, flags);
	return real_open(folder, path, flags, mode);
}

bool tpck_files_redirects(const char *path)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	return tpck_overlay_active() && resolve(AT_FDCWD, path, absolute, &digest);
}

void tpck_files_touch(int folder, const char *path, int flags)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, absolute, &digest))
		recording_open(absolute, digest, flags);
}

int tpck_files_rename(int from_folder, const char *from, int to_folder, const char *to)
{
	char from_path[PATH_SIZE], to_path[PATH_SIZE];
	uint64_t from_digest, to_digest;

	if (resolve(from_folder, from, from_path, &from_digest) && resolve(to_folder, to, to_path, &to_digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_rename(from_path, from_digest, to_path, to_digest);
		/* Its content will be asked for when the renaming is done again. */
		recording(from_path, from_digest, true, true, true);
		recording(to_path, to_digest, false, true, true);
		note_created(to_path);
	}
	return (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
}

int tpck_files_unlink(int folder, const char *path, int flags)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, absolute, &digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_unlink(absolute, digest, flags);
		recording(absolute, digest, false, true, true);
	}
	return (int)syscall(SYS_unlinkat, folder, path, flags);
}

int tpck_files_mkdir(int folder, const char *path, mode_t mode)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, absolute, &digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_mkdir(absolute, digest, mode);
		recording(absolute, digest, false, false, false);
		note_created(absolute);
	}
	return (int)syscall(SYS_mkdirat, folder, path, mode);
}

int tpck_files_access(int folder, const char *path, int mode, int flags)
{
	char absolute[PATH_SIZE];
	struct stat found;
	uint64_t digest;

	if (resolve(folder, path, absolute, &digest)) {
		if (tpck_overlay_active()) {
			int known = tpck_overlay_stat(absolute, digest, &found);

			if (known != TPCK_OVERLAY_REAL)
				return known;
		} else {
			recording(absolute, digest, false, false, false);
		}
	}
	return flags ? (int)syscall(439 /* faccessat2 */, folder, path, mode, flags)
		     : (int)syscall(SYS_faccessat, folder, path, mode);
}

int tpck_files_stat(int folder, const char *path, struct stat *found, int flags)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, absolute, &digest)) {
		if (tpck_overlay_active()) {
			int known = tpck_overlay_stat(absolute, digest, found);

			if (known != TPCK_OVERLAY_REAL)
				return known;
		} else {
			recording(absolute, digest, false, false, false);
		}
	}
	return (int)syscall(SYS_newfstatat, folder, path, found, flags);
}

int tpck_files_truncate(const char *path, off_t bytes)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(AT_FDCWD, path, absolute, &digest)) {
		if (tpck_overlay_active()) {
			int fd = tpck_overlay_open(absolute, digest, O_WRONLY | O_CLOEXEC, 0), result;

			if (fd < 0)
				return -1;
			result = ftruncate(fd, bytes);
			syscall(SYS_close, fd);
			return result;
		}
		recording_open(absolute, digest, O_WRONLY);
	}
	return (int)syscall(SYS_truncate, path, bytes);
}

int tpck_files_chmod(int folder, const char *path, mode_t mode)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, absolute, &digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_chmod(absolute, digest, mode);
		recording(absolute, digest, false, false, false);
	}
	return (int)syscall(SYS_fchmodat, folder, path, mode);
}

/* The time of change tells versions of a file apart: one that was read is kept first. */
int tpck_files_set_times(int folder, const char *path, const struct timespec *times, int flags)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, absolute, &digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_set_times(absolute, digest, times);
		recording(absolute, digest, false, true, false);
	}
	return (int)syscall(SYS_utimensat, folder, path, times, flags);
}

/* ---- listings ------------------------------------------------------------------------------- */

enum { LISTING_BYTES = 64 << 10 };

static void note_listing(const char *absolute, uint64_t digest)
{
	struct tpck_record_file *record = malloc(sizeof *record + LISTING_BYTES);
	struct tpck_thread *self = tpck_thread_peek();
	size_t used = sizeof *record;
	char buffer[32768];
	int fd = (int)syscall(SYS_openat, AT_FDCWD, absolute, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	ssize_t got = 0;

	if (!record || fd < 0) {
		free(record);
		if (fd >= 0)
			syscall(SYS_close, fd);
		return;
	}
	*record = (struct tpck_record_file){.path = digest, .mode = S_IFDIR};
	while ((got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0) {
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const struct dirent64 *entry = (const void *)at;
			size_t length = strlen(entry->d_name);

			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
				continue;
			if (used + length + 2 > sizeof *record + LISTING_BYTES) {
				got = -1;
				break;
			}
			((char *)record)[used++] = entry->d_type == DT_DIR ? 'd' : 'f';
			memcpy((char *)record + used, entry->d_name, length + 1);
			used += length + 1;
			record->names++;
		}
		if (got < 0)
			break;
	}
	syscall(SYS_close, fd);
	if (got == 0)
		tpck_log_append(journal, TPCK_RECORD_FILE, TPCK_FILE_LISTING, self ? self->id : 0, 0, record, used);
	free(record);
}

const char *tpck_files_listing(const char *path)
{
	char absolute[PATH_SIZE];
	const char *listed = NULL;
	int saved = errno;
	uint64_t digest;

	if (resolve(AT_FDCWD, path, absolute, &digest)) {
		if (tpck_overlay_active())
			listed = tpck_overlay_listing(digest);
		else if (journal && !tpck_log_failed(journal))
			note_listing(absolute, digest);
	}
	errno = saved;
	return listed;
}
