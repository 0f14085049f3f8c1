/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is only read, and seldom, goes to a file without a name: it is where it was, and the kernel keeps of it what it has room for. A twin does so with
 * the record that it has behind it: what stands in a segment may be asked for as long as the twin is there, but the living process's memory loses the segment.
 * All of it is one thread's.
 */
#ifndef TPCK_RUNTIME_REPLAY_SPILL_H
#define TPCK_RUNTIME_REPLAY_SPILL_H

#include <stdbool.h>
#include <stdint.h>

/* So many bytes at most are in files; UINT64_MAX at first. */
void tpck_spill_limit(uint64_t bytes);
/* Nothing more goes to files: there are as many as may be, or one could not be written, which was said. */
bool tpck_spill_over(void);
/* What is in files comes back: a process that must not end by what becomes of their file system has it in memory. What cannot be read stays, and is said. */
void tpck_spill_back(void);
/* Pages that nobody writes to any more, by a file on the file system of this folder. False: they are as they were. */
bool tpck_spill(void *at, uint64_t bytes, const char *folder);
/* The same of a mapping of a file PREFIX/.../NAME..., one folder below, that has no name any more; of one at most. False: there is none, or it is as it was. */
bool tpck_spill_nameless(const char *prefix, const char *name, const char *folder);

#endif
