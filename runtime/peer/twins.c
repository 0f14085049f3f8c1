/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of several nodes with the same bytes, found by their digests. */
#include "config.h"

#include "runtime/peer/twins.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/store/memory_tier.h"

struct row {
	uint8_t digest[16];
	uint64_t length; /* 0: unused */
	uint32_t member, chunk;
};

struct tpck_twins {
	struct row *row; /* by digest, a power of two */
	size_t mask;
	char **path;     /* [paths] */
	size_t paths;
};

/* Where a digest is, or belongs. */
static struct row *row_of(const struct tpck_twins *twins, const struct tpck_chunk *chunk)
{
	uint64_t at;

	memcpy(&at, chunk->digest, sizeof at);
	while (twins->row[at & twins->mask].length && (twins->row[at & twins->mask].length != chunk->length ||
						       memcmp(twins->row[at & twins->mask].digest, chunk->digest, sizeof chunk->digest) != 0))
		at++;
	return &twins->row[at & twins->mask];
}

static void note(struct tpck_twins *twins, const struct tpck_manifest *manifest)
{
	for (uint32_t m = 0; m < manifest->member_count; m++) {
		const struct tpck_object *data = &manifest->members[m].objects[TPCK_OBJECT_OF_DATA];

		for (uint32_t i = 0; i < data->count; i++) {
			struct row *row = row_of(twins, &data->chunks[i]);

			memcpy(row->digest, data->chunks[i].digest, sizeof row->digest);
			row->length = data->chunks[i].length;
			row->member = m;
			row->chunk = i;
		}
	}
}

struct tpck_twins *tpck_twins_new(const struct tpck_manifest *manifest, const char *const *image_paths)
{
	struct tpck_twins *twins = calloc(1, sizeof *twins);
	size_t chunks = 0, slots = 64;
	bool whole;

	if (!twins)
		return NULL;
	for (size_t m = 0; m < manifest->member_count; m++)
		chunks += manifest->members[m].objects[TPCK_OBJECT_OF_DATA].count;
	while (slots < 2 * chunks)
		slots *= 2;
	twins->row = calloc(slots, sizeof *twins->row);
	twins->mask = slots - 1;
	twins->path = calloc(manifest->member_count + 1, sizeof *twins->path);
	whole = twins->row && twins->path;
	for (; whole && twins->paths < manifest->member_count; twins->paths++) {
		twins->path[twins->paths] = strdup(image_paths[twins->paths]);
		whole = twins->path[twins->paths] != NULL;
	}
	if (!whole) {
		tpck_twins_free(twins);
		return NULL;
	}
	note(twins, manifest);
	return twins;
}

void tpck_twins_free(struct tpck_twins *twins)
{
	if (!twins)
		return;
	for (size_t m = 0; twins->path && m < twins->paths; m++)
		free(twins->path[m]);
	free(twins->path);
	free(twins->row);
	free(twins);
}

/* The images, opened when they are first needed. */
struct images {
	struct tpck_image *image;
	bool *tried;
};

static const struct tpck_image *image_of(const struct tpck_twins *twins, struct images *images, uint32_t member)
{
	if (!images->tried[member]) {
		images->tried[member] = true;
		(void)tpck_image_open(&images->image[member], twins->path[member], false, NULL);
	}
	return images->image[member].header ? &images->image[member] : NULL;
}

/* The fragment that is kept of it. It does not show what it was made of, so that this is compared before. */
static bool take_fragment(struct tpck_replica *replica, const struct tpck_peer_want *want, const struct tpck_chunk *chunk, const void *bytes)
{
	uint8_t digest[16], *whole = malloc(chunk->length), *to = NULL;
	size_t size = tpck_fragment_bytes(&replica->fragment, chunk->length);
	bool taken = false;

	if (whole) {
		memcpy(whole, bytes, chunk->length);
		tpck_digest128(whole, chunk->length, digest);
		to = memcmp(digest, chunk->digest, sizeof digest) == 0 ? tpck_replica_place(replica, want, size) : NULL;
	}
	if (to) {
		bool cut = tpck_erasure_cut(&replica->fragment, whole, chunk->length, to) == 0;

		if (cut)
			tpck_digest128(to, size, digest);
		taken = !tpck_replica_take(replica, want, to, cut, digest, NULL) && cut;
	}
	free(whole);
	return taken;
}

/* Whether it is here now. */
static bool take(const struct tpck_twins *twins, struct images *images, struct tpck_replica *replica, const struct tpck_peer_want *want)
{
	const struct tpck_chunk *chunk = &replica->coming->members[want->member].objects[want->object].chunks[want->chunk];
	const struct row *row = want->object == TPCK_OBJECT_OF_DATA ? row_of(twins, chunk) : NULL;
	const struct tpck_image *image = row && row->length ? image_of(twins, images, row->member) : NULL;
	uint64_t at = row ? (uint64_t)row->chunk * TPCK_CHUNK_BYTES : 0;
	uint8_t *to;

	if (!image || at + row->length > image->size - TPCK_IMAGE_DATA_AT)
		return false;
	if (replica->fragment.data)
		return take_fragment(replica, want, chunk, tpck_image_data(image) + at);
	to = tpck_replica_place(replica, want, row->length);
	if (!to)
		return false;
	memcpy(to, tpck_image_data(image) + at, row->length);
	return !tpck_replica_take(replica, want, to, true, NULL, NULL);
}

size_t tpck_twins_fill(const struct tpck_twins *twins, struct tpck_replica *replica, struct tpck_peer_want *want, size_t count,
		       uint64_t *bytes)
{
	struct images images = {calloc(twins->paths + 1, sizeof *images.image), calloc(twins->paths + 1, sizeof *images.tried)};
	uint64_t before = replica->received;
	size_t left = 0;

	for (size_t i = 0; images.image && images.tried && i < count; i++)
		if (!take(twins, &images, replica, &want[i]))
			want[left++] = want[i];
	if (!images.image || !images.tried)
		left = count;
	/* What was found did not come. */
	*bytes = replica->received - before;
	replica->received = before;
	for (size_t m = 0; images.image && m < twins->paths; m++)
		if (images.image[m].header)
			tpck_image_close(&images.image[m]);
	free(images.image);
	free(images.tried);
	return left;
}
