/* SPDX-License-Identifier: Apache-2.0 */
/* Small files and folders, crash-safe. */
#include "config.h"

#include "runtime/store/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/door.h"

/* The path, or what is left of it, for a call from below.at; the folder itself is ".". */
static const char *rest_of(struct tpck_below below, const char *path)
{
	return strlen(path) > below.skip ? path + below.skip : ".";
}

int tpck_file_read_below(struct tpck_below below, const char *path, size_t limit, char **text, size_t *size, struct tpck_error *err)
{
	/* A link from one checkpoint to another, as people make them, is followed. */
	int fd = openat(below.at, rest_of(below, path), TPCK_DOOR_READ & ~O_NOFOLLOW);
	struct stat status;
	size_t used = 0;
	char *bytes;

	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", path);
	if (fstat(fd, &status) || !S_ISREG(status.st_mode) || (size_t)status.st_size > limit) {
		int why = S_ISREG(status.st_mode) ? EFBIG : EINVAL;

		close(fd);
		return tpck_error_set(err, why, why == EFBIG ? "reading %s" : "reading %s, which is no regular file", path);
	}
	bytes = malloc((size_t)status.st_size + 1);
	while (bytes && used < (size_t)status.st_size) {
		ssize_t got = read(fd, bytes + used, (size_t)status.st_size - used);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			tpck_error_set(err, errno, "reading %s", path);
			free(bytes);
			close(fd);
			return -errno;
		}
		if (got == 0)
			break;
		used += (size_t)got;
	}
	close(fd);
	if (!bytes)
		return tpck_error_set(err, ENOMEM, "reading %s", path);
	bytes[used] = '\0';
	*text = bytes;
	if (size)
		*size = used;
	return 0;
}

