/* SPDX-License-Identifier: Apache-2.0 */
/* What this node owes to paths, for those who have copies of it sent to other nodes (copies/sent_files.c), and the care that is taken
 * once another node has put some of it there because this one seemed lost. Any thread. */
#ifndef TPCK_AGENT_FILES_DEBTS_H
#define TPCK_AGENT_FILES_DEBTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "runtime/peer/owed.h"
#include "runtime/view/view.h"

struct chosen;

/* The job's table here; NULL: there is none, or nobody wants copies of what is owed. */
struct tpck_view *owed_view(void);
uint32_t owed_table(const struct tpck_view *view);

/* One that is closed, in short. */
struct owed_item {
	uint64_t serial, order;
	uint32_t index, changed;
	bool open; /* it is being written again */
};
/* By order; malloc'd. `newest`: the last order that was given out by then. False: it cannot be told. */
bool owed_list(struct tpck_view *view, struct owed_item **list, size_t *count, uint64_t *newest);

/* One of them with all that there is to know of it, but digests. */
struct owed_file {
	struct tpck_owed owed;
	int fd;            /* its bytes; -1: it is a removal */
	char folder[TPCK_VIEW_PATH], name[TPCK_VIEW_NAME], part_folder[TPCK_VIEW_PATH], part[64];
	char *attributes;
};
/* -ENOENT: it is not owed any more; -EAGAIN: somebody still writes to it. */
int owed_open(struct tpck_view *view, const struct owed_item *item, struct owed_file *file);
void owed_close(struct owed_file *file);
/* Whether it is still what was opened, and owed. */
bool owed_is_still(struct tpck_view *view, const struct owed_item *item, const struct owed_file *file);
/* What this node put at the path of an entry that is not owed any more; kind TPCK_THERE_UNKNOWN: nothing that is known. */
struct tpck_view_there owed_was_put(uint64_t serial);

/* The lanes': it was put at its path (NULL: removed). */
void owed_put(const struct chosen *chosen, const struct stat *put);
/* The lanes': whether it may be. False: others have put it there, or something newer is there, which has been said. */
bool owed_may_put(const struct chosen *chosen, int folder);

#endif
