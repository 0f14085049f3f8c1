/* SPDX-License-Identifier: Apache-2.0 */
/* Publishing images with their logs. */
#include "config.h"

#include "runtime/store/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/store/container.h"
#include "runtime/store/packing.h"
#include "runtime/store/parts.h"
#include "runtime/store/quarantine.h"
#include "runtime/store/verify.h"
#include "runtime/wire/pack.h"

/* doc/format.md names these numbers. */
_Static_assert(sizeof(struct tpck_image_row) == 176 && sizeof(struct tpck_image_tensor) == 40 &&
		       sizeof(struct tpck_image_optimizer) == 112 && sizeof(struct tpck_log_header) == 48 &&
		       sizeof(struct tpck_container_header) == 40 && TPCK_CHUNK_BYTES == 4194304,
	       "what is stored is described byte by byte");

/* How many segments may not be packed in memory yet. */
enum { TAILS = 2 };

/* The source of the container's bytes: walks over all objects and hands out what is not stored yet. */
struct gathering {
	const struct tpck_publication *publication;
	struct tpck_manifest *manifest;
	size_t share;                   /* of the publication; the three below are its */
	struct tpck_member *member;
	const struct tpck_member *base; /* the same rank's in the base, or NULL */
	bool *worth;                    /* by the base's container: references into it are made; NULL: into none */
	const struct tpck_chunk **placed; /* those that this checkpoint has, by digest: ranks with equal bytes share them */
	size_t placed_mask;
	bool header_done;
	size_t object, chunk;
	uint64_t at;                    /* where the next chunk goes in the container */
	int log_fd;                     /* of the current object, if a log */
	struct tail {
		uint8_t *bytes[TAILS];
	} *tails;                       /* by share: its last segments up to the cut, packed, the last one first; NULL, or no bytes: as it is in memory */
};

/* ---- what belongs ------------------------------------------------------------------------- */

static const struct tpck_share *share_of(const struct gathering *g)
{
	return &g->publication->shares[g->share];
}

/* A segment below the cut is what its file has. */
static int plan_segment(const struct tpck_share *p, uint64_t sequence, struct tpck_object *object, struct tpck_error *err)
{
	bool last = sequence == p->image.header->log_sequence;
	struct tpck_log_header segment;
	char path[TPCK_PATH_MAX];
	uint64_t end;

	if (!tpck_segment_find(p->session_path, sequence, path, sizeof path, &segment))
		return tpck_error_set(err, ENOENT, "reading log segment %" PRIu64 " of %s", sequence, p->session_path);
	end = last ? p->image.header->log_offset : atomic_load(&segment.used);
	if (last && segment.sealed == TPCK_LOG_PACKED)
		return tpck_error_set(err, EBADMSG, "reading log segment %s, which is packed and has the snapshot's end", path);
	if (tpck_object_make(object, TPCK_OBJECT_LOG, strrchr(path, '/') + 1, end - sizeof segment))
		return tpck_error_set(err, ENOMEM, "publishing step %" PRIu64, p->image.header->step);
	object->segment_generation = segment.generation;
	object->segment_bytes = segment.bytes;
	return 0;
}

