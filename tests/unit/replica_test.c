/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a launch's snapshots: what is asked for, what is kept once, and that each rank gets its own bytes back. */
#include "config.h"

#include <sys/stat.h>

#include "runtime/peer/twins.h"
#include "tests/unit/rank_images.h"
#include "tests/unit/shm_room.h"

static char *to;

/* The newest stays. */
static unsigned next_slot(const struct tpck_replica *replica)
{
	return tpck_replica_newest(replica) == 0;
}

static int begin_of(struct tpck_replica *replica, struct tpck_manifest *manifest, unsigned slot, struct tpck_peer_want **want,
		    size_t *count)
{
	char *text;
	size_t size;
	int rc;

	if (!manifest || tpck_manifest_format(manifest, &text, &size, &err))
		abort();
	rc = tpck_replica_begin(replica, manifest, text, size, slot, want, count, &err);
	if (rc) {
		tpck_manifest_free(manifest);
		free(text);
	}
	return rc;
}

static int begin(struct tpck_replica *replica, size_t ranks, struct tpck_peer_want **want, size_t *count)
{
	return begin_of(replica, describe(0, ranks, (uint32_t)ranks), next_slot(replica), want, count);
}

/* Chunks of image data that were asked for; -1: it did not get through. */
static int copy_of(struct tpck_replica *replica, struct tpck_manifest *manifest, unsigned slot)
{
	struct tpck_peer_want *want = NULL;
	size_t count = 0;
	int data = 0;

	if (begin_of(replica, manifest, slot, &want, &count))
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

static int copy(struct tpck_replica *replica)
{
	return copy_of(replica, describe(0, RANKS, RANKS), next_slot(replica));
}

/* The images and logs of a slot's copy are those of the sessions. */
static bool is_same_in(struct tpck_replica *replica, unsigned slot)
{
	bool same = replica->slot[slot] && tpck_replica_fill(replica, slot, &err) == 0;

	for (size_t m = 0; same && m < replica->slot[slot]->member_count; m++) {
		const struct tpck_member *member = &replica->slot[slot]->members[m];
		uint32_t r = member->rank;
		struct tpck_image copied = {0};
		char path[512];

		tpck_replica_image_path(replica, member, slot, path, sizeof path);
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

static bool is_same(struct tpck_replica *replica)
{
	int newest = tpck_replica_newest(replica);

	return newest >= 0 && is_same_in(replica, (unsigned)newest);
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
	manifest = describe(0, RANKS, RANKS);
	needs = tpck_replica_needs(replica, manifest, TPCK_REPLICA_SLOTS);
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

/* Somebody brings some of it and is gone, the next one the rest. */
static void check_left(void)
{
	struct tpck_session_name name = {GENERATION, 0, 0};
	char *folder = tap_folder("/dev/shm");
	struct tpck_replica *replica;
	struct tpck_peer_want *want;
	size_t count, half, rest;
	bool good;

	if (tpck_replica_open(&replica, folder, &name, NULL, &err))
		abort();
	fill(16, (letters){"abcd", "efgh", "ijkl"});
	if (begin(replica, RANKS, &want, &count))
		abort();
	ok(!tpck_replica_has_left(replica), "left: nothing has come");
	half = count / 2;
	for (size_t i = 0; i < half; i++)
		if (bring(replica, &want[i], false))
			abort();
	ok(bring(replica, &want[half], true) == -EBADMSG, "left: one is damaged");
	tpck_replica_abort(replica);
	ok(tpck_replica_has_left(replica) && tpck_replica_newest(replica) < 0, "left: what was good stays, and is no copy");
	free(want);
	ok(begin(replica, RANKS, &want, &rest) == 0 && rest == count - half && replica->kept, "left: the next one is asked for the rest, the damaged one too");
	if (bring(replica, &want[0], false))
		abort();
	free(want);
	tpck_replica_abort(replica);
	fill(17, (letters){"abcd", "efgh", "ijkm"});
	good = begin(replica, RANKS, &want, &rest) == 0 && rest < count && replica->kept;
	for (size_t i = 0; i < rest && good; i++)
		good = bring(replica, &want[i], false) == 0;
	free(want);
	ok(good && tpck_replica_finish(replica, &err) == 0 && is_same(replica), "left: it counts for another step, where that is the same, and all bytes are right");
	ok(!tpck_replica_has_left(replica), "left: and is no longer left then");
	tpck_replica_remove(replica);
	ok(tpck_folder_memory(folder) == 0 && rmdir(folder) == 0, "left: removed, it leaves nothing");
}

/* Two parts of one launch, on one node: each is its own, and each of the two images counts. */
static void check_parts(void)
{
	struct tpck_session_name one = {GENERATION, 0, 0}, two = {GENERATION, 1, 0};
	char *folder = tap_folder("/dev/shm");
	struct tpck_replica *first, *second;
	struct tpck_manifest *manifest;
	struct tpck_peer_want *want;
	size_t count;

	if (tpck_replica_open(&first, folder, &one, NULL, &err) || tpck_replica_open(&second, folder, &two, NULL, &err))
		abort();
	fill(20, (letters){"abcd", "efgh", "abch"});
	ok(copy_of(first, describe(0, 1, RANKS), 0) == 4 && is_same_in(first, 0), "of three ranks the first is a part");
	ok(copy_of(second, describe(1, 2, RANKS), 0) == 7 && is_same_in(second, 0), "the others are another one");
	manifest = describe(1, 2, RANKS);
	manifest->world = 2;
	ok(begin_of(second, manifest, 1, &want, &count) == -EBADMSG, "rank 2 of two is none");
	ok(begin_of(second, describe(0, 2, RANKS), 1, &want, &count) == -EBADMSG &&
		   begin_of(second, describe(1, 1, RANKS), 1, &want, &count) == -EBADMSG,
	   "nor is what has other ranks a copy of this part");
	fill(22, (letters){"abcd", "efgz", "abch"});
	image[1].header->state = TPCK_IMAGE_ABANDONED;
	manifest = describe(1, 2, RANKS);
	ok(!manifest, "nobody gets a snapshot that was given up");
	image[1].header->state = TPCK_IMAGE_HELD;
	ok(copy_of(second, describe(1, 2, RANKS), 1) == 1 && is_same_in(second, 1), "the next, which waits for other nodes' ranks, goes to the other image");
	fill(20, (letters){"abcd", "efgh", "abch"});
	ok(begin_of(second, describe(1, 2, RANKS), 1, &want, &count) == -EALREADY, "the one before is there");
	ok(is_same_in(second, 0), "with its own bytes");
	/* What has been agreed on may be older than what is here. */
	fill(21, (letters){"abcd", "efgy", "abch"});
	ok(copy_of(second, describe(1, 2, RANKS), 0) >= 1 && is_same_in(second, 0), "one between them may come later");
	fill(22, (letters){"abcd", "efgz", "abch"});
	ok(is_same_in(second, 1), "and leaves the newer one and its longer log as they are");
	tpck_replica_close(second);
	ok(tpck_replica_open(&second, folder, &two, NULL, &err) == 0 && second->slot[0] && second->slot[0]->point.step == 21 && second->slot[1] &&
		   second->slot[1]->point.step == 22 && is_same_in(second, 1),
	   "another agent finds both");
	tpck_replica_remove(second);
	fill(20, (letters){"abcd", "efgh", "abch"});
	ok(is_same_in(first, 0), "without the one part the other is whole");
	tpck_replica_remove(first);
	ok(tpck_folder_memory(folder) == 0 && rmdir(folder) == 0, "and leaves nothing when it goes");
}

/* Ranks 1 and 2 are on another node, and rank 0 is here. Chunks of image data that had to come; -1: it did not get through. */
static int copy_beside(struct tpck_replica *replica, const struct tpck_twins *twins, unsigned slot, uint64_t *found)
{
	struct tpck_peer_want *want = NULL;
	size_t count = 0, left;
	int data = 0;

	if (begin_of(replica, describe(1, 2, RANKS), slot, &want, &count))
		return -1;
	left = tpck_twins_fill(twins, replica, want, count, found);
	if (left != replica->lacks || replica->received)
		data = -100;
	for (size_t i = 0; i < left; i++) {
		data += want[i].object == TPCK_OBJECT_OF_DATA;
		if (bring(replica, &want[i], false)) {
			free(want);
			return -1;
		}
	}
	free(want);
	return tpck_replica_finish(replica, &err) ? -1 : data;
}

static struct tpck_twins *twins_of(const char *path)
{
	struct tpck_manifest *manifest = describe(0, 1, RANKS);
	struct tpck_twins *twins = manifest ? tpck_twins_new(manifest, &path) : NULL;

	tpck_manifest_free(manifest);
	return twins;
}

static void check_twins(void)
{
	struct tpck_session_name other = {GENERATION, 1, 0};
	char *folder = tap_folder("/dev/shm");
	struct tpck_replica *replica;
	struct tpck_twins *twins;
	uint64_t found;

	if (tpck_replica_open(&replica, folder, &other, NULL, &err))
		abort();
	fill(30, (letters){"abcd", "abxd", "cayd"});
	twins = twins_of(image_path[0]);
	ok(copy_beside(replica, twins, 0, &found) == 2 && found == 3 * (uint64_t)TPCK_CHUNK_BYTES + 5000 && is_same_in(replica, 0),
	   "what a rank here has, at whatever place, is not sent");
	tpck_twins_free(twins);
	/* The rank's image holds a later step by then. */
	fill(31, (letters){"efgh", "eflh", "cayd"});
	twins = twins_of(image_path[0]);
	fill(32, (letters){"ezgh", "eflh", "cayd"});
	ok(copy_beside(replica, twins, 1, &found) == 2 && found == (uint64_t)TPCK_CHUNK_BYTES + 5000 && is_same_in(replica, 1),
	   "what has changed there since is");
	tpck_twins_free(twins);
	fill(33, (letters){"mnop", "mnop", "mnop"});
	twins = twins_of("/nowhere/image.0");
	ok(copy_beside(replica, twins, 0, &found) == 4 && !found && is_same_in(replica, 0), "nor is that looked for which is gone");
	tpck_twins_free(twins);
	tpck_replica_remove(replica);
	rmdir(folder);
}

/* ---- fragments ---------------------------------------------------------------------------- */

enum { DATA = 2, PARITY = 1, FRAGMENTS = DATA + PARITY };

static uint64_t fragment_memory(const struct tpck_replica *replica)
{
	uint64_t bytes = 0;
	char path[512];

	for (uint32_t r = 0; r < RANKS; r++) {
		snprintf(path, sizeof path, "%s/fragment.%d+%d.%u.g%d.r%u.o0", replica->job_folder, DATA, PARITY, replica->fragment.index, GENERATION, r);
		bytes += tpck_folder_memory(path);
	}
	return bytes;
}

/* Whether any two of the three give each chunk of a step back, as the sessions have it now. */
static bool gives_back(struct tpck_replica *const *replica, uint64_t step)
{
	uint8_t *whole = malloc(TPCK_CHUNK_BYTES), *made = malloc(TPCK_CHUNK_BYTES), *part[FRAGMENTS];
	bool good = true;

	for (unsigned i = 0; i < FRAGMENTS; i++)
		part[i] = malloc(TPCK_CHUNK_BYTES);
	for (unsigned without = 0; without < FRAGMENTS; without++) {
		struct tpck_replica *const first = replica[without == 0];
		unsigned slot = first->slot[0] && first->slot[0]->point.step == step ? 0 : 1;
		const struct tpck_manifest *manifest = first->slot[slot];

		for (uint32_t m = 0; manifest && m < manifest->member_count; m++)
			for (uint32_t o = 0; o < manifest->members[m].object_count; o++)
				for (uint32_t i = 0; i < manifest->members[m].objects[o].count; i++) {
					struct tpck_peer_want at = {m, o, i};
					size_t length = manifest->members[m].objects[o].chunks[i].length;
					const uint8_t *has[DATA];
					uint16_t index[DATA];
					unsigned n = 0;

					if (!tpck_fragments_is_first(&first->firsts[slot], m, o, i))
						continue;
					for (uint16_t f = 0; f < FRAGMENTS; f++) {
						uint8_t said[16], digest[16];

						if (f == without)
							continue;
						if (!replica[f]->slot[slot] || replica[f]->slot[slot]->point.step != step ||
						    tpck_replica_fragment(replica[f], slot, &at, part[f], said, &err))
							good = false;
						tpck_digest128(part[f], tpck_fragment_bytes(&replica[f]->fragment, length), digest);
						good = good && memcmp(said, digest, sizeof said) == 0;
						index[n] = f;
						has[n++] = part[f];
					}
					read_chunk(&manifest->members[m], &at, length, whole);
					good = good && tpck_erasure_join(&first->fragment, index, has, made, length) == 0 && memcmp(made, whole, length) == 0;
				}
		good = good && manifest;
	}
	for (unsigned i = 0; i < FRAGMENTS; i++)
		free(part[i]);
	free(whole);
	free(made);
	return good;
}

/* All three get the next step; how many chunks of image data each asked for. */
static int fragments_of(struct tpck_replica *const *replica)
{
	int data = -1;

	for (unsigned i = 0; i < FRAGMENTS; i++) {
		int asked = copy_of(replica[i], describe(0, RANKS, RANKS), next_slot(replica[i]));

		if (asked < 0 || (i && asked != data))
			return -1;
		data = asked;
	}
	return data;
}

/* Files of a slot of a snapshot whose index had three chunks and now has a short one. */
static void check_fragments_shrink(void)
{
	const struct tpck_fragment code = {DATA, PARITY, 0, 0};
	struct tpck_object object;
	struct tpck_member member = {.objects = &object, .object_count = 1};
	char *folder = tap_folder("/dev/shm"), path[512];
	uint8_t *bytes = malloc(TPCK_CHUNK_BYTES);
	struct stat large = {0}, small = {0};
	bool good = true;

	snprintf(path, sizeof path, "%s/part.1.0", folder);
	if (!bytes || tpck_object_make(&object, TPCK_OBJECT_INDEX, "image.index", 3ull * TPCK_CHUNK_BYTES))
		abort();
	memset(bytes, 7, TPCK_CHUNK_BYTES);
	good = tpck_fragments_reserve(folder, 1, &code, &member, 0, NULL, &err) == 0;
	for (uint32_t i = 0; i < 3; i++)
		good = good && tpck_fragments_write(folder, 1, &code, 0, i, bytes, TPCK_CHUNK_BYTES, &err) == 0;
	stat(path, &large);
	tpck_object_clear(&object);
	if (tpck_object_make(&object, TPCK_OBJECT_INDEX, "image.index", 1000))
		abort();
	good = good && tpck_fragments_reserve(folder, 1, &code, &member, 0, NULL, &err) == 0;
	stat(path, &small);
	ok(good && small.st_size * 3 == large.st_size, "fragments: the file of a slot is as long as what is in it now");
	ok(large.st_blocks * 512 >= 3ll * TPCK_CHUNK_BYTES / DATA && small.st_blocks * 512 < 3ll * TPCK_CHUNK_BYTES / DATA / 2,
	   "fragments: what it had before takes no memory");
	tpck_object_clear(&object);
	free(bytes);
	unlink(path);
	rmdir(folder);
}

static void check_fragments(void)
{
	struct tpck_session_name name = {GENERATION, 0, 0}, found;
	struct tpck_fragment code = {DATA, PARITY, 0, 0}, which;
	char *folder[FRAGMENTS], path[512];
	struct tpck_replica *replica[FRAGMENTS];
	struct tpck_peer_want *want = NULL, at = {0, TPCK_OBJECT_OF_DATA, 0};
	uint64_t memory = 0, needs;
	struct tpck_manifest *manifest;
	uint8_t said[16], digest[16], *bytes = malloc(TPCK_CHUNK_BYTES);
	struct tpck_twins *twins;
	size_t count = 0;
	bool all = true;
	int fd;

	for (uint16_t i = 0; i < FRAGMENTS; i++) {
		folder[i] = tap_folder("/dev/shm");
		code.index = i;
		if (tpck_replica_open(&replica[i], folder[i], &name, &code, &err))
			abort();
	}
	fill(50, (letters){"abcd", "abxd", "aacd"});
	manifest = describe(0, RANKS, RANKS);
	needs = tpck_replica_needs(replica[0], manifest, 1);
	tpck_manifest_free(manifest);
	ok(fragments_of(replica) == 5 && gives_back(replica, 50), "fragments: any two of three give back each chunk, and of equal ones the first is kept");
	for (unsigned i = 0; i < FRAGMENTS; i++)
		memory += fragment_memory(replica[i]);
	/* Four whole chunks, and a short one. */
	ok(memory >= 6ull * TPCK_CHUNK_BYTES && memory < 65ull * TPCK_CHUNK_BYTES / 10,
	   "fragments: together they take three halves of the memory");
	ok(needs >= fragment_memory(replica[0]) - 200000 && needs <= fragment_memory(replica[0]), "fragments: each as much as it was said to need");
	fill(51, (letters){"abcd", "abyd", "aacd"});
	ok(fragments_of(replica) == 1 && gives_back(replica, 51), "fragments: of the next step only what has changed is asked for");
	fill(52, (letters){"zbcd", "abyd", "aaed"});
	ok(fragments_of(replica) == 2 && gives_back(replica, 52), "fragments: what is here at another place is copied");
	for (unsigned i = 0; i < FRAGMENTS; i++) {
		struct tpck_fragment same = replica[i]->fragment;

		tpck_replica_close(replica[i]);
		if (tpck_replica_open(&replica[i], folder[i], &name, &same, &err))
			abort();
	}
	ok(gives_back(replica, 52) && replica[0]->slot[!tpck_replica_newest(replica[0])], "fragments: another agent finds both steps");
	fill(53, (letters){"zbcf", "abyd", "aaed"});
	ok(begin(replica[0], RANKS, &want, &count) == 0 && count && bring(replica[0], &want[0], true) == -EBADMSG,
	   "fragments: what is not as its owner's digest says is refused");
	tpck_replica_abort(replica[0]);
	free(want);
	/* Rank 0 is here, too. */
	fill(54, (letters){"mnop", "mnqp", "rmnp"});
	twins = twins_of(image_path[0]);
	for (unsigned i = 0; i < FRAGMENTS; i++) {
		uint64_t had;
		size_t left;

		if (begin_of(replica[i], describe(0, RANKS, RANKS), next_slot(replica[i]), &want, &count))
			abort();
		left = tpck_twins_fill(twins, replica[i], want, count, &had);
		all = all && left + 4 == count && had == tpck_fragment_bytes(&code, 3 * TPCK_CHUNK_BYTES) + tpck_fragment_bytes(&code, 5000);
		for (size_t w = 0; w < left; w++)
			all = all && bring(replica[i], &want[w], false) == 0;
		free(want);
		all = all && tpck_replica_finish(replica[i], &err) == 0;
	}
	tpck_twins_free(twins);
	ok(all && gives_back(replica, 54), "fragments: they are made of what ranks here have, too");
	fill(55, (letters){"stuv", "stuv", "stuv"});
	twins = twins_of(image_path[0]);
	fill(56, (letters){"wtuv", "stuv", "stuv"});
	if (begin(replica[0], RANKS, &want, &count))
		abort();
	ok(tpck_twins_fill(twins, replica[0], want, count, &needs) == count - 3 && needs < 3ull * TPCK_CHUNK_BYTES / 2,
	   "fragments: but not of what has changed there since");
	tpck_replica_abort(replica[0]);
	free(want);
	tpck_twins_free(twins);
	snprintf(path, sizeof path, "%s/fragment.2+1.1.g%d.r0.o0/part.%d.1", folder[1], GENERATION, tpck_replica_newest(replica[1]));
	fd = open(path, O_RDWR);
	ok(fd >= 0 && pwrite(fd, "?", 1, 100) == 1 && tpck_replica_fragment(replica[1], (unsigned)tpck_replica_newest(replica[1]), &at, bytes, said, &err) == 0 &&
		   (tpck_digest128(bytes, TPCK_CHUNK_BYTES / 2, digest), memcmp(said, digest, sizeof said) != 0),
	   "fragments: what rots in memory is known by it");
	close(fd);
	free(bytes);
	ok(tpck_replica_is_folder("fragment.4+2.5.g7.r1.o0", &found, &which) && which.data == 4 && which.parity == 2 && which.index == 5 &&
		   found.generation == 7 && found.rank == 1 && !tpck_replica_is_folder("fragment.4+2.6.g7.r1.o0", &found, &which) &&
		   !tpck_replica_is_folder("g7.r1.o0", &found, &which) && tpck_replica_is_folder("copy.g7.r1.o0", &found, &which) && !which.data,
	   "fragments: the folders' names say which");
	for (unsigned i = 0; i < FRAGMENTS; i++) {
		tpck_replica_remove(replica[i]);
		ok(rmdir(folder[i]) == 0, "fragments: they leave nothing");
	}
}

int main(void)
{
	struct tpck_session_name name = {GENERATION, 0, 0};
	struct tpck_replica *replica = NULL;

	tap_need_shm(256);
	to = tap_folder("/dev/shm");
	make_sessions();
	ok(tpck_replica_open(&replica, to, &name, NULL, &err) == 0 && tpck_replica_newest(replica) < 0, "no copy yet");
	check_copies(replica);
	check_damage(replica);
	tpck_replica_close(replica);
	ok(tpck_replica_open(&replica, to, &name, NULL, &err) == 0 && tpck_replica_newest(replica) >= 0, "another agent finds it");
	fill(14, (letters){"pqrs", "efgh", "ijkl"});
	ok(is_same(replica), "with the same bytes");
	tpck_replica_remove(replica);
	ok(tpck_folder_memory(to) == 0 && rmdir(to) == 0, "removed, it leaves nothing");
	check_left();
	check_parts();
	check_twins();
	if (tpck_erasure_can())
		check_fragments();
	check_fragments_shrink();
	remove_sessions();
	return tap_done();
}
