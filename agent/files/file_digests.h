/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of the files that the agent has published: for the next one of their name, and for `transpckpt verify --files`. */
#ifndef TPCK_AGENT_FILES_FILE_DIGESTS_H
#define TPCK_AGENT_FILES_FILE_DIGESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/store/sums.h"

struct tpck_view;

/* Before any other: the log loses what is no more, and what is left of each name is the save before of the next one: the view
 * learns how large that was. */
void sums_begin(struct tpck_view *view);
/* A copy of what the last file of this pattern was, to be freed, or NULL. Any thread. */
struct tpck_sums *sums_before(uint64_t pattern);
/* A file was put at this path, and is this one. `sums`, which are taken over, are its; NULL: they are taken when there is
 * time. Any thread. */
void sums_published(uint64_t pattern, const char *path, const struct stat *file, struct tpck_sums *sums);
/* Whether there are such files; any thread. */
bool sums_left(void);
/* Takes those of one of them, unless `busy` says meanwhile that there is something else to do: it stays then. False: there is
 * none, or it stays. */
bool sums_catch_up(bool (*busy)(void));

#endif
