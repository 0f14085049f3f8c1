/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of another node's snapshots. */
#include "config.h"

#include "runtime/peer/replica.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/base/huge.h"
#include "runtime/store/file.h"
#include "runtime/store/stage.h"
#include "runtime/wire/pack.h"

static bool is_fragments(const struct tpck_replica *r)
{
	return r->fragment.data != 0;
}

static void folder_path(const struct tpck_replica *r, const struct tpck_session_name *name, char *path, size_t size)
{
	char text[64];

	tpck_session_name_format(name, text, sizeof text);
	if (is_fragments(r))
		snprintf(path, size, "%s/" TPCK_REPLICA_FRAGMENT "%u+%u.%u.%s", r->job_folder, r->fragment.data, r->fragment.parity,
			 r->fragment.index, text);
	else
		snprintf(path, size, "%s/" TPCK_REPLICA_PREFIX "%s", r->job_folder, text);
}

bool tpck_replica_is_folder(const char *entry, struct tpck_session_name *name, struct tpck_fragment *fragment)
{
	unsigned data, parity, index;
	int used = 0;

	*fragment = (struct tpck_fragment){0};
	if (strncmp(entry, TPCK_REPLICA_PREFIX, strlen(TPCK_REPLICA_PREFIX)) == 0)
		return tpck_session_name_parse(entry + strlen(TPCK_REPLICA_PREFIX), name) == 0;
	if (sscanf(entry, TPCK_REPLICA_FRAGMENT "%3u+%3u.%3u.%n", &data, &parity, &index, &used) != 3 || !used)
		return false;
	*fragment = (struct tpck_fragment){(uint16_t)data, (uint16_t)parity, (uint16_t)index, 0};
	return tpck_fragment_is_valid(fragment) && tpck_session_name_parse(entry + used, name) == 0;
}

void tpck_replica_path(const struct tpck_replica *r, const struct tpck_member *member, char *path, size_t size)
{
	struct tpck_session_name name = {r->name.generation, member->rank, member->ordinal};

	folder_path(r, &name, path, size);
}

void tpck_replica_image_path(const struct tpck_replica *r, const struct tpck_member *member, unsigned slot, char *path, size_t size)
{
	char folder[TPCK_PATH_MAX];

	tpck_replica_path(r, member, folder, sizeof folder);
	snprintf(path, size, "%.*s/image.%u", (int)sizeof folder - 16, folder, slot);
}

static void log_path(const struct tpck_replica *r, const struct tpck_member *member, size_t object, char *path, size_t size)
{
	char folder[TPCK_PATH_MAX];

	tpck_replica_path(r, member, folder, sizeof folder);
	snprintf(path, size, "%.*s/%s", (int)sizeof folder - 80, folder, member->objects[object].name);
}

/* The manifest of what is whole. */
static void whole_path(const struct tpck_replica *r, unsigned slot, char *path, size_t size)
{
	char folder[TPCK_PATH_MAX];

	folder_path(r, &r->name, folder, sizeof folder);
	snprintf(path, size, "%.*s/whole.%u", (int)sizeof folder - 16, folder, slot);
}

/* Whether a manifest is one of this launch's, of all of its ranks or some, and of a shape that images and logs can be made of. */
static int check(const struct tpck_replica *r, const struct tpck_manifest *m, struct tpck_error *err)
{
	if (m->member_count < 1 || m->member_count > m->world || m->point.generation != r->name.generation ||
	    m->members[0].rank != r->name.rank || m->members[0].ordinal != r->name.ordinal)
		return tpck_error_set(err, EBADMSG, "using a copy's manifest of another session");
	for (size_t i = 0; i < m->member_count; i++) {
		int rc = tpck_stage_check(&m->members[i], err);

		if (rc)
			return rc;
		if (m->members[i].rank >= m->world || (i && m->members[i].rank <= m->members[i - 1].rank))
			return tpck_error_set(err, EBADMSG, "using a copy's manifest of ranks in disorder");
	}
	return 0;
}

/* The ranks of a part are the same in all its copies. */
static int take_ranks(struct tpck_replica *r, const struct tpck_manifest *m, struct tpck_error *err)
{
	bool same = r->rank_count == m->member_count;

	if (!r->ranks) {
		r->ranks = calloc(m->member_count, sizeof *r->ranks);
		if (!r->ranks)
			return tpck_error_set(err, ENOMEM, "keeping a peer's copy");
		r->rank_count = m->member_count;
		for (size_t i = 0; i < m->member_count; i++)
			r->ranks[i] = (struct tpck_replica_rank){m->members[i].rank, m->members[i].ordinal};
		return 0;
	}
	for (size_t i = 0; same && i < m->member_count; i++)
		same = r->ranks[i].rank == m->members[i].rank && r->ranks[i].ordinal == m->members[i].ordinal;
	return same ? 0 : tpck_error_set(err, EBADMSG, "using a copy's manifest of other ranks");
}

/* ---- opening ------------------------------------------------------------------------------ */

static void lacking_free(uint8_t ***lacking, const struct tpck_manifest *manifest)
{
	for (size_t m = 0; lacking && m < manifest->member_count; m++) {
		for (size_t o = 0; lacking[m] && o < manifest->members[m].object_count; o++)
			free(lacking[m][o]);
		free(lacking[m]);
	}
	free(lacking);
}

