/* SPDX-License-Identifier: Apache-2.0 */
/* The overlay: what the program wrote, renamed and removed while it runs forward, in scratch files. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/replay/contents.h"
#include "runtime/replay/files.h"
#include "runtime/replay/files_private.h"
#include "runtime/replay/syscalls.h"
#include "runtime/track/threads.h"

enum { BUCKETS = 4096 };
#define SCRATCH_NAME "tpck-scratch"

enum kind { KIND_ABSENT, KIND_FILE, KIND_FOLDER };

/* What the overlay knows of a path. */
struct entry {
	uint64_t digest;
	enum kind kind;
	int fd;           /* KIND_FILE: its scratch */
	bool changed;     /* by the program itself, not merely seen to be absent */
	bool timed;       /* it has set the times, too */
	struct entry *next;
	char path[];
};

/* What the log says of a path. */
struct first {
	const struct tpck_record_file *record;
	bool same;        /* what is there now is what was there then, whatever its time */
	struct first *next;
};
struct listing {
	const struct tpck_record_file *record;
	bool used;
	struct listing *next;
};

static bool active;
static tpck_spin lock;   /* never held across anything that can wait for the application */
static struct entry *entries[BUCKETS];
static struct first *firsts[BUCKETS];
static struct listing *listings, **listings_end = &listings;
static char scratch_folder[TPCK_FILES_FOLDER];
static char difference[300];
static mode_t mask;
static int real_output[3] = {-1, -1, -1};

/* Descriptors of ours lie high, where they do not change the numbers that the program gets. */
static int high(int fd)
{
	struct rlimit limit;
	int moved;

	if (fd < 0)
		return fd;
	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > 4096)
		limit.rlim_cur = 1024;
	moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, (long)(limit.rlim_cur / 2));
	if (moved < 0)
		return fd;
	syscall(SYS_close, fd);
	return moved;
}

static int scratch_new(mode_t mode)
{
	int fd = high((int)syscall(SYS_memfd_create, SCRATCH_NAME, 1u /* MFD_CLOEXEC */));

	if (fd >= 0)
		(void)!fchmod(fd, mode & 07777);
	return fd;
}

/* Another open file description of a scratch file. */
static int scratch_reopen(int fd, int flags)
{
	char link[64];

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	return (int)syscall(SYS_openat, AT_FDCWD, link,
			    flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW | O_DIRECT), 0);
}

bool tpck_overlay_active(void)
{
	return active;
}

const char *tpck_files_difference(void)
{
	return difference[0] ? difference : NULL;
}

static void differs(const char *what, const char *path)
{
	if (!difference[0])
		snprintf(difference, sizeof difference, "%s %.200s", what, path);
}

static struct entry *find(uint64_t digest)
{
	struct entry *entry;

	tpck_spin_lock(&lock);
	entry = entries[digest % BUCKETS];
	while (entry && entry->digest != digest)
		entry = entry->next;
	tpck_spin_unlock(&lock);
	return entry;
}

static struct entry *enter(const char *path, uint64_t digest)
{
	struct entry *entry = find(digest);

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

static struct first *find_first(uint64_t digest)
{
	struct first *first = firsts[digest % BUCKETS];

	while (first && first->record->path != digest)
		first = first->next;
	return first;
}

static const struct tpck_record_file *first_of(uint64_t digest)
{
	const struct first *first = find_first(digest);

	return first ? first->record : NULL;
}

void tpck_files_learn(const struct tpck_record *record)
{
	const struct tpck_record_file *file = (const void *)(record + 1);

	if (record->bytes < sizeof *file)
		return;
	if (record->detail == TPCK_FILE_LISTING) {
		struct listing *made = calloc(1, sizeof *made);

		if (made) {
			made->record = file;
			*listings_end = made;
			listings_end = &made->next;
		}
	} else if (record->detail == TPCK_FILE_READ) {
		if (!file->names)
			tpck_files_known(file->path, true);
		tpck_contents_learn(record);
	} else if (!first_of(file->path)) {
		struct first *made = malloc(sizeof *made);

		if (made) {
			*made = (struct first){file, false, firsts[file->path % BUCKETS]};
			firsts[file->path % BUCKETS] = made;
			tpck_files_known(file->path, false);
		}
	}
}

void tpck_files_unlearn(void)
{
	memset(firsts, 0, sizeof firsts);
	listings = NULL;
	listings_end = &listings;
	tpck_files_forget();
}

/* Where the content of a path that the overlay has no entry for comes from. */
enum source { SOURCE_ABSENT, SOURCE_REAL, SOURCE_VERSION, SOURCE_LOST };

static enum source source_of(const char *path, uint64_t digest, char *version, size_t size)
{
	const struct first *known = find_first(digest);
	const struct tpck_record_file *first = known ? known->record : NULL;
	struct stat now;

