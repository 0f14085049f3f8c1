/* SPDX-License-Identifier: Apache-2.0 */
/* Packing segments of the log. */
#include "config.h"

#include "runtime/store/packing.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef HAVE_ZSTD
#include <zstd.h>
#endif

#include "runtime/store/file.h"
#include "runtime/store/memory_tier.h"
#include "runtime/wire/pack.h"

/* More costs ten times the time and takes off a few hundredths. */
enum { LEVEL = 6 };
/* In a session's folder, which is its owner's alone, a pack may be the name of one in the store. */
enum { READ = O_RDONLY | O_NONBLOCK | O_CLOEXEC };

void tpck_pack_path(const char *session_path, uint64_t sequence, char *path, size_t size)
{
	snprintf(path, size, "%s/" TPCK_PACK_PREFIX "%06" PRIu64, session_path, sequence);
}

/* The header of a file, and its size; 0: it has none. */
static uint64_t header_of(const char *path, struct tpck_log_header *header)
{
	int fd = open(path, READ);
	struct stat status = {0};
	bool good;

	if (fd < 0)
		return 0;
	good = pread(fd, header, sizeof *header, 0) == (ssize_t)sizeof *header && !fstat(fd, &status);
	close(fd);
	return good ? (uint64_t)status.st_size : 0;
}

bool tpck_segment_find(const char *session_path, uint64_t sequence, char *path, size_t size, struct tpck_log_header *header)
{
	uint64_t bytes;

	/* Whoever packs takes the other one away: then the pack is there. */
	for (int tries = 0; tries < 2; tries++) {
		tpck_pack_path(session_path, sequence, path, size);
		bytes = header_of(path, header);
		if (bytes && tpck_pack_is_whole(header, bytes, sequence))
			return true;
		tpck_log_path(session_path, sequence, path, size);
		if (header_of(path, header))
			return true;
	}
	return false;
}

#ifdef HAVE_ZSTD
static size_t compress(void *to, size_t room, const void *from, size_t bytes)
{
	ZSTD_CCtx *context = ZSTD_createCCtx();
	size_t made = 0;

	if (!context)
		return 0;
	(void)ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, LEVEL);
	(void)ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
	made = ZSTD_compress2(context, to, room, from, bytes);
	ZSTD_freeCCtx(context);
	return ZSTD_isError(made) ? 0 : made;
}

int tpck_pack_make(const struct tpck_log_header *segment, uint64_t end, uint8_t **pack, size_t *size)
{
	size_t bytes = end - sizeof *segment, room = bytes < TPCK_PACK_MOST ? bytes : TPCK_PACK_MOST, made = 0;
	void *records = malloc(bytes + 1);
	struct tpck_log_header *header = malloc(sizeof *header + room);
	int rc = records && header ? 0 : -ENOMEM;

	if (!rc) {
		memcpy(records, segment + 1, bytes);
		tpck_pack_turn(records, bytes, true);
		made = compress(header + 1, room, records, bytes);
		rc = made && sizeof *header + made <= TPCK_PACK_MOST ? 0 : -EFBIG;
	}
	free(records);
	if (rc) {
		free(header);
		return rc;
	}
	*header = (struct tpck_log_header){
		.magic = TPCK_LOG_MAGIC, .version = segment->version, .sealed = TPCK_LOG_PACKED, .generation = segment->generation,
		.sequence = segment->sequence, .bytes = segment->bytes, .used = sizeof *header + made,
	};
	*pack = (uint8_t *)header;
	*size = sizeof *header + made;
	return 0;
}
#else
int tpck_pack_make(const struct tpck_log_header *segment, uint64_t end, uint8_t **pack, size_t *size)
{
	(void)segment;
	(void)end;
	(void)pack;
	(void)size;
	return -ENOTSUP;
}
#endif

int tpck_segment_map(const char *path, void **at, uint64_t *size, struct tpck_error *err)
{
	int fd = open(path, READ), rc = 0;
	struct stat status = {0};

	if (fd < 0 || fstat(fd, &status))
		rc = tpck_error_set(err, errno, "opening %s", path);
	else if (status.st_size < (off_t)sizeof(struct tpck_log_header))
		rc = tpck_error_set(err, EBADMSG, "reading %s, which is cut short", path);
	if (!rc) {
		*at = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
		*size = (uint64_t)status.st_size;
		if (*at == MAP_FAILED)
			rc = tpck_error_set(err, errno, "mapping %s", path);
	}
	if (fd >= 0)
		close(fd);
	return rc;
}