static void left_free(struct tpck_replica_left *left)
{
	lacking_free(left->lacking, left->manifest);
	tpck_manifest_free(left->manifest);
	tpck_firsts_free(&left->firsts);
	free(left->digests);
	*left = (struct tpck_replica_left){0};
}

static void clear_slot(struct tpck_replica *r, unsigned slot)
{
	tpck_manifest_free(r->slot[slot]);
	free(r->text[slot]);
	tpck_firsts_free(&r->firsts[slot]);
	free(r->digests[slot]);
	r->slot[slot] = NULL;
	r->text[slot] = NULL;
	r->digests[slot] = NULL;
}

static void forget_slot(struct tpck_replica *r, unsigned slot)
{
	char path[TPCK_PATH_MAX];

	whole_path(r, slot, path, sizeof path);
	unlink(path);
	clear_slot(r, slot);
}

static int check_member(const struct tpck_replica *r, unsigned slot, const struct tpck_member *member)
{
	struct tpck_image image = {0};
	char path[TPCK_PATH_MAX];
	struct tpck_cut cut = member->cut;
	int rc;

	tpck_replica_image_path(r, member, slot, path, sizeof path);
	rc = tpck_image_open(&image, path, false, NULL);
	if (!rc)
		rc = tpck_image_check(&image, path, NULL);
	tpck_image_close(&image);
	tpck_replica_path(r, member, path, sizeof path);
	return rc ? rc : tpck_log_check(path, &cut, NULL);
}

static void find_slot(struct tpck_replica *r, unsigned slot)
{
	char path[TPCK_PATH_MAX];
	int rc;

	whole_path(r, slot, path, sizeof path);
	if (tpck_file_read(path, TPCK_PEER_TEXT_MAX, &r->text[slot], &r->text_size[slot], NULL))
		return;
	rc = tpck_manifest_parse(&r->slot[slot], r->text[slot], r->text_size[slot], path, NULL);
	if (!rc)
		rc = check(r, r->slot[slot], NULL);
	if (!rc)
		rc = take_ranks(r, r->slot[slot], NULL);
	if (!rc)
		rc = tpck_firsts_find(&r->firsts[slot], r->slot[slot], NULL);
	for (size_t m = 0; !rc && !is_fragments(r) && m < r->slot[slot]->member_count; m++)
		rc = check_member(r, slot, &r->slot[slot]->members[m]);
	if (!rc && is_fragments(r)) {
		folder_path(r, &r->name, path, sizeof path);
		rc = tpck_fragments_load(path, slot, tpck_fragments_count(r->slot[slot]), &r->digests[slot]);
	}
	if (rc)
		forget_slot(r, slot);
}

int tpck_replica_open(struct tpck_replica **out, const char *job_folder, const struct tpck_session_name *name,
		      const struct tpck_fragment *fragment, struct tpck_error *err)
{
	struct tpck_replica *r = calloc(1, sizeof *r);

	if (!r)
		return tpck_error_set(err, ENOMEM, "keeping a peer's copy");
	r->name = *name;
	if (fragment)
		r->fragment = *fragment;
	if ((size_t)snprintf(r->job_folder, sizeof r->job_folder, "%s", job_folder) >= sizeof r->job_folder) {
		free(r);
		return tpck_error_set(err, ENAMETOOLONG, "keeping a peer's copy in %s", job_folder);
	}
	for (unsigned slot = 0; slot < TPCK_REPLICA_SLOTS; slot++)
		find_slot(r, slot);
	*out = r;
	return 0;
}

void tpck_replica_close(struct tpck_replica *r)
{
	if (!r)
		return;
	tpck_replica_abort(r);
	for (unsigned slot = 0; slot < TPCK_REPLICA_SLOTS; slot++) {
		clear_slot(r, slot);
		left_free(&r->left[slot]);
	}
	free(r->ranks);
	free(r);
}

void tpck_replica_unlink(const struct tpck_replica *r)
{
	for (size_t i = 0; i < r->rank_count; i++) {
		struct tpck_session_name name = {r->name.generation, r->ranks[i].rank, r->ranks[i].ordinal};
		char path[TPCK_PATH_MAX];

		folder_path(r, &name, path, sizeof path);
		(void)tpck_folder_remove(path);
	}
}

void tpck_replica_remove(struct tpck_replica *r)
{
	tpck_replica_unlink(r);
	tpck_replica_close(r);
}

int tpck_replica_newest(const struct tpck_replica *r)
{
	int newest = -1;

	for (int slot = 0; slot < TPCK_REPLICA_SLOTS; slot++)
		if (r->slot[slot] && (newest < 0 || r->slot[slot]->point.step > r->slot[newest]->point.step))
			newest = slot;
	return newest;
}

/* ---- what lacks --------------------------------------------------------------------------- */

