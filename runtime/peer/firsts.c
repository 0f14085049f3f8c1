/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks with the same bytes, found by their digests. */
#include "config.h"

#include "runtime/peer/firsts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct tpck_chunk *chunk_at(const struct tpck_manifest *manifest, const struct tpck_first *at)
{
	return &manifest->members[at->member].objects[TPCK_OBJECT_OF_DATA].chunks[at->chunk];
}

/* Where the chunk's digest is in the table, or belongs. */
static struct tpck_first *slot_of(struct tpck_first *table, const uint8_t *used, size_t mask, const struct tpck_manifest *manifest,
				  const struct tpck_chunk *chunk)
{
	uint64_t at;

	memcpy(&at, chunk->digest, sizeof at);
	for (;; at++) {
		const struct tpck_chunk *there;

		if (!used[at & mask])
			return &table[at & mask];
		there = chunk_at(manifest, &table[at & mask]);
		if (there->length == chunk->length && memcmp(there->digest, chunk->digest, sizeof chunk->digest) == 0)
			return &table[at & mask];
	}
}

static void find_all(struct tpck_firsts *firsts, const struct tpck_manifest *manifest, struct tpck_first *table, uint8_t *used,
		     size_t mask)
{
	for (uint32_t m = 0; m < manifest->member_count; m++) {
		const struct tpck_object *data = &manifest->members[m].objects[TPCK_OBJECT_OF_DATA];

		for (uint32_t i = 0; i < data->count; i++) {
			struct tpck_first *slot = slot_of(table, used, mask, manifest, &data->chunks[i]);

			if (!used[slot - table]) {
				used[slot - table] = 1;
				*slot = (struct tpck_first){m, i};
			}
			firsts->of[m][i] = *slot;
		}
	}
}

int tpck_firsts_find(struct tpck_firsts *firsts, const struct tpck_manifest *manifest, struct tpck_error *err)
{
	size_t chunks = 0, slots = 64;
	struct tpck_first *table;
	uint8_t *used;
	bool whole;

	*firsts = (struct tpck_firsts){.members = manifest->member_count};
	firsts->of = calloc(manifest->member_count, sizeof *firsts->of);
	whole = firsts->of != NULL;
	for (size_t m = 0; whole && m < manifest->member_count; m++) {
		size_t count = manifest->members[m].objects[TPCK_OBJECT_OF_DATA].count;

		firsts->of[m] = calloc(count + 1, sizeof **firsts->of);
		whole = firsts->of[m] != NULL;
		chunks += count;
	}
	while (slots < 2 * chunks)
		slots *= 2;
	table = calloc(slots, sizeof *table);
	used = calloc(slots, 1);
	whole = whole && table && used;
	if (whole)
		find_all(firsts, manifest, table, used, slots - 1);
	else
		tpck_firsts_free(firsts);
	free(table);
	free(used);
	return whole ? 0 : tpck_error_set(err, ENOMEM, "keeping a peer's copy");
}

void tpck_firsts_free(struct tpck_firsts *firsts)
{
	for (size_t m = 0; firsts->of && m < firsts->members; m++)
		free(firsts->of[m]);
	free(firsts->of);
	*firsts = (struct tpck_firsts){0};
}

bool tpck_firsts_is(const struct tpck_firsts *firsts, size_t member, size_t chunk)
{
	const struct tpck_first *first = &firsts->of[member][chunk];

	return first->member == member && first->chunk == chunk;
}
