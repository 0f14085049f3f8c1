/* SPDX-License-Identifier: Apache-2.0 */
/* One file, from where its bytes are to its path. */
#include "config.h"

#include "runtime/store/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Read by read(2): who opened the file again may cut it meanwhile, and bytes of a mapping would be gone then. */
#define PIECE_BYTES (1u << 20)

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

/* Bytes from `at` on up to `end`, or as many as there are; they go to the disk while the next ones are copied. */
static int copy_range(int from, int to, char *piece, uint64_t at, uint64_t end)
{
	while (at < end) {
		ssize_t got = pread(from, piece, end - at < PIECE_BYTES ? end - at : PIECE_BYTES, (off_t)at), put = 0;

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? -errno : 0;
		while (put < got) {
			ssize_t written = pwrite(to, piece + put, (size_t)(got - put), (off_t)at + put);

			if (written < 0 && errno == EINTR)
				continue;
			if (written <= 0)
				return written ? -errno : -EIO;
			put += written;
		}
		sync_file_range(to, (off_t)at, got, SYNC_FILE_RANGE_WRITE);
		at += (uint64_t)got;
	}
	return 0;
}

/* What is data; holes stay holes. */
static int copy_bytes(int from, int to, uint64_t size)
{
	char *piece = malloc(PIECE_BYTES);
	int rc = !piece ? -ENOMEM : ftruncate(to, (off_t)size) ? -errno : 0;
	off_t at = 0;

	while (!rc && (uint64_t)at < size) {
		off_t data = lseek(from, at, SEEK_DATA), end;

		if (data < 0) {
			rc = errno == ENXIO ? 0 : -errno;
			break;
		}
		end = lseek(from, data, SEEK_HOLE);
		if (end < 0) {
			rc = -errno;
			break;
		}
		if ((uint64_t)end > size)
			end = (off_t)size;
		rc = copy_range(from, to, piece, (uint64_t)data, (uint64_t)end);
		at = end;
	}
	free(piece);
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
