/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of published files, and their log. */
#include "config.h"

#include "runtime/store/sums.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/base/door.h"
#include "runtime/store/file.h"

#define LOG_BYTES_MAX (1ull << 30)

struct tpck_sums *tpck_sums_new(uint64_t bytes)
{
	struct tpck_sums *sums = calloc(1, sizeof *sums);

	if (!sums)
		return NULL;
	sums->bytes = bytes;
	sums->count = tpck_sums_chunks(bytes);
	sums->digest = calloc(sums->count + 1, sizeof *sums->digest);
	if (!sums->digest) {
		free(sums);
		return NULL;
	}
	return sums;
}

void tpck_sums_free(struct tpck_sums *sums)
{
	if (sums) {
		free(sums->digest);
		free(sums->path);
		free(sums);
	}
}

/* One whole chunk. */
static int read_chunk(int fd, const struct tpck_sums *sums, size_t i, uint8_t *buffer, size_t *size)
{
	uint64_t at = (uint64_t)i * TPCK_SUMS_CHUNK;
	size_t done = 0;

	*size = sums->bytes - at < TPCK_SUMS_CHUNK ? (size_t)(sums->bytes - at) : TPCK_SUMS_CHUNK;
	while (done < *size) {
		ssize_t got = pread(fd, buffer + done, *size - done, (off_t)(at + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got ? -errno : -ENODATA;
		done += (size_t)got;
	}
	return 0;
}

int tpck_sums_take(struct tpck_sums *sums, int fd, bool (*busy)(void), struct tpck_error *err)
{
	uint8_t *buffer = malloc(TPCK_SUMS_CHUNK);
	int rc = buffer ? 0 : -ENOMEM;
	size_t size;

	for (size_t i = 0; !rc && i < sums->count; i++) {
		rc = busy() ? -EINTR : read_chunk(fd, sums, i, buffer, &size);
		if (!rc)
			tpck_digest128(buffer, size, sums->digest[i]);
	}
	free(buffer);
	return rc ? tpck_error_set(err, -rc, "reading a published file") : 0;
}

bool tpck_sums_settle(struct tpck_sums *sums, const char *path, const struct stat *file)
{
	free(sums->path);
	sums->path = strdup(path);
	sums->inode = file->st_ino;
	sums->modified = file->st_mtim;
	return sums->path;
}

bool tpck_sums_of(const struct tpck_sums *sums, const struct stat *file)
{
	return S_ISREG(file->st_mode) && file->st_ino == sums->inode && (uint64_t)file->st_size == sums->bytes &&
	       file->st_mtim.tv_sec == sums->modified.tv_sec && file->st_mtim.tv_nsec == sums->modified.tv_nsec;
}

long tpck_sums_check(const struct tpck_sums *sums, int fd, void (*fault)(void *context, const struct tpck_error *err),
		     void *context, struct tpck_error *err)
{
	uint8_t *buffer = malloc(TPCK_SUMS_CHUNK), digest[16];
	long faults = 0;
	size_t size;
	int rc = 0;

	if (!buffer)
		return tpck_error_set(err, ENOMEM, "checking %s", sums->path);
	/* Pages that were synced are dropped, and come from the disk. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	for (size_t i = 0; i < sums->count; i++) {
		unsigned long long at = (unsigned long long)i * TPCK_SUMS_CHUNK;
		struct tpck_error one = {0};

		rc = read_chunk(fd, sums, i, buffer, &size);
		tpck_digest128(buffer, size, digest);
		if (rc)
			tpck_error_set(&one, -rc, "reading bytes %llu to %llu of %s", at, at + size - 1, sums->path);
		else if (memcmp(digest, sums->digest[i], sizeof digest))
			tpck_error_set(&one, 0, "%s: bytes %llu to %llu are not what was saved", sums->path, at, at + size - 1);
		else
			continue;
		faults++;
		fault(context, &one);
	}
	free(buffer);
	return faults;
}

/* ---- the log ---------------------------------------------------------------------------------- */

static size_t record_bytes(const struct tpck_sums *sums)
{
	return sizeof(struct tpck_sums_record) + strlen(sums->path) + sums->count * sizeof *sums->digest;
}

static void record_put(const struct tpck_sums *sums, uint8_t *out)
{
	struct tpck_sums_record head = {.magic = TPCK_SUMS_MAGIC, .inode = sums->inode, .bytes = sums->bytes, .modified_sec = sums->modified.tv_sec,
			    .modified_ns = (uint64_t)sums->modified.tv_nsec, .count = sums->count, .path_bytes = strlen(sums->path)};
	const size_t before = offsetof(struct tpck_sums_record, inode);

	memcpy(out, &head, sizeof head);
	memcpy(out + sizeof head, sums->path, head.path_bytes);
	memcpy(out + sizeof head + head.path_bytes, sums->digest, sums->count * sizeof *sums->digest);
	tpck_digest128(out + before, record_bytes(sums) - before, head.digest);
	memcpy(out + offsetof(struct tpck_sums_record, digest), head.digest, sizeof head.digest);
}

/* The record at `text`, of at most `size` bytes: its length, 0 where it is none. */
static size_t record_get(const uint8_t *text, size_t size, struct tpck_sums **sums)
{
	struct tpck_sums_record head;
	size_t length = tpck_sums_record_at(text, size, &head);

	*sums = length ? tpck_sums_new(head.bytes) : NULL;
	if (!*sums)
		return 0;
	(*sums)->path = strndup((const char *)text + sizeof head, (size_t)head.path_bytes);
	(*sums)->inode = head.inode;
	(*sums)->modified = (struct timespec){head.modified_sec, (long)head.modified_ns};
	memcpy((*sums)->digest, tpck_sums_record_digests(text, &head), (size_t)head.count * 16);
	if ((*sums)->path)
		return length;
	tpck_sums_free(*sums);
	*sums = NULL;
	return 0;
}

int tpck_sums_append(const char *log, const struct tpck_sums *sums, struct tpck_error *err)
{
	size_t size = record_bytes(sums);
	uint8_t *record = malloc(size);
	char folder[PATH_MAX];
	int fd = -1, rc = 0, door;
	ssize_t put;

	snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(log, '/') - log), log);
	door = tpck_door_open(AT_FDCWD, folder, 0);
	if (door >= 0) {
		fd = openat(door, strrchr(log, '/') + 1, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		close(door);
	}
	if (door == -EPERM) {
		rc = tpck_door_refused(folder, door, "TRANSPCKPT_DIR", err);
	} else if (!record || fd < 0) {
		rc = tpck_error_set(err, !record ? ENOMEM : door < 0 ? -door : errno, "opening %s", log);
	} else {
		record_put(sums, record);
		put = write(fd, record, size);
		if (put != (ssize_t)size)
			rc = tpck_error_set(err, put < 0 ? errno : ENOSPC, "writing %s", log);
	}
	if (fd >= 0)
		close(fd);
	free(record);
	return rc;
}

struct all {
	struct tpck_sums **sums;
	size_t count, room;
};

static int add(void *context, struct tpck_sums *sums)
{
	struct all *all = context;

	if (all->count == all->room) {
		size_t room = all->room ? all->room * 2 : 64;
		struct tpck_sums **grown = reallocarray(all->sums, room, sizeof *grown);

		if (!grown)
			return -ENOMEM;
		all->sums = grown;
		all->room = room;
	}
	all->sums[all->count++] = sums;
	return 0;
}

/* `shared` says here which of two of one path is first. */
static int by_path(const void *a, const void *b)
{
	const struct tpck_sums *left = *(struct tpck_sums *const *)a, *right = *(struct tpck_sums *const *)b;
	int order = strcmp(left->path, right->path);

	return order ? order : left->shared < right->shared ? -1 : left->shared > right->shared;
}

/* Leaves the first of each path. */
static void sort(struct all *all)
{
	size_t kept = 0;

	if (all->count)
		qsort(all->sums, all->count, sizeof *all->sums, by_path);
	for (size_t i = 0; i < all->count; i++) {
		struct tpck_sums *sums = all->sums[i];

		if (kept && strcmp(sums->path, all->sums[kept - 1]->path) == 0)
			tpck_sums_free(sums);
		else
			all->sums[kept++] = sums;
	}
	all->count = kept;
	for (size_t i = 0; i < all->count; i++)
		all->sums[i]->shared = 0;
}

static void free_all(struct all *all)
{
	for (size_t i = 0; i < all->count; i++)
		tpck_sums_free(all->sums[i]);
	free(all->sums);
}

int tpck_sums_parse(const void *log, size_t size, int (*take)(void *context, struct tpck_sums *sums), void *context)
{
	const uint8_t *text = log;
	struct tpck_sums *sums;
	int rc = 0;

	for (size_t at = 0; !rc && at + sizeof(struct tpck_sums_record) <= size;) {
		size_t length = record_get(text + at, size - at, &sums);

		if (!sums) {
			at++;
			continue;
		}
		sums->shared = UINT64_MAX - at; /* the newest first */
		at += length;
		rc = take(context, sums);
		if (rc)
			tpck_sums_free(sums);
	}
	return rc;
}

/* Of what was read of a log, which is freed: rc and why that failed. */
static int take_all(struct all *all, const char *log, char *text, size_t size, int rc, const struct tpck_error *why, struct tpck_error *err)
{
	if (rc == -ENOENT)
		return 0;
	if (rc) {
		if (err)
			*err = *why;
		return rc;
	}
	rc = tpck_sums_parse(text, size, add, all);
	free(text);
	if (rc)
		return tpck_error_set(err, -rc, "reading %s", log);
	sort(all);
	return 0;
}

/* Leaves those that are there, by the names that they have now. Where one has got the name of another it is the one. Whether
 * there is one with another name. */
static bool locate(struct all *all)
{
	struct tpck_sums_finder *finder = tpck_sums_finder_new();
	struct stat found;
	bool moved = false;
	size_t kept = 0;

	for (size_t i = 0; i < all->count; i++) {
		const char *before = all->sums[i]->path;

		if (tpck_sums_find(finder, all->sums[i], &found)) {
			moved = moved || all->sums[i]->path != before;
			all->sums[i]->shared = !tpck_sums_of(all->sums[i], &found);
			all->sums[kept++] = all->sums[i];
		} else {
			tpck_sums_free(all->sums[i]);
		}
	}
	all->count = kept;
	tpck_sums_finder_free(finder);
	sort(all);
	return moved;
}

int tpck_sums_each(struct tpck_tier *tier, int (*visit)(void *context, struct tpck_sums *sums), void *context, struct tpck_error *err)
{
	struct tpck_error why = {0};
	struct all all = {0};
	size_t size = 0;
	char *text = NULL;
	int rc = tier->operations->get_text(tier, TPCK_SUMS_LOG, LOG_BYTES_MAX, &text, &size, &why);

	rc = take_all(&all, TPCK_SUMS_LOG, text, size, rc, &why, err);
	if (!rc)
		locate(&all);
	for (size_t i = 0; !rc && i < all.count; i++)
		rc = visit(context, all.sums[i]);
	free_all(&all);
	return rc;
}

int tpck_sums_compact(const char *log, void (*visit)(const struct tpck_sums *sums), struct tpck_error *err)
{
	struct tpck_error why = {0};
	struct all all = {0};
	size_t size = 0, kept = 0, at = 0;
	struct stat found, old;
	uint8_t *text = NULL;
	char *before = NULL;
	bool moved = false;
	int rc = tpck_file_read(log, LOG_BYTES_MAX, &before, &size, &why);

	rc = take_all(&all, log, before, size, rc, &why, err);
	size = 0;
	if (!rc)
		moved = locate(&all);
	for (size_t i = 0; !rc && i < all.count; i++) {
		if (lstat(all.sums[i]->path, &found) || !tpck_sums_of(all.sums[i], &found)) {
			tpck_sums_free(all.sums[i]);
			continue;
		}
		size += record_bytes(all.sums[i]);
		if (visit)
			visit(all.sums[i]);
		all.sums[kept++] = all.sums[i];
	}
	if (!rc)
		all.count = kept;
	if (!rc && !stat(log, &old) && (moved || (uint64_t)old.st_size != size)) {
		text = malloc(size + 1);
		rc = text ? 0 : tpck_error_set(err, ENOMEM, "writing %s", log);
	}
	for (size_t i = 0; text && i < all.count; i++) {
		record_put(all.sums[i], text + at);
		at += record_bytes(all.sums[i]);
	}
	if (text)
		rc = tpck_file_write(log, text, size, 0, err);
	free(text);
	free_all(&all);
	return rc;
}