/* Memory that holds what a pack has. */
static int unpack(const void *pack, uint64_t size, uint64_t sequence, void **segment, uint64_t *end)
{
	int rc = tpck_pack_learn(pack, size, sequence, end);
	void *at;

	if (rc)
		return rc;
	at = mmap(NULL, *end, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	rc = tpck_pack_read(pack, size, sequence, at, *end);
	if (rc)
		munmap(at, *end);
	else
		*segment = at;
	return rc;
}

int tpck_segment_read(const char *session_path, uint64_t sequence, void **segment, uint64_t *size)
{
	char path[TPCK_PATH_MAX];
	struct tpck_log_header header;
	void *pack = NULL;
	uint64_t bytes;
	int rc;

	if (!tpck_segment_find(session_path, sequence, path, sizeof path, &header))
		return -ENOENT;
	if (header.sealed != TPCK_LOG_PACKED)
		return tpck_segment_map(path, segment, size, NULL);
	rc = tpck_segment_map(path, &pack, &bytes, NULL);
	if (rc)
		return rc;
	rc = unpack(pack, bytes, sequence, segment, size);
	munmap(pack, bytes);
	return rc;
}

int tpck_pack_segment(const char *session_path, uint64_t sequence, struct tpck_error *err)
{
	char from[TPCK_PATH_MAX], to[TPCK_PATH_MAX];
	const struct tpck_log_header *segment;
	void *mapped = NULL, *again = NULL;
	uint64_t size, end = 0, used;
	uint8_t *pack = NULL;
	size_t bytes = 0;
	int rc;

	tpck_log_path(session_path, sequence, from, sizeof from);
	tpck_pack_path(session_path, sequence, to, sizeof to);
	rc = tpck_segment_map(from, &mapped, &size, err);
	if (rc)
		return rc;
	segment = mapped;
	used = atomic_load(&segment->used);
	if (segment->magic != TPCK_LOG_MAGIC || segment->version != TPCK_WIRE_VERSION || !segment->sealed || used < sizeof *segment || used > size)
		rc = tpck_error_set(err, EBADMSG, "packing %s, which is no sealed segment of the log", from);
	if (!rc)
		rc = tpck_pack_make(segment, used, &pack, &bytes);
	/* The segment goes when its pack is there. */
	if (!rc) {
		rc = unpack(pack, bytes, sequence, &again, &end);
		if (rc || end != used || memcmp((char *)again + sizeof *segment, (char *)mapped + sizeof *segment, used - sizeof *segment) != 0)
			rc = tpck_error_set(err, rc ? -rc : EIO, "reading back what %s was packed to", from);
	}
	if (!rc)
		rc = tpck_file_write(to, pack, bytes, 0, err);
	if (again)
		munmap(again, end);
	free(pack);
	munmap(mapped, size);
	return rc;
}

/* Bytes as a file of a folder, whole by its name, which survives a crash. */
static int put(int folder, const char *name, const void *bytes, size_t size)
{
	char making[80];
	int fd, rc = 0;

	snprintf(making, sizeof making, ".%s.part", name);
	fd = openat(folder, making, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	for (size_t done = 0; done < size && !rc;) {
		ssize_t wrote = write(fd, (const char *)bytes + done, size - done);

		if (wrote > 0)
			done += (size_t)wrote;
		else if (!wrote || errno != EINTR)
			rc = wrote ? -errno : -EIO;
	}
	if (!rc && fsync(fd))
		rc = -errno;
	close(fd);
	if (!rc && (renameat(folder, making, folder, name) || fsync(folder)))
		rc = -errno;
	if (rc)
		unlinkat(folder, making, 0);
	return rc;
}

int tpck_pack_move(const char *session_path, uint64_t sequence, int folder, const char *folder_path, const char *name, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX], there[TPCK_PATH_MAX], making[TPCK_PATH_MAX];
	struct stat status;
	void *mapped = NULL;
	uint64_t size;
	int rc;

	tpck_pack_path(session_path, sequence, path, sizeof path);
	if (tpck_path_join(there, sizeof there, folder_path, name) || snprintf(making, sizeof making, "%s/packing", session_path) >= (int)sizeof making)
		return tpck_error_set(err, ENAMETOOLONG, "putting %s into %s", path, folder_path);
	if (lstat(path, &status))
		return tpck_error_set(err, errno, "reading %s", path);
	if (S_ISLNK(status.st_mode))
		return 0;
	rc = tpck_segment_map(path, &mapped, &size, err);
	if (rc)
		return rc;
	rc = put(folder, name, mapped, size);
	munmap(mapped, size);
	unlink(making);
	if (!rc && (symlink(there, making) || rename(making, path)))
		rc = -errno;
	return rc ? tpck_error_set(err, -rc, "putting %s into %s", path, folder_path) : 0;
}

static int cannot_be(const char *path, int rc, struct tpck_error *err)
{
	if (rc == -ENOTSUP)
		return tpck_error_set(err, ENOTSUP, "unpacking %s, as this build has no zstd", path);
	return tpck_error_set(err, -rc, "unpacking %s", path);
}

int tpck_pack_raw(const char *path, uint64_t sequence, uint64_t *bytes, struct tpck_error *err)
{
	uint64_t size, end = 0;
	void *mapped = NULL;
	int rc = tpck_segment_map(path, &mapped, &size, err);

	if (rc)
		return rc;
	rc = tpck_pack_learn(mapped, size, sequence, &end);
	munmap(mapped, size);
	if (rc)
		return cannot_be(path, rc, err);
	*bytes = end - sizeof(struct tpck_log_header);
	return 0;
}

int tpck_pack_check(const char *path, uint64_t sequence, const char *to, struct tpck_error *err)
{
	void *mapped = NULL, *segment = NULL;
	uint64_t size, end = 0;
	int rc = tpck_segment_map(path, &mapped, &size, err);

	if (rc)
		return rc;
	rc = unpack(mapped, size, sequence, &segment, &end);
	munmap(mapped, size);
	if (rc)
		return cannot_be(path, rc, err);
	if (to)
		rc = tpck_file_write(to, segment, end, 0, err);
	munmap(segment, end);
	return rc;
}