/* What is not packed in memory, as there may be more of it, is for the store: the next checkpoint has another one. Where that is no use it stays as it is. */
static int plan_tail(const struct tpck_share *p, uint64_t sequence, struct tpck_object *object, uint8_t **packed, struct tpck_error *err)
{
	uint64_t end = sizeof(struct tpck_log_header) + object->bytes, generation = object->segment_generation, bytes = object->segment_bytes;
	char path[TPCK_PATH_MAX], name[64];
	void *segment;
	size_t size;
	int fd, rc;

	if (strncmp(object->name, TPCK_PACK_PREFIX, sizeof TPCK_PACK_PREFIX - 1) == 0)
		return 0;
	tpck_log_path(p->session_path, sequence, path, sizeof path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	segment = fd < 0 ? MAP_FAILED : mmap(NULL, end, PROT_READ, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (segment == MAP_FAILED)
		return tpck_error_set(err, errno, "reading log segment %s", path);
	rc = tpck_pack_make(segment, end, packed, &size);
	munmap(segment, end);
	if (rc)
		return rc == -ENOMEM ? tpck_error_set(err, ENOMEM, "publishing step %" PRIu64, p->image.header->step) : 0;
	tpck_object_clear(object);
	snprintf(name, sizeof name, TPCK_PACK_PREFIX "%06" PRIu64, sequence);
	if (tpck_object_make(object, TPCK_OBJECT_LOG, name, size - sizeof(struct tpck_log_header)))
		return tpck_error_set(err, ENOMEM, "publishing step %" PRIu64, p->image.header->step);
	object->segment_generation = generation;
	object->segment_bytes = bytes;
	return 0;
}

static int plan_member(const struct tpck_share *p, struct tpck_member *member, struct tail *tail, struct tpck_error *err)
{
	const struct tpck_image_header *header = p->image.header;
	size_t logs = header->log_sequence + 1;
	int rc = 0;

	member->rank = p->rank;
	member->ordinal = p->ordinal;
	member->identity = strdup(p->identity);
	member->image_version = header->version;
	member->data_bytes = header->data_bytes;
	member->rows = header->rows;
	member->tensors = header->tensors;
	member->optimizers = header->optimizers;
	member->communicators = header->communicators;
	member->peers = header->peers;
	member->communicator = calloc(header->communicators + 1, sizeof *member->communicator);
	member->cut = (struct tpck_cut){header->log_sequence, header->log_offset};
	member->resumable = header->resumable;
	snprintf(member->reason, sizeof member->reason, "%.*s", (int)sizeof header->reason - 1, header->reason);
	member->notes = p->notes;
	member->objects = calloc(logs + 2, sizeof *member->objects);
	if (member->communicator)
		memcpy(member->communicator, tpck_image_communicators(&p->image),
		       header->communicators * sizeof *member->communicator);
	if (!member->identity || !member->objects || !member->communicator ||
	    tpck_object_make(&member->objects[0], TPCK_OBJECT_INDEX, "image.index",
			     tpck_image_index_bytes(header)) ||
	    tpck_object_make(&member->objects[1], TPCK_OBJECT_IMAGE, "image.data", header->data_bytes))
		return tpck_error_set(err, ENOMEM, "publishing step %" PRIu64, header->step);
	for (member->object_count = 2; !rc && member->object_count < logs + 2; member->object_count++)
		rc = plan_segment(p, member->object_count - 2, &member->objects[member->object_count], err);
	for (size_t i = 0; !rc && tail && i < TAILS && i < logs; i++)
		rc = plan_tail(p, logs - 1 - i, &member->objects[logs + 1 - i], &tail->bytes[i], err);
	return rc;
}

/* ---- bytes of a chunk --------------------------------------------------------------------- */

static int read_log(struct gathering *g, uint8_t *buffer, const struct tpck_chunk *chunk, struct tpck_error *err)
{
	uint64_t offset = sizeof(struct tpck_log_header) + (uint64_t)g->chunk * TPCK_CHUNK_BYTES;
	const char *name = g->member->objects[g->object].name;
	size_t used = 0, behind = g->member->object_count - 1 - g->object;

	if (g->tails && behind < TAILS && g->tails[g->share].bytes[behind]) {
		memcpy(buffer, g->tails[g->share].bytes[behind] + offset, chunk->length);
		return 0;
	}
	if (g->log_fd < 0) {
		char path[TPCK_PATH_MAX];

		if (tpck_path_join(path, sizeof path, share_of(g)->session_path, name))
			return tpck_error_set(err, ENAMETOOLONG, "reading %s", name);
		g->log_fd = open(path, O_RDONLY | O_CLOEXEC);
		if (g->log_fd < 0)
			return tpck_error_set(err, errno, "opening log segment %s", path);
	}
	while (used < chunk->length) {
		ssize_t got = pread(g->log_fd, buffer + used, chunk->length - used, (off_t)(offset + used));

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return tpck_error_set(err, got ? errno : EBADMSG, "reading %s/%s",
					      share_of(g)->session_path, name);
		used += (size_t)got;
	}
	return 0;
}

/* Digest of the current chunk; *bytes is where they are (buffer for logs). */
static int digest_chunk(struct gathering *g, struct tpck_chunk *chunk, uint8_t *buffer, const uint8_t **bytes,
			struct tpck_error *err)
{
	const struct tpck_image *image = &share_of(g)->image;
	struct tpck_image_chunk *row;

	switch (g->member->objects[g->object].kind) {
	case TPCK_OBJECT_LOG:
		*bytes = buffer;
		if (read_log(g, buffer, chunk, err))
			return -err->code;
		break;
	case TPCK_OBJECT_INDEX:
		*bytes = (const uint8_t *)tpck_image_rows(image) + (uint64_t)g->chunk * TPCK_CHUNK_BYTES;
		break;
	case TPCK_OBJECT_IMAGE:
		*bytes = share_of(g)->data ? share_of(g)->data[g->chunk] : tpck_image_data(image) + (uint64_t)g->chunk * TPCK_CHUNK_BYTES;
		break;
	}
	tpck_digest128(*bytes, chunk->length, chunk->digest);
	if (g->member->objects[g->object].kind != TPCK_OBJECT_IMAGE)
		return 0;
	row = &tpck_image_chunks(image)[g->chunk];
	if (!atomic_load_explicit(&row->hashed, memory_order_acquire)) {
		memcpy(row->digest, chunk->digest, sizeof row->digest);
		atomic_store_explicit(&row->hashed, 1, memory_order_release);
	} else if (memcmp(row->digest, chunk->digest, sizeof row->digest) != 0) {
		return tpck_error_set(err, EBADMSG, "chunk %zu of image %s does not match its digest", g->chunk,
				      share_of(g)->image_path);
	}
	return 0;
}

/* A container that is mostly dead is not kept alive for the little that is still used of it: what
 * the base uses of it must be a quarter, or the base's own. One that is gone is worth nothing. */
enum { WORTH_SHARE = 4 };

static void weigh_containers(struct gathering *g)
{
	const struct tpck_manifest *base = g->publication->base;
	uint64_t *used;

	if (!base)
		return;
	used = calloc(base->container_count, sizeof *used);
	g->worth = calloc(base->container_count, sizeof *g->worth);
	for (size_t m = 0; used && m < base->member_count; m++)
		for (size_t o = 0; o < base->members[m].object_count; o++)
			for (size_t i = 0; i < base->members[m].objects[o].count; i++)
				used[base->members[m].objects[o].chunks[i].container] += base->members[m].objects[o].chunks[i].length;
	for (size_t c = 0; used && g->worth && c < base->container_count; c++)
		g->worth[c] = used[c] && (tpck_manifest_owns(base, c) || used[c] >= base->containers[c].bytes / WORTH_SHARE) &&
			      tpck_container_check(g->publication->tier, base->containers[c].path, NULL) == 0;
	free(used);
}

/* Whether the base has the same bytes at the same place; the chunk then refers to them. */
static bool refer_to_base(struct gathering *g, struct tpck_chunk *chunk)
{
	const struct tpck_container *container;
	const struct tpck_chunk *old;
	int index;

	if (!g->base)
		return false;
	old = tpck_object_chunk(g->base->objects, g->base->object_count, g->member->objects[g->object].name, g->chunk);
	if (!old || !g->worth || !g->worth[old->container] || old->length != chunk->length || memcmp(old->digest, chunk->digest, sizeof old->digest) != 0)
		return false;
	container = &g->publication->base->containers[old->container];
	index = tpck_manifest_container(g->manifest, container->path, container->bytes);
	if (index < 0)
		return false;
	chunk->container = (uint32_t)index;
	chunk->offset = old->offset;
	return true;
}

/* With one rank there is nobody to share with. No memory: nothing is shared. */
static void placed_begin(struct gathering *g)
{
	size_t chunks = 0, slots = 64;

	for (size_t m = 0; m < g->manifest->member_count; m++)
		for (size_t o = 0; o < g->manifest->members[m].object_count; o++)
			chunks += g->manifest->members[m].objects[o].count;
	while (slots < 2 * chunks)
		slots *= 2;
	if (g->manifest->member_count > 1)
		g->placed = calloc(slots, sizeof *g->placed);
	g->placed_mask = slots - 1;
}

/* Where the chunk's digest is or belongs. */
static const struct tpck_chunk **placed_slot(const struct gathering *g, const struct tpck_chunk *chunk)
{
	uint64_t at;

	memcpy(&at, chunk->digest, sizeof at);
	for (;; at++) {
		const struct tpck_chunk **slot = &g->placed[at & g->placed_mask];

		if (!*slot || ((*slot)->length == chunk->length && memcmp((*slot)->digest, chunk->digest, sizeof chunk->digest) == 0))
			return slot;
	}
}

/* Whether another rank's equal bytes are in this checkpoint already; else these will be. */
static bool refer_to_placed(struct gathering *g, struct tpck_chunk *chunk)
{
	const struct tpck_chunk **slot;

	if (!g->placed)
		return false;
	slot = placed_slot(g, chunk);
	if (!*slot) {
		*slot = chunk;
		return false;
	}
	chunk->container = (*slot)->container;
	chunk->offset = (*slot)->offset;
	return true;
}

static void share_begin(struct gathering *g, size_t share)
{
	g->share = share;
	g->object = g->chunk = 0;
	if (share == g->publication->share_count)
		return;
	g->member = &g->manifest->members[share];
	g->base = g->publication->base
			  ? tpck_manifest_member(g->publication->base, g->member->rank, g->member->ordinal) : NULL;
}

/* To the next chunk that there is, of this rank or of the next one. */
static void settle(struct gathering *g)
{
	while (g->share < g->publication->share_count && g->chunk >= g->member->objects[g->object].count) {
		g->chunk = 0;
		if (g->log_fd >= 0)
			close(g->log_fd);
		g->log_fd = -1;
		if (++g->object == g->member->object_count)
			share_begin(g, g->share + 1);
	}
}

static int next_chunk(void *context, uint8_t *buffer, uint32_t *bytes, struct tpck_error *err)
{
	struct gathering *g = context;

	if (!g->header_done) {
		memset(buffer, 0, TPCK_CONTAINER_HEADER);
		tpck_container_header_fill((struct tpck_container_header *)buffer, &g->manifest->point);
		g->header_done = true;
		g->at = TPCK_CONTAINER_HEADER;
		*bytes = TPCK_CONTAINER_HEADER;
		return 0;
	}
	*bytes = 0;
	for (settle(g); g->share < g->publication->share_count; g->chunk++, settle(g)) {
		struct tpck_chunk *chunk = &g->member->objects[g->object].chunks[g->chunk];
		const uint8_t *from = NULL;
		int rc = digest_chunk(g, chunk, buffer, &from, err);

		if (rc)
			return rc;
		if (refer_to_base(g, chunk) || refer_to_placed(g, chunk))
			continue;
		if (from != buffer)
			memcpy(buffer, from, chunk->length);
		chunk->container = 0;
		chunk->offset = g->at;
		g->at += (chunk->length + TPCK_WRITER_ALIGN - 1) / TPCK_WRITER_ALIGN * TPCK_WRITER_ALIGN;
		*bytes = chunk->length;
		g->chunk++;
		return 0;
	}
	return 0;
}

/* ---- the order of things ------------------------------------------------------------------ */

/* `held`: images that are not committed yet will do, too. */
static int still_the_same(const struct tpck_publication *p, const struct tpck_manifest *manifest, bool held,
			  struct tpck_error *err)
{
	for (size_t i = 0; i < p->share_count; i++) {
		struct tpck_image_header *header = p->shares[i].image.header;
		uint32_t state = atomic_load(&header->state);

		if (header->generation != manifest->point.generation || header->step != manifest->point.step ||
		    (state != TPCK_IMAGE_COMMITTED && !(held && state == TPCK_IMAGE_HELD)) || header->footer != tpck_image_footer(header))
			return tpck_error_set(err, EBADMSG, "image %s changed while it was read", p->shares[i].image_path);
	}
	return 0;
}

static int commit(const struct tpck_publication *p, struct tpck_manifest *manifest, const char *folder,
		  struct tpck_error *err)
{
	char path[128], text[64], *manifest_text = NULL;
	size_t size;
	int rc;

	/* The mark says that these ranks' shares are whole and synced; a committer of many nodes waits
	 * for all of them. */
	snprintf(path, sizeof path, "%s/mark.r%u.o%u", folder, p->shares[0].rank, p->shares[0].ordinal);
	snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 "\n", manifest->point.generation, manifest->point.step);
	rc = p->tier->operations->mark(p->tier, path, text, err);
	if (!rc)
		rc = tpck_manifest_format(manifest, &manifest_text, &size, err);
	if (!rc && p->permitted && !p->permitted(p->context, &manifest->point))
		rc = tpck_error_set(err, ECANCELED, "publishing step %" PRIu64 " of a timeline that was left",
				    manifest->point.step);
	if (!rc) {
		snprintf(path, sizeof path, "%s/" TPCK_MANIFEST, folder);
		rc = p->tier->operations->commit_if_absent(p->tier, path, manifest_text, size, err);
	}
	free(manifest_text);
	return rc;
}

static struct tpck_manifest *manifest_new(const struct tpck_publication *p)
{
	struct tpck_manifest *manifest = calloc(1, sizeof *manifest);

	if (!manifest)
		return NULL;
	manifest->members = calloc(p->share_count, sizeof *manifest->members);
	if (!manifest->members) {
		free(manifest);
		return NULL;
	}
	manifest->member_count = p->share_count;
	manifest->point = (struct tpck_point){p->shares[0].image.header->generation, p->shares[0].image.header->step};
	manifest->parent = p->parent;
	manifest->created_ns = tpck_clock_realtime_ns();
	manifest->world = p->world;
	return manifest;
}

/* Everything up to the container's sync. */
static int store_container(const struct tpck_publication *p, struct tpck_manifest *manifest, const char *folder, struct tpck_error *err)
{
	struct gathering g = {.publication = p, .manifest = manifest, .log_fd = -1};
	struct tpck_source source = {next_chunk, &g};
	char container[96];
	uint64_t bytes = 0, begun = tpck_clock_monotonic_ns();
	int rc = 0;

	snprintf(container, sizeof container, "%s/data.%u", folder, p->shares[0].rank);
	weigh_containers(&g);
	g.tails = calloc(p->share_count, sizeof *g.tails);
	if (!g.tails)
		rc = tpck_error_set(err, ENOMEM, "publishing %s", folder);
	for (size_t i = 0; i < p->share_count && !rc; i++)
		rc = plan_member(&p->shares[i], &manifest->members[i], &g.tails[i], err);
	if (!rc) {
		placed_begin(&g);
		share_begin(&g, 0);
	}
	if (!rc && tpck_manifest_container(manifest, container, 0) < 0)
		rc = tpck_error_set(err, ENOMEM, "publishing %s", folder);
	if (!rc)
		rc = p->tier->operations->put(p->tier, container, &source, &bytes, err);
	if (g.log_fd >= 0)
		close(g.log_fd);
	for (size_t i = 0; g.tails && i < p->share_count; i++)
		for (size_t k = 0; k < TAILS; k++)
			free(g.tails[i].bytes[k]);
	free(g.tails);
	free(g.worth);
	free(g.placed);
	if (p->write_ns)
		*p->write_ns = tpck_clock_monotonic_ns() - begun;
	if (!rc)
		rc = still_the_same(p, manifest, false, err);
	if (!rc)
		manifest->containers[0].bytes = manifest->stored_bytes = bytes;
	return rc;
}

static int check_shares(const struct tpck_publication *p, struct tpck_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < p->share_count && !rc; i++) {
		const struct tpck_share *share = &p->shares[i];
		struct tpck_cut cut = {share->image.header->log_sequence, share->image.header->log_offset};

		rc = tpck_image_check(&share->image, share->image_path, err);
		if (!rc)
			rc = tpck_log_check(share->session_path, &cut, err);
	}
	return rc;
}

