/* SPDX-License-Identifier: Apache-2.0 */
/* A container: a file of chunks behind one header block. */
#ifndef TPCK_RUNTIME_STORE_CONTAINER_H
#define TPCK_RUNTIME_STORE_CONTAINER_H

#include <stdint.h>

#include "runtime/store/file_names.h"
#include "runtime/store/tier.h"

#define TPCK_CONTAINER_MAGIC 0x617461646b637074ull /* "tpckdata" */
enum {
	TPCK_CONTAINER_VERSION = 1, /* raise when the header or the chunks' placing changes */
	TPCK_CONTAINER_HEADER = 4096,
};

/* The first bytes of the header block; the rest of the block is zero. Little endian. */
struct tpck_container_header {
	uint64_t magic;
	uint32_t version;
	uint32_t chunk_bytes;
	uint64_t generation, step;
	uint64_t digest; /* tpck_digest64 of what is before it, seed 0 */
};

void tpck_container_header_fill(struct tpck_container_header *header, const struct tpck_point *point);
/* -EPROTO for another version, -EBADMSG for no header at all. */
int tpck_container_check(struct tpck_tier *tier, const char *path, struct tpck_error *err);

#endif
