/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of what lists folders: what is pending is there, what is about to go is not. */
#include "config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hooks/libc.h"
#include "runtime/engine/engine.h"
#include "runtime/files/files.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/follow.h"
#include "shim/driver.h"

#define REAL(name) ((__typeof__(&name))tpck_real_dlsym(RTLD_NEXT, #name))

TPCK_EXPORT DIR *opendir(const char *path)
{
	static DIR *(*real)(const char *);
	struct tpck_thread *self;
	const char *instead;
	DIR *folder;

	if (!real)
		real = (DIR * (*)(const char *)) tpck_real_dlsym(RTLD_NEXT, "opendir");
	if (tpck_unreadable(path))
		return real(path);
	self = tpck_engine_enter();
	if (!self) {
		folder = real(path);
		if (folder)
			tpck_files_listing_opened(folder);
		else
			tpck_files_through(AT_FDCWD, path, TPCK_THROUGH_ALL);
		return folder;
	}
	instead = tpck_follow_listing(path);
	folder = real(instead ? instead : path);
	if (folder && !instead) {
		tpck_follow_listed(path, dirfd(folder));
		tpck_files_listing_opened(folder);
	} else if (!folder) {
		tpck_files_through(AT_FDCWD, path, TPCK_THROUGH_ALL);
	}
	tpck_engine_leave(self);
	return folder;
}

TPCK_EXPORT DIR *fdopendir(int fd)
{
	static DIR *(*real)(int);
	struct tpck_thread *self = tpck_engine_enter();
	DIR *folder;

	if (!real)
		real = (DIR * (*)(int)) tpck_real_dlsym(RTLD_NEXT, "fdopendir");
	if (self) {
		tpck_follow_listing_of(fd);
		tpck_engine_leave(self);
	}
	folder = real(fd);
	if (folder)
		tpck_files_listing_opened(folder);
	return folder;
}

static bool is_hidden(DIR *folder, const char *name)
{
	return tpck_caches_refuse(dirfd(folder), name, 0) || tpck_files_stream_hides(folder, name);
}

TPCK_EXPORT struct dirent *readdir(DIR *folder)
{
	static struct dirent *(*real)(DIR *);
	int saved = errno;
	struct dirent *entry;

	if (!real)
		real = (struct dirent * (*)(DIR *)) tpck_real_dlsym(RTLD_NEXT, "readdir");
	while ((entry = real(folder)) && is_hidden(folder, entry->d_name))
		errno = saved;
	return entry ? entry : (struct dirent *)tpck_files_stream_more(folder);
}

TPCK_EXPORT struct dirent64 *readdir64(DIR *folder)
{
	static struct dirent64 *(*real)(DIR *);
	int saved = errno;
	struct dirent64 *entry;

	if (!real)
		real = (struct dirent64 * (*)(DIR *)) tpck_real_dlsym(RTLD_NEXT, "readdir64");
	while ((entry = real(folder)) && is_hidden(folder, entry->d_name))
		errno = saved;
	return entry ? entry : (struct dirent64 *)tpck_files_stream_more(folder);
}

TPCK_EXPORT int closedir(DIR *folder)
{
	static int (*real)(DIR *);

	if (!real)
		real = (int (*)(DIR *))tpck_real_dlsym(RTLD_NEXT, "closedir");
	tpck_files_listing_closed(folder);
	return real(folder);
}

TPCK_EXPORT void rewinddir(DIR *folder)
{
	static void (*real)(DIR *);

	if (!real)
		real = (void (*)(DIR *))tpck_real_dlsym(RTLD_NEXT, "rewinddir");
	real(folder);
	tpck_files_listing_closed(folder);
	tpck_files_listing_opened(folder);
}

/* ---- lists that the C library makes inside, where no symbol of ours is asked: made here where somebody wants to know, by the hooks above ---- */

/* Something is pending, or there is a record, which has what folders held. */
static bool made_here(void)
{
	return tpck_files_owes() || tpck_engine_clocks();
}

static void close_seen(DIR *folder)
{
	int saved = errno;

	(void)closedir(folder);
	errno = saved;
}

static bool keep(struct dirent ***names, size_t *count, size_t *room, const struct dirent *entry)
{
	struct dirent **more = *names, *copy;

	if (*count == *room) {
		*room = *room ? 2 * *room : 16;
		more = reallocarray(*names, *room, sizeof *more);
		if (!more)
			return false;
		*names = more;
	}
	copy = malloc(entry->d_reclen);
	if (!copy)
		return false;
	(*names)[(*count)++] = memcpy(copy, entry, entry->d_reclen);
	return true;
}

