/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest: what a durable checkpoint consists of. doc/format.md describes its text. */
#ifndef TPCK_RUNTIME_STORE_MANIFEST_H
#define TPCK_RUNTIME_STORE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/store/chunk.h"
#include "runtime/store/layout.h"
#include "runtime/store/memory_tier.h"
#include "runtime/store/tier.h"

/* Raise when a reader of the former number would misread the text. */
enum { TPCK_MANIFEST_FORMAT = 1 };
#define TPCK_MANIFEST "MANIFEST"
#define TPCK_LAST_GOOD "LAST_GOOD"

struct tpck_container {
	char path[128]; /* relative to the job's folder */
	uint64_t bytes;
};

/* What the engine knew when the image was taken; for `show` and `ls`, not for resuming. */
struct tpck_notes {
	uint64_t period, optimizer_operations, captured, skipped, abandoned, iteration_ns;
	uint64_t stall_ns_max, stall_ns_sum, stall_count, stall_cpu_ns_max, stall_cpu_ns_sum, wait_ns_sum;
	uint64_t sure_by_names, sure_by_pattern;
	uint64_t class_blocks[TPCK_CLASSES], class_bytes[TPCK_CLASSES];
};
void tpck_notes_take(struct tpck_notes *notes, const struct tpck_status *status);

/* One rank's share of a checkpoint. */
struct tpck_member {
	uint32_t rank, ordinal;
	char *identity;
	uint32_t image_version; /* TPCK_WIRE_VERSION of index rows and log records */
	uint64_t data_bytes, rows, tensors, optimizers, communicators, peers;
	struct tpck_image_communicator *communicator; /* those of the index, for whoever reads the text */
	struct tpck_cut cut;
	bool resumable;
	char reason[128];
	struct tpck_notes notes;
	size_t object_count;
	struct tpck_object *objects;
};

/* Bytes of its index. */
uint64_t tpck_member_index_bytes(const struct tpck_member *member);
/* Whether an image has room for such an index. */
bool tpck_member_index_fits(const struct tpck_member *member);

struct tpck_manifest {
	struct tpck_point point;
	struct tpck_point parent; /* 0, 0 without */
	uint64_t created_ns;      /* since 1970 */
	uint32_t world;
	bool part;                /* of one node's ranks: what a node's mark says, never a checkpoint */
	uint64_t stored_bytes;    /* new in this checkpoint, references not counted */
	size_t container_count;
	struct tpck_container *containers;
	size_t member_count;
	struct tpck_member *members;
};

void tpck_manifest_free(struct tpck_manifest *manifest);
/* Index of a container, added if it is not there. Negative: -ENOMEM, -ENAMETOOLONG. */
int tpck_manifest_container(struct tpck_manifest *manifest, const char *path, uint64_t bytes);
/* Whether the container lies in the checkpoint's own folder; a joined checkpoint has one of each node. */
bool tpck_manifest_owns(const struct tpck_manifest *manifest, size_t container);
/* Bytes of all objects. */
uint64_t tpck_manifest_bytes(const struct tpck_manifest *manifest);
const struct tpck_member *tpck_manifest_member(const struct tpck_manifest *manifest, uint32_t rank,
					       uint32_t ordinal);

/* Ranks for a reader: "0, 2-5, 9", cut with "..." where there is no room. */
struct tpck_ranks {
	char text[120];
	size_t used;
	uint32_t first, last; /* not in the text yet */
	bool any, cut;
};
/* Ascending; the ends belong to it. */
void tpck_ranks_add(struct tpck_ranks *ranks, uint32_t first, uint32_t last);
const char *tpck_ranks_text(struct tpck_ranks *ranks);

/* -EAGAIN, and which in `missing`, where not each of the program's ranks is a member; -EBADMSG where one is there twice
 * (*twice) or is none of the world. Members are by ascending rank. */
int tpck_manifest_ranks(const struct tpck_manifest *manifest, struct tpck_ranks *missing, uint32_t *twice);

/* The text, malloc'd. */
int tpck_manifest_format(const struct tpck_manifest *manifest, char **text, size_t *size, struct tpck_error *err);
/* Reads a text that nobody vouches for. name is for messages. -EPROTO: a format this program does
 * not know; -EBADMSG: damaged. */
int tpck_manifest_parse(struct tpck_manifest **manifest, const char *text, size_t size, const char *name,
			struct tpck_error *err);
/* The same of a part, which the one above takes for no manifest, as this one does a whole one. */
int tpck_manifest_parse_part(struct tpck_manifest **manifest, const char *text, size_t size, const char *name,
			     struct tpck_error *err);
/* Loads a checkpoint's manifest. -ENOENT: not published. -EBADMSG, with the ranks, where it lacks some. */
int tpck_manifest_load(struct tpck_manifest **manifest, struct tpck_tier *tier,
		       const struct tpck_point *point, struct tpck_error *err);

/* All published checkpoints of a job, oldest first. Those whose manifest cannot be read are counted
 * in *unreadable (may be NULL), each with its point and the error handed to `bad` (may be NULL). */
struct tpck_catalog {
	size_t count;
	struct tpck_manifest **manifests;
};
int tpck_catalog_load(struct tpck_catalog *catalog, struct tpck_tier *tier, size_t *unreadable,
		      void (*bad)(void *context, const struct tpck_point *point, const struct tpck_error *err),
		      void *context, struct tpck_error *err);
void tpck_catalog_free(struct tpck_catalog *catalog);

#endif
