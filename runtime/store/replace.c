/* SPDX-License-Identifier: Apache-2.0 */
/* One file, from where its bytes are to its path. */
#include "config.h"

#include "runtime/store/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Writes go to the disk while the next ones are copied. */
#define PIECE_BYTES (8ull << 20)

int tpck_replace_folder(const char *path, uint64_t device, uint64_t inode, struct tpck_error *err)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat found;

	if (fd < 0)
		return tpck_error_set(err, errno, "opening the folder %s", path);
	if (fstat(fd, &found) || found.st_dev != device || found.st_ino != inode) {
		close(fd);
		return tpck_error_set(err, ESTALE, "opening the folder %s, which is another one by now", path);
	}
	return fd;
}

bool tpck_replace_unwritten(int fd)
{
	if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
		fcntl(fd, F_SETLEASE, F_UNLCK);
		return true;
	}
	return errno != EAGAIN;
}

static int write_all(int fd, const char *from, uint64_t bytes, uint64_t at)
{
	while (bytes) {
		ssize_t put = pwrite(fd, from, bytes < PIECE_BYTES ? bytes : PIECE_BYTES, (off_t)at);

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put ? -errno : -EIO;
		sync_file_range(fd, (off_t)at, put, SYNC_FILE_RANGE_WRITE);
		from += put;
		at += (uint64_t)put;
		bytes -= (uint64_t)put;
	}
	return 0;
}

/* What is data; holes stay holes. */
static int copy_bytes(int from, int to, uint64_t size)
{
	off_t at = 0;
	int rc = ftruncate(to, (off_t)size) ? -errno : 0;

	while (!rc && (uint64_t)at < size) {
		off_t data = lseek(from, at, SEEK_DATA), end;
		char *map;
		uint64_t skip;

		if (data < 0)
			return errno == ENXIO ? 0 : -errno;
		end = lseek(from, data, SEEK_HOLE);
		if (end < 0)
			return -errno;
		if ((uint64_t)end > size)
			end = (off_t)size;
		skip = (uint64_t)data % 4096;
		map = mmap(NULL, (size_t)(end - data) + skip, PROT_READ, MAP_SHARED, from, data - (off_t)skip);
		if (map == MAP_FAILED)
			return -errno;
		rc = write_all(to, map + skip, (uint64_t)(end - data), (uint64_t)data);
		munmap(map, (size_t)(end - data) + skip);
		at = end;
	}
	return rc;
}

/* Those that the target's file system takes; what it refuses it would have refused the program. */
static void copy_attributes(int from, int to)
{
	char names[4096], value[4096];
	ssize_t length = flistxattr(from, names, sizeof names);

	for (char *name = names; length > 0 && name < names + length; name += strlen(name) + 1) {
		ssize_t got = fgetxattr(from, name, value, sizeof value);

		if (got >= 0)
			(void)fsetxattr(to, name, value, (size_t)got, 0);
	}
}

int tpck_replace_copy(int bytes, int folder, const char *part, const char *name, struct tpck_error *err)
{
	struct stat from, to;
	int fd, rc = 0;

	if (fstat(bytes, &from))
		return tpck_error_set(err, errno, "reading what %s is to hold", name);
	unlinkat(folder, part, 0);
	fd = openat(folder, part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return tpck_error_set(err, errno, "making a file beside %s", name);
	rc = copy_bytes(bytes, fd, (uint64_t)from.st_size);
	copy_attributes(bytes, fd);
	/* A folder may give its group to what is made in it: one that the program chose goes before. */
	if (!rc && !fstat(fd, &to) && to.st_gid != from.st_gid && from.st_gid != getegid())
		(void)!fchown(fd, (uid_t)-1, from.st_gid);
	if (!rc && (fchmod(fd, from.st_mode & 07777) || futimens(fd, (const struct timespec[2]){from.st_atim, from.st_mtim}) ||
		    fsync(fd)))
		rc = -errno;
	if (close(fd) && !rc)
		rc = -errno;
	if (rc)
		unlinkat(folder, part, 0);
	return rc ? tpck_error_set(err, -rc, "writing %s", name) : 0;
}

int tpck_replace_commit(int part_folder, const char *part, int folder, const char *name, struct tpck_error *err)
{
	if (renameat(part_folder, part, folder, name))
		return errno == EXDEV ? -EXDEV : tpck_error_set(err, errno, "putting %s at its place", name);
	if (fsync(folder) || (part_folder != folder && fsync(part_folder)))
		return tpck_error_set(err, errno, "syncing the folder of %s", name);
	return 0;
}
