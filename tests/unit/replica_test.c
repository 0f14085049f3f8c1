/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a launch's snapshots: what is asked for, what is kept once, and that each rank gets its own bytes back. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/peer/replica.h"
#include "runtime/store/file.h"
#include "runtime/store/publish.h"
#include "tests/unit/store_tap.h"

enum { RANKS = 3, CHUNKS = 4, BYTES = 3 * TPCK_CHUNK_BYTES + 5000, LOG_BYTES = 1 << 20, GENERATION = 5 };
static struct tpck_error err;
static char *from, *to;
static struct tpck_session *session[RANKS];
static struct tpck_image image[RANKS];
static char image_path[RANKS][512];

/* The letter that a chunk of each rank's image is full of. */
typedef const char *letters[RANKS];

static void write_log(const char *folder, int rank, uint64_t used)
{
	struct tpck_log_header log = {
		.magic = TPCK_LOG_MAGIC, .version = TPCK_WIRE_VERSION, .generation = GENERATION, .bytes = LOG_BYTES, .used = used,
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

static void fill(uint64_t step, letters what)
{
	for (int r = 0; r < RANKS; r++) {
		struct tpck_image_header *h = image[r].header;

		for (unsigned i = 0; i < CHUNKS; i++) {
			memset(tpck_image_data(&image[r]) + (size_t)i * TPCK_CHUNK_BYTES, what[r][i], i == 3 ? 5000 : TPCK_CHUNK_BYTES);
			tpck_image_chunks(&image[r])[i].ready = 1;
			tpck_image_chunks(&image[r])[i].hashed = 0;
		}
		h->generation = GENERATION;
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

static struct tpck_manifest *describe(size_t ranks)
{
	struct tpck_share shares[RANKS];
	struct tpck_publication p = {.shares = shares, .share_count = ranks, .world = (uint32_t)ranks};
	struct tpck_manifest *manifest = NULL;

	for (uint32_t r = 0; r < ranks; r++)
		shares[r] = (struct tpck_share){
			.session_path = session[r]->path, .image_path = image_path[r], .image = image[r],
			.identity = session[r]->identity, .rank = r,
		};
	if (tpck_publish_describe(&p, &manifest, &err))
		printf("# %s\n", err.text);
	return manifest;
}

static int begin(struct tpck_replica *replica, size_t ranks, struct tpck_peer_want **want, size_t *count)
{
	struct tpck_manifest *manifest = describe(ranks);
	char *text;
	size_t size;
	int rc;

	if (!manifest || tpck_manifest_format(manifest, &text, &size, &err))
		abort();
	rc = tpck_replica_begin(replica, manifest, text, size, want, count, &err);
	if (rc) {
		tpck_manifest_free(manifest);
		free(text);
	}
	return rc;
}

/* A chunk as it would come; `flip` damages it. */
static int bring(struct tpck_replica *replica, const struct tpck_peer_want *at, bool flip)
{
	const struct tpck_chunk *chunk = &replica->coming->members[at->member].objects[at->object].chunks[at->chunk];
	uint64_t offset = (uint64_t)at->chunk * TPCK_CHUNK_BYTES;
	char path[512], *place = tpck_replica_place(replica, at, chunk->length);
	int fd;

	if (!place)
		return -EINVAL;
	if (at->object == 2) {
		snprintf(path, sizeof path, "%s/log.000000", session[at->member]->path);
		fd = open(path, O_RDONLY);
		if (fd < 0 || pread(fd, place, chunk->length, (off_t)(sizeof(struct tpck_log_header) + offset)) != (ssize_t)chunk->length)
			abort();
		close(fd);
	} else {
		memcpy(place, (at->object ? (char *)tpck_image_data(&image[at->member]) : (char *)tpck_image_rows(&image[at->member])) + offset,
		       chunk->length);
	}
	place[0] = (char)(place[0] ^ flip);
	return tpck_replica_take(replica, at, place, true, &err);
}

/* Chunks of image data that were asked for; -1: it did not get through. */
static int copy(struct tpck_replica *replica)
{
	struct tpck_peer_want *want = NULL;
	size_t count = 0;
	int data = 0;

	if (begin(replica, RANKS, &want, &count))
		return -1;
	for (size_t i = 0; i < count; i++) {
		data += want[i].object == TPCK_OBJECT_OF_DATA;
		if (bring(replica, &want[i], false)) {
			free(want);
			return -1;
		}
	}
	free(want);
	return tpck_replica_finish(replica, &err) ? -1 : data;
}

/* The images and logs of the newest copy are those of the sessions. */
static bool is_same(struct tpck_replica *replica)
{
	int slot = tpck_replica_newest(replica);
	bool same = slot >= 0 && tpck_replica_fill(replica, (unsigned)slot, &err) == 0;

	for (uint32_t r = 0; same && r < RANKS; r++) {
		const struct tpck_member *member = &replica->slot[slot]->members[r];
		struct tpck_image copied = {0};
		char path[512];

		tpck_replica_image_path(replica, member, (unsigned)slot, path, sizeof path);
		same = tpck_image_open(&copied, path, false, &err) == 0 && tpck_image_check(&copied, path, &err) == 0 &&
		       tpck_image_check_chunks(&copied, path, false, &err) == 0 && copied.header->step == image[r].header->step &&
		       tpck_image_rows(&copied)->address == r &&
		       memcmp(tpck_image_data(&copied), tpck_image_data(&image[r]), BYTES) == 0;
		tpck_image_close(&copied);
		tpck_replica_path(replica, member, path, sizeof path);
		same = same && tpck_log_check(path, &member->cut, &err) == 0;
	}
	return same;
}

static uint64_t memory_of(const struct tpck_replica *replica)
{
	uint64_t bytes = 0;
	char path[512];

	for (uint32_t r = 0; r < RANKS; r++) {
		snprintf(path, sizeof path, "%s/copy.g%d.r%u.o0", replica->job_folder, GENERATION, r);
		bytes += tpck_folder_memory(path);
	}
	return bytes;
}

static void check_copies(struct tpck_replica *replica)
{
	struct tpck_manifest *manifest;
	struct tpck_peer_want *want;
	uint64_t needs;
	size_t count;

	fill(10, (letters){"abcd", "abxd", "aacd"});
	manifest = describe(RANKS);
	needs = tpck_replica_needs(replica, manifest);
	tpck_manifest_free(manifest);
	/* a, b, c, d and x */
	ok(copy(replica) == 5, "of chunks that are equal, in one rank or in several, the first is asked for");
	ok(memory_of(replica) < 6 * (uint64_t)TPCK_CHUNK_BYTES, "and is there once");
	ok(needs > memory_of(replica) && needs < 13 * (uint64_t)TPCK_CHUNK_BYTES, "which is what it was said to need, for two");
	ok(is_same(replica), "filled, each rank has its own bytes");
	fill(11, (letters){"abcd", "abyd", "aacd"});
	ok(copy(replica) == 1 && is_same(replica), "of the next only what has changed is asked for");
	fill(12, (letters){"zbcd", "abyd", "aaed"});
	ok(copy(replica) == 2 && is_same(replica), "where the first one changes, the next becomes it, and is copied from what is here");
	fill(13, (letters){"zzzz", "zzzz", "zzzz"});
	ok(copy(replica) <= 2 && is_same(replica), "all the same but for the last one's length");
	ok(begin(replica, RANKS, &want, &count) == -EALREADY, "what is there is not asked for again");
	fill(14, (letters){"pqrs", "efgh", "ijkl"});
	ok(begin(replica, 2, &want, &count) == -EBADMSG, "nor is a step of another number of ranks");
	ok(copy(replica) == 12 && is_same(replica), "nothing alike");
}

static void check_damage(struct tpck_replica *replica)
{
	struct tpck_peer_want *want = NULL;
	size_t count = 0, at = 0;

	fill(15, (letters){"pqrs", "efgh", "tjkl"});
	ok(begin(replica, RANKS, &want, &count) == 0 && count, "the next begins");
	while (at < count && (want[at].member != 2 || want[at].object != TPCK_OBJECT_OF_DATA))
		at++;
	ok(at < count && bring(replica, &want[at], true) == -EBADMSG && strstr(err.text, "of rank 2 "), "what is damaged is refused, and which rank's it is said");
	ok(!tpck_replica_place(replica, &(struct tpck_peer_want){RANKS, 1, 0}, 1) &&
		   !tpck_replica_place(replica, &(struct tpck_peer_want){0, 1, CHUNKS}, 1) &&
		   !tpck_replica_place(replica, &(struct tpck_peer_want){0, 9, 0}, 1),
	   "what nobody asked for has no place");
	ok(tpck_replica_finish(replica, &err) != 0, "it is not whole");
	tpck_replica_abort(replica);
	free(want);
	ok(tpck_replica_newest(replica) >= 0 && replica->slot[tpck_replica_newest(replica)]->point.step == 14, "the one before still is");
}

int main(void)
{
	struct tpck_session_name name = {GENERATION, 0, 0};
	struct tpck_replica *replica = NULL;

	from = tap_folder("/dev/shm");
	to = tap_folder("/dev/shm");
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
	name.rank = 0;
	ok(tpck_replica_open(&replica, to, &name, &err) == 0 && tpck_replica_newest(replica) < 0, "no copy yet");
	check_copies(replica);
	check_damage(replica);
	tpck_replica_close(replica);
	ok(tpck_replica_open(&replica, to, &name, &err) == 0 && tpck_replica_newest(replica) >= 0, "another agent finds it");
	fill(14, (letters){"pqrs", "efgh", "ijkl"});
	ok(is_same(replica), "with the same bytes");
	tpck_replica_remove(replica);
	ok(tpck_folder_memory(to) == 0 && rmdir(to) == 0, "removed, it leaves nothing");
	for (uint32_t r = 0; r < RANKS; r++) {
		tpck_image_close(&image[r]);
		tpck_session_close(session[r]);
	}
	tpck_folder_remove(from);
	return tap_done();
}