int tpck_publish(const struct tpck_publication *p, struct tpck_manifest **out, struct tpck_error *err)
{
	struct tpck_manifest *manifest;
	char folder[64], text[80];
	int rc = check_shares(p, err);

	if (rc)
		return rc;
	manifest = manifest_new(p);
	if (!manifest)
		return tpck_error_set(err, ENOMEM, "publishing a checkpoint");
	tpck_checkpoint_name_format(&manifest->point, folder, sizeof folder);
	rc = tpck_published(p->tier, &manifest->point) ? -EEXIST : store_container(p, manifest, folder, err);
	if (!rc)
		rc = commit(p, manifest, folder, err);
	if (rc) {
		if (rc != -EEXIST && !tpck_published(p->tier, &manifest->point))
			(void)p->tier->operations->remove(p->tier, folder, NULL);
		tpck_manifest_free(manifest);
		return rc;
	}
	rc = tpck_verify_new(p->tier, manifest, err);
	if (rc) {
		tpck_quarantine(p->tier, &manifest->point, err->text, NULL);
		tpck_manifest_free(manifest);
		return rc == -EBADMSG ? -EIO : rc;
	}
	snprintf(text, sizeof text, "%s\n", folder);
	rc = p->tier->operations->mark(p->tier, TPCK_LAST_GOOD, text, err);
	if (rc)
		tpck_manifest_free(manifest);
	else
		*out = manifest;
	return rc;
}

