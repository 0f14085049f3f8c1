/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's own files: what processes of the job have closed and the table owes to paths (runtime/view/view.h) is put there, by threads of its own
 * (doc/files.md). Event loop, unless a line says else.
 */
#ifndef TPCK_AGENT_FILES_PUBLISHER_H
#define TPCK_AGENT_FILES_PUBLISHER_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/loop/loop.h"

/* At the end what is owed is left: the threads come to an end of what they are at. */
extern const struct loop_part files_loop;

/* Looks after the job's table if there is one; more than once does nothing. */
void files_begin(void);
/* Whether something is not at its path yet; of an agent that is not stopping also whether digests of something lack, which nobody else waits for. */
bool files_owed(bool stopping);
/* Whether something is not because it cannot be. Any thread. */
bool files_failing(void);
/* Whether there are copies in memory of what is at its path. */
bool files_kept(void);
/* Behind the end: something is not at its path, and the next agent finds it. */
bool files_left(void);
/* Who knows up to which order another node has put at its paths what a table owes, or is about to (0: none has), as this node seemed lost. Before the
 * beginning; the threads ask. Without it nobody has. */
void files_taken_over_by(uint64_t (*taken_over)(uint32_t table));

/* What is closed and on its way to its path, with what is known of when it was made: each, in no order. Any thread. */
void files_each_owed(void (*visit)(void *context, const char *path, uint64_t pattern, uint64_t order, uint64_t timeline, uint64_t step), void *context);
struct stat;
/* Who hears what has been put at its path, and when it was made (runtime/view/view.h). Before the beginning; the threads call. */
void files_told_to(void (*saved)(const char *path, const struct stat *put, uint64_t generation, uint64_t timeline, uint64_t step));

#endif
