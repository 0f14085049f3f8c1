/* SPDX-License-Identifier: Apache-2.0 */
/* Putting a file at a path whole: a part beside the path, made durable, then renamed (doc/files.md). */
#ifndef TPCK_RUNTIME_STORE_REPLACE_H
#define TPCK_RUNTIME_STORE_REPLACE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/store/sums.h"

/* The folder's descriptor (O_PATH), which must be that device and inode: it may have been renamed and another one have
 * its name. -ESTALE: it is another one. */
int tpck_replace_folder(const char *path, uint64_t device, uint64_t inode, struct tpck_error *err);

struct tpck_ahead;

/* Copies what is in `bytes` (opened for reading), with mode, group, attributes and times, to folder/part, which is made
 * anew, holes as holes, and waits until it is on the disk. `name` is what it is for, for messages. A failure leaves
 * no part. Chunks that `ahead` (may be NULL) has are in the part
 * already, which is used; it is ended. Chunks that are those of `before` (may be NULL), at the same offset of a file that has not changed since, get its
 * blocks where the file system can share them. *sums are of what was copied, for the caller to free; NULL where there is
 * no memory for them, or the file was cut meanwhile. */
int tpck_replace_copy(int bytes, int folder, const char *part, const char *name, struct tpck_ahead *ahead,
		      const struct tpck_sums *before, struct tpck_sums **sums, struct tpck_error *err);

/* The same of a part that is not there yet, else -EEXIST, and nobody has waited for the disk: the caller syncs *made, which is the part
 * open for writing, and closes it. */
int tpck_replace_copy_unsynced(int bytes, int folder, const char *part, const char *name, const struct tpck_sums *before,
			       struct tpck_sums **sums, int *made, struct tpck_error *err);

/* A part that is written while its file still grows. All zero but fd, -1: there is none. */
struct tpck_ahead {
	int fd;
	size_t count;          /* chunks that are in it */
	uint8_t (*digest)[16]; /* what they were; what is another by the time of the copy is written again */
};
/* Copies at most so many whole chunks more of what is in `bytes` to folder/part, which is made if there is none, and has
 * them go to the disk. How many, or -errno. */
int tpck_replace_ahead(int bytes, int folder, const char *part, struct tpck_ahead *ahead, size_t most);
/* Whether the part still has its name. */
bool tpck_replace_ahead_valid(const struct tpck_ahead *ahead);
/* Closes it; the part stays. */
void tpck_replace_ahead_end(struct tpck_ahead *ahead);

/* After a sync of `bytes` that failed the kernel takes what was not written for written: it is in memory alone, and nobody can
 * tell which it is. Whether all of the file is in memory still. */
bool tpck_replace_cached(int bytes);
/* Makes folder/part anew of what there is of it in memory, with all attributes, on the disk; `bytes` is the old one. */
int tpck_replace_rewrite(int bytes, int folder, const char *part, const char *name, struct tpck_error *err);

/* The part, in its own folder, becomes folder/name; both folders are synced. What was at the name is replaced in one
 * step. -EXDEV: the folders are of different file systems. */
int tpck_replace_commit(int part_folder, const char *part, int folder, const char *name, struct tpck_error *err);

/* Whether nobody has the file open for writing, or mapped: `fd` is a descriptor for reading. Where the file system
 * cannot tell, nobody has. */
bool tpck_replace_unwritten(int fd);

#endif
