/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stashes: what the program reads back from the device, where that is more than the log is to hold (doc/record.md, "Stashes"). A program that
 * saves its weights reads all of them, each time. The bytes go to files beside the log, first in memory; the agent brings them
 * into the store. What they look like is in wire/segment.h. All functions are thread-safe.
 */
#ifndef TPCK_RUNTIME_REPLAY_STASH_H
#define TPCK_RUNTIME_REPLAY_STASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is smaller stays in the log. */
enum { TPCK_STASH_LEAST = 4 << 10 };

/* Where bytes are: payload of TPCK_RECORD_FROM_DEVICE with detail TPCK_READ_STASHED. */
struct tpck_record_stashed {
	uint64_t bytes, generation, number;
	uint64_t offset; /* from the file's start */
};

/* Stashes are looked for in these folders: SHM/JOB/stash/PROGRAM and the store's. NULL: from nowhere. */
void tpck_stash_folders(const char *memory, const char *store);
/* A new timeline: what is in the first folder goes, and it is made. */
void tpck_stash_clear(void);
/* From here on this process, of that generation, makes some. */
void tpck_stash_begin(uint64_t generation);
/* How much may be in memory at a time. */
void tpck_stash_limit(uint64_t bytes);

/* Puts bytes that are there into a stash. NULL, or why that cannot be done. */
const char *tpck_stash_put(const void *bytes, size_t size, struct tpck_record_stashed *where);
/* Makes room for bytes that come later, at *piece; then tpck_stash_came() with what *where says. NULL, or why there is none. */
const char *tpck_stash_room(size_t size, struct tpck_record_stashed *where, void **piece);
void tpck_stash_came(const struct tpck_record_stashed *where);

/* ---- running forward ---- */
/* Those that are not there any more count as zeros. */
void tpck_stash_forgive(void);
/* Bytes that the log refers to and that are not there any more. */
uint64_t tpck_stash_forgotten(void);
/* The log refers to this; stashes that it does not refer to are of no use once the process is live. False: it is not there any more, and
 * that is not forgiven. */
bool tpck_stash_refers(const struct tpck_record_stashed *where);
/* 0 or -errno; -EBADMSG: they are not what they were. */
int tpck_stash_get(const struct tpck_record_stashed *where, void *to);
/* Removes stashes that nothing refers to: the timeline that they are of ended behind the cut. */
void tpck_stash_settle(void);

#endif