/* ---- a node's part ------------------------------------------------------------------------ */

/* The three names of a part, in the step's folder. */
struct part_paths {
	char container[96], sign[128], mark[128];
};

static void part_paths(const struct tpck_publication *p, const char *folder, struct part_paths *paths)
{
	const struct tpck_share *first = &p->shares[0];

	snprintf(paths->container, sizeof paths->container, "%s/data.%u", folder, first->rank);
	snprintf(paths->sign, sizeof paths->sign, "%s/" TPCK_PART_PREFIX "r%u.o%u", folder, first->rank, first->ordinal);
	snprintf(paths->mark, sizeof paths->mark, "%s/" TPCK_MARK_PREFIX "r%u.o%u", folder, first->rank, first->ordinal);
}

/* Whether what was marked for this rank is what the image holds, as far as its chunks were hashed. */
static bool same_member(const struct tpck_member *member, const struct tpck_share *share)
{
	const struct tpck_image_header *header = share->image.header;
	const struct tpck_object *data = &member->objects[1];

	if (member->rank != share->rank || member->ordinal != share->ordinal || strcmp(member->identity, share->identity) != 0 ||
	    member->object_count < 3 || member->data_bytes != header->data_bytes || data->count != header->chunks ||
	    member->cut.sequence != header->log_sequence || member->cut.offset != header->log_offset)
		return false;
	for (size_t i = 0; i < data->count; i++) {
		struct tpck_image_chunk *row = &tpck_image_chunks(&share->image)[i];

		if (atomic_load_explicit(&row->hashed, memory_order_acquire) &&
		    memcmp(row->digest, data->chunks[i].digest, sizeof row->digest) != 0)
			return false;
	}
	return true;
}

