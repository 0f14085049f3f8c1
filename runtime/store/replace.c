/* SPDX-License-Identifier: Apache-2.0 */
/* One file, from where its bytes are to its path. */
#include "config.h"

#include "runtime/store/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "runtime/base/digest.h"

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

/* So much is on its way to the disk at a time while a file is still being written. */
#define AHEAD_BYTES (32ull << 20)
enum { PART_NAME = 80 };

static uint8_t zeros[TPCK_SUMS_CHUNK];

struct copying {
	int from, to;
	uint64_t size;
	uint8_t *piece, *other;
	struct tpck_sums *sums;         /* NULL: not asked for, or the file is not as long as it was any more */
	const struct tpck_sums *before; /* NULL: nothing can be shared */
	int before_fd;
	const struct tpck_ahead *ahead; /* NULL: nothing is there yet */
	uint64_t data, hole;            /* in between there is data */
};

/* Read by read(2): who opened the file again may cut it meanwhile, and bytes of a mapping would be gone then. */
static ssize_t read_piece(int fd, uint8_t *piece, size_t bytes, uint64_t at)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t got = pread(fd, piece + done, bytes - done, (off_t)(at + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (!got)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

static int write_piece(const struct copying *c, size_t from, size_t to, uint64_t at)
{
	while (from < to) {
		ssize_t put = pwrite(c->to, c->piece + from, to - from, (off_t)(at + from));

		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put ? -errno : -EIO;
		from += (size_t)put;
	}
	return 0;
}

/* The first data from there on: where it begins, and where it ends. 0, -ENXIO: there is none, or an error. Asked for once a
 * run of data: tmpfs looks at every page of it. */
static int find_data(struct copying *c, uint64_t from, uint64_t *begin)
{
	off_t data, hole;

	*begin = from;
	if (from >= c->data && from < c->hole)
		return 0;
	data = lseek(c->from, (off_t)from, SEEK_DATA);
	hole = data < 0 ? data : lseek(c->from, data, SEEK_HOLE);
	if (hole < 0)
		return -errno;
	c->data = *begin = (uint64_t)data;
	c->hole = (uint64_t)hole;
	return 0;
}

/* What of a chunk is data; holes stay holes. It goes to the disk while the next one is copied. */
static int write_data(struct copying *c, size_t bytes, uint64_t at)
{
	uint64_t from = at, end = at + bytes, data;
	int rc = 0;

	while (!rc && from < end) {
		rc = find_data(c, from, &data);
		if (rc == -ENXIO || (!rc && data >= end))
			return 0;
		if (rc)
			return rc;
		from = c->hole < end ? c->hole : end;
		rc = write_piece(c, (size_t)(data - at), (size_t)(from - at), at);
		sync_file_range(c->to, (off_t)data, (off_t)(from - data), SYNC_FILE_RANGE_WRITE);
	}
	return rc;
}

/* The blocks of the save before, where they hold the same: not by their digests alone. */
static bool share(struct copying *c, size_t i, size_t bytes, uint64_t at)
{
	struct file_clone_range range = {c->before_fd, at, bytes, at};

	if (!c->before || i >= c->before->count || memcmp(c->sums->digest[i], c->before->digest[i], sizeof *c->before->digest) ||
	    read_piece(c->before_fd, c->other, bytes, at) != (ssize_t)bytes || memcmp(c->piece, c->other, bytes))
		return false;
	if (ioctl(c->to, FICLONERANGE, &range)) {
		/* A last chunk that is no whole block, else a file system that cannot. */
		if (bytes == TPCK_SUMS_CHUNK)
			c->before = NULL;
		return false;
	}
	c->sums->shared += bytes;
	return true;
}

/* Whether the part has a chunk already, as it is now: 1; another content of it: -1. */
static int is_there(const struct copying *c, size_t i, const uint8_t *digest)
{
	if (!c->ahead || i >= c->ahead->count)
		return 0;
	return memcmp(digest, c->ahead->digest[i], sizeof *c->ahead->digest) ? -1 : 1;
}

static int copy_chunk(struct copying *c, size_t i, uint64_t at, size_t bytes)
{
	uint64_t data = at;
	uint8_t digest[16];
	ssize_t got;
	int there = find_data(c, at, &data);

	if ((there == -ENXIO || (!there && data >= at + bytes)) && (!c->ahead || i >= c->ahead->count)) {
		if (c->sums)
			tpck_digest128(zeros, bytes, c->sums->digest[i]);
		return 0;
	}
	got = read_piece(c->from, c->piece, bytes, at);
	if (got < 0)
		return (int)got;
	if ((size_t)got < bytes) {
		c->before = NULL;
		c->sums = NULL;
	}
	tpck_digest128(c->piece, (size_t)got, digest);
	if (c->sums)
		memcpy(c->sums->digest[i], digest, sizeof digest);
	there = is_there(c, i, digest);
	if (share(c, i, bytes, at) || there > 0)
		return 0;
	/* What was data may be a hole by now. */
	return there < 0 ? write_piece(c, 0, (size_t)got, at) : write_data(c, (size_t)got, at);
}

static int copy_bytes(struct copying *c)
{
	int rc = ftruncate(c->to, (off_t)c->size) ? -errno : 0;

	for (uint64_t at = 0; !rc && at < c->size; at += TPCK_SUMS_CHUNK)
		rc = copy_chunk(c, (size_t)(at / TPCK_SUMS_CHUNK), at, c->size - at < TPCK_SUMS_CHUNK ? (size_t)(c->size - at) : TPCK_SUMS_CHUNK);
	return rc;
}

/* The save before, if it is still the file that it was. */
static void open_before(struct copying *c)
{
	struct stat found;

	c->before_fd = c->before ? open(c->before->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC) : -1;
	if (c->before_fd < 0 || fstat(c->before_fd, &found) || !tpck_sums_of(c->before, &found))
		c->before = NULL;
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

/* All but the bytes; then it goes to the disk, unless somebody else sees to that. */
static int finish(int bytes, int fd, const struct stat *from, bool sync)
{
	struct stat to;

	copy_attributes(bytes, fd);
	/* A folder may give its group to what is made in it: one that the program chose goes before. */
	if (!fstat(fd, &to) && to.st_gid != from->st_gid && from->st_gid != getegid())
		(void)!fchown(fd, (uid_t)-1, from->st_gid);
	if (fchmod(fd, from->st_mode & 07777) || futimens(fd, (const struct timespec[2]){from->st_atim, from->st_mtim}) ||
	    (sync && fsync(fd)))
		return -errno;
	return 0;
}

/* ---- ahead ------------------------------------------------------------------------------------ */

bool tpck_replace_ahead_valid(const struct tpck_ahead *ahead)
{
	struct stat found;

	return ahead->fd >= 0 && !fstat(ahead->fd, &found) && found.st_nlink == 1;
}

void tpck_replace_ahead_end(struct tpck_ahead *ahead)
{
	if (ahead->fd >= 0)
		close(ahead->fd);
	free(ahead->digest);
	*ahead = (struct tpck_ahead){.fd = -1};
}

int tpck_replace_ahead(int bytes, int folder, const char *part, struct tpck_ahead *ahead, size_t most)
{
	struct copying c = {.from = bytes};
	uint8_t (*grown)[16];
	struct stat found;
	size_t whole;
	int rc = 0;

	if (fstat(bytes, &found))
		return -errno;
	/* The last chunk is the one that is being written. */
	whole = (size_t)((uint64_t)found.st_size / TPCK_SUMS_CHUNK);
	if (whole <= ahead->count + 1)
		return 0;
	if (whole - 1 - ahead->count < most)
		most = whole - 1 - ahead->count;
	if (ahead->fd < 0) {
		unlinkat(folder, part, 0);
		ahead->fd = openat(folder, part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (ahead->fd < 0)
			return -errno;
	}
	c.to = ahead->fd;
	c.piece = malloc(TPCK_SUMS_CHUNK);
	grown = reallocarray(ahead->digest, ahead->count + most, sizeof *grown);
	if (grown)
		ahead->digest = grown;
	rc = c.piece && grown ? 0 : -ENOMEM;
	for (size_t i = 0; !rc && i < most; i++) {
		uint64_t at = (uint64_t)ahead->count * TPCK_SUMS_CHUNK;

		/* At the disk's pace: what is beyond takes the memory's bandwidth from the program and gains nothing. Who waits
		 * is told of a write that failed, and fsync is not told again. */
		if (at >= AHEAD_BYTES && sync_file_range(c.to, (off_t)(at - AHEAD_BYTES), TPCK_SUMS_CHUNK, SYNC_FILE_RANGE_WAIT_BEFORE))
			rc = -errno;
		if (rc)
			break;
		rc = read_piece(bytes, c.piece, TPCK_SUMS_CHUNK, at) == TPCK_SUMS_CHUNK ? write_data(&c, TPCK_SUMS_CHUNK, at) : -ENODATA;
		if (rc)
			break;
		tpck_digest128(c.piece, TPCK_SUMS_CHUNK, ahead->digest[ahead->count++]);
	}
	free(c.piece);
	return rc ? rc : (int)most;
}

/* ---- the copy --------------------------------------------------------------------------------- */

/* `kept`: gets the part, open, which is not synced then; NULL: it is synced, and closed. */
static int copy(int bytes, int folder, const char *part, const char *name, struct tpck_ahead *ahead, const struct tpck_sums *before,
		struct tpck_sums **sums, int *kept, struct tpck_error *err)
{
	struct copying c = {.from = bytes};
	char made[PART_NAME];
	struct stat from;
	int fd, rc = 0;

	*sums = NULL;
	/* What an earlier sync has made stays until there is something in its place. */
	snprintf(made, sizeof made, "%s%s", part, (ahead && tpck_replace_ahead_valid(ahead)) || faccessat(folder, part, F_OK, AT_SYMLINK_NOFOLLOW) ? "" : ".new");
	if (fstat(bytes, &from))
		return tpck_error_set(err, errno, "reading what %s is to hold", name);
	if (ahead && tpck_replace_ahead_valid(ahead)) {
		c.ahead = ahead;
		fd = fcntl(ahead->fd, F_DUPFD_CLOEXEC, 0);
	} else {
		unlinkat(folder, made, 0);
		fd = openat(folder, made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	}
	if (fd < 0)
		return tpck_error_set(err, errno, "making a file beside %s", name);
	c.to = fd;
	c.size = (uint64_t)from.st_size;
	c.sums = *sums = tpck_sums_new(c.size);
	if (*sums)
		(*sums)->modified = from.st_mtim;
	c.before = *sums ? before : NULL;
	c.piece = malloc(c.size < TPCK_SUMS_CHUNK ? (size_t)c.size + 1 : TPCK_SUMS_CHUNK);
	c.other = c.before ? malloc(TPCK_SUMS_CHUNK) : NULL;
	if (!c.other)
		c.before = NULL;
	open_before(&c);
	rc = c.piece ? copy_bytes(&c) : -ENOMEM;
	if (c.before_fd >= 0)
		close(c.before_fd);
	free(c.piece);
	free(c.other);
	if (ahead)
		tpck_replace_ahead_end(ahead);
	if (!rc)
		rc = finish(bytes, fd, &from, !kept);
	if (kept && !rc)
		*kept = fd;
	else if (close(fd) && !rc)
		rc = -errno;
	if (!rc && strcmp(made, part) != 0 && renameat(folder, made, folder, part))
		rc = -errno;
	if (rc || !c.sums) {
		tpck_sums_free(*sums);
		*sums = NULL;
	}
	if (rc)
		unlinkat(folder, made, 0);
	return rc ? tpck_error_set(err, -rc, "writing %s", name) : 0;
}

int tpck_replace_copy(int bytes, int folder, const char *part, const char *name, struct tpck_ahead *ahead,
		      const struct tpck_sums *before, struct tpck_sums **sums, struct tpck_error *err)
{
	return copy(bytes, folder, part, name, ahead, before, sums, NULL, err);
}

int tpck_replace_copy_unsynced(int bytes, int folder, const char *part, const char *name, const struct tpck_sums *before,
			       struct tpck_sums **sums, int *made, struct tpck_error *err)
{
	if (!faccessat(folder, part, F_OK, AT_SYMLINK_NOFOLLOW))
		return tpck_error_set(err, EEXIST, "making a file beside %s", name);
	return copy(bytes, folder, part, name, NULL, before, sums, made, err);
}

/* ---- what a disk may have lost ---------------------------------------------------------------- */

bool tpck_replace_cached(int bytes)
{
	static const size_t window = 64u << 20;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char *there = malloc(window / page);
	struct stat found;
	bool all = there && !fstat(bytes, &found);

	for (uint64_t at = 0; all && at < (uint64_t)found.st_size; at += window) {
		uint64_t left = (uint64_t)found.st_size - at;
		size_t length = left < window ? (size_t)left : window;
		void *map = mmap(NULL, length, PROT_READ, MAP_SHARED, bytes, (off_t)at);

		all = map != MAP_FAILED && !mincore(map, length, there);
		for (size_t i = 0; all && i < (length + page - 1) / page; i++)
			all = there[i] & 1;
		if (map != MAP_FAILED)
			munmap(map, length);
	}
	free(there);
	return all;
}

/* What memory has; not what the disk says. */
static ssize_t read_cached(int fd, uint8_t *piece, size_t bytes, uint64_t at)
{
	struct iovec into = {piece, bytes};
	ssize_t got = preadv2(fd, &into, 1, (off_t)at, RWF_NOWAIT);

	if (got < 0 && errno == EOPNOTSUPP)
		return read_piece(fd, piece, bytes, at);
	return got < 0 ? -(errno == EAGAIN ? EIO : errno) : got;
}

/* Holes are not asked for: what was not written may be one by now. */
int tpck_replace_rewrite(int bytes, int folder, const char *part, const char *name, struct tpck_error *err)
{
	struct copying c = {.from = bytes, .piece = malloc(TPCK_SUMS_CHUNK)};
	char made[PART_NAME];
	struct stat from = {0};
	int rc = c.piece && !fstat(bytes, &from) ? 0 : -ENOMEM;

	snprintf(made, sizeof made, "%s.new", part);
	unlinkat(folder, made, 0);
	c.to = openat(folder, made, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (c.to < 0 && !rc)
		rc = -errno;
	for (uint64_t at = 0; !rc && at < (uint64_t)from.st_size;) {
		uint64_t left = (uint64_t)from.st_size - at;
		ssize_t got = read_cached(bytes, c.piece, left < TPCK_SUMS_CHUNK ? (size_t)left : TPCK_SUMS_CHUNK, at);

		rc = got > 0 ? write_piece(&c, 0, (size_t)got, at) : got ? (int)got : -EIO;
		at += rc ? 0 : (uint64_t)got;
	}
	if (!rc)
		rc = finish(bytes, c.to, &from, true);
	if (c.to >= 0 && close(c.to) && !rc)
		rc = -errno;
	if (!rc && renameat(folder, made, folder, part))
		rc = -errno;
	if (rc)
		unlinkat(folder, made, 0);
	free(c.piece);
	return rc ? tpck_error_set(err, -rc, "writing %s again", name) : 0;
}

int tpck_replace_commit(int part_folder, const char *part, int folder, const char *name, struct tpck_error *err)
{
	if (renameat(part_folder, part, folder, name))
		return errno == EXDEV ? -EXDEV : tpck_error_set(err, errno, "putting %s at its place", name);
	if (fsync(folder) || (part_folder != folder && fsync(part_folder)))
		return tpck_error_set(err, errno, "syncing the folder of %s", name);
	return 0;
}