uint64_t tpck_replica_needs(const struct tpck_replica *r, const struct tpck_manifest *m, unsigned slots)
{
	struct tpck_firsts firsts;
	uint64_t bytes = 0, has = 0;

	/* What is wrong with it is said where it is begun. */
	if (check(r, m, NULL) || tpck_firsts_find(&firsts, m, NULL))
		return 0;
	for (size_t i = 0; i < m->member_count; i++) {
		const struct tpck_member *member = &m->members[i];
		uint64_t chunks = 0;
		char path[TPCK_PATH_MAX];

		tpck_replica_path(r, member, path, sizeof path);
		has += tpck_folder_memory(path);
		if (is_fragments(r))
			continue;
		for (size_t o = 2; o < member->object_count; o++)
			bytes += member->objects[o].bytes;
		for (size_t c = 0; c < member->objects[TPCK_OBJECT_OF_DATA].count; c++)
			chunks += tpck_firsts_is(&firsts, i, c);
		/* Both images, from the beginning: room that is there only at times is none. */
		bytes += slots * tpck_image_memory(chunks * TPCK_CHUNK_BYTES);
	}
	if (is_fragments(r))
		bytes = tpck_fragments_memory(&r->fragment, m, &firsts, slots);
	tpck_firsts_free(&firsts);
	return bytes > has ? bytes - has : 0;
}

/* Memory for what is to be there of an image, or only of its tables, and none for the rest. */
static int reserve(int fd, void *base, const struct tpck_firsts *firsts, size_t m, const struct tpck_member *member, bool late)
{
	const struct tpck_object *data = &member->objects[TPCK_OBJECT_OF_DATA];
	int rc;

	/* A store to what a full tmpfs has no memory for is SIGBUS. */
	rc = posix_fallocate(fd, (off_t)TPCK_IMAGE_CHUNKS_AT, (off_t)(sizeof(struct tpck_image_chunk) * (data->count + 1)));
	if (!rc && member->objects[0].bytes)
		rc = posix_fallocate(fd, (off_t)TPCK_IMAGE_INDEX_AT, (off_t)member->objects[0].bytes);
	for (size_t i = 0; !rc && i < data->count; i++) {
		off_t at = (off_t)(TPCK_IMAGE_DATA_AT + i * TPCK_CHUNK_BYTES);

		if (tpck_firsts_is(firsts, m, i))
			rc = late ? 0 : -tpck_huge_reserve(fd, base, (uint64_t)at, TPCK_CHUNK_BYTES);
		else
			(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, TPCK_CHUNK_BYTES);
	}
	return -rc;
}

static int open_image(struct tpck_replica *r, size_t m, struct tpck_error *err)
{
	const struct tpck_member *member = &r->coming->members[m];
	uint64_t size = TPCK_IMAGE_DATA_AT + (member->objects[TPCK_OBJECT_OF_DATA].count + 1) * TPCK_CHUNK_BYTES;
	char path[TPCK_PATH_MAX];
	struct stat status;
	int rc, fd;

	tpck_replica_path(r, member, path, sizeof path);
	if (mkdir(path, 0700) && errno != EEXIST)
		return tpck_error_set(err, errno, "making %s", path);
	tpck_replica_image_path(r, member, r->to, path, sizeof path);
	rc = tpck_image_allocate(path, r->to, 0, err);
	if (rc)
		return rc;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) || ((uint64_t)status.st_size < size && ftruncate(fd, (off_t)size)))
		rc = tpck_error_set(err, errno, "making %s", path);
	if (!rc)
		rc = tpck_image_open(&r->image[m], path, true, err);
	if (!rc && (rc = reserve(fd, r->image[m].header, &r->coming_firsts, m, member, r->late)))
		tpck_error_set(err, -rc, "reserving memory for %s", path);
	if (fd >= 0)
		close(fd);
	if (!rc)
		r->image[m].header->footer = 0;
	return rc;
}

static bool is_pack(const struct tpck_object *object)
{
	return strncmp(object->name, TPCK_PACK_PREFIX, sizeof TPCK_PACK_PREFIX - 1) == 0;
}

/* Segments that are not there yet, without their records. What is there of one stays: it only grows. */
static int open_logs(struct tpck_replica *r, const struct tpck_member *member, struct tpck_error *err)
{
	for (size_t i = 2; i < member->object_count; i++) {
		const struct tpck_object *object = &member->objects[i];
		char path[TPCK_PATH_MAX];
		int fd;

		if (object->segment_bytes < sizeof(struct tpck_log_header) + object->bytes || object->segment_bytes > (1ull << 40))
			return tpck_error_set(err, EBADMSG, "using %s, which is larger than its segment", object->name);
		log_path(r, member, i, path, sizeof path);
		fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 || ftruncate(fd, (off_t)(is_pack(object) ? sizeof(struct tpck_log_header) + object->bytes : object->segment_bytes))) {
			tpck_error_set(err, errno, "making log segment %s", path);
			if (fd >= 0)
				close(fd);
			return -err->code;
		}
		close(fd);
	}
	return 0;
}

static uint8_t *image_place(const struct tpck_image *image, size_t object, size_t chunk)
{
	return (object == 0 ? (uint8_t *)tpck_image_rows(image) : tpck_image_data(image)) + chunk * TPCK_CHUNK_BYTES;
}

