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

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/log.h"
#include "runtime/replay/caches.h"
#include "runtime/replay/contents.h"
#include "runtime/replay/files_private.h"
#include "runtime/track/threads.h"

enum { PATH_SIZE = TPCK_FILES_PATH };

static struct tpck_log *journal;
static char keep_folder[TPCK_FILES_FOLDER];
static uint64_t timeline, begun_ns;

/* ---- paths ---------------------------------------------------------------------------------- */

uint64_t tpck_files_digest(const char *absolute)
{
	return tpck_digest64(absolute, strlen(absolute), 0);
}

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
			tpck_folders_named(base, base, sizeof base);
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

bool tpck_files_outside(const char *absolute)
{
	static const char *const outside[] = {"/proc", "/sys", "/dev", "/run"};

	for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
		size_t length = strlen(outside[i]);

		if (strncmp(absolute, outside[i], length) == 0 && (absolute[length] == '/' || absolute[length] == '\0'))
			return true;
	}
	return false;
}

/* Our own folders and compilers' caches are never followed either. */
static bool followed(const char *absolute)
{
	if (tpck_files_outside(absolute))
		return false;
	if (keep_folder[0] && strncmp(absolute, keep_folder, strlen(keep_folder)) == 0)
		return false;
	return !tpck_caches_hold(absolute);
}

/* `follow`: the call goes where the path's last part leads, if that is a symbolic link. */
static bool resolve(int folder, const char *path, bool follow, char *absolute, uint64_t *digest)
{
	int saved = errno;
	bool found = tpck_files_absolute(folder, path, absolute, PATH_SIZE) && followed(absolute);

	if (found && !tpck_names_canonical(absolute, follow))
		absolute[0] = '\0';
	found = found && absolute[0] && followed(absolute) && !tpck_temporary(absolute);
	if (found)
		*digest = tpck_files_digest(absolute);
	errno = saved;
	return found;
}

/* ---- recording ------------------------------------------------------------------------------ */

enum { COPIED_MAX = 1 << 20 };
enum { TOUCHED_BITS = 16, READ_BIT = 1, NOTED_BIT = 2, FILE_BIT = 4, STATE_BITS = 7 };

/* Paths touched so far: the digest, with its lowest bits telling whether the program may have read it, whether
 * replay/contents.h knows, and whether the regular file that was there at the first touch may be there still. */
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
	if (!journal) {
		uint64_t start_ns = tpck_clock_coarse_ns();
		struct tpck_record_file record = {
			.mtime_s = (int64_t)(start_ns / 1000000000), .mtime_ns = (int64_t)(start_ns % 1000000000),
		};

		begun_ns = tpck_clock_realtime_ns();
		tpck_log_append(into, TPCK_RECORD_FILE, TPCK_FILE_BEGUN, 0, 0, &record, sizeof record);
	}
	journal = into;
	timeline = of_timeline;
	snprintf(keep_folder, sizeof keep_folder, "%s", keep);
}

void tpck_files_known(uint64_t digest, bool noted, bool file)
{
	_Atomic uint64_t *slot = touched_slot(digest);

	if (!atomic_load(slot)) {
		if (atomic_fetch_add(&touched_count, 1) >= (1u << TOUCHED_BITS) * 3 / 4)
			return;
		atomic_store(slot, (digest & ~(uint64_t)STATE_BITS) | READ_BIT);
	}
	if (file)
		atomic_fetch_or(slot, FILE_BIT);
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
	size_t bytes = sizeof record, target = 0;
	struct stat found;
	uint64_t none = 0;
	char *payload;

	if (atomic_load(&touched_count) > (1u << TOUCHED_BITS) * 3 / 4)
		return;
	if (!atomic_compare_exchange_strong(slot, &none, digest & ~(uint64_t)STATE_BITS))
		return;
	atomic_fetch_add(&touched_count, 1);
	if (!syscall(SYS_newfstatat, AT_FDCWD, absolute, &found, AT_SYMLINK_NOFOLLOW)) {
		record.mode = found.st_mode;
		record.bytes = (uint64_t)found.st_size;
		record.mtime_s = found.st_mtim.tv_sec;
		record.mtime_ns = found.st_mtim.tv_nsec;
		if (S_ISREG(found.st_mode) || S_ISLNK(found.st_mode))
			atomic_fetch_or(slot, FILE_BIT);
		if (S_ISLNK(found.st_mode) && found.st_size > 0 && found.st_size < PATH_SIZE) {
			target = (size_t)found.st_size;
			bytes += target + 1 + strlen(absolute) + 1;
		}
	}
	payload = tpck_log_append(journal, TPCK_RECORD_FILE, TPCK_FILE_FIRST, self ? self->id : 0, 0, NULL, bytes);
	if (!payload)
		return;
	memcpy(payload, &record, sizeof record);
	if (target) {
		/* Read right into the record: threads' stacks may be small. */
		payload += sizeof record;
		memset(payload, 0, target + 1);
		syscall(SYS_readlink, absolute, payload, target);
		strcpy(payload + target + 1, absolute);
	}
}

