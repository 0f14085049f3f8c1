/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest: what a durable checkpoint consists of. doc/format.md describes its text. */
#ifndef TPCK_RUNTIME_STORE_MANIFEST_H
#define TPCK_RUNTIME_STORE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/store/chunk.h"
#include "runtime/store/file_names.h"
#include "runtime/store/memory_tier.h"
#include "runtime/store/tier.h"

/* Raise when a reader of the former number would misread the text. */
enum {
	TPCK_MANIFEST_FORMAT = 1,       /* has all ranks' chunks */
	TPCK_MANIFEST_PARTS_FORMAT = 2, /* names the parts of several nodes, whose marks have them */
};
#define TPCK_MANIFEST "MANIFEST"
#define TPCK_LAST_GOOD "LAST_GOOD"

struct tpck_container {
	char path[128]; /* relative to the job's folder */
	uint64_t bytes;
};

/* What the engine knew when the image was taken; for `show` and `ls`, not for resuming. */
struct tpck_notes {
	uint64_t period, optimizer_operations, captured, skipped, abandoned, iteration_ns;
	uint64_t stall_ns_max, stall_ns_sum, stall_count, stall_cpu_ns_max, stall_cpu_ns_sum, submit_ns_max, submit_ns_sum, submit_count, wait_ns_sum;
	uint64_t sure_by_names, sure_by_pattern, by_uploads;
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

/* What is known of a rank without its member. */
struct tpck_part_rank {
	uint32_t rank, ordinal;
	char program[TPCK_PROGRAM_ID];
};

/* One node's part of a checkpoint, as its manifest names it. */
struct tpck_part {
	uint8_t digest[16];   /* of the part's own manifest, which its mark holds, */
	uint64_t size;        /* and how long that is */
	uint64_t bytes, stored_bytes, container_bytes;
	uint64_t iteration_ns; /* the longest of its ranks' */
	bool resumable;        /* all of them */
	bool loaded;           /* its members are among the manifest's */
	size_t rank_count;
	struct tpck_part_rank *ranks; /* ascending */
	size_t older_count;
	char **older; /* other checkpoints' containers that it refers to */
};
enum { TPCK_MARK_NAME = 40 };
/* The mark's name in the checkpoint's folder. */
void tpck_part_mark(const struct tpck_part *part, char name[TPCK_MARK_NAME]);

struct tpck_manifest {
	struct tpck_point point;
	struct tpck_point parent; /* 0, 0 without */
	uint64_t created_ns;      /* since 1970 */
	uint32_t world;
	bool part;                /* of one node's ranks: what a node's mark says, never a checkpoint */
	uint64_t stored_bytes;    /* new in this checkpoint, references not counted */
	size_t container_count;
	struct tpck_container *containers; /* of parts: each one's own, in their order, and then older ones, bytes 0 if not known */
	size_t member_count;
	struct tpck_member *members; /* of parts: those that were loaded */
	/* Of a checkpoint of several nodes, by first ranks. Without any the members are all there is. */
	size_t part_count;
	struct tpck_part *parts;
	uint32_t *part_of; /* by rank; NULL until all ranks are there */
	char *identity;    /* the first rank's; of a checkpoint in parts only */
};

void tpck_manifest_free(struct tpck_manifest *manifest);
/* The first rank's identity text: tells programs apart. */
const char *tpck_manifest_identity(const struct tpck_manifest *manifest);
/* Whether a rank of the checkpoint is of that program; of parts without loading any, by the program's id. */
bool tpck_manifest_is_of(const struct tpck_manifest *manifest, uint32_t rank, uint32_t ordinal, const char *identity);
/* The same, by the identity's digests. */
bool tpck_manifest_is_of_key(const struct tpck_manifest *manifest, uint32_t rank, uint32_t ordinal, const struct tpck_identity_key *key);
/* Whether all ranks can go on from it. */
bool tpck_manifest_resumable(const struct tpck_manifest *manifest);
/* Loads the part that has the rank, if the checkpoint is of parts and has it: its ranks are members then. -EBADMSG: the mark
 * is damaged or gone; -ENOENT: the whole checkpoint is gone. */
int tpck_manifest_need(struct tpck_manifest *manifest, struct tpck_tier *tier, uint32_t rank, struct tpck_error *err);
/* The manifest of the i-th part alone, to be freed. */
int tpck_manifest_part(struct tpck_manifest **part, struct tpck_tier *tier, const struct tpck_manifest *manifest, size_t i,
		       struct tpck_error *err);
/* All parts, each handed to `each` once, in order, by the calling thread: why is NULL, or part is where it cannot be read. It is freed
 * behind the call. A value other than 0 ends it, and is returned. Marks are read up to sixteen at a time, but no more of them than
 * 16 MiB, if it is not one that is larger; one part at a time is in memory. */
int tpck_manifest_each_part(struct tpck_tier *tier, const struct tpck_manifest *manifest,
			    int (*each)(void *context, size_t i, const struct tpck_manifest *part, const struct tpck_error *why),
			    void *context);
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

/* -EAGAIN, and which in `missing`, where not each of the program's ranks is a member, or in a part; -EBADMSG where one is
 * there twice (*twice) or is none of the world; -ENOMEM. Members are by ascending rank. */
int tpck_manifest_ranks(struct tpck_manifest *manifest, struct tpck_ranks *missing, uint32_t *twice);

/* The text, malloc'd. */
int tpck_manifest_format(const struct tpck_manifest *manifest, char **text, size_t *size, struct tpck_error *err);
/* Reads a text that nobody vouches for. name is for messages. -EPROTO: a format this program does
 * not know; -EBADMSG: damaged. */
int tpck_manifest_parse(struct tpck_manifest **manifest, const char *text, size_t size, const char *name,
			struct tpck_error *err);
/* The same of a part, which the one above takes for no manifest, as this one does a whole one. */
int tpck_manifest_parse_part(struct tpck_manifest **manifest, const char *text, size_t size, const char *name,
			     struct tpck_error *err);
/* What a checkpoint's folder has: of all ranks, or of parts without members. */
int tpck_manifest_parse_published(struct tpck_manifest **manifest, const char *text, size_t size, const char *name,
				  struct tpck_error *err);
/* Loads a checkpoint's manifest, of parts without members. -ENOENT: not published. -EBADMSG, with the ranks, where it lacks some. */
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
