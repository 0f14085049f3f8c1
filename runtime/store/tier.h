/* SPDX-License-Identifier: Apache-2.0 */
/* A tier of the store: few verbs, none of which renames a folder to commit, so that an object store
 * can be one. */
#ifndef TPCK_RUNTIME_STORE_TIER_H
#define TPCK_RUNTIME_STORE_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/store/layout.h"
#include "runtime/store/writer.h"

struct tpck_tier;

/* Paths are relative to the tier's root, which is one job's. */
struct tpck_tier_operations {
	const char *kind;
	/* Writes a container, whole and durable when it returns; *bytes is its size. */
	int (*put)(struct tpck_tier *tier, const char *path, const struct tpck_source *source,
		   uint64_t *bytes, struct tpck_error *err);
	/* Writes a small text, durable when it returns, in place of an older one if there is one. */
	int (*mark)(struct tpck_tier *tier, const char *path, const char *text, struct tpck_error *err);
	/* Writes a text where there is none yet: of several only one wins, the others get -EEXIST. */
	int (*commit_if_absent)(struct tpck_tier *tier, const char *path, const char *text, size_t size,
				struct tpck_error *err);
	/* Reads exactly so many bytes. Where buffer and offset are multiples of TPCK_WRITER_ALIGN the
	 * buffer must have room for bytes rounded up to it. */
	int (*get)(struct tpck_tier *tier, const char *path, uint64_t offset, void *buffer, size_t bytes,
		   struct tpck_error *err);
	/* Reads a small text whole, malloc'd. */
	int (*get_text)(struct tpck_tier *tier, const char *path, size_t limit, char **text, size_t *size,
			struct tpck_error *err);
	/* Calls visit for each name in a folder ("" is the root); stops at its first non-zero answer and
	 * returns that. A folder that is not there is empty. */
	int (*list)(struct tpck_tier *tier, const char *folder,
		    int (*visit)(void *context, const char *name), void *context, struct tpck_error *err);
	/* Removes a file, or a folder with all in it. -ENOENT counts as done. */
	int (*remove)(struct tpck_tier *tier, const char *path, struct tpck_error *err);
	/* Takes a checkpoint that cannot be trusted out of the way, with the reason beside it. */
	int (*set_aside)(struct tpck_tier *tier, const char *checkpoint, const char *reason,
			 struct tpck_error *err);
	void (*close)(struct tpck_tier *tier);
};

/* Every verb that writes or removes first looks whose the root is: -EPERM where it is not ours. */
struct tpck_tier {
	const struct tpck_tier_operations *operations;
	bool in_state; /* the folder above it is the user's state folder, whose owner counts too */
	bool own_only; /* verbs that read do so too; whoever acts on what it reads sets it */
	char root[TPCK_PATH_MAX];
};

/* A folder of a file system. Nothing is made or touched until something is written. */
int tpck_durable_tier_open(struct tpck_tier **tier, const char *store, const char *job,
			   enum tpck_writer_engine engine, struct tpck_error *err);
void tpck_tier_close(struct tpck_tier *tier);

/* Whether the root can be written by us: made if need be, ours, a folder. */
int tpck_durable_tier_check(struct tpck_tier *tier, struct tpck_error *err);

/* The same, and its descriptor (O_PATH), by which what is below it is reached: to be closed. */
int tpck_durable_tier_folder(struct tpck_tier *tier, struct tpck_error *err);

/* Whether anybody has ever held off others: where nobody has, no checkpoint of this job was begun. */
bool tpck_durable_tier_was_locked(struct tpck_tier *tier);
/* Holds off every other process that publishes into or removes from this job; waits at most
 * wait_sec, then -EBUSY. Returns a descriptor to close. */
int tpck_durable_tier_lock(struct tpck_tier *tier, double wait_sec, struct tpck_error *err);
/* The same, and nothing without it: -ENOLCK, -ENOTSUP or -ENOSYS where the file system has no locks, which the other two pass over. */
int tpck_durable_tier_lock_alone(struct tpck_tier *tier, double wait_sec, struct tpck_error *err);
/* The same for who only adds a part of a checkpoint: holds off those that hold the locks above, not others that add. */
int tpck_durable_tier_share(struct tpck_tier *tier, double wait_sec, struct tpck_error *err);

#endif