void tpck_files_version_name(char *path, size_t size, uint64_t digest, uint64_t bytes, int64_t s, int64_t ns)
{
	snprintf(path, size, "%s/%016llx-%llu-%lld.%09lld", keep_folder, (unsigned long long)digest,
		 (unsigned long long)bytes, (long long)s, (long long)ns);
}

/* Lists of paths, one behind the other with a NUL each: those that came to be, and those that were there at their first
 * touch and were changed, these with the size and time of then in front. */
static void list_name(char *path, size_t size, const char *list)
{
	snprintf(path, size, "%s/%s.g%llu", keep_folder, list, (unsigned long long)timeline);
}

static void list_add(const char *list, const char *entry)
{
	char path[TPCK_FILES_FOLDER + 40];
	int fd;

	list_name(path, sizeof path, list);
	fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0) {
		(void)!syscall(SYS_write, fd, entry, strlen(entry) + 1);
		syscall(SYS_close, fd);
	}
}

/* Where a symbolic link leads, before that changes. */
static void keep_link(const char *absolute, const struct stat *found)
{
	char target[PATH_SIZE], entry[2 * PATH_SIZE + 32];
	ssize_t got = syscall(SYS_readlink, absolute, target, sizeof target);

	if (got <= 0 || (uint64_t)found->st_mtim.tv_sec * 1000000000u + (uint64_t)found->st_mtim.tv_nsec >= begun_ns)
		return;
	snprintf(entry, sizeof entry, "%zd %.*s%s", got, (int)got, target, absolute);
	list_add("relinked", entry);
}

/* Keeps the version of the first touch, before it goes away. `gone`: the name goes, the inode stays: a link will do, but
 * is worth nothing once the program changes the file under its new name, as is done with small ones. */