/* A snapshot that is, or was, in a slot, or of which some has come there. */
struct earlier {
	struct tpck_manifest *manifest; /* NULL: none */
	struct tpck_firsts firsts;
	struct tpck_image *image;       /* by member; NULL: they are written to */
	tpck_fragment_digest *digests;
	uint8_t ***lacking;             /* NULL: nothing lacks */
};

/* Whether that has these very bytes of the same rank's at the same place; *at is where they lie. */
static bool same_in(const struct earlier *e, const struct tpck_replica *r, const struct tpck_peer_want *place, struct tpck_first *at)
{
	const struct tpck_object *object = &r->coming->members[place->member].objects[place->object];
	const struct tpck_chunk *chunk = &object->chunks[place->chunk], *old;
	const struct tpck_member *member;

	if (!e->manifest || place->member >= e->manifest->member_count)
		return false;
	member = &e->manifest->members[place->member];
	old = tpck_object_chunk(member->objects, member->object_count, object->name, place->chunk);
	if (!old || old->length != chunk->length || memcmp(old->digest, chunk->digest, sizeof old->digest) != 0)
		return false;
	*at = place->object == TPCK_OBJECT_OF_DATA ? e->firsts.of[place->member][place->chunk]
						   : (struct tpck_first){place->member, place->chunk};
	return !e->lacking || !e->lacking[at->member][place->object][at->chunk];
}

/* The same of a fragment. The last chunk of the log grows, and is another one then. */
static bool fragment_is_here(struct tpck_replica *r, const struct tpck_peer_want *place, const struct earlier *before,
			     const struct earlier *other)
{
	const struct tpck_object *object = &r->coming->members[place->member].objects[place->object];
	size_t length = object->chunks[place->chunk].length, bytes = tpck_fragment_bytes(&r->fragment, length);
	uint8_t *digest = r->coming_digests[tpck_fragments_number(r->coming, place)], found[16];
	char path[TPCK_PATH_MAX];
	struct tpck_first at;
	bool same = false;
	void *copy;

	if (place->object == TPCK_OBJECT_OF_DATA && !tpck_firsts_is(&r->coming_firsts, place->member, place->chunk))
		return true;
	if (same_in(before, r, place, &at) && at.member == place->member && at.chunk == place->chunk) {
		memcpy(digest, before->digests[tpck_fragments_number(before->manifest, place)], sizeof found);
		return true;
	}
	if (!same_in(other, r, place, &at))
		return false;
	memcpy(digest, other->digests[tpck_fragments_number(other->manifest, &(struct tpck_peer_want){at.member, place->object, at.chunk})],
	       sizeof found);
	if (tpck_fragments_is_shared(place->object, length))
		return true;
	copy = malloc(bytes + 1);
	tpck_replica_path(r, &r->coming->members[at.member], path, sizeof path);
	if (copy && tpck_fragments_read(path, !r->to, &r->fragment, place->object, at.chunk, copy, length, NULL) == 0) {
		tpck_digest128(copy, bytes, found);
		tpck_replica_path(r, &r->coming->members[place->member], path, sizeof path);
		same = memcmp(found, digest, sizeof found) == 0 &&
		       tpck_fragments_write(path, r->to, &r->fragment, place->object, place->chunk, copy, length, NULL) == 0;
	}
	free(copy);
	return same;
}

static int get_memory(const struct tpck_replica *r, const struct tpck_peer_want *at, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];
	int fd, rc;

	if (at->object != TPCK_OBJECT_OF_DATA)
		return 0;
	tpck_replica_image_path(r, &r->coming->members[at->member], r->to, path, sizeof path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", path);
	rc = tpck_huge_reserve(fd, r->image[at->member].header, TPCK_IMAGE_DATA_AT + (uint64_t)at->chunk * TPCK_CHUNK_BYTES,
			       TPCK_CHUNK_BYTES);
	close(fd);
	return rc ? tpck_error_set(err, -rc, "reserving memory for %s", path) : 0;
}

/* Whether a chunk need not come: it is a later one of equals, the slot's older copy has it there already, or the other one
 * has it, from which it is copied, and compared as if it had come. */
static bool is_here(struct tpck_replica *r, const struct tpck_peer_want *place, const struct earlier *before,
		    const struct earlier *other)
{
	const struct tpck_object *object = &r->coming->members[place->member].objects[place->object];
	const struct tpck_chunk *chunk = &object->chunks[place->chunk];
	uint8_t digest[16], *to;
	struct tpck_first at;

	if (place->object == TPCK_OBJECT_OF_DATA && !tpck_firsts_is(&r->coming_firsts, place->member, place->chunk))
		return true;
	if (same_in(before, r, place, &at) && at.member == place->member && at.chunk == place->chunk)
		return true;
	if (!same_in(other, r, place, &at))
		return false;
	if (object->kind == TPCK_OBJECT_LOG)
		return true;
	if (!other->image || !other->image[at.member].header)
		return false;
	to = image_place(&r->image[place->member], place->object, place->chunk);
	if (r->late && get_memory(r, place, NULL))
		return false;
	memcpy(to, image_place(&other->image[at.member], place->object, at.chunk), chunk->length);
	tpck_digest128(to, chunk->length, digest);
	return memcmp(digest, chunk->digest, sizeof digest) == 0;
}