/* What an agent before this one has written of the same ranks, if it is whole. */
static bool part_is_there(const struct tpck_publication *p, const struct tpck_manifest *wanted, const struct part_paths *paths,
			  struct tpck_manifest **out)
{
	struct tpck_manifest *part;
	bool same;

	if (tpck_part_load(&part, p->tier, paths->mark, NULL))
		return false;
	same = part->member_count == p->share_count && part->world == p->world &&
	       tpck_point_compare(&part->point, &wanted->point) == 0 && tpck_point_compare(&part->parent, &p->parent) == 0;
	for (size_t i = 0; same && i < p->share_count; i++)
		same = same_member(&part->members[i], &p->shares[i]);
	for (size_t c = 0; same && c < part->container_count; c++)
		same = tpck_verify_container(p->tier, part, c, NULL) == 0;
	if (!same || tpck_verify_new(p->tier, part, NULL)) {
		tpck_manifest_free(part);
		return false;
	}
	*out = part;
	return true;
}

static int store_part(const struct tpck_publication *p, struct tpck_manifest *manifest, const char *folder,
		      const struct part_paths *paths, struct tpck_error *err)
{
	char text[64], *mark = NULL, *back = NULL;
	int rc;

	/* The mark goes before what it vouches for is written again. */
	rc = p->tier->operations->remove(p->tier, paths->mark, err);
	snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 "\n", manifest->point.generation, manifest->point.step);
	if (!rc)
		rc = p->tier->operations->mark(p->tier, paths->sign, text, err);
	if (!rc)
		rc = store_container(p, manifest, folder, err);
	if (!rc) {
		rc = tpck_verify_new(p->tier, manifest, err);
		rc = rc == -EBADMSG ? -EIO : rc;
	}
	if (!rc)
		rc = tpck_mark_format(manifest, &mark, err);
	if (!rc && p->permitted && !p->permitted(p->context, &manifest->point))
		rc = tpck_error_set(err, ECANCELED, "publishing step %" PRIu64 " of a timeline that was left", manifest->point.step);
	if (!rc)
		rc = p->tier->operations->mark(p->tier, paths->mark, mark, err);
	/* Whoever joins reads its head only. */
	if (!rc)
		rc = p->tier->operations->get_text(p->tier, paths->mark, 1 << 30, &back, NULL, err);
	if (!rc && strcmp(back, mark) != 0)
		rc = tpck_error_set(err, EIO, "%s/%s was not kept", p->tier->root, paths->mark);
	free(back);
	free(mark);
	return rc;
}

