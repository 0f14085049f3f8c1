/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log: what the CPU side drew from the device and from chance, per thread and in call order
 * (doc/record.md, "The log"). It lies in segments in shared memory (wire/segment.h). Before the agent is there,
 * records go to private memory, which becomes the first segment when the process turns out to use
 * a device. A log that fails (no space, over its limit) says why and takes no more records.
 */
#ifndef TPCK_RUNTIME_REPLAY_RECORD_LOG_H
#define TPCK_RUNTIME_REPLAY_RECORD_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/track/device.h"
#include "runtime/wire/record.h"

enum { TPCK_READ_STASHED = 1, TPCK_NCCL_CAPTURED = 1, TPCK_BOUNDARY_UPLOAD = 1, TPCK_BOUNDARY_COPY };

struct tpck_record_mark {
	uint64_t digest;     /* of the operations' 32-bit tokens */
	uint64_t places;     /* of where in the program's device memory copies and sets read and write */
	uint32_t operations, contents;
	/* detail 1: the tokens follow (a digest not seen before); then the contents' digests, 4 bytes each */
};

struct tpck_record_query {
	uint32_t not_ready;  /* answers before `result` */
	int32_t result;      /* CUresult; -1: none yet */
};

struct tpck_record_drawn {
	uint32_t number; /* of the draws since the thread's newest connection, from 0 */
			 /* the bytes follow */
};

struct tpck_record_device {
	struct tpck_device_traits traits;
	uint32_t ordinal, unused;
};

struct tpck_log_position {
	uint64_t sequence, offset;
};

struct tpck_log;

/* An empty log in private memory. limit is TRANSPCKPT_LOG_BYTES. NULL where there is no memory. */
struct tpck_log *tpck_log_new(uint64_t limit);
/* Moves it into the session folder and goes on there. With `cut`, records so far are dropped and
 * it goes on behind the cut of the segments that lie in the folder already. 0 or -errno. */
int tpck_log_attach(struct tpck_log *log, const char *folder, uint64_t generation,
		    const struct tpck_log_position *cut);
/* Appends a record and returns its payload, to be filled before the next boundary, or NULL if the
 * log takes no more. `payload` is copied if not NULL. Thread-safe; holds a spin lock briefly. */
void *tpck_log_append(struct tpck_log *log, enum tpck_record_type type, uint16_t detail, uint32_t thread,
		      uint32_t order, const void *payload, size_t bytes);
/* How much it holds, of all processes that wrote it. */
uint64_t tpck_log_bytes(const struct tpck_log *log);
/* What of it is in memory. */
uint64_t tpck_log_memory(const struct tpck_log *log);
/* Whether it lies in a session's folder, and not in private memory any more. */
bool tpck_log_attached(const struct tpck_log *log);
struct tpck_log_position tpck_log_end(struct tpck_log *log);
/* Makes the next segment ready ahead of time. Called by a thread of this library. */
void tpck_log_prepare(struct tpck_log *log);
/* The agent has looked at the segments below this one: those that it has packed are given back. Called by the same thread. */
void tpck_log_give_back(struct tpck_log *log, uint64_t below);
/* No more records: resuming from later snapshots is off. Says why once. */
void tpck_log_fail(struct tpck_log *log, const char *why);
/* NULL, or why it takes no more records. */
const char *tpck_log_failed(const struct tpck_log *log);

/* ---- reading, for running forward ---- */
struct tpck_log_header;
/* Whether bytes, 16-byte aligned, are segment `sequence`, and records of known types fill it up to `end` exactly. */
bool tpck_log_is_whole(const struct tpck_log_header *segment, uint64_t size, uint64_t sequence, uint64_t end);
/* Calls with each record of such bytes from `at` on, which is where a record begins, as long as there are whole ones. False:
 * the next segment does not belong to them. */
bool tpck_log_each(const struct tpck_log_header *segment, uint64_t size, uint64_t sequence, uint64_t at, void (*call)(const struct tpck_record *));
/* Whether the payload of a whole record has what its type's structure says. Of files, programs, places and looks, whoever
 * reads them says it. */
bool tpck_record_is_sound(const struct tpck_record *record);
/* The generation that began the log in this folder, from the program's beginning; 0: none that can be read. */
uint64_t tpck_log_timeline(const char *folder);
/* The same of a file, below the folder. Whether the next segment belongs to its records; or -errno: it cannot be read. */
int tpck_log_each_in(int folder, const char *path, uint64_t sequence, uint64_t at, void (*call)(const struct tpck_record *));
struct tpck_log_reader;
/* Maps the segments of the folder up to the cut, or unpacks them (wire/pack.h). -EBADMSG: a record is not whole; -ENOTSUP: one is packed, and this build
 * has no zstd. */
int tpck_log_open(struct tpck_log_reader **reader, const char *folder, struct tpck_log_position cut);
/* The records in order; NULL at the end. Valid until the reader is closed. */
const struct tpck_record *tpck_log_next(struct tpck_log_reader *reader);
/* One of the segments that were packed, and which this process has unpacked into its memory, goes to a file of that folder (spill.h). False: there is none. */
bool tpck_log_spill(const char *to);
/* The log is being written: reading goes on up to a later cut. 0, or -errno, and nothing has changed. */
int tpck_log_extend(struct tpck_log_reader *reader, struct tpck_log_position cut);
/* The same log goes on in another folder, which has all of it up to the cut. What was read stays valid. 0, or -errno, and nothing has changed. */
int tpck_log_move(struct tpck_log_reader *reader, const char *folder);
/* Where the next record begins; and reading goes on from such a place. */
struct tpck_log_position tpck_log_reads_at(const struct tpck_log_reader *reader);
void tpck_log_read_from(struct tpck_log_reader *reader, struct tpck_log_position from);
void tpck_log_close(struct tpck_log_reader *reader);
/* What the log of the run that is resumed has behind the cut, as far as the agent has put it into this folder; each record during the
 * call only. False: it has put none there, as that went with the memory that it was in. */
bool tpck_log_behind(const char *folder, struct tpck_log_position cut, void (*call)(const struct tpck_record *));
/* The same of what starts had there that had gone on from the step and left no snapshot, as far as the agent has kept it, and cut short (TPCK_TRIED of
 * wire/segment.h). Its files go. False: not all of it is there. */
bool tpck_log_tried(const char *folder, void (*call)(const struct tpck_record *));
/* Nobody asks for that any more: its files go. */
void tpck_log_behind_done(const char *folder, struct tpck_log_position cut);

#endif