/* Of what is here, what an attempt that was given up has brought. */
static void note_kept(struct tpck_replica *r, const struct earlier *left, const struct tpck_peer_want *place)
{
	size_t length = r->coming->members[place->member].objects[place->object].chunks[place->chunk].length;
	struct tpck_first at;

	if (same_in(left, r, place, &at) && at.member == place->member && at.chunk == place->chunk)
		r->kept += is_fragments(r) ? tpck_fragment_bytes(&r->fragment, length) : length;
}

static int compare(struct tpck_replica *r, const struct earlier *before, const struct earlier *other, struct tpck_error *err)
{
	r->lacking = calloc(r->coming->member_count, sizeof *r->lacking);
	for (uint32_t m = 0; r->lacking && m < r->coming->member_count; m++) {
		const struct tpck_member *member = &r->coming->members[m];

		r->lacking[m] = calloc(member->object_count, sizeof **r->lacking);
		if (!r->lacking[m])
			return tpck_error_set(err, ENOMEM, "keeping a peer's copy");
		for (uint32_t o = 0; o < member->object_count; o++) {
			r->lacking[m][o] = calloc(member->objects[o].count + 1, 1);
			if (!r->lacking[m][o])
				return tpck_error_set(err, ENOMEM, "keeping a peer's copy");
			for (uint32_t i = 0; i < member->objects[o].count; i++) {
				struct tpck_peer_want place = {m, o, i};

				r->lacking[m][o][i] = is_fragments(r) ? !fragment_is_here(r, &place, before, other)
								      : !is_here(r, &place, before, other);
				r->lacks += r->lacking[m][o][i];
				if (before->lacking && !r->lacking[m][o][i])
					note_kept(r, before, &place);
			}
		}
	}
	return r->lacking ? 0 : tpck_error_set(err, ENOMEM, "keeping a peer's copy");
}

static int list_lacking(const struct tpck_replica *r, struct tpck_peer_want **want, struct tpck_error *err)
{
	struct tpck_peer_want *list = calloc(r->lacks + 1, sizeof *list);
	size_t count = 0;

	if (!list)
		return tpck_error_set(err, ENOMEM, "keeping a peer's copy");
	for (uint32_t m = 0; m < r->coming->member_count; m++)
		for (uint32_t o = 0; o < r->coming->members[m].object_count; o++)
			for (uint32_t i = 0; i < r->coming->members[m].objects[o].count; i++)
				if (r->lacking[m][o][i])
					list[count++] = (struct tpck_peer_want){m, o, i};
	*want = list;
	return 0;
}

static void close_images(struct tpck_image *image, size_t count)
{
	for (size_t m = 0; image && m < count; m++)
		tpck_image_close(&image[m]);
	free(image);
}

/* The images of a whole slot, to be read; those that cannot be are left out. */
static struct tpck_image *open_images(const struct tpck_replica *r, unsigned slot)
{
	const struct tpck_manifest *manifest = r->slot[slot];
	struct tpck_image *image = calloc(manifest->member_count, sizeof *image);
	char path[TPCK_PATH_MAX];

	for (size_t m = 0; image && m < manifest->member_count; m++) {
		tpck_replica_image_path(r, &manifest->members[m], slot, path, sizeof path);
		(void)tpck_image_open(&image[m], path, false, NULL);
	}
	return image;
}

/* What is coming is no longer this one's. */
static void leave(struct tpck_replica *r)
{
	if (r->coming)
		lacking_free(r->lacking, r->coming);
	r->lacking = NULL;
	if (r->coming)
		close_images(r->image, r->coming->member_count);
	r->image = NULL;
	tpck_firsts_free(&r->coming_firsts);
	free(r->coming_digests);
	r->coming_digests = NULL;
	r->coming = NULL;
	r->coming_text = NULL;
}

static int begin(struct tpck_replica *r, const struct earlier *before, const struct earlier *other, struct tpck_error *err)
{
	int rc = tpck_firsts_find(&r->coming_firsts, r->coming, err);

	r->image = calloc(r->coming->member_count, sizeof *r->image);
	if (is_fragments(r))
		r->coming_digests = calloc(tpck_fragments_count(r->coming) + 1, sizeof *r->coming_digests);
	if (!rc && (!r->image || (is_fragments(r) && !r->coming_digests)))
		rc = tpck_error_set(err, ENOMEM, "keeping a peer's copy");
	for (size_t m = 0; !rc && m < r->coming->member_count; m++) {
		char path[TPCK_PATH_MAX];

		tpck_replica_path(r, &r->coming->members[m], path, sizeof path);
		if (is_fragments(r)) {
			rc = tpck_fragments_reserve(path, r->to, &r->fragment, &r->coming->members[m], m, &r->coming_firsts, err);
			continue;
		}
		rc = open_image(r, m, err);
		if (!rc)
			rc = open_logs(r, &r->coming->members[m], err);
	}
	return rc ? rc : compare(r, before, other, err);
}

int tpck_replica_begin(struct tpck_replica *r, struct tpck_manifest *manifest, char *text, size_t size, unsigned to,
		       struct tpck_peer_want **want, size_t *count, struct tpck_error *err)
{
	struct earlier before = {0}, other = {0};
	struct tpck_replica_left left;
	int rc = check(r, manifest, err);