/* The mark first; without it nobody joins the container. */
static void remove_part(struct tpck_tier *tier, const struct part_paths *paths)
{
	(void)tier->operations->remove(tier, paths->mark, NULL);
	(void)tier->operations->remove(tier, paths->container, NULL);
	(void)tier->operations->remove(tier, paths->sign, NULL);
}

int tpck_publish_part(const struct tpck_publication *p, struct tpck_manifest **out, struct tpck_error *err)
{
	struct tpck_manifest *manifest;
	struct part_paths paths;
	char folder[64];
	int rc = check_shares(p, err);

	if (rc)
		return rc;
	manifest = manifest_new(p);
	if (!manifest)
		return tpck_error_set(err, ENOMEM, "publishing a part of a checkpoint");
	manifest->part = true;
	tpck_checkpoint_name_format(&manifest->point, folder, sizeof folder);
	part_paths(p, folder, &paths);
	if (tpck_published(p->tier, &manifest->point)) {
		tpck_manifest_free(manifest);
		return -EEXIST;
	}
	if (part_is_there(p, manifest, &paths, out)) {
		tpck_manifest_free(manifest);
		return 0;
	}
	rc = store_part(p, manifest, folder, &paths, err);
	if (rc) {
		if (!tpck_published(p->tier, &manifest->point))
			remove_part(p->tier, &paths);
		tpck_manifest_free(manifest);
		return rc;
	}
	*out = manifest;
	return 0;
}