	if (!first || known->same)
		return SOURCE_REAL;
	if (!first->mode)
		return SOURCE_ABSENT;
	if (!S_ISREG(first->mode))
		return SOURCE_REAL;
	if (!syscall(SYS_newfstatat, AT_FDCWD, path, &now, 0) && (uint64_t)now.st_size == first->bytes &&
	    now.st_mtim.tv_sec == first->mtime_s && now.st_mtim.tv_nsec == first->mtime_ns)
		return SOURCE_REAL;
	tpck_files_version_name(version, size, digest, first->bytes, first->mtime_s, first->mtime_ns);
	return syscall(SYS_faccessat, AT_FDCWD, version, R_OK) ? SOURCE_LOST : SOURCE_VERSION;
}

bool tpck_overlay_needs(const char *path, const struct tpck_record_file *read)
{
	const struct tpck_record_file *first = first_of(read->path);
	char version[TPCK_FILES_FOLDER + 128];

	return first && first->mode && first->bytes == read->bytes && first->mtime_s == read->mtime_s &&
	       first->mtime_ns == read->mtime_ns && source_of(path, read->path, version, sizeof version) == SOURCE_LOST;
}

void tpck_overlay_accept(uint64_t digest)
{
	struct first *first = find_first(digest);

	if (first)
		first->same = true;
}

/* A scratch file with the content that the path has outside, for a program that changes it. NULL with
 * errno. */
static struct entry *import(const char *path, uint64_t digest, bool content, bool *existed)
{
	char version[TPCK_FILES_FOLDER + 128];
	enum source source = source_of(path, digest, version, sizeof version);
	const char *from_path = source == SOURCE_VERSION ? version : path;
	struct stat found = {.st_mode = 0666};
	struct entry *entry;
	int from;

