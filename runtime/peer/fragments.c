/* SPDX-License-Identifier: Apache-2.0 */
/* Files of fragments. */
#include "config.h"

#include "runtime/peer/fragments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/store/file.h"

enum { PAGE = 4096 };

/* Pages are one chunk's: what is a hole takes no memory. */
static uint64_t stride(const struct tpck_fragment *fragment)
{
	return (tpck_fragment_bytes(fragment, TPCK_CHUNK_BYTES) + PAGE - 1) / PAGE * PAGE;
}

bool tpck_fragments_is_shared(size_t object, size_t length)
{
	return object > TPCK_OBJECT_OF_DATA && length == TPCK_CHUNK_BYTES;
}

static void part_path(const char *folder, unsigned slot, size_t object, bool shared, char *path, size_t size)
{
	if (shared)
		snprintf(path, size, "%.900s/part.log.%zu", folder, object);
	else
		snprintf(path, size, "%.900s/part.%u.%zu", folder, slot, object);
}

static void digests_path(const char *folder, unsigned slot, char *path, size_t size)
{
	snprintf(path, size, "%.900s/digests.%u", folder, slot);
}

size_t tpck_fragments_number(const struct tpck_manifest *manifest, const struct tpck_peer_want *at)
{
	size_t number = at->chunk;

	for (uint32_t m = 0; m < manifest->member_count && m <= at->member; m++)
		for (uint32_t o = 0; o < manifest->members[m].object_count && (m < at->member || o < at->object); o++)
			number += manifest->members[m].objects[o].count;
	return number;
}

size_t tpck_fragments_count(const struct tpck_manifest *manifest)
{
	return tpck_fragments_number(manifest, &(struct tpck_peer_want){(uint32_t)manifest->member_count, 0, 0});
}

bool tpck_fragments_is_first(const struct tpck_firsts *firsts, size_t member, size_t object, size_t chunk)
{
	return object != TPCK_OBJECT_OF_DATA || tpck_firsts_is(firsts, member, chunk);
}

uint64_t tpck_fragments_memory(const struct tpck_fragment *fragment, const struct tpck_manifest *manifest, const struct tpck_firsts *firsts,
			       unsigned slots)
{
	uint64_t bytes = slots * tpck_fragments_count(manifest) * sizeof(tpck_fragment_digest);

	for (size_t m = 0; m < manifest->member_count; m++)
		for (size_t o = 0; o < manifest->members[m].object_count; o++) {
			const struct tpck_object *object = &manifest->members[m].objects[o];

			for (size_t i = 0; i < object->count; i++)
				if (tpck_fragments_is_first(firsts, m, o, i))
					bytes += (tpck_fragments_is_shared(o, object->chunks[i].length) ? 1 : slots) *
						 ((tpck_fragment_bytes(fragment, object->chunks[i].length) + PAGE - 1) / PAGE * PAGE);
		}
	return bytes;
}

/* What is there of the log's full chunks stays. */
static int reserve_object(const char *path, const struct tpck_fragment *fragment, const struct tpck_member *member, size_t m, size_t o,
			  bool shared, const struct tpck_firsts *firsts, struct tpck_error *err)
{
	const struct tpck_object *object = &member->objects[o];
	off_t size = (off_t)(object->count * stride(fragment));
	int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600), rc = 0;
	struct stat status;

	if (fd < 0 || fstat(fd, &status) || ((!shared || status.st_size < size) && ftruncate(fd, size))) {
		rc = tpck_error_set(err, errno, "making %s", path);
		if (fd >= 0)
			close(fd);
		return rc;
	}
	for (size_t i = 0; !rc && i < object->count; i++) {
		off_t at = (off_t)(i * stride(fragment));
		bool here = tpck_fragments_is_shared(o, object->chunks[i].length) == shared && tpck_fragments_is_first(firsts, m, o, i);

		if (!here && !shared)
			(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, (off_t)stride(fragment));
		else if (here && object->chunks[i].length)
			rc = posix_fallocate(fd, at, (off_t)tpck_fragment_bytes(fragment, object->chunks[i].length));
	}
	if (rc)
		rc = tpck_error_set(err, rc, "reserving memory for %s", path);
	close(fd);
	return rc;
}

int tpck_fragments_reserve(const char *folder, unsigned slot, const struct tpck_fragment *fragment, const struct tpck_member *member, size_t m,
			   const struct tpck_firsts *firsts, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];
	int rc = 0;

	if (mkdir(folder, 0700) && errno != EEXIST)
		return tpck_error_set(err, errno, "making %s", folder);
	for (size_t o = 0; !rc && o < member->object_count; o++) {
		part_path(folder, slot, o, false, path, sizeof path);
		rc = reserve_object(path, fragment, member, m, o, false, firsts, err);
		if (rc || o <= TPCK_OBJECT_OF_DATA)
			continue;
		part_path(folder, slot, o, true, path, sizeof path);
		rc = reserve_object(path, fragment, member, m, o, true, firsts, err);
	}
	return rc;
}

int tpck_fragments_read(const char *folder, unsigned slot, const struct tpck_fragment *fragment, uint32_t object, uint32_t chunk, void *to,
			size_t length, struct tpck_error *err)
{
	size_t bytes = tpck_fragment_bytes(fragment, length);
	char path[TPCK_PATH_MAX];
	int fd, rc = 0;

	part_path(folder, slot, object, tpck_fragments_is_shared(object, length), path, sizeof path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", path);
	if (pread(fd, to, bytes, (off_t)(chunk * stride(fragment))) != (ssize_t)bytes)
		rc = tpck_error_set(err, EIO, "reading fragment %u of %s", chunk, path);
	close(fd);
	return rc;
}

int tpck_fragments_write(const char *folder, unsigned slot, const struct tpck_fragment *fragment, uint32_t object, uint32_t chunk,
			 const void *from, size_t length, struct tpck_error *err)
{
	size_t bytes = tpck_fragment_bytes(fragment, length);
	char path[TPCK_PATH_MAX];
	int fd, rc = 0;

	part_path(folder, slot, object, tpck_fragments_is_shared(object, length), path, sizeof path);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", path);
	if (pwrite(fd, from, bytes, (off_t)(chunk * stride(fragment))) != (ssize_t)bytes)
		rc = tpck_error_set(err, errno ? errno : ENOSPC, "writing fragment %u of %s", chunk, path);
	close(fd);
	return rc;
}

int tpck_fragments_save(const char *folder, unsigned slot, const tpck_fragment_digest *digests, size_t count, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];

	digests_path(folder, slot, path, sizeof path);
	return tpck_file_write(path, (const char *)digests, count * sizeof *digests, 0, err);
}

int tpck_fragments_load(const char *folder, unsigned slot, size_t count, tpck_fragment_digest **digests)
{
	char path[TPCK_PATH_MAX], *bytes;
	size_t size;
	int rc;

	digests_path(folder, slot, path, sizeof path);
	rc = tpck_file_read(path, TPCK_PEER_TEXT_MAX, &bytes, &size, NULL);
	if (!rc && size != count * sizeof **digests) {
		free(bytes);
		rc = -EBADMSG;
	}
	if (!rc)
		*digests = (tpck_fragment_digest *)bytes;
	return rc;
}