/* ---- without a place of its own ------------------------------------------------------------ */

static int describe_chunks(struct gathering *g, struct tpck_error *err)
{
	uint8_t *buffer = malloc(TPCK_CHUNK_BYTES);
	int rc = buffer ? 0 : tpck_error_set(err, ENOMEM, "describing a snapshot");

	/* The container stands for wherever the copy lies: its chunks one after another. */
	for (settle(g); !rc && g->share < g->publication->share_count; g->chunk++, settle(g)) {
		struct tpck_chunk *chunk = &g->member->objects[g->object].chunks[g->chunk];
		const uint8_t *from;

		rc = digest_chunk(g, chunk, buffer, &from, err);
		chunk->offset = g->at;
		g->at += TPCK_CHUNK_BYTES;
	}
	free(buffer);
	if (g->log_fd >= 0)
		close(g->log_fd);
	return rc;
}

int tpck_publish_describe(const struct tpck_publication *p, struct tpck_manifest **out, struct tpck_error *err)
{
	struct tpck_manifest *manifest = manifest_new(p);
	struct gathering g = {.publication = p, .manifest = manifest, .log_fd = -1};
	char folder[64], container[96];
	int rc = 0;

	if (!manifest)
		return tpck_error_set(err, ENOMEM, "describing a snapshot");
	tpck_checkpoint_name_format(&manifest->point, folder, sizeof folder);
	snprintf(container, sizeof container, "%s/data.%u", folder, p->shares[0].rank);
	for (size_t i = 0; i < p->share_count && !rc; i++)
		rc = plan_member(&p->shares[i], &manifest->members[i], NULL, err);
	if (!rc && tpck_manifest_container(manifest, container, 0) < 0)
		rc = tpck_error_set(err, ENOMEM, "describing a snapshot");
	if (!rc) {
		share_begin(&g, 0);
		rc = describe_chunks(&g, err);
	}
	if (!rc)
		rc = still_the_same(p, manifest, true, err);
	if (rc) {
		tpck_manifest_free(manifest);
		return rc;
	}
	manifest->containers[0].bytes = g.at;
	*out = manifest;
	return 0;
}
