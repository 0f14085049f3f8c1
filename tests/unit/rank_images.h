/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that have snapshots, for tests of the copies of these. */
#ifndef TPCK_TESTS_UNIT_RANK_IMAGES_H
#define TPCK_TESTS_UNIT_RANK_IMAGES_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/peer/replica.h"
#include "runtime/store/file.h"
#include "runtime/store/publish.h"
#include "tests/unit/store_tap.h"

enum { RANKS = 3, CHUNKS = 4, BYTES = 3 * TPCK_CHUNK_BYTES + 5000, LOG_BYTES = 1 << 20, GENERATION = 5 };
static struct tpck_error err;
static uint64_t generation = GENERATION; /* of what is filled */
static char *from;
static struct tpck_session *session[RANKS];
static struct tpck_image image[RANKS];
static char image_path[RANKS][512];

/* The letter that a chunk of each rank's image is full of. */
typedef const char *letters[RANKS];

static inline void write_log(const char *folder, int rank, uint64_t used)
{
	struct tpck_log_header log = {
		.magic = TPCK_LOG_MAGIC, .version = TPCK_WIRE_VERSION, .generation = generation, .bytes = LOG_BYTES, .used = used,
	};
	char path[512];
	int fd;

	snprintf(path, sizeof path, "%s/log.000000", folder);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, LOG_BYTES) || pwrite(fd, &log, sizeof log, 0) != sizeof log)
		abort();
	for (uint64_t i = sizeof log; i < used; i++) {
		char byte = (char)(i * 7 + (uint64_t)rank);

		if (pwrite(fd, &byte, 1, (off_t)i) != 1)
			abort();
	}
	close(fd);
}

static inline void fill(uint64_t step, letters what)
{
	for (int r = 0; r < RANKS; r++) {
		struct tpck_image_header *h = image[r].header;

		for (unsigned i = 0; i < CHUNKS; i++) {
			memset(tpck_image_data(&image[r]) + (size_t)i * TPCK_CHUNK_BYTES, what[r][i], i == 3 ? 5000 : TPCK_CHUNK_BYTES);
			tpck_image_chunks(&image[r])[i].ready = 1;
			tpck_image_chunks(&image[r])[i].hashed = 0;
		}
		h->generation = generation;
		h->step = step;
		h->data_bytes = BYTES;
		h->chunks = CHUNKS;
		h->rows = 1;
		tpck_image_rows(&image[r])[0] = (struct tpck_image_row){.address = (uint64_t)r, .bytes = BYTES};
		h->log_offset = sizeof(struct tpck_log_header) + 100 * step;
		h->resumable = 1;
		h->footer = tpck_image_footer(h);
		h->state = TPCK_IMAGE_COMMITTED;
		write_log(session[r]->path, r, h->log_offset);
	}
}

/* Of `ranks` ranks of so many from a first one on. */
static inline struct tpck_manifest *describe(uint32_t first, size_t ranks, uint32_t world)
{
	struct tpck_share shares[RANKS];
	struct tpck_publication p = {.shares = shares, .share_count = ranks, .world = world};
	struct tpck_manifest *manifest = NULL;

	for (uint32_t i = 0, r = first; i < ranks; i++, r++)
		shares[i] = (struct tpck_share){
			.session_path = session[r]->path, .image_path = image_path[r], .image = image[r],
			.identity = session[r]->identity, .rank = r,
		};
	if (tpck_publish_describe(&p, &manifest, &err))
		printf("# %s\n", err.text);
	return manifest;
}

/* The ranks' sessions, in a folder of their own. */
static inline void make_sessions(void)
{
	struct tpck_session_name name = {GENERATION, 0, 0};

	from = tap_folder("/dev/shm");
	for (uint32_t r = 0; r < RANKS; r++) {
		char identity[32];

		name.rank = r;
		snprintf(identity, sizeof identity, "executable %u\n", r);
		if (tpck_session_create(&session[r], from, &name, identity, &err))
			abort();
		snprintf(image_path[r], sizeof image_path[r], "%s/image.0", session[r]->path);
		if (tpck_image_allocate(image_path[r], 0, BYTES, &err) || tpck_image_open(&image[r], image_path[r], true, &err))
			abort();
	}
}

static inline void remove_sessions(void)
{
	for (uint32_t r = 0; r < RANKS; r++) {
		tpck_image_close(&image[r]);
		tpck_session_close(session[r]);
	}
	tpck_folder_remove(from);
}

/* What a rank's session has of a chunk. */
static inline void read_chunk(const struct tpck_member *member, const struct tpck_peer_want *at, size_t length, void *to)
{
	uint64_t offset = (uint64_t)at->chunk * TPCK_CHUNK_BYTES;
	char path[512];
	int fd;

	if (at->object == 2) {
		snprintf(path, sizeof path, "%s/log.000000", session[member->rank]->path);
		fd = open(path, O_RDONLY);
		if (fd < 0 || pread(fd, to, length, (off_t)(sizeof(struct tpck_log_header) + offset)) != (ssize_t)length)
			abort();
		close(fd);
	} else {
		memcpy(to, (at->object ? (char *)tpck_image_data(&image[member->rank]) : (char *)tpck_image_rows(&image[member->rank])) + offset, length);
	}
}

/* A chunk as it would come; `flip` damages it. */
static inline int bring(struct tpck_replica *replica, const struct tpck_peer_want *at, bool flip)
{
	const struct tpck_member *member = &replica->coming->members[at->member];
	const struct tpck_chunk *chunk = &member->objects[at->object].chunks[at->chunk];
	size_t bytes = replica->fragment.data ? tpck_fragment_bytes(&replica->fragment, chunk->length) : chunk->length;
	char *place = tpck_replica_place(replica, at, bytes), *whole;
	uint8_t digest[16];

	if (!place)
		return -EINVAL;
	if (replica->fragment.data) {
		whole = malloc(chunk->length + 1);
		if (!whole)
			abort();
		read_chunk(member, at, chunk->length, whole);
		if (tpck_erasure_cut(&replica->fragment, (uint8_t *)whole, chunk->length, (uint8_t *)place))
			abort();
		free(whole);
		tpck_digest128(place, bytes, digest);
	} else {
		read_chunk(member, at, chunk->length, place);
	}
	place[0] = (char)(place[0] ^ flip);
	return tpck_replica_take(replica, at, place, true, digest, &err);
}

#endif