	if (!rc)
		rc = take_ranks(r, manifest, err);
	if (rc)
		return rc;
	for (int slot = 0; slot < TPCK_REPLICA_SLOTS; slot++)
		if (r->slot[slot] && r->slot[slot]->point.step == manifest->point.step)
			return -EALREADY;
	r->to = to;
	/* From here on the slot's copy is none. What it had, or an attempt before has left there, is known until the end of this call only: then
	 * what lacks says what of it is here. */
	left = r->left[r->to];
	r->left[r->to] = (struct tpck_replica_left){0};
	if (r->slot[r->to])
		left_free(&left);
	before.manifest = r->slot[r->to] ? r->slot[r->to] : left.manifest;
	before.firsts = r->slot[r->to] ? r->firsts[r->to] : left.firsts;
	before.digests = r->slot[r->to] ? r->digests[r->to] : left.digests;
	before.lacking = left.lacking;
	r->slot[r->to] = NULL;
	r->digests[r->to] = NULL;
	r->firsts[r->to] = (struct tpck_firsts){0};
	forget_slot(r, r->to);
	if (r->slot[!to]) {
		other.manifest = r->slot[!to];
		other.firsts = r->firsts[!to];
		other.digests = r->digests[!to];
		if (!is_fragments(r))
			other.image = open_images(r, !to);
	}
	r->coming = manifest;
	r->coming_text = text;
	r->coming_size = size;
	r->lacks = 0;
	r->received = r->kept = 0;
	rc = begin(r, &before, &other, err);
	if (!rc)
		rc = list_lacking(r, want, err);
	lacking_free(before.lacking, before.manifest);
	tpck_manifest_free(before.manifest);
	tpck_firsts_free(&before.firsts);
	free(before.digests);
	if (other.manifest)
		close_images(other.image, other.manifest->member_count);
	if (rc) {
		leave(r);
		return rc;
	}
	*count = r->lacks;
	return 0;
}

/* ---- chunks ------------------------------------------------------------------------------- */

static const struct tpck_chunk *chunk_of(const struct tpck_replica *r, const struct tpck_peer_want *at)
{
	const struct tpck_member *member;

	if (!r->coming || at->member >= r->coming->member_count)
		return NULL;
	member = &r->coming->members[at->member];
	if (at->object >= member->object_count || at->chunk >= member->objects[at->object].count ||
	    !r->lacking[at->member][at->object][at->chunk])
		return NULL;
	return &member->objects[at->object].chunks[at->chunk];
}

/* What lacks and has memory. */
enum { LACKS_READY = 2 };

int tpck_replica_reserve(struct tpck_replica *r, const struct tpck_peer_want *at, struct tpck_error *err)
{
	int rc = get_memory(r, at, err);

	if (rc)
		return rc;
#ifdef MADV_POPULATE_WRITE
	/* Else each page is found as it is first written to. */
	if (at->object == TPCK_OBJECT_OF_DATA)
		(void)madvise(image_place(&r->image[at->member], at->object, at->chunk), TPCK_CHUNK_BYTES, MADV_POPULATE_WRITE);
#endif
	r->lacking[at->member][at->object][at->chunk] = LACKS_READY;
	return 0;
}

void *tpck_replica_place(struct tpck_replica *r, const struct tpck_peer_want *at, size_t bytes)
{
	const struct tpck_chunk *wanted = chunk_of(r, at);

	if (!wanted || (is_fragments(r) ? tpck_fragment_bytes(&r->fragment, wanted->length) : wanted->length) != bytes)
		return NULL;
	if (r->late && r->lacking[at->member][at->object][at->chunk] != LACKS_READY && tpck_replica_reserve(r, at, NULL))
		return NULL;
	return at->object < 2 && !is_fragments(r) ? image_place(&r->image[at->member], at->object, at->chunk) : malloc(bytes);
}

static int write_log(const struct tpck_replica *r, const struct tpck_peer_want *place, const uint8_t *bytes, size_t length,
		     struct tpck_error *err)
{
	uint64_t at = sizeof(struct tpck_log_header) + (uint64_t)place->chunk * TPCK_CHUNK_BYTES;
	char path[TPCK_PATH_MAX];
	int fd, rc = 0;

	log_path(r, &r->coming->members[place->member], place->object, path, sizeof path);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return tpck_error_set(err, errno, "opening log segment %s", path);
	if (pwrite(fd, bytes, length, (off_t)at) != (ssize_t)length)
		rc = tpck_error_set(err, errno ? errno : ENOSPC, "writing log segment %s", path);
	close(fd);
	return rc;
}

static int take_fragment(struct tpck_replica *r, const struct tpck_peer_want *at, void *bytes, size_t length, size_t size, const uint8_t said[16],
			 struct tpck_error *err)
{
	const struct tpck_member *member = &r->coming->members[at->member];
	char path[TPCK_PATH_MAX];
	uint8_t digest[16];
	int rc;

