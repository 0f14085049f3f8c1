/* SPDX-License-Identifier: Apache-2.0 */
/* Container headers. */
#include "config.h"

#include "runtime/store/container.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "runtime/base/digest.h"
#include "runtime/wire/segment.h"

void tpck_container_header_fill(struct tpck_container_header *header, const struct tpck_point *point)
{
	memset(header, 0, sizeof *header);
	header->magic = TPCK_CONTAINER_MAGIC;
	header->version = TPCK_CONTAINER_VERSION;
	header->chunk_bytes = TPCK_CHUNK_BYTES;
	header->generation = point->generation;
	header->step = point->step;
	header->digest = tpck_digest64(header, offsetof(struct tpck_container_header, digest), 0);
}

int tpck_container_check(struct tpck_tier *tier, const char *path, struct tpck_error *err)
{
	_Alignas(TPCK_WRITER_ALIGN) uint8_t block[TPCK_CONTAINER_HEADER];
	struct tpck_container_header header;
	int rc = tier->operations->get(tier, path, 0, block, sizeof block, err);

	if (rc)
		return rc;
	memcpy(&header, block, sizeof header);
	if (header.magic != TPCK_CONTAINER_MAGIC)
		return tpck_error_set(err, EBADMSG, "%s/%s is no container", tier->root, path);
	if (header.version != TPCK_CONTAINER_VERSION)
		return tpck_error_set(err, EPROTO, "container %s/%s has version %u, this is %d", tier->root, path,
				      header.version, TPCK_CONTAINER_VERSION);
	if (header.digest != tpck_digest64(&header, offsetof(struct tpck_container_header, digest), 0))
		return tpck_error_set(err, EBADMSG, "header of container %s/%s does not match its digest",
				      tier->root, path);
	return 0;
}
