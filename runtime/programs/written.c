/* SPDX-License-Identifier: Apache-2.0 */
/* What forked children write to files: a child that is made again behind the step that is gone on from writes it a second time. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/programs/programs_private.h"
#include "runtime/wire/segment.h"

enum written_kind { APPENDED = 1, CREATED, FOLDER, CHANGED, MISSED };

/* An entry of "SESSION/written". A child that was killed meanwhile has left one without an end. The first entry is MISSED: of it only `made_ns` counts,
 * of the youngest child that has written what no entry tells; 0: there is none. */
struct written {
	uint64_t when_ns;          /* when it was opened, by tpck_clock_monotonic_ns() */
	_Atomic uint64_t made_ns;  /* when the child was made */
	uint64_t device, inode;
	int64_t before, end;       /* bytes; `end`: behind what the child wrote, -1: it has not closed it */
	int64_t mtime_s, mtime_ns; /* then; of CHANGED: before */
	uint32_t kind;             /* enum written_kind; 0: none */
	char path[444];
};

/* The oldest of so many are overwritten, but for the first entry. */
enum { MOST = 4096, OPEN = 32, NAMES = 300 };
/* The files that this child has open: descriptor and entry. */
static struct {
	int fd;
	uint32_t slot;
} opened[OPEN] TPCK_LARGE;
static _Atomic uint32_t opened_count;
static char session[300] TPCK_LARGE;
static struct shared {
	_Atomic uint32_t next_slot; /* of all children */
	_Atomic int missed;         /* errno of the first entry that could not be written */
	_Atomic bool is_said;
	char path[300];             /* what it was of */
} *shared;
static struct written *missed; /* the first entry; mapped, as a child may have no memory or descriptor left */
static uint64_t made_ns;
static tpck_spin lock;

_Atomic uint32_t tpck_programs_child_writes;

static int entries(int flags)
{
	char path[340];

	snprintf(path, sizeof path, "%s/" TPCK_WRITTEN, session);
	return tpck_sys_openat(AT_FDCWD, path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
}

/* Written before it is mapped: a page that the file system cannot give is an error here, and no signal later. */
static int map_missed(void)
{
	const struct written none = {.kind = MISSED};
	int file = entries(O_RDWR | O_CREAT | O_NOFOLLOW);
	struct written *at = MAP_FAILED;
	long put = sizeof none;
	struct stat found;

	if (file >= 0 && (tpck_sys_fstatat(file, "", &found, AT_EMPTY_PATH) || found.st_size < (off_t)sizeof none))
		put = tpck_sys_pwrite(file, &none, sizeof none, (off_t)0);
	if (file >= 0 && put == (long)sizeof none)
		at = tpck_sys_mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	else if (file >= 0 && put >= 0)
		errno = ENOSPC;
	if (file >= 0)
		tpck_sys_close(file);
	if (at == MAP_FAILED)
		return -errno;
	missed = at;
	return 0;
}

int tpck_programs_session(const char *folder)
{
	int result = 0, saved = errno;

	if (snprintf(session, sizeof session, "%s", folder) >= (int)sizeof session)
		result = -ENAMETOOLONG;
	if (!result && !shared) {
		void *at = tpck_sys_mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			result = -ENOMEM;
		else
			shared = at;
	}
	if (!result)
		result = map_missed();
	if (result)
		session[0] = '\0';
	errno = saved;
	return result;
}

/* What a child made then has written has no entry, or has lost it. */
static void lacks(uint64_t child_ns)
{
	uint64_t before = atomic_load(&missed->made_ns);

	while (before < child_ns && !atomic_compare_exchange_weak(&missed->made_ns, &before, child_ns))
		;
}

/* What this child writes to the path has no entry. The parent says so. */
static void miss(const char *path, int why)
{
	int none = 0;

	lacks(made_ns);
	if (atomic_compare_exchange_strong(&shared->missed, &none, -1)) {
		snprintf(shared->path, sizeof shared->path, "%s", path);
		atomic_store(&shared->missed, why);
	}
}

void tpck_written_say(void)
{
	int why = shared ? atomic_load(&shared->missed) : 0;

	if (why <= 0 || atomic_exchange(&shared->is_said, true))
		return;
	errno = why;
	tpck_log_warn("a forked child writes to %s, which cannot be noted: %m; a resume at a step before that child may have it there twice, with a line",
		      shared->path);
}

void tpck_written_child(uint64_t when_ns)
{
	lock = 0;
	made_ns = when_ns;
	atomic_store(&opened_count, 0);
	atomic_store(&tpck_programs_child_writes, session[0] != '\0');
}

static off_t place_of(uint32_t slot)
{
	return (off_t)(1 + slot % (MOST - 1)) * (off_t)sizeof(struct written);
}

static void put(const struct written *entry, uint32_t slot)
{
	int file = entries(O_RDWR);
	struct written older = {.kind = 0};
	long done = -1;

	if (file >= 0 && slot >= MOST - 1)
		(void)!tpck_sys_pread(file, &older, sizeof older, place_of(slot));
	if (file >= 0)
		done = tpck_sys_pwrite(file, entry, sizeof *entry, place_of(slot));
	if (done != (long)sizeof *entry)
		miss(entry->path, done < 0 ? errno : ENOSPC);
	if (older.kind)
		lacks(older.made_ns);
	if (file >= 0)
		tpck_sys_close(file);
}

static bool path_of(int fd, char *path, size_t size)
{
	char link[40];
	long got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, path, size - 1);
	if (got > 0 && got < (long)size - 1)
		path[got] = '\0';
	return got > 0 && got < (long)size - 1 && path[0] == '/';
}