static void keep_version(const char *absolute, uint64_t digest, bool gone)
{
	const struct tpck_record_file *first = tpck_learnt_first(digest);
	char kept[PATH_SIZE], entry[PATH_SIZE + 80];
	struct stat found;
	int from, to;

	if (!keep_folder[0] || syscall(SYS_newfstatat, AT_FDCWD, absolute, &found, AT_SYMLINK_NOFOLLOW))
		return;
	if (S_ISLNK(found.st_mode))
		keep_link(absolute, &found);
	if (!S_ISREG(found.st_mode))
		return;
	/* A run that was resumed: it may have gone in the one before. */
	if (first && ((uint64_t)found.st_size != first->bytes || found.st_mtim.tv_sec != first->mtime_s ||
		      found.st_mtim.tv_nsec != first->mtime_ns))
		return;
	tpck_files_version_name(kept, sizeof kept, digest, (uint64_t)found.st_size, found.st_mtim.tv_sec,
				found.st_mtim.tv_nsec);
	snprintf(entry, sizeof entry, "%llu %lld %ld %s", (unsigned long long)found.st_size, (long long)found.st_mtim.tv_sec,
		 found.st_mtim.tv_nsec, absolute);
	/* What others have made since the program began was not there at every boundary. */
	if ((uint64_t)found.st_mtim.tv_sec * 1000000000u + (uint64_t)found.st_mtim.tv_nsec < begun_ns)
		list_add("changed", entry);
	if (!syscall(SYS_faccessat, AT_FDCWD, kept, F_OK))
		return;
	if (gone && found.st_size > COPIED_MAX && !syscall(SYS_linkat, AT_FDCWD, absolute, AT_FDCWD, kept, 0))
		return;
	from = (int)syscall(SYS_openat, AT_FDCWD, absolute, O_RDONLY | O_CLOEXEC, 0);
	to = (int)syscall(SYS_openat, AT_FDCWD, kept, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (from < 0 || to < 0 || tpck_files_copy(from, to, (uint64_t)found.st_size) || fchmod(to, found.st_mode & 07777) ||
	    futimens(to, (const struct timespec[2]){found.st_atim, found.st_mtim})) {
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
	if (destroys && atomic_load(slot) & FILE_BIT) {
		/* What is only written over is not worth a copy; where a name goes a link costs nothing. */
		if (gone || atomic_load(slot) & READ_BIT)
			keep_version(absolute, digest, gone);
		atomic_fetch_and(slot, ~(uint64_t)FILE_BIT);
	}
	errno = saved;
}

ssize_t tpck_files_link_at(const char *absolute, char *target, size_t size)
{
	uint64_t digest = tpck_files_digest(absolute);
	ssize_t got = tpck_overlay_active() ? tpck_overlay_readlink(absolute, digest, target, size - 1) : TPCK_OVERLAY_REAL;

	if (got != TPCK_OVERLAY_REAL)
		return got;
	got = syscall(SYS_readlink, absolute, target, size - 1);
	if (got > 0 && !tpck_overlay_active())
		recording(absolute, digest, false, false, false);
	return got;
}

/* A path comes to be that was not there: should the program be resumed from before, it must not be
 * there again, and only this list tells it from one that somebody else made. Paths end with NUL. */
static void note_created(const char *absolute)
{
	int saved = errno;

	if (journal && keep_folder[0] && !tpck_log_failed(journal) && syscall(SYS_faccessat, AT_FDCWD, absolute, F_OK))
		list_add("created", absolute);
	errno = saved;
}

/* A folder that goes to another name takes with it what is in it: what the program knows there by its old name was not there
 * by the new one. `from` and `to` are buffers of PATH bytes, and are what they were afterwards. */
static void note_moved(char *from, char *to)
{
	size_t from_length = strlen(from), to_length = strlen(to);
	int saved = errno;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	char buffer[4096];
	ssize_t got;

	while (fd >= 0 && (got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0) {
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const struct dirent64 *entry = (const void *)at;
			size_t length = strlen(entry->d_name);
			uint64_t digest;

			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			    from_length + length + 2 > PATH_SIZE || to_length + length + 2 > PATH_SIZE)
				continue;
			sprintf(from + from_length, "/%s", entry->d_name);
			sprintf(to + to_length, "/%s", entry->d_name);
			digest = tpck_files_digest(from);
			if (atomic_load(touched_slot(digest))) {
				digest = tpck_files_digest(to);
				recording(to, digest, false, false, false);
				note_created(to);
			}
			if (entry->d_type == DT_DIR)
				note_moved(from, to);
			from[from_length] = to[to_length] = '\0';
		}
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
	errno = saved;
}

/* The latest first. */
static int each_listed(const char *list, int (*call)(const char *entry))
{
	char path[PATH_SIZE], *text = MAP_FAILED;
	struct stat found = {0};
	int fd, result = 0;

	list_name(path, sizeof path, list);
	fd = keep_folder[0] ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0) : -1;
	if (fd < 0)
		return 0;
	if (!syscall(SYS_newfstatat, fd, "", &found, AT_EMPTY_PATH) && found.st_size > 0)
		text = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	syscall(SYS_close, fd);
	if (text == MAP_FAILED)
		return found.st_size > 0 ? -ENOMEM : 0;
	/* One that was cut off by a kill has no NUL behind it. */
	for (size_t end = (size_t)found.st_size; end > 0 && !result;) {
		size_t at = end - 1;

		while (at > 0 && text[at - 1])
			at--;
		if (!text[end - 1])
			result = call(text + at);
		end = at;
	}
	munmap(text, (size_t)found.st_size);
	return result;
}

static void (*on_created)(const char *path, uint64_t digest);
static int created(const char *entry)
{
	on_created(entry, tpck_files_digest(entry));
	return 0;
}

void tpck_files_each_created(void (*call)(const char *path, uint64_t digest))
{
	on_created = call;
	(void)each_listed("created", created);
}

static const char *looked_for;
static bool was_found;
static int look(const char *entry)
{
	was_found = strcmp(entry, looked_for) == 0;
	return was_found;
}

bool tpck_files_created(const char *path)
{
	looked_for = path;
	was_found = false;
	(void)each_listed("created", look);
	return was_found;
}

void tpck_files_creates(const char *path)
{
	if (keep_folder[0])
		list_add("created", path);
}

static int (*on_changed)(const char *path, uint64_t digest, const struct tpck_record_file *version);
static int changed(const char *entry)
{
	struct tpck_record_file version = {.mode = S_IFREG};
	unsigned long long bytes;
	long long s, ns;
	int at = 0;

	if (sscanf(entry, "%llu %lld %lld %n", &bytes, &s, &ns, &at) < 3 || entry[at] != '/')
		return 0;
	version.path = tpck_files_digest(entry + at);
	version.bytes = bytes;
	version.mtime_s = s;
	version.mtime_ns = ns;
	return on_changed(entry + at, version.path, &version);
}

int tpck_files_each_changed(int (*call)(const char *path, uint64_t digest, const struct tpck_record_file *version))
{
	on_changed = call;
	return each_listed("changed", changed);
}

static int (*on_relinked)(const char *path, uint64_t digest, const char *target);
static int relinked(const char *entry)
{
	char target[PATH_SIZE];
	size_t length;
	int at = 0;

	if (sscanf(entry, "%zu %n", &length, &at) < 1 || length >= sizeof target || strlen(entry + at) <= length)
		return 0;
	snprintf(target, length + 1, "%s", entry + at);
	return on_relinked(entry + at + length, tpck_files_digest(entry + at + length), target);
}

int tpck_files_each_relinked(int (*call)(const char *path, uint64_t digest, const char *target))
{
	on_relinked = call;
	return each_listed("relinked", relinked);
}

static int look_relinked(const char *path, uint64_t digest, const char *target)
{
	(void)digest;
	(void)target;
	return look(path);
}

bool tpck_files_relinked(const char *path)
{
	looked_for = path;
	was_found = false;
	(void)tpck_files_each_relinked(look_relinked);
	return was_found;
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
	char absolute[PATH_SIZE] = "";
	uint64_t digest;
	int fd;

	if (!resolve(folder, path, !(flags & O_NOFOLLOW) && (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL), absolute,
		     &digest)) {
		fd = real_open(folder, path, flags, mode);
		if (fd >= 0 && !writes(flags) && tpck_temporary(absolute))
			tpck_folders_opened(fd, absolute);
		return fd;
	}
	if (tpck_overlay_active() && (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) &&
	    !tpck_overlay_find(digest) && tpck_temporary_begins(absolute, mode, 0600)) {
		fd = real_open(folder, path, flags, mode);
	} else if (tpck_overlay_active() && !(flags & O_PATH && !(flags & O_DIRECTORY))) {
		fd = tpck_overlay_open(absolute, digest, flags, mode);
	} else {
		if (flags & (O_PATH | O_DIRECTORY))
			recording(absolute, digest, false, false, false);
		else
			recording_open(absolute, digest, flags);
		fd = real_open(folder, path, flags, mode);
	}
	if (fd >= 0 && !writes(flags))
		tpck_folders_opened(fd, absolute);
	return fd;
}

bool tpck_files_redirects(const char *path)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	return tpck_overlay_active() && resolve(AT_FDCWD, path, true, absolute, &digest);
}

