/* SPDX-License-Identifier: Apache-2.0 */
/* The footer of an image: present only when everything before it was written; names of numbers. */
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

const char *tpck_collective_name(uint32_t collective)
{
	static const char *const names[] = {
		"ncclAllReduce", "ncclReduce", "ncclReduceScatter", "ncclBroadcast", "ncclBcast", "ncclAllGather", "ncclAlltoAll",
		"ncclGather", "ncclScatter", "ncclSend", "ncclRecv",
	};

	return collective < sizeof names / sizeof *names ? names[collective] : "?";
}