	*existed = source != SOURCE_ABSENT && !syscall(SYS_newfstatat, AT_FDCWD, from_path, &found, 0);
	if (source == SOURCE_LOST)
		*existed = true;
	if (source == SOURCE_LOST && content)
		differs("the content that the first run found is gone:", path);
	entry = enter(path, digest);
	if (!entry)
		return NULL;
	entry->fd = scratch_new(*existed ? found.st_mode : 0666 & ~mask);
	if (entry->fd < 0)
		return NULL;
	entry->kind = KIND_FILE;
	if (*existed && content && S_ISREG(found.st_mode)) {
		from = (int)syscall(SYS_openat, AT_FDCWD, from_path, O_RDONLY | O_CLOEXEC, 0);
		if (from < 0 || tpck_files_copy(from, entry->fd, (uint64_t)found.st_size))
			differs("cannot read what the first run found at", path);
		if (from >= 0)
			syscall(SYS_close, from);
	}
	return entry;
}

static int fail(int code)
{
	errno = code;
	return -1;
}

static bool special(const char *path)
{
	struct stat found;

	return !syscall(SYS_newfstatat, AT_FDCWD, path, &found, 0) && !S_ISREG(found.st_mode);
}

static int open_changing(const char *path, uint64_t digest, int flags, mode_t mode)
{
	struct entry *entry = find(digest);
	bool existed = entry && entry->kind != KIND_ABSENT;

	if (entry && entry->kind == KIND_FOLDER)
		return fail(EISDIR);
	if (!entry || entry->kind == KIND_ABSENT) {
		char version[TPCK_FILES_FOLDER + 128];
		bool here = !entry && source_of(path, digest, version, sizeof version) != SOURCE_ABSENT;

		if (here && !special(path) && !syscall(SYS_faccessat, AT_FDCWD, path, F_OK))
			existed = true;
		if (!existed && !(flags & O_CREAT))
			return fail(ENOENT);
		if (existed && flags & O_CREAT && flags & O_EXCL)
			return fail(EEXIST);
		if (entry) {
			entry->fd = scratch_new(mode & ~mask);
			if (entry->fd < 0)
				return -1;
			entry->kind = KIND_FILE;
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
	entry->changed = true;
	if (flags & O_TRUNC && ftruncate(entry->fd, 0))
		return -1;
	if (flags & O_EXCL)
		tpck_syscalls_watch(); /* a temporary file: how will it be renamed? */
	return scratch_reopen(entry->fd, flags);
}

/* ---- folders that the program made: one of ours stands for each ------------------------------- */

static void folder_name(const struct entry *entry, char *name, size_t size)
{
	snprintf(name, size, "%s/dir.%016llx", scratch_folder, (unsigned long long)entry->digest);
	syscall(SYS_mkdirat, AT_FDCWD, name, 0777 & ~mask);
}

/* What the overlay has in it is there under its name, and nothing else. */
static void folder_fill(const struct entry *folder, const char *name)
{
	char path[TPCK_FILES_FOLDER + 320];
	size_t length = strlen(folder->path);

	for (unsigned b = 0; b < BUCKETS; b++)
		for (struct entry *entry = entries[b]; entry; entry = entry->next) {
			int fd;

			if (strncmp(entry->path, folder->path, length) != 0 || entry->path[length] != '/' ||
			    strchr(entry->path + length + 1, '/'))
				continue;
			snprintf(path, sizeof path, "%s%s", name, entry->path + length);
			switch (entry->kind) {
			case KIND_ABSENT:
				if (syscall(SYS_unlinkat, AT_FDCWD, path, 0))
					syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
				break;
			case KIND_FOLDER:
				syscall(SYS_mkdirat, AT_FDCWD, path, 0700);
				break;
			case KIND_FILE:
				fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
				if (fd >= 0)
					syscall(SYS_close, fd);
				break;
			}
		}
}

static int folder_open(const struct entry *folder, int flags)
{
	char name[TPCK_FILES_FOLDER + 32];

	folder_name(folder, name, sizeof name);
	folder_fill(folder, name);
	return (int)syscall(SYS_openat, AT_FDCWD, name, flags, 0);
}

void tpck_overlay_behind(char *path, size_t size)
{
	const struct entry *entry;
	size_t length = strlen(scratch_folder);

	if (!active || strncmp(path, scratch_folder, length) != 0 || strncmp(path + length, "/dir.", 5) != 0)
		return;
	entry = find(strtoull(path + length + 5, NULL, 16));
	if (entry)
		snprintf(path, size, "%s", entry->path);
}

int tpck_overlay_open(const char *path, uint64_t digest, int flags, mode_t mode)
{
	char version[TPCK_FILES_FOLDER + 128];
	struct entry *entry = find(digest);
	bool changes = (flags & O_ACCMODE) != O_RDONLY || flags & (O_TRUNC | O_CREAT);

	if (entry && entry->kind == KIND_FOLDER && entry->changed && !changes)
		return folder_open(entry, flags);
	if ((flags & O_TMPFILE) == O_TMPFILE || (!entry && (special(path) || flags & O_DIRECTORY)))
		return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	if (changes)
		return open_changing(path, digest, flags, mode);
	if (entry && entry->kind == KIND_FILE)
		return scratch_reopen(entry->fd, flags);
	if (entry && entry->kind == KIND_ABSENT)
		return fail(ENOENT);
	switch (source_of(path, digest, version, sizeof version)) {
	case SOURCE_ABSENT:
		return fail(ENOENT);
	case SOURCE_VERSION:
		return (int)syscall(SYS_openat, AT_FDCWD, version, flags, mode);
	case SOURCE_LOST:
		differs("the file is another than the first run read:", path);
		break;
	case SOURCE_REAL:
		break;
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static int absent(const char *path, uint64_t digest)
{
	struct entry *entry = enter(path, digest);

	if (!entry)
		return fail(ENOMEM);
	if (entry->fd >= 0)
		syscall(SYS_close, entry->fd);
	entry->fd = -1;
	entry->kind = KIND_ABSENT;
	entry->changed = true;
	return 0;
}

/* The entry of a path that is there, made from the outside if need be; NULL with errno. */
static struct entry *present(const char *path, uint64_t digest)
{
	struct entry *entry = find(digest);
	bool existed = true;
	struct stat found;

	if (entry) {
		if (entry->kind == KIND_ABSENT) {
			errno = ENOENT;
			return NULL;
		}
		return entry;
	}
	if (tpck_overlay_stat(path, digest, &found) == -1)
		return NULL;
	if (special(path)) {
		entry = enter(path, digest);
		if (entry)
			entry->kind = KIND_FOLDER;
		return entry;
	}
	if (syscall(SYS_faccessat, AT_FDCWD, path, F_OK) && first_of(digest) == NULL) {
		errno = ENOENT;
		return NULL;
	}
	return import(path, digest, true, &existed);
}

int tpck_overlay_rename(const char *from, uint64_t from_digest, const char *to, uint64_t to_digest)
{
	struct entry *source = present(from, from_digest), *target;

	if (!source)
		return -1;
	if (source->kind == KIND_FOLDER) {
		differs("a folder is renamed:", from);
		return fail(EXDEV);
	}
	target = enter(to, to_digest);
	if (!target)
		return fail(ENOMEM);
	if (target->fd >= 0)
		syscall(SYS_close, target->fd);
	target->fd = source->fd;
	target->kind = KIND_FILE;
	target->changed = true;
	target->timed = source->timed;
	source->fd = -1;
	tpck_syscalls_unwatch();
	return absent(from, from_digest);
}

int tpck_overlay_chmod(const char *path, uint64_t digest, mode_t mode)
{
	struct entry *entry = present(path, digest);

	if (!entry)
		return -1;
	if (entry->kind == KIND_FOLDER)
		return 0;
	entry->changed = true;
	return fchmod(entry->fd, mode & 07777);
}

int tpck_overlay_set_times(const char *path, uint64_t digest, const struct timespec *times)
{
	struct entry *entry = present(path, digest);

	if (!entry)
		return -1;
	if (entry->kind == KIND_FOLDER)
		return 0;
	entry->changed = entry->timed = true;
	return (int)syscall(SYS_utimensat, entry->fd, NULL, times, 0);
}

/* What goes needs no content: only that it was there, and what it was. */
int tpck_overlay_unlink(const char *path, uint64_t digest, int flags)
{
	const struct tpck_record_file *first = first_of(digest);
	const struct entry *entry = find(digest);
	struct stat now;
	bool folder;

	if (entry) {
		if (entry->kind == KIND_ABSENT)
			return fail(ENOENT);
		folder = entry->kind == KIND_FOLDER;
	} else if (first) {
		if (!first->mode)
			return fail(ENOENT);
		folder = S_ISDIR(first->mode);
	} else {
		if (syscall(SYS_newfstatat, AT_FDCWD, path, &now, AT_SYMLINK_NOFOLLOW))
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

int tpck_overlay_mkdir(const char *path, uint64_t digest, mode_t mode)
{
	struct stat found;
	int known = tpck_overlay_stat(path, digest, &found);
	struct entry *entry;

	(void)mode;
	if (known == 0 || (known == TPCK_OVERLAY_REAL && !syscall(SYS_newfstatat, AT_FDCWD, path, &found, 0)))
		return fail(EEXIST);
	entry = enter(path, digest);
	if (!entry)
		return fail(ENOMEM);
	entry->kind = KIND_FOLDER;
	entry->changed = true;
	return 0;
}

int tpck_overlay_stat(const char *path, uint64_t digest, struct stat *found)
{
	char version[TPCK_FILES_FOLDER + 128];
	const struct entry *entry = find(digest);

	if (entry && entry->kind == KIND_ABSENT)
		return fail(ENOENT);
	if (entry && entry->kind == KIND_FILE)
		return (int)syscall(SYS_newfstatat, entry->fd, "", found, AT_EMPTY_PATH);
	if (entry && entry->changed) {
		char name[TPCK_FILES_FOLDER + 32];

		folder_name(entry, name, sizeof name);
		return (int)syscall(SYS_newfstatat, AT_FDCWD, name, found, 0);
	}
	if (entry) {
		if (!syscall(SYS_newfstatat, AT_FDCWD, path, found, 0))
			return 0;
		memset(found, 0, sizeof *found);
		found->st_mode = S_IFDIR | (0777 & ~mask);
		found->st_nlink = 2;
		return 0;
	}
	switch (source_of(path, digest, version, sizeof version)) {
	case SOURCE_ABSENT:
		return fail(ENOENT);
	case SOURCE_VERSION:
		return (int)syscall(SYS_newfstatat, AT_FDCWD, version, found, 0);
	case SOURCE_LOST:
	case SOURCE_REAL:
		break;
	}
	return TPCK_OVERLAY_REAL;
}

/* ---- listings: a folder of empty files with the names of the first run, in its order ---------- */

static int listing_fill(const char *folder, const struct tpck_record_file *record)
{
	const char **names = calloc(record->names, sizeof *names);
	const char *at = (const char *)(record + 1);
	char path[TPCK_FILES_FOLDER + 320];

	if (!names)
		return -ENOMEM;
	for (uint32_t i = 0; i < record->names; i++) {
		names[i] = at;
		at += strlen(at) + 1;
	}
	/* tmpfs lists what was made last first. */
	for (uint32_t i = record->names; i-- > 0;) {
		snprintf(path, sizeof path, "%s/%s", folder, names[i] + 1);
		if (names[i][0] == 'd') {
			syscall(SYS_mkdirat, AT_FDCWD, path, 0700);
		} else {
			int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

			if (fd >= 0)
				syscall(SYS_close, fd);
		}
	}
	free(names);
	return 0;
}

const char *tpck_overlay_listing(uint64_t digest)
{
	static __thread char folder[TPCK_FILES_FOLDER + 32];
	static _Atomic unsigned serial;
	struct listing *listed;

	tpck_spin_lock(&lock);
	listed = listings;
	while (listed && (listed->used || listed->record->path != digest))
		listed = listed->next;
	if (listed)
		listed->used = true;
	tpck_spin_unlock(&lock);
	if (!listed || !scratch_folder[0])
		return NULL;
	snprintf(folder, sizeof folder, "%s/list.%u", scratch_folder, serial++);
	if (syscall(SYS_mkdirat, AT_FDCWD, folder, 0700) || listing_fill(folder, listed->record))
		return NULL;
	return folder;
}

/* ---- begin and end ---------------------------------------------------------------------------- */

int tpck_files_forward(const char *scratch, bool output_again)
{
	snprintf(scratch_folder, sizeof scratch_folder, "%s", scratch);
	mask = umask(022);
	umask(mask);
	active = true;
	if (output_again)
		return 0;
	for (int fd = 1; fd <= 2; fd++) {
		struct stat found;
		int sink;

		if (syscall(SYS_newfstatat, fd, "", &found, AT_EMPTY_PATH))
			continue;
		real_output[fd] = high((int)syscall(SYS_dup, fd));
		sink = (int)syscall(SYS_memfd_create, "tpck-output", 1u);
		if (real_output[fd] < 0 || sink < 0)
			return -errno;
		syscall(SYS_dup3, sink, fd, 0);
		syscall(SYS_close, sink);
		if (isatty(real_output[fd]))
			setvbuf(fd == 1 ? stdout : stderr, NULL, fd == 1 ? _IOLBF : _IONBF, 0);
	}
	return 0;
}

static void output_back(void)
{
	for (int fd = 1; fd <= 2; fd++) {
		if (real_output[fd] < 0)
			continue;
		syscall(SYS_dup3, real_output[fd], fd, 0);
		syscall(SYS_close, real_output[fd]);
		real_output[fd] = -1;
	}
}

void tpck_files_say_error(void)
{
	char text[2048];
	off_t end = (off_t)syscall(SYS_lseek, 2, 0, SEEK_END);
	off_t from = end > (off_t)sizeof text ? end - (off_t)sizeof text : 0;
	ssize_t got = real_output[2] >= 0 ? syscall(SYS_pread64, 2, text, sizeof text, from) : 0;

	if (got > 0)
		(void)!syscall(SYS_write, real_output[2], text, got);
}

void tpck_files_abandon(void)
{
	tpck_syscalls_end();
	output_back();
	active = false;
}

static bool same_prefix(int a, int b, uint64_t bytes)
{
	char one[65536], two[65536];

	for (uint64_t at = 0; at < bytes;) {
		size_t want = bytes - at < sizeof one ? bytes - at : sizeof one;

		if (syscall(SYS_pread64, a, one, want, at) != (long)want ||
		    syscall(SYS_pread64, b, two, want, at) != (long)want || memcmp(one, two, want) != 0)
			return false;
		at += want;
	}
	return true;
}

/* Gives the real file the content of the scratch file; what is right already is not written again. */
static int file_settle(const struct entry *entry)
{
	struct stat scratch, real;
	int fd, result = 0;

	fd = (int)syscall(SYS_openat, AT_FDCWD, entry->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666 & ~mask);
	if (fd < 0)
		return -errno;
	if (syscall(SYS_newfstatat, entry->fd, "", &scratch, AT_EMPTY_PATH) ||
	    syscall(SYS_newfstatat, fd, "", &real, AT_EMPTY_PATH)) {
		result = -EIO;
	} else if (real.st_size >= scratch.st_size && same_prefix(fd, entry->fd, (uint64_t)scratch.st_size)) {
		if (real.st_size != scratch.st_size && ftruncate(fd, scratch.st_size))
			result = -errno;
	} else {
		result = tpck_files_copy(entry->fd, fd, (uint64_t)scratch.st_size);
		if (!result && ftruncate(fd, scratch.st_size))
			result = -errno;
	}
	if (!result && ((real.st_mode ^ scratch.st_mode) & 07777))
		(void)!fchmod(fd, scratch.st_mode & 07777); /* another's file has the mode that it has */
	if (!result && entry->timed)
		syscall(SYS_utimensat, fd, NULL, (const struct timespec[2]){scratch.st_atim, scratch.st_mtim}, 0);
	syscall(SYS_close, fd);
	return result;
}

/* The program had removed or renamed it by the boundary: what is there now was made by the iterations
 * that are done again. */
static int absent_settle(const struct entry *entry)
{
	struct stat now;

	if (!entry->changed || syscall(SYS_newfstatat, AT_FDCWD, entry->path, &now, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISREG(now.st_mode))
		return 0;
	return syscall(SYS_unlinkat, AT_FDCWD, entry->path, 0) ? -errno : 0;
}

/* A path that the program made, and that was not there at the boundary: it was made after it. */
static void created_settle(const char *path, uint64_t digest)
{
	const struct tpck_record_file *first = first_of(digest);
	const struct entry *entry = find(digest);
	struct stat now;

	if ((entry ? entry->kind != KIND_ABSENT : first && first->mode) ||
	    syscall(SYS_newfstatat, AT_FDCWD, path, &now, AT_SYMLINK_NOFOLLOW))
		return;
	if (S_ISREG(now.st_mode))
		syscall(SYS_unlinkat, AT_FDCWD, path, 0);
	else if (S_ISDIR(now.st_mode))
		syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

/* Which scratch file a descriptor of the program's is, or NULL. */
static struct entry *scratch_behind(int fd, struct stat *found)
{
	char link[64], target[64] = "";
	struct stat scratch;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	if (syscall(SYS_readlink, link, target, sizeof target - 1) < 0 ||
	    strncmp(target, "/memfd:" SCRATCH_NAME, strlen("/memfd:" SCRATCH_NAME)) != 0 ||
	    syscall(SYS_newfstatat, fd, "", found, AT_EMPTY_PATH))
		return NULL;
	for (unsigned b = 0; b < BUCKETS; b++)
		for (struct entry *entry = entries[b]; entry; entry = entry->next)
			if (entry->fd >= 0 && entry->fd != fd &&
			    !syscall(SYS_newfstatat, entry->fd, "", &scratch, AT_EMPTY_PATH) &&
			    scratch.st_ino == found->st_ino && scratch.st_dev == found->st_dev)
				return entry;
	return NULL;
}

static bool is_ours(int fd)
{
	for (unsigned b = 0; b < BUCKETS; b++)
		for (struct entry *entry = entries[b]; entry; entry = entry->next)
			if (entry->fd == fd)
				return true;
	return false;
}

/* Gives fd, and every later descriptor of the same open file description, the real file. */
static int descriptor_settle(int fd, const struct entry *entry, const int *later, int count)
{
	int flags = (int)syscall(SYS_fcntl, fd, F_GETFL), kept = (int)syscall(SYS_fcntl, fd, F_GETFD);
	off_t at = (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
	int real = (int)syscall(SYS_openat, AT_FDCWD, entry->path, flags & ~(O_CREAT | O_EXCL | O_TRUNC), 0);

	if (real < 0)
		return -errno;
	syscall(SYS_lseek, real, at, SEEK_SET);
	for (int i = 0; i < count; i++) {
		int close_on_exec = (int)syscall(SYS_fcntl, later[i], F_GETFD);

		if (syscall(SYS_kcmp, getpid(), getpid(), 0 /* KCMP_FILE */, fd, later[i]) == 0)
			syscall(SYS_dup3, real, later[i], close_on_exec & FD_CLOEXEC ? O_CLOEXEC : 0);
	}
	syscall(SYS_dup3, real, fd, kept & FD_CLOEXEC ? O_CLOEXEC : 0);
	syscall(SYS_close, real);
	return 0;
}

static int descriptors_settle(char *why, size_t size)
{
	int open_fds[1024], count = 0;
	char buffer[8192];
	int folder = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	ssize_t got;

	if (folder < 0) {
		snprintf(why, size, "cannot list open files in /proc/self/fd: %m");
		return -errno;
	}
	while ((got = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			int fd = atoi(((struct dirent64 *)at)->d_name);

			if (((struct dirent64 *)at)->d_name[0] != '.' && fd != folder && count < 1024 && !is_ours(fd))
				open_fds[count++] = fd;
		}
	syscall(SYS_close, folder);
	for (int i = 0; i < count; i++) {
		struct stat found;
		struct entry *entry = scratch_behind(open_fds[i], &found);
		int result = entry ? descriptor_settle(open_fds[i], entry, open_fds + i + 1, count - i - 1) : 0;

		if (result) {
			snprintf(why, size, "cannot open %s again: %s", entry->path, strerror(-result));
			return result;
		}
	}
	return 0;
}

/* A folder that the program had made, and those above it where the iterations that are done again had removed them. */
static int folder_settle(const char *path)
{
	char above[TPCK_FILES_FOLDER + 320];
	const char *slash = strrchr(path, '/');

	if (!syscall(SYS_mkdirat, AT_FDCWD, path, 0777 & ~mask) || errno == EEXIST)
		return 0;
	if (errno != ENOENT || !slash || slash == path || (size_t)(slash - path) >= sizeof above)
		return -errno;
	snprintf(above, sizeof above, "%.*s", (int)(slash - path), path);
	if (folder_settle(above))
		return -errno;
	return !syscall(SYS_mkdirat, AT_FDCWD, path, 0777 & ~mask) || errno == EEXIST ? 0 : -errno;
}

static int entry_settle(const struct entry *entry)
{
	if (entry->kind == KIND_FILE)
		return entry->changed ? file_settle(entry) : 0;
	return entry->kind == KIND_ABSENT ? absent_settle(entry) : folder_settle(entry->path);
}

int tpck_files_inject(char *why, size_t size)
{
	/* Folders come first: files go into them. */
	for (unsigned b = 0; b < 2 * BUCKETS; b++)
		for (struct entry *entry = entries[b % BUCKETS]; entry; entry = entry->next) {
			int result = (entry->kind == KIND_FOLDER) == (b < BUCKETS) ? entry_settle(entry) : 0;

			if (result) {
				snprintf(why, size, "cannot bring %s to its state at the boundary: %s", entry->path,
					 strerror(-result));
				return result;
			}
		}
	tpck_files_each_created(created_settle);
	if (descriptors_settle(why, size))
		return -EIO;
	if (real_output[1] >= 0 && isatty(real_output[1]))
		fflush(stdout);
	output_back();
	tpck_syscalls_end();
	active = false;
	for (unsigned b = 0; b < BUCKETS; b++)
		for (struct entry *entry = entries[b]; entry; entry = entry->next)
			if (entry->fd >= 0) {
				syscall(SYS_close, entry->fd);
				entry->fd = -1;
			}
	return 0;
}
