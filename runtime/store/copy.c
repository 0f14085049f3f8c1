/* SPDX-License-Identifier: Apache-2.0 */
/* Container by container, and nothing counts before it was read back. */
#include "config.h"

#include "runtime/store/copy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/store/verify.h"

struct reading {
	const struct tpck_copy *copy;
	const struct tpck_container *container;
	uint64_t at;
};

static int left_behind(const struct tpck_copy *copy, struct tpck_error *err)
{
	return tpck_error_set(err, ECANCELED, "copying step %" PRIu64 ", which is not wanted any more",
			      copy->manifest->point.step);
}

static int next_piece(void *context, uint8_t *buffer, uint32_t *bytes, struct tpck_error *err)
{
	struct reading *reading = context;
	const struct tpck_copy *copy = reading->copy;
	uint64_t left = reading->container->bytes - reading->at;
	int rc;

	*bytes = left < TPCK_CHUNK_BYTES ? (uint32_t)left : TPCK_CHUNK_BYTES;
	if (!*bytes)
		return 0;
	if (copy->permitted && !copy->permitted(copy->context, &copy->manifest->point))
		return left_behind(copy, err);
	rc = copy->from->operations->get(copy->from, reading->container->path, reading->at, buffer, *bytes, err);
	reading->at += *bytes;
	return rc;
}

static bool refers(const struct tpck_catalog *catalog, const char *path)
{
	for (size_t i = 0; i < catalog->count; i++)
		for (size_t c = 0; c < catalog->manifests[i]->container_count; c++)
			if (strcmp(catalog->manifests[i]->containers[c].path, path) == 0)
				return true;
	return false;
}

static int copy_containers(struct tpck_copy *copy, const struct tpck_catalog *there, struct tpck_error *err)
{
	int rc = 0;

	for (size_t c = 0; !rc && c < copy->manifest->container_count; c++) {
		const struct tpck_container *container = &copy->manifest->containers[c];
		struct reading reading = {.copy = copy, .container = container};
		const struct tpck_source source = {.next = next_piece, .context = &reading};
		uint64_t bytes = 0;

		/* What is there and nobody refers to may be half of one. */
		if (refers(there, container->path))
			continue;
		rc = copy->to->operations->put(copy->to, container->path, &source, &bytes, err);
		if (!rc && bytes != container->bytes)
			rc = tpck_error_set(err, EBADMSG, "container %s/%s has %" PRIu64 " bytes, the manifest says %" PRIu64,
					    copy->to->root, container->path, bytes, container->bytes);
		copy->copied_bytes += bytes;
	}
	return rc;
}

static int commit(const struct tpck_copy *copy, const char *folder, struct tpck_error *err)
{
	const struct tpck_manifest *manifest = copy->manifest;
	char path[128], text[80], *manifest_text = NULL;
	size_t size;
	int rc = 0;

	snprintf(text, sizeof text, "%" PRIu64 " %" PRIu64 "\n", manifest->point.generation, manifest->point.step);
	for (size_t m = 0; !rc && m < manifest->member_count; m++) {
		snprintf(path, sizeof path, "%s/mark.r%u.o%u", folder, manifest->members[m].rank, manifest->members[m].ordinal);
		rc = copy->to->operations->mark(copy->to, path, text, err);
	}
	if (!rc)
		rc = tpck_manifest_format(manifest, &manifest_text, &size, err);
	if (!rc && copy->permitted && !copy->permitted(copy->context, &manifest->point))
		rc = left_behind(copy, err);
	if (!rc) {
		snprintf(path, sizeof path, "%s/" TPCK_MANIFEST, folder);
		rc = copy->to->operations->commit_if_absent(copy->to, path, manifest_text, size, err);
	}
	free(manifest_text);
	if (!rc) {
		snprintf(text, sizeof text, "%s\n", folder);
		rc = copy->to->operations->mark(copy->to, TPCK_LAST_GOOD, text, err);
	}
	return rc;
}

int tpck_copy(struct tpck_copy *copy, bool *bad_source, struct tpck_error *err)
{
	struct tpck_catalog there;
	char folder[64];
	int rc = tpck_catalog_load(&there, copy->to, NULL, NULL, NULL, err);

	if (bad_source)
		*bad_source = false;
	copy->copied_bytes = 0;
	if (rc)
		return rc;
	tpck_checkpoint_name_format(&copy->manifest->point, folder, sizeof folder);
	for (size_t i = 0; i < there.count && !rc; i++)
		if (tpck_point_compare(&there.manifests[i]->point, &copy->manifest->point) == 0)
			rc = there.manifests[i]->created_ns == copy->manifest->created_ns
				     ? -EEXIST
				     : tpck_error_set(err, ENOTUNIQ, "%s has another checkpoint that is called %s", copy->to->root,
						      folder);
	if (rc) {
		tpck_catalog_free(&there);
		return rc;
	}
	rc = copy_containers(copy, &there, err);
	if (!rc)
		rc = tpck_verify_unlike(copy->to, copy->manifest, &there, err);
	if (!rc)
		rc = commit(copy, folder, err);
	if (rc == -EBADMSG && bad_source)
		*bad_source = tpck_verify(copy->from, copy->manifest, NULL) == -EBADMSG;
	tpck_catalog_free(&there);
	return rc;
}
