/* SPDX-License-Identifier: Apache-2.0 */
/* A tier of the store: few verbs, none of which renames a folder to commit, so that an object store
 * can be one. */
#ifndef TPCK_RUNTIME_STORE_TIER_H
#define TPCK_RUNTIME_STORE_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/store/file_names.h"
#include "runtime/store/writer.h"

struct tpck_tier;

/* What whoever holds a tier is about to do. */
enum tpck_hold {
	TPCK_HOLD_CHANGES, /* publishes, joins or removes. Where the storage cannot hold anybody off it goes on */
	TPCK_HOLD_ALONE,   /* the same, but nothing without it: -ENOLCK, -ENOTSUP or -ENOSYS */
	TPCK_HOLD_ADDS,    /* adds a part of a checkpoint: others may add meanwhile, and not change */
};

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
	/* The bytes that a file takes up there. -ENOENT: there is none. */
	int (*size)(struct tpck_tier *tier, const char *path, uint64_t *bytes, struct tpck_error *err);
	/* Calls visit for each name in a folder ("" is the root); stops at its first non-zero answer and
	 * returns that. A folder that is not there is empty. */
	int (*list)(struct tpck_tier *tier, const char *folder,
		    int (*visit)(void *context, const char *name), void *context, struct tpck_error *err);
	/* Removes a file, or a folder with all in it. -ENOENT counts as done. */
	int (*remove)(struct tpck_tier *tier, const char *path, struct tpck_error *err);
	/* Takes a checkpoint that cannot be trusted out of the way, with the reason beside it. */
	int (*set_aside)(struct tpck_tier *tier, const char *checkpoint, const char *reason,
			 struct tpck_error *err);
	/* Adds lines to a text, each whole, whoever else adds some; what it gets longer than `most` it loses at its beginning. Durable when it returns. */
	int (*append)(struct tpck_tier *tier, const char *path, const char *lines, size_t size, uint64_t most, struct tpck_error *err);
	/* Whether something can be written: 0, or why not. The root is made if need be. */
	int (*check)(struct tpck_tier *tier, struct tpck_error *err);
	/* Holds off other processes that publish into, join in or remove from this job; waits at most wait_sec, then -EBUSY. A number for release(). Nobody holds
	 * the tier for long who reads only. */
	int (*hold)(struct tpck_tier *tier, enum tpck_hold how, double wait_sec, struct tpck_error *err);
	void (*release)(struct tpck_tier *tier, int hold);
	/* Whether anybody has ever held it: where nobody has, no checkpoint of this job was begun. */
	bool (*was_held)(struct tpck_tier *tier);
	/* The root as a folder of a file system (O_PATH), for what is no checkpoint and needs files: to be closed. -ENOTSUP: the tier is no such folder. */
	int (*folder)(struct tpck_tier *tier, struct tpck_error *err);
	/* The absolute path of a file below the root, for the same; nothing is made, and nothing looked at. -ENOTSUP as folder(), or -ENAMETOOLONG. */
	int (*path)(struct tpck_tier *tier, const char *name, char *path, size_t size, struct tpck_error *err);
	void (*close)(struct tpck_tier *tier);
};

/* Every verb that writes or removes first looks whose the root is: -EPERM where it is not ours. */
struct tpck_tier {
	const struct tpck_tier_operations *operations;
	bool in_state; /* the folder above it is the user's state folder, whose owner counts too */
	bool own_only; /* verbs that read do so too; whoever acts on what it reads sets it */
	char root[TPCK_PATH_MAX]; /* what people call it by: files below it have verbs */
};

/* A folder of a file system. Nothing is made or touched until something is written. */
int tpck_durable_tier_open(struct tpck_tier **tier, const char *store, const char *job,
			   enum tpck_writer_engine engine, struct tpck_error *err);
void tpck_tier_close(struct tpck_tier *tier);

/* The verbs that are called from above the store. */
static inline int tpck_tier_check(struct tpck_tier *tier, struct tpck_error *err)
{
	return tier->operations->check(tier, err);
}

static inline int tpck_tier_hold(struct tpck_tier *tier, enum tpck_hold how, double wait_sec, struct tpck_error *err)
{
	return tier->operations->hold(tier, how, wait_sec, err);
}

static inline void tpck_tier_release(struct tpck_tier *tier, int hold)
{
	tier->operations->release(tier, hold);
}

static inline int tpck_tier_folder(struct tpck_tier *tier, struct tpck_error *err)
{
	return tier->operations->folder(tier, err);
}

static inline int tpck_tier_path(struct tpck_tier *tier, const char *name, char *path, size_t size, struct tpck_error *err)
{
	return tier->operations->path(tier, name, path, size, err);
}

/* Calls act(with) while the tier can be written and is held, and gives what that gave; or why it cannot be. */
int tpck_tier_while_held(struct tpck_tier *tier, enum tpck_hold how, double wait_sec, int (*act)(void *with), void *with, struct tpck_error *err);

#endif