/* The descriptor is closed behind this entry. */
static void remember(int fd, uint32_t slot)
{
	uint32_t count;

	tpck_spin_lock(&lock);
	count = atomic_load(&opened_count);
	if (count < OPEN) {
		opened[count].fd = fd;
		opened[count].slot = slot;
		atomic_store(&opened_count, count + 1);
	}
	tpck_spin_unlock(&lock);
}

void tpck_written_opened(int fd, int flags)
{
	struct written entry = {.end = -1};
	uint32_t slot;
	struct stat found;

	if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || !S_ISREG(found.st_mode))
		return;
	if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
		entry.kind = CREATED;
	else if (flags & O_TRUNC)
		return; /* and will be once more */
	else
		entry.kind = flags & O_APPEND || !found.st_size ? APPENDED : CHANGED;
	if (!path_of(fd, entry.path, sizeof entry.path)) {
		miss("a path of that length", ENAMETOOLONG);
		return;
	}
	entry.when_ns = tpck_clock_monotonic_ns();
	entry.made_ns = made_ns;
	entry.device = found.st_dev;
	entry.inode = found.st_ino;
	entry.before = found.st_size;
	entry.mtime_s = found.st_mtim.tv_sec;
	entry.mtime_ns = found.st_mtim.tv_nsec;
	slot = atomic_fetch_add(&shared->next_slot, 1);
	put(&entry, slot);
	if (entry.kind == APPENDED)
		remember(fd, slot);
	else if (entry.kind == CREATED)
		tpck_child_made(entry.path);
}

void tpck_programs_child_closes_slow(int fd)
{
	struct written entry;
	uint32_t slot = UINT32_MAX;
	struct stat found;
	int saved = errno, file;
	long end;

	tpck_spin_lock(&lock);
	for (uint32_t i = 0, count = atomic_load(&opened_count); i < count; i++)
		if (opened[i].fd == fd) {
			slot = opened[i].slot;
			opened[i] = opened[count - 1];
			atomic_store(&opened_count, count - 1);
			break;
		}
	tpck_spin_unlock(&lock);
	if (slot == UINT32_MAX)
		return;
	end = tpck_sys_lseek(fd, 0, SEEK_CUR);
	file = entries(O_RDWR);
	if (file >= 0 && end >= 0 && !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) &&
	    tpck_sys_pread(file, &entry, sizeof entry, place_of(slot)) == (long)sizeof entry &&
	    entry.device == found.st_dev && entry.inode == found.st_ino) {
		/* Nothing was written: the offset is where it was opened. */
		entry.end = end > entry.before ? end : entry.before;
		entry.mtime_s = found.st_mtim.tv_sec;
		entry.mtime_ns = found.st_mtim.tv_nsec;
		(void)!tpck_sys_pwrite(file, &entry, sizeof entry, place_of(slot));
	}
	if (file >= 0)
		tpck_sys_close(file);
	errno = saved;
}