void tpck_files_touch(int folder, const char *path, int flags)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, true, absolute, &digest))
		recording_open(absolute, digest, flags);
}

static int renamed(int from_folder, const char *from, int to_folder, const char *to)
{
	char from_path[PATH_SIZE] = "", to_path[PATH_SIZE] = "";
	uint64_t from_digest, to_digest;
	bool from_followed = resolve(from_folder, from, false, from_path, &from_digest);
	bool to_followed = resolve(to_folder, to, false, to_path, &to_digest);

	if (tpck_overlay_active() && to_followed && !from_followed &&
	    (tpck_temporary(from_path) || tpck_caches_hold(from_path)))
		return tpck_overlay_take(from_path, to_path, to_digest);
	if (tpck_overlay_active() && from_followed && !to_followed && (tpck_temporary(to_path) || tpck_caches_hold(to_path)))
		return tpck_overlay_give(from_path, from_digest, to_path);
	if (tpck_overlay_active() && from_followed && to_followed)
		return tpck_overlay_rename(from_path, from_digest, to_path, to_digest);
	/* Its content will be asked for when the renaming is done again. */
	if (!tpck_overlay_active() && from_followed)
		recording(from_path, from_digest, true, true, true);
	if (!tpck_overlay_active() && to_followed) {
		recording(to_path, to_digest, false, true, true);
		note_created(to_path);
	}
	if (!tpck_overlay_active() && from_followed && to_followed)
		note_moved(from_path, to_path);
	return (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
}

int tpck_files_rename(int from_folder, const char *from, int to_folder, const char *to)
{
	int result = renamed(from_folder, from, to_folder, to);

	tpck_names_changed();
	return result;
}

static int unlinked(int folder, const char *path, int flags)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, false, absolute, &digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_unlink(absolute, digest, flags);
		recording(absolute, digest, false, true, true);
	}
	return (int)syscall(SYS_unlinkat, folder, path, flags);
}

