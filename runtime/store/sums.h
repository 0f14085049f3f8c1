/* SPDX-License-Identifier: Apache-2.0 */
/* What a file of the program's was when it was published: the digests of its chunks, kept in one log a job (doc/format.md).
 * They find what has rotted since, and what two saves have in common. */
#ifndef TPCK_RUNTIME_STORE_SUMS_H
#define TPCK_RUNTIME_STORE_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "runtime/base/error.h"
#include "runtime/store/tier.h"
#include "runtime/view/sums_record.h"

struct tpck_sums {
	char *path;             /* absolute; NULL: not published yet */
	uint64_t inode, bytes;
	struct timespec modified;
	uint64_t shared;        /* bytes whose blocks are those of the save before; not in the log */
	size_t count;
	uint8_t (*digest)[16];  /* XXH3-128 of each chunk; the last one may be shorter */
};

/* For so many bytes, digests all zero. NULL: no memory. */
struct tpck_sums *tpck_sums_new(uint64_t bytes);
void tpck_sums_free(struct tpck_sums *sums);

/* Of what can be read of `fd`, which has as many bytes as the sums are for. -EINTR: there is something else to do, says
 * `busy`, which is asked in between. */
int tpck_sums_take(struct tpck_sums *sums, int fd, bool (*busy)(void), struct tpck_error *err);
/* The file is at this path, and this file. False: no memory. */
bool tpck_sums_settle(struct tpck_sums *sums, const char *path, const struct stat *file);
/* Whether a file is still the one that they were taken of: nobody has written to it or put another in its place. */
bool tpck_sums_of(const struct tpck_sums *sums, const struct stat *file);
/* Reads `fd` past the page cache where that can be; calls `fault` with an error that names file and bytes for each chunk
 * that is not what it was. The number of these, or -errno. */
long tpck_sums_check(const struct tpck_sums *sums, int fd, void (*fault)(void *context, const struct tpck_error *err),
		     void *context, struct tpck_error *err);

/* Adds to the log; not synced: what a crash cuts off is noticed and left out. */
int tpck_sums_append(const char *log, const struct tpck_sums *sums, struct tpck_error *err);
/* Hands over each record of a log's bytes, in order, which `take` has to free; behind what is no record the next one is looked
 * for, as several may have been cut off by crashes. Ends at the first answer that is not 0, and frees that one. */
int tpck_sums_parse(const void *log, size_t size, int (*take)(void *context, struct tpck_sums *sums), void *context);
/* Calls visit with the newest of each path that is there, by the name that it has now, of the log in that tier. One that is not
 * there is empty. Stops at the first non-zero answer. */
int tpck_sums_each(struct tpck_tier *tier, int (*visit)(void *context, struct tpck_sums *sums), void *context, struct tpck_error *err);
/* Where it is now: sets the path to the one that it has since it, or a folder above it, was renamed, as long as it stays below
 * the folder that the name was in. `found` is what is there, which may have been changed since. False: it is not there. The
 * finder remembers what was looked for last: ask in the order of paths, and not across changes. NULL as a finder: it is
 * looked for at its path alone. */
struct tpck_sums_finder;
struct tpck_sums_finder *tpck_sums_finder_new(void);
void tpck_sums_finder_free(struct tpck_sums_finder *finder);
bool tpck_sums_find(struct tpck_sums_finder *finder, struct tpck_sums *sums, struct stat *found);
/* Leaves only what still is the file at its path, or at the one that it has now. These are shown to `visit`, which may be NULL. */
int tpck_sums_compact(const char *log, void (*visit)(const struct tpck_sums *sums), struct tpck_error *err);

#endif