void tpck_programs_child_made_slow(int folder, const char *path)
{
	struct written entry = {.end = -1, .kind = FOLDER, .when_ns = tpck_clock_monotonic_ns(), .made_ns = made_ns};
	int saved = errno, fd = tpck_sys_openat(folder, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	struct stat found;

	if (fd < 0 ? errno == EMFILE || errno == ENFILE || errno == ENOMEM : !path_of(fd, entry.path, sizeof entry.path)) {
		miss(path, fd < 0 ? errno : ENAMETOOLONG);
	} else if (fd >= 0 && !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH)) {
		entry.device = found.st_dev;
		entry.inode = found.st_ino;
		put(&entry, atomic_fetch_add(&shared->next_slot, 1));
		tpck_child_made(entry.path);
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	errno = saved;
}

/* ---- going live --------------------------------------------------------------------------------- */

static int by_time(const void *one, const void *other)
{
	const struct written *const *a = one, *const *b = other;

	return (*a)->when_ns < (*b)->when_ns ? -1 : (*a)->when_ns > (*b)->when_ns;
}

static bool is_same(const struct written *entry, const struct stat *found)
{
	return entry->device == found->st_dev && entry->inode == found->st_ino;
}

/* From this entry on, all that the file got came from children, one behind the other, and it is as the last of them left it. */
static bool is_theirs(struct written **list, size_t from, size_t count, const struct stat *found)
{
	const struct written *last = list[from];

	for (size_t i = from + 1; i < count; i++) {
		if (list[i]->device != last->device || list[i]->inode != last->inode || list[i]->kind != APPENDED)
			continue;
		if (last->end != list[i]->before)
			return false;
		last = list[i];
	}
	return last->end == found->st_size && last->mtime_s == found->st_mtim.tv_sec && last->mtime_ns == found->st_mtim.tv_nsec;
}

static bool cut_back(const struct written *entry)
{
	int fd = tpck_sys_openat(AT_FDCWD, entry->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
	struct stat found;
	bool done = fd >= 0 && !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && is_same(entry, &found) &&
		    !tpck_sys_ftruncate(fd, entry->before);

	if (fd >= 0)
		tpck_sys_close(fd);
	return done;
}

/* Whether the file is as it was before the entry, as far as can be. */
static bool undo(struct written **list, size_t at, size_t count)
{
	const struct written *entry = list[at];
	struct stat found;

	if (tpck_sys_fstatat(AT_FDCWD, entry->path, &found, AT_SYMLINK_NOFOLLOW) || !is_same(entry, &found))
		return true; /* it is another one by now, or none */
	switch (entry->kind) {
	case CREATED:
		return S_ISREG(found.st_mode) && !tpck_sys_unlinkat(AT_FDCWD, entry->path, 0);
	case FOLDER:
		return !tpck_sys_unlinkat(AT_FDCWD, entry->path, AT_REMOVEDIR) || errno == ENOTEMPTY;
	case APPENDED:
		if (found.st_size <= entry->before)
			return true;
		return S_ISREG(found.st_mode) && is_theirs(list, at, count, &found) && cut_back(entry);
	default:
		return entry->mtime_s == found.st_mtim.tv_sec && entry->mtime_ns == found.st_mtim.tv_nsec;
	}
}

static void add_name(char names[NAMES], const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t used = strlen(names);

	if (!strstr(names, slash ? slash + 1 : path))
		snprintf(names + used, NAMES - used, "%s%.60s", used ? ", " : "", slash ? slash + 1 : path);
}

#define TWICE "of some files to which forked children wrote behind step %llu it is not known: what they have of them may be there twice"

/* Of children that were made behind the boundary, and are made once more. The first entry of a file is what it was then, so each is undone from there. */
static void undo_all(struct written *all, size_t count, uint64_t boundary_ns, uint64_t step)
{
	struct written **list = calloc(count ? count : 1, sizeof *list);
	char names[NAMES] = "";
	size_t behind = 0;

	if (!list || (count && all[0].kind == MISSED && all[0].made_ns > boundary_ns))
		tpck_log_warn(TWICE, (unsigned long long)step);
	if (!list)
		return;
	for (size_t i = 0; i < count; i++) {
		all[i].path[sizeof all[i].path - 1] = '\0';
		if (all[i].kind >= APPENDED && all[i].kind <= CHANGED && all[i].made_ns > boundary_ns && all[i].path[0] == '/')
			list[behind++] = &all[i];
	}
	qsort(list, behind, sizeof *list, by_time);
	for (size_t i = 0; i < behind; i++)
		if (list[i]->kind != FOLDER && !undo(list, i, behind))
			add_name(names, list[i]->path);
	/* A folder goes behind what is in it. */
	for (size_t i = behind; i-- > 0;)
		if (list[i]->kind == FOLDER && !undo(list, i, behind))
			add_name(names, list[i]->path);
	if (names[0])
		tpck_log_warn("forked children wrote behind step %llu to files that cannot be put back, and will write to them once more: %s",
			      (unsigned long long)step, names);
	free(list);
}

void tpck_programs_unwrite(uint64_t step)
{
	uint64_t boundary_ns = tpck_forward_boundary_ns();
	struct written *all = NULL;
	char path[340];
	struct stat found;
	int saved = errno, fd;
	long got = -1;

	snprintf(path, sizeof path, "%s/" TPCK_WRITTEN_BEHIND, session);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
	if (fd < 0 && errno == ENOENT) {
		errno = saved;
		return;
	}
	if (fd >= 0 && !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && found.st_size >= (off_t)sizeof *all &&
	    found.st_size <= (off_t)(MOST * sizeof *all) && (all = malloc((size_t)found.st_size)))
		got = tpck_sys_pread(fd, all, (size_t)found.st_size, 0);
	if (got > 0)
		undo_all(all, (size_t)got / sizeof *all, boundary_ns, step);
	else
		tpck_log_warn(TWICE, (unsigned long long)step);
	free(all);
	if (fd >= 0)
		tpck_sys_close(fd);
	tpck_sys_unlinkat(AT_FDCWD, path, 0);
	errno = saved;
}