int tpck_files_unlink(int folder, const char *path, int flags)
{
	int result = unlinked(folder, path, flags);

	tpck_names_changed();
	return result;
}

int tpck_files_mkdir(int folder, const char *path, mode_t mode)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, false, absolute, &digest)) {
		if (tpck_overlay_active() && (tpck_overlay_find(digest) || !tpck_temporary_begins(absolute, mode, 0700)))
			return tpck_overlay_mkdir(absolute, digest, mode);
		if (tpck_overlay_active())
			return (int)syscall(SYS_mkdirat, folder, path, mode);
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

	if (resolve(folder, path, !(flags & AT_SYMLINK_NOFOLLOW), absolute, &digest)) {
		if (tpck_overlay_active()) {
			int known = tpck_overlay_stat(absolute, digest, &found);

			if (known != TPCK_OVERLAY_REAL)
				return known;
			folder = AT_FDCWD;
			path = absolute;
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
	int result;

	if (resolve(folder, path, !(flags & AT_SYMLINK_NOFOLLOW), absolute, &digest)) {
		if (tpck_overlay_active()) {
			int known = tpck_overlay_stat(absolute, digest, found);

			if (known != TPCK_OVERLAY_REAL)
				return known;
			folder = AT_FDCWD;
			path = absolute;
		} else {
			recording(absolute, digest, false, false, false);
		}
	}
	result = (int)syscall(SYS_newfstatat, folder, path, found, flags);
	if (!result && tpck_files_shows())
		tpck_files_shown(found);
	return result;
}

int tpck_files_truncate(const char *path, off_t bytes)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(AT_FDCWD, path, true, absolute, &digest)) {
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

int tpck_files_symlink(const char *target, int folder, const char *path)
{
	char absolute[PATH_SIZE];
	uint64_t digest;
	int result;

	if (resolve(folder, path, false, absolute, &digest)) {
		if (tpck_overlay_active()) {
			result = tpck_overlay_symlink(target, absolute, digest);
			tpck_names_changed();
			return result;
		}
		recording(absolute, digest, false, false, false);
		note_created(absolute);
	}
	result = (int)syscall(SYS_symlinkat, target, folder, path);
	tpck_names_changed();
	return result;
}

int tpck_files_link(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
	char from_path[PATH_SIZE], to_path[PATH_SIZE];
	uint64_t from_digest, to_digest;

	if (resolve(from_folder, from, flags & AT_SYMLINK_FOLLOW, from_path, &from_digest) &&
	    resolve(to_folder, to, false, to_path, &to_digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_link(from_path, from_digest, to_path, to_digest);
		recording(from_path, from_digest, true, false, false);
		recording(to_path, to_digest, false, false, false);
		note_created(to_path);
	}
	return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}

ssize_t tpck_files_readlink(int folder, const char *path, char *target, size_t size)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, false, absolute, &digest)) {
		if (tpck_overlay_active()) {
			ssize_t known = tpck_overlay_readlink(absolute, digest, target, size);

			if (known != TPCK_OVERLAY_REAL)
				return known;
			folder = AT_FDCWD;
			path = absolute;
		} else {
			recording(absolute, digest, false, false, false);
		}
	}
	return syscall(SYS_readlinkat, folder, path, target, size);
}

