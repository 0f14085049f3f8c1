/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of another node's snapshots, as files of the memory tier. Those of one launch, or of its part that was on one node, are a
 * folder for each of the ranks,
 *     SHM/JOB/copy.g<generation>.r<rank>.o<ordinal>/
 * of the same form as the session's own: image.0, image.1, log.*. In the first rank's there is whole.<image> too, the manifest
 * of what is whole in that image and the log of all of these ranks. Each of the two images, a slot, is whole until a new copy is
 * begun in it.
 *
 * Chunks of image data that are equal, of one rank or of several, are there once (firsts.h); where the others belong is a
 * hole until tpck_replica_fill().
 *
 * Instead of copies there may be fragments of each chunk (erasure.h), which say nothing without those of other nodes. All have one index; the folders are
 *     SHM/JOB/fragment.<K>+<M>.<index>.g<generation>.r<rank>.o<ordinal>/
 * with whole.<image> as above, and files of fragments (fragments.h) where that of copies has images and a log.
 *
 * Not locked here.
 */
#ifndef TPCK_RUNTIME_PEER_REPLICA_H
#define TPCK_RUNTIME_PEER_REPLICA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/peer/erasure.h"
#include "runtime/peer/firsts.h"
#include "runtime/peer/fragments.h"
#include "runtime/peer/protocol.h"
#include "runtime/store/manifest.h"
#include "runtime/store/memory_tier.h"

enum { TPCK_REPLICA_SLOTS = 2 };
#define TPCK_REPLICA_PREFIX "copy."
#define TPCK_REPLICA_FRAGMENT "fragment."

struct tpck_replica {
	struct tpck_session_name name; /* of the first rank */
	struct tpck_fragment fragment; /* that all are; data 0: copies of the whole */
	bool late;                     /* of a whole copy: memory for a chunk is got by tpck_replica_reserve(), at the latest with its place */
	struct tpck_replica_rank {
		uint32_t rank, ordinal;
	} *ranks;                      /* NULL: nothing was ever begun or found */
	size_t rank_count;
	char job_folder[TPCK_NAME_MAX];
	struct tpck_manifest *slot[TPCK_REPLICA_SLOTS]; /* what is whole, or NULL */
	char *text[TPCK_REPLICA_SLOTS];                 /* its text */
	size_t text_size[TPCK_REPLICA_SLOTS];
	struct tpck_firsts firsts[TPCK_REPLICA_SLOTS];
	tpck_fragment_digest *digests[TPCK_REPLICA_SLOTS]; /* of fragments, by tpck_fragments_number() */
	/* What is coming, between begin and finish or abort. */
	struct tpck_manifest *coming;
	char *coming_text;
	size_t coming_size;
	unsigned to;             /* the slot that it goes to */
	struct tpck_firsts coming_firsts;
	tpck_fragment_digest *coming_digests;
	struct tpck_image *image; /* of that slot and each member, mapped */
	uint8_t ***lacking;      /* by member, object and chunk: 1 it is not here yet */
	size_t lacks;
	uint64_t received;       /* bytes */
	uint64_t kept;           /* bytes that an attempt before had brought */
	/* What such an attempt had in a slot when it was given up: its manifest, NULL: none, and what it lacked. */
	struct tpck_replica_left {
		struct tpck_manifest *manifest;
		struct tpck_firsts firsts;
		tpck_fragment_digest *digests;
		uint8_t ***lacking;
		uint64_t bytes;  /* that it or one before had brought */
	} left[TPCK_REPLICA_SLOTS];
};

/* The folders of a part's copies, or of fragments (NULL: copies); what is whole in them is found. The name is that of its first rank's session. */
int tpck_replica_open(struct tpck_replica **replica, const char *job_folder, const struct tpck_session_name *name,
		      const struct tpck_fragment *fragment, struct tpck_error *err);
/* Whether a name in the job's folder is that of such a folder, and which. */
bool tpck_replica_is_folder(const char *entry, struct tpck_session_name *name, struct tpck_fragment *fragment);
void tpck_replica_close(struct tpck_replica *replica);
/* Removes the folders; what is still written by this replica comes to nothing. */
void tpck_replica_unlink(const struct tpck_replica *replica);
/* Both. */
void tpck_replica_remove(struct tpck_replica *replica);

/* The slot of the newest whole copy; -1: none. */
int tpck_replica_newest(const struct tpck_replica *replica);
/* A rank's folder. */
void tpck_replica_path(const struct tpck_replica *replica, const struct tpck_member *member, char *path, size_t size);
/* A rank's image in a slot. */
void tpck_replica_image_path(const struct tpck_replica *replica, const struct tpck_member *member, unsigned slot, char *path,
			     size_t size);
/* Memory that a copy would take in addition to what the folders have, of so many slots. */
uint64_t tpck_replica_needs(const struct tpck_replica *replica, const struct tpck_manifest *manifest, unsigned slots);

/* Makes ready for a copy whose manifest's text nobody has vouched for, in slot `to`. *want (malloc'd) are the chunks that are
 * not here. -EALREADY: it is here, in one slot or the other. The replica has the text from then on, which is malloc'd, but on
 * failure. */
int tpck_replica_begin(struct tpck_replica *replica, struct tpck_manifest *manifest, char *text, size_t size, unsigned to,
		       struct tpck_peer_want **want, size_t *count, struct tpck_error *err);
/* Gets memory for a chunk that lacks, so that who writes to its place need not wait for it. Beside other calls, but for begin(), finish() and abort(). */
int tpck_replica_reserve(struct tpck_replica *replica, const struct tpck_peer_want *at, struct tpck_error *err);
/* Where a chunk of so many bytes goes, or its fragment: into the image, or into memory that take() frees. NULL: it is not wanted. */
void *tpck_replica_place(struct tpck_replica *replica, const struct tpck_peer_want *at, size_t bytes);
/* The chunk is at its place (or not, where `whole` is false). -EBADMSG: it is not what the manifest says; or a fragment not what its owner's `digest`
 * says, which is not looked at with whole chunks. */
int tpck_replica_take(struct tpck_replica *replica, const struct tpck_peer_want *at, void *bytes, bool whole, const uint8_t digest[16],
		      struct tpck_error *err);
/* All is here: it is a whole copy from now on. */
int tpck_replica_finish(struct tpck_replica *replica, struct tpck_error *err);
/* Gives up what is coming. The chunks that have come, and were what their digests say, are not asked for again by the next begin() in this slot. */
void tpck_replica_abort(struct tpck_replica *replica);
/* Whether something has been brought that no whole slot has. */
bool tpck_replica_has_left(const struct tpck_replica *replica);

/* The fragment of a chunk of a whole slot, into the memory for it, and its owner's digest, by which it was good when it came. */
int tpck_replica_fragment(const struct tpck_replica *replica, unsigned slot, const struct tpck_peer_want *at, void *to, uint8_t digest[16],
			  struct tpck_error *err);

/* The memory that filling a whole slot takes; fills its holes, so that each image is as its session had it. */
uint64_t tpck_replica_fill_needs(const struct tpck_replica *replica, unsigned slot);
int tpck_replica_fill(struct tpck_replica *replica, unsigned slot, struct tpck_error *err);

#endif
