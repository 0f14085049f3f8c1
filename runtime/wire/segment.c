/* SPDX-License-Identifier: Apache-2.0 */
/* The footer of an image: present only when everything before it was written. */
#include "config.h"

#include "runtime/wire/segment.h"

#include "runtime/base/digest.h"

uint64_t tpck_image_footer(const struct tpck_image_header *header)
{
	uint64_t fields[] = {
		header->magic, header->version, header->generation, header->step, header->data_bytes,
		header->chunks, header->rows, header->tensors, header->optimizers, header->communicators, header->peers,
		header->log_sequence, header->log_offset, header->resumable,
	};

	return tpck_digest64(fields, sizeof fields, TPCK_IMAGE_MAGIC);
}