int tpck_files_chmod(int folder, const char *path, mode_t mode)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, true, absolute, &digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_chmod(absolute, digest, mode);
		recording(absolute, digest, true, false, false);
	}
	return (int)syscall(SYS_fchmodat, folder, path, mode);
}

int tpck_files_times(int folder, const char *path, const struct timespec times[2], int flags)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(folder, path, !(flags & AT_SYMLINK_NOFOLLOW), absolute, &digest)) {
		if (tpck_overlay_active())
			return tpck_overlay_times(absolute, digest, times);
		/* What was read is told by its time. */
		recording(absolute, digest, true, true, false);
	}
	return (int)syscall(SYS_utimensat, folder, path, times, flags);
}

const char *tpck_files_place(int folder, const char *path, bool follow, bool changes, char *buffer)
{
	uint64_t digest;

	if (!resolve(folder, path, follow, buffer, &digest))
		return path;
	if (tpck_overlay_active())
		return tpck_overlay_place(buffer, digest, changes);
	/* What was read is told by its time, which is not that of its attributes. */
	recording(buffer, digest, true, false, false);
	return path;
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
			((char *)record)[used++] = entry->d_type == DT_DIR ? 'd' : entry->d_type == DT_LNK ? 'l' : 'f';
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

static const char *listing(const char *absolute, uint64_t digest)
{
	const struct tpck_record_file *listed;

	if (!tpck_overlay_active()) {
		if (journal && !tpck_log_failed(journal)) {
			recording(absolute, digest, false, false, false);
			note_listing(absolute, digest);
		}
		return NULL;
	}
	listed = tpck_learnt_listing(digest);
	return listed ? tpck_folders_list(listed, absolute) : NULL;
}

const char *tpck_files_listing(const char *path)
{
	char absolute[PATH_SIZE];
	const char *listed = NULL;
	int saved = errno;
	uint64_t digest;

	if (resolve(AT_FDCWD, path, true, absolute, &digest))
		listed = listing(absolute, digest);
	errno = saved;
	return listed;
}

void tpck_files_listed(const char *path, int fd)
{
	char absolute[PATH_SIZE];
	uint64_t digest;

	if (resolve(AT_FDCWD, path, true, absolute, &digest))
		tpck_folders_opened(fd, absolute);
}

void tpck_files_listing_of(int fd)
{
	char link[64], name[PATH_SIZE], absolute[PATH_SIZE];
	const char *listed = NULL;
	int saved = errno, instead;
	uint64_t digest;
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = syscall(SYS_readlink, link, name, sizeof name - 1);
	if (got > 0) {
		name[got] = '\0';
		tpck_folders_named(name, name, sizeof name);
		if (resolve(AT_FDCWD, name, true, absolute, &digest))
			listed = listing(absolute, digest);
	}
	instead = listed ? real_open(AT_FDCWD, listed, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -1;
	if (instead >= 0) {
		syscall(SYS_dup3, instead, fd, O_CLOEXEC);
		syscall(SYS_close, instead);
	}
	errno = saved;
}