/* As the C library does it. */
static int scan(const char *path, struct dirent ***names, int (*filter)(const struct dirent *),
		int (*compare)(const struct dirent **, const struct dirent **))
{
	struct dirent *entry, **found = NULL;
	DIR *folder = opendir(path);
	size_t count = 0, room = 0;
	int saved = errno;
	bool good = true;

	if (!folder)
		return -1;
	while (good) {
		errno = 0;
		entry = readdir(folder);
		if (!entry)
			break;
		if (!filter || filter(entry))
			good = keep(&found, &count, &room, entry);
	}
	good = good && !errno;
	close_seen(folder);
	if (!good) {
		saved = errno;
		while (count)
			free(found[--count]);
		free(found);
		errno = saved;
		return -1;
	}
	if (compare && count)
		qsort(found, count, sizeof *found, (int (*)(const void *, const void *))compare);
	*names = found;
	errno = saved;
	return (int)count;
}

TPCK_EXPORT int scandir(const char *restrict path, struct dirent ***restrict names, int (*filter)(const struct dirent *),
			int (*compare)(const struct dirent **, const struct dirent **))
{
	if (!made_here() || !tpck_readable_path(path))
		return REAL(scandir)(path, names, filter, compare);
	return scan(path, names, filter, compare);
}

/* The structures are the same on 64 bits. */
TPCK_EXPORT int scandir64(const char *restrict path, struct dirent64 ***restrict names,
			  int (*filter)(const struct dirent64 *),
			  int (*compare)(const struct dirent64 **, const struct dirent64 **))
{
	if (!made_here() || !tpck_readable_path(path))
		return REAL(scandir64)(path, names, filter, compare);
	return scan(path, (struct dirent ***)names, (int (*)(const struct dirent *))filter,
		    (int (*)(const struct dirent **, const struct dirent **))compare);
}

static void *glob_open(const char *path)
{
	return opendir(path);
}

static struct dirent *glob_read(void *folder)
{
	errno = 0;
	return readdir(folder);
}

static void glob_close(void *folder)
{
	close_seen(folder);
}

static int glob_stat(const char *restrict path, struct stat *restrict found)
{
	return stat(path, found);
}

static int glob_lstat(const char *restrict path, struct stat *restrict found)
{
	return lstat(path, found);
}

/* libc's asks these functions then; what the program has there in its structure is as it was behind it. */
static int glob_seen(int (*real)(const char *, int, int (*)(const char *, int), glob_t *), const char *pattern, int flags,
		     int (*failed)(const char *, int), glob_t *found)
{
	glob_t before = *found;
	int result;

	found->gl_opendir = glob_open;
	found->gl_readdir = glob_read;
	found->gl_closedir = glob_close;
	found->gl_stat = glob_stat;
	found->gl_lstat = glob_lstat;
	result = real(pattern, flags | GLOB_ALTDIRFUNC, failed, found);
	found->gl_opendir = before.gl_opendir;
	found->gl_readdir = before.gl_readdir;
	found->gl_closedir = before.gl_closedir;
	found->gl_stat = before.gl_stat;
	found->gl_lstat = before.gl_lstat;
	found->gl_flags &= ~GLOB_ALTDIRFUNC;
	return result;
}

TPCK_EXPORT int glob(const char *restrict pattern, int flags, int (*failed)(const char *, int), glob_t *restrict found)
{
	if (flags & GLOB_ALTDIRFUNC || !made_here())
		return REAL(glob)(pattern, flags, failed, found);
	return glob_seen(REAL(glob), pattern, flags, failed, found);
}

TPCK_EXPORT int glob64(const char *restrict pattern, int flags, int (*failed)(const char *, int), glob64_t *restrict found)
{
	if (flags & GLOB_ALTDIRFUNC || !made_here())
		return REAL(glob64)(pattern, flags, failed, found);
	return glob_seen((int (*)(const char *, int, int (*)(const char *, int), glob_t *))REAL(glob64), pattern, flags, failed,
			 (glob_t *)found);
}

/* ---- walks: all is made real first ------------------------------------------------------------ */

static void walks(void)
{
	struct tpck_thread *self = tpck_engine_enter();

	/* The walk may go into the folders, by calls inside the C library. */
	if (self) {
		tpck_follow_leaves();
		tpck_engine_leave(self);
	}
	(void)tpck_files_settle();
}

TPCK_EXPORT int nftw(const char *path, __nftw_func_t visit, int descriptors, int flags)
{
	walks();
	return REAL(nftw)(path, visit, descriptors, flags);
}

TPCK_EXPORT int nftw64(const char *path, __nftw64_func_t visit, int descriptors, int flags)
{
	walks();
	return REAL(nftw64)(path, visit, descriptors, flags);
}

TPCK_EXPORT int ftw(const char *path, __ftw_func_t visit, int descriptors)
{
	walks();
	return REAL(ftw)(path, visit, descriptors);
}

TPCK_EXPORT int ftw64(const char *path, __ftw64_func_t visit, int descriptors)
{
	walks();
	return REAL(ftw64)(path, visit, descriptors);
}

TPCK_EXPORT FTS *fts_open(char *const *paths, int options, int (*compare)(const FTSENT **, const FTSENT **))
{
	walks();
	return REAL(fts_open)(paths, options, compare);
}

TPCK_EXPORT FTS64 *fts64_open(char *const *paths, int options, int (*compare)(const FTSENT64 **, const FTSENT64 **))
{
	walks();
	return REAL(fts64_open)(paths, options, compare);
}