	tpck_digest128(bytes, size, digest);
	if (memcmp(digest, said, sizeof digest) != 0)
		return tpck_error_set(err, EBADMSG, "the fragment of chunk %u of %s of rank %u is not what its digest says", at->chunk,
				      member->objects[at->object].name, member->rank);
	tpck_replica_path(r, member, path, sizeof path);
	rc = tpck_fragments_write(path, r->to, &r->fragment, at->object, at->chunk, bytes, length, err);
	memcpy(r->coming_digests[tpck_fragments_number(r->coming, at)], digest, sizeof digest);
	return rc;
}

int tpck_replica_take(struct tpck_replica *r, const struct tpck_peer_want *at, void *bytes, bool whole, const uint8_t said[16],
		      struct tpck_error *err)
{
	const struct tpck_chunk *wanted = chunk_of(r, at);
	uint8_t digest[16];
	int rc = 0;

	if (is_fragments(r)) {
		size_t size = wanted ? tpck_fragment_bytes(&r->fragment, wanted->length) : 0;

		if (wanted && whole)
			rc = take_fragment(r, at, bytes, wanted->length, size, said, err);
		if (wanted && whole && !rc) {
			r->lacking[at->member][at->object][at->chunk] = 0;
			r->lacks--;
			r->received += size;
		}
		free(bytes);
		return rc;
	}
	if (wanted && whole) {
		const struct tpck_member *member = &r->coming->members[at->member];

		tpck_digest128(bytes, wanted->length, digest);
		if (memcmp(digest, wanted->digest, sizeof digest) != 0 && r->coming->member_count > 1)
			rc = tpck_error_set(err, EBADMSG, "chunk %u of %s of rank %u is not what its digest says", at->chunk,
					    member->objects[at->object].name, member->rank);
		else if (memcmp(digest, wanted->digest, sizeof digest) != 0)
			rc = tpck_error_set(err, EBADMSG, "chunk %u of %s is not what its digest says", at->chunk,
					    member->objects[at->object].name);
		else if (at->object >= 2)
			rc = write_log(r, at, bytes, wanted->length, err);
		if (!rc) {
			r->lacking[at->member][at->object][at->chunk] = 0;
			r->lacks--;
			r->received += wanted->length;
		}
	}
	if (at->object >= 2)
		free(bytes);
	return rc;
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Headers last: what is said there is there. The other slot's copy has the same log, and may have more of it. */
static int seal_logs(const struct tpck_replica *r, size_t m, struct tpck_error *err)
{
	const struct tpck_member *member = &r->coming->members[m];
	const struct tpck_member *other = r->slot[!r->to] ? &r->slot[!r->to]->members[m] : NULL;

	for (size_t i = 2; i < member->object_count; i++) {
		const struct tpck_object *object = &member->objects[i];
		bool same = other && i < other->object_count && strcmp(other->objects[i].name, object->name) == 0;
		uint64_t bytes = same ? other->objects[i].bytes : 0;
		size_t last = other && other->object_count > member->object_count ? other->object_count : member->object_count;
		struct tpck_log_header header = {
			.magic = TPCK_LOG_MAGIC, .version = member->image_version, .sealed = is_pack(object) ? TPCK_LOG_PACKED : i + 1 < last ? TPCK_LOG_SEALED : TPCK_LOG_OPEN,
			.generation = object->segment_generation, .sequence = i - 2, .bytes = object->segment_bytes,
			.used = sizeof header + (bytes > object->bytes ? bytes : object->bytes),
		};
		char path[TPCK_PATH_MAX];
		ssize_t wrote = -1;
		int fd;

		log_path(r, member, i, path, sizeof path);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd >= 0) {
			wrote = pwrite(fd, &header, sizeof header, 0);
			close(fd);
		}
		if (wrote != sizeof header)
			return tpck_error_set(err, errno ? errno : ENOSPC, "writing log segment %s", path);
	}
	return 0;
}

/* What neither copy refers to any more. */
static void drop_packed(const struct tpck_replica *r, size_t m)
{
	const struct tpck_member *member = &r->coming->members[m];
	const struct tpck_member *other = r->slot[!r->to] ? &r->slot[!r->to]->members[m] : NULL;
	char folder[TPCK_PATH_MAX], path[TPCK_PATH_MAX];

	tpck_replica_path(r, member, folder, sizeof folder);
	for (size_t i = 2; i < member->object_count; i++)
		if (is_pack(&member->objects[i]) && (!other || i >= other->object_count || is_pack(&other->objects[i]))) {
			tpck_log_path(folder, i - 2, path, sizeof path);
			unlink(path);
		}
}

static int finish_member(struct tpck_replica *r, size_t m, struct tpck_error *err)
{
	const struct tpck_member *member = &r->coming->members[m];
	struct tpck_cut cut = member->cut;
	char path[TPCK_PATH_MAX];
	int rc = seal_logs(r, m, err);

	tpck_replica_path(r, member, path, sizeof path);
	if (!rc)
		rc = tpck_log_check(path, &cut, err);
	if (!rc) {
		tpck_replica_image_path(r, member, r->to, path, sizeof path);
		tpck_stage_header(&r->image[m], r->coming, member);
		rc = tpck_image_check(&r->image[m], path, err);
	}
	return rc;
}

