/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying durable checkpoints. */
#include "config.h"

#include "runtime/store/verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/store/container.h"

int tpck_verify_chunk(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		      const struct tpck_object *object, size_t i, uint8_t *buffer, struct tpck_error *err)
{
	const struct tpck_chunk *chunk = &object->chunks[i];
	const char *path = manifest->containers[chunk->container].path;
	uint8_t digest[16];
	int rc = tier->operations->get(tier, path, chunk->offset, buffer, chunk->length, err);

	if (rc)
		return rc;
	tpck_digest128(buffer, chunk->length, digest);
	if (memcmp(digest, chunk->digest, sizeof digest) != 0)
		return tpck_error_set(err, EBADMSG,
				      "%s/%s: chunk %zu of %s (offset %" PRIu64 ") does not match its digest",
				      tier->root, path, i, object->name, chunk->offset);
	return 0;
}

struct visit {
	struct tpck_tier *tier;
	const struct tpck_manifest *manifest;
	bool only_new;
	void (*fault)(void *context, const struct tpck_error *err); /* NULL: stop at the first */
	void *context;
	long faults;
	struct tpck_error *err;
};

/* Returns non-zero to stop. */
static int judge(struct visit *visit, int rc, struct tpck_error *one)
{
	if (rc == 0)
		return 0;
	visit->faults++;
	if (visit->fault) {
		visit->fault(visit->context, one);
		return 0;
	}
	if (visit->err)
		*visit->err = *one;
	return rc;
}

static bool own_container(const struct visit *visit, uint32_t container)
{
	char folder[64];

	tpck_checkpoint_name_format(&visit->manifest->point, folder, sizeof folder);
	return strncmp(visit->manifest->containers[container].path, folder, strlen(folder)) == 0;
}

static int visit_all(struct visit *visit)
{
	const struct tpck_manifest *manifest = visit->manifest;
	struct tpck_error one = {0};
	uint8_t *buffer = aligned_alloc(TPCK_WRITER_ALIGN, TPCK_CHUNK_BYTES);
	int rc = 0;

	if (!buffer)
		return tpck_error_set(visit->err, ENOMEM, "verifying a checkpoint");
	for (size_t i = 0; !rc && i < manifest->container_count; i++)
		if (!visit->only_new || own_container(visit, (uint32_t)i))
			rc = judge(visit, tpck_container_check(visit->tier, manifest->containers[i].path, &one), &one);
	for (size_t m = 0; !rc && m < manifest->member_count; m++) {
		const struct tpck_member *member = &manifest->members[m];

		for (size_t o = 0; !rc && o < member->object_count; o++) {
			for (size_t i = 0; !rc && i < member->objects[o].count; i++) {
				if (visit->only_new && !own_container(visit, member->objects[o].chunks[i].container))
					continue;
				rc = judge(visit, tpck_verify_chunk(visit->tier, manifest, &member->objects[o], i,
								    buffer, &one), &one);
			}
		}
	}
	free(buffer);
	return rc;
}

int tpck_verify(struct tpck_tier *tier, const struct tpck_manifest *manifest, struct tpck_error *err)
{
	struct visit visit = {.tier = tier, .manifest = manifest, .err = err};

	return visit_all(&visit);
}

int tpck_verify_new(struct tpck_tier *tier, const struct tpck_manifest *manifest, struct tpck_error *err)
{
	struct visit visit = {.tier = tier, .manifest = manifest, .only_new = true, .err = err};

	return visit_all(&visit);
}

long tpck_verify_each(struct tpck_tier *tier, const struct tpck_manifest *manifest,
		      void (*fault)(void *context, const struct tpck_error *err), void *context)
{
	struct visit visit = {.tier = tier, .manifest = manifest, .fault = fault, .context = context};
	int rc = visit_all(&visit);

	return rc ? rc : visit.faults;
}