static int parent_of(const char *path, char *parent, size_t size)
{
	const char *slash = strrchr(path, '/');

	if (!slash || (size_t)(slash - path) >= size)
		return -EINVAL;
	snprintf(parent, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
	return 0;
}

static int write_whole(int fd, const char *bytes, size_t size)
{
	while (size) {
		ssize_t put = write(fd, bytes, size);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		bytes += put;
		size -= (size_t)put;
	}
	return 0;
}

/* Gives temp its final name. A plain rename would replace; link() does not, but some file systems
 * have none, and rename with NOREPLACE is what those usually have. */
static int give_name(int at, const char *temp, const char *path, int flags)
{
	if (!(flags & TPCK_FILE_ABSENT))
		return renameat(at, temp, at, path) ? -errno : 0;
	if (linkat(at, temp, at, path, 0) == 0) {
		unlinkat(at, temp, 0);
		return 0;
	}
	if (errno == EEXIST)
		return -EEXIST;
	return renameat2(at, temp, at, path, RENAME_NOREPLACE) ? -errno : 0;
}

/* On another node there may be a process of the same number, which writes the same file. */
static int open_temporary(int at, const char *path, char *temp, size_t size)
{
	static _Atomic unsigned serial;
	int fd = -1;

	for (int tries = 0; tries < 100 && fd < 0; tries++) {
		if (snprintf(temp, size, "%s.tmp.%d.%u", path, (int)getpid(), atomic_fetch_add(&serial, 1)) >= (int)size)
			return -ENAMETOOLONG;
		fd = openat(at, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 && errno != EEXIST)
			return -errno;
	}
	return fd < 0 ? -EBUSY : fd;
}

static int write_once(int at, const char *path, const void *bytes, size_t size, int flags)
{
	char temp[PATH_MAX];
	int fd = open_temporary(at, path, temp, sizeof temp), rc;

	if (fd < 0)
		return fd;
	rc = write_whole(fd, bytes, size);
	if (!rc && (flags & TPCK_FILE_DURABLE) && fsync(fd))
		rc = -errno;
	if (close(fd) && !rc)
		rc = -errno;
	if (!rc)
		rc = give_name(at, temp, path, flags);
	if (rc)
		unlinkat(at, temp, 0);
	return rc;
}

int tpck_file_write_below(struct tpck_below below, const char *path, const void *bytes, size_t size, int flags, struct tpck_error *err)
{
	const char *rest = rest_of(below, path);
	char parent[PATH_MAX];
	int rc = parent_of(path, parent, sizeof parent) ? -ENAMETOOLONG : write_once(below.at, rest, bytes, size, flags);

	/* Another node's agent may have taken the temporary file for remains while it tidied. */
	for (int tries = 0; tries < 3 && rc == -ENOENT && faccessat(below.at, rest_of(below, parent), F_OK, 0) == 0; tries++)
		rc = write_once(below.at, rest, bytes, size, flags);
	if (rc == -EEXIST && (flags & TPCK_FILE_ABSENT))
		return rc;
	if (rc)
		return tpck_error_set(err, -rc, "writing %s", path);
	return flags & TPCK_FILE_DURABLE ? tpck_folder_sync_below(below, parent, err) : 0;
}

int tpck_folder_sync_below(struct tpck_below below, const char *path, struct tpck_error *err)
{
	int fd = openat(below.at, rest_of(below, path), O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return tpck_error_set(err, errno, "opening folder %s", path);
	/* EINVAL: a file system that has nothing to sync in folders. */
	if (fsync(fd) && errno != EINVAL)
		rc = tpck_error_set(err, errno, "syncing folder %s", path);
	close(fd);
	return rc;
}

int tpck_folder_make_below(struct tpck_below below, const char *path, struct tpck_error *err)
{
	char parent[PATH_MAX];
	int rc;

	if (mkdirat(below.at, rest_of(below, path), 0700) == 0)
		return parent_of(path, parent, sizeof parent) ? 0 : tpck_folder_sync_below(below, parent, err);
	if (errno == EEXIST) {
		struct stat status;

		if (fstatat(below.at, rest_of(below, path), &status, 0))
			return tpck_error_set(err, errno, "opening folder %s", path);
		return S_ISDIR(status.st_mode) ? 0 : tpck_error_set(err, ENOTDIR, "opening folder %s", path);
	}
	if (errno != ENOENT || parent_of(path, parent, sizeof parent) || strcmp(parent, path) == 0)
		return tpck_error_set(err, errno, "making folder %s", path);
	rc = tpck_folder_make_below(below, parent, err);
	if (rc)
		return rc;
	if (mkdirat(below.at, rest_of(below, path), 0700) && errno != EEXIST)
		return tpck_error_set(err, errno, "making folder %s", path);
	return tpck_folder_sync_below(below, parent, err);
}

static int remove_within(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = 0;
	struct dirent *entry;
	DIR *folder;

	if (fd < 0)
		return -errno;
	folder = fdopendir(fd);
	if (!folder) {
		close(fd);
		return -ENOMEM;
	}
	while ((entry = readdir(folder))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(folder), entry->d_name, 0) == 0)
			continue;
		if (errno == EISDIR || errno == EPERM)
			rc = remove_within(dirfd(folder), entry->d_name);
		else
			rc = -errno;
	}
	closedir(folder);
	if (unlinkat(parent, name, AT_REMOVEDIR) && !rc)
		rc = -errno;
	return rc;
}

int tpck_folder_remove_below(struct tpck_below below, const char *path)
{
	return remove_within(below.at, rest_of(below, path));
}

/* ---- by the whole path -------------------------------------------------------------------------- */

static const struct tpck_below anywhere = {AT_FDCWD, 0};

int tpck_file_read(const char *path, size_t limit, char **text, size_t *size, struct tpck_error *err)
{
	return tpck_file_read_below(anywhere, path, limit, text, size, err);
}

int tpck_file_write(const char *path, const void *bytes, size_t size, int flags, struct tpck_error *err)
{
	return tpck_file_write_below(anywhere, path, bytes, size, flags, err);
}

int tpck_folder_make(const char *path, struct tpck_error *err)
{
	return tpck_folder_make_below(anywhere, path, err);
}

int tpck_folder_remove(const char *path)
{
	return tpck_folder_remove_below(anywhere, path);
}