static void drop_coming(struct tpck_replica *r)
{
	struct tpck_manifest *manifest = r->coming;
	char *text = r->coming_text;

	leave(r);
	tpck_manifest_free(manifest);
	free(text);
}

int tpck_replica_finish(struct tpck_replica *r, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];
	int rc = 0;

	if (!r->coming || r->lacks)
		return tpck_error_set(err, EINVAL, "finishing a copy that is not whole");
	for (size_t m = 0; !rc && !is_fragments(r) && m < r->coming->member_count; m++)
		rc = finish_member(r, m, err);
	if (is_fragments(r)) {
		folder_path(r, &r->name, path, sizeof path);
		rc = tpck_fragments_save(path, r->to, r->coming_digests, tpck_fragments_count(r->coming), err);
	}
	whole_path(r, r->to, path, sizeof path);
	if (!rc)
		rc = tpck_file_write(path, r->coming_text, r->coming_size, 0, err);
	for (size_t m = 0; !rc && !is_fragments(r) && m < r->coming->member_count; m++)
		drop_packed(r, m);
	if (rc) {
		/* Each of its chunks is good: what is wrong with them all would be again. */
		drop_coming(r);
		return rc;
	}
	r->slot[r->to] = r->coming;
	r->text[r->to] = r->coming_text;
	r->text_size[r->to] = r->coming_size;
	r->firsts[r->to] = r->coming_firsts;
	r->coming_firsts = (struct tpck_firsts){0};
	r->digests[r->to] = r->coming_digests;
	r->coming_digests = NULL;
	leave(r);
	return 0;
}

void tpck_replica_abort(struct tpck_replica *r)
{
	char *text = r->coming_text;

	if (!r->lacking) {
		drop_coming(r);
		return;
	}
	r->left[r->to] = (struct tpck_replica_left){r->coming, r->coming_firsts, r->coming_digests, r->lacking, r->received + r->kept};
	r->coming_firsts = (struct tpck_firsts){0};
	r->coming_digests = NULL;
	r->lacking = NULL;
	close_images(r->image, r->coming->member_count);
	r->image = NULL;
	r->coming = NULL;
	r->coming_text = NULL;
	free(text);
}

bool tpck_replica_has_left(const struct tpck_replica *r)
{
	return r->left[0].bytes || r->left[1].bytes;
}

/* ---- for a start --------------------------------------------------------------------------- */

int tpck_replica_fragment(const struct tpck_replica *r, unsigned slot, const struct tpck_peer_want *at, void *to, uint8_t digest[16],
			  struct tpck_error *err)
{
	const struct tpck_member *member = &r->slot[slot]->members[at->member];
	size_t length = member->objects[at->object].chunks[at->chunk].length;
	char path[TPCK_PATH_MAX];

	tpck_replica_path(r, member, path, sizeof path);
	memcpy(digest, r->digests[slot][tpck_fragments_number(r->slot[slot], at)], 16);
	return tpck_fragments_read(path, slot, &r->fragment, at->object, at->chunk, to, length, err);
}

uint64_t tpck_replica_fill_needs(const struct tpck_replica *r, unsigned slot)
{
	const struct tpck_manifest *manifest = r->slot[slot];
	uint64_t bytes = 0;

	for (size_t m = 0; m < manifest->member_count; m++)
		for (size_t i = 0; i < manifest->members[m].objects[TPCK_OBJECT_OF_DATA].count; i++)
			bytes += tpck_firsts_is(&r->firsts[slot], m, i) ? 0 : TPCK_CHUNK_BYTES;
	return bytes;
}

static int fill_member(struct tpck_replica *r, unsigned slot, size_t m, const struct tpck_image *image, struct tpck_error *err)
{
	const struct tpck_member *member = &r->slot[slot]->members[m];
	const struct tpck_object *data = &member->objects[TPCK_OBJECT_OF_DATA];
	char path[TPCK_PATH_MAX];
	int fd, rc = 0;

	tpck_replica_image_path(r, member, slot, path, sizeof path);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return tpck_error_set(err, errno, "opening %s", path);
	for (size_t i = 0; !rc && i < data->count; i++) {
		const struct tpck_first *first = &r->firsts[slot].of[m][i];
		uint64_t at = TPCK_IMAGE_DATA_AT + i * TPCK_CHUNK_BYTES;

		if (tpck_firsts_is(&r->firsts[slot], m, i))
			continue;
		if (!image[first->member].header ||
		    pwrite(fd, image_place(&image[first->member], TPCK_OBJECT_OF_DATA, first->chunk), data->chunks[i].length,
			   (off_t)at) != (ssize_t)data->chunks[i].length)
			rc = tpck_error_set(err, errno ? errno : EIO, "writing chunk %zu of %s", i, path);
	}
	close(fd);
	return rc;
}

int tpck_replica_fill(struct tpck_replica *r, unsigned slot, struct tpck_error *err)
{
	struct tpck_image *image = open_images(r, slot);
	int rc = image ? 0 : tpck_error_set(err, ENOMEM, "filling a copy");

	for (size_t m = 0; !rc && m < r->slot[slot]->member_count; m++)
		rc = fill_member(r, slot, m, image, err);
	close_images(image, r->slot[slot]->member_count);
	return rc;
}
