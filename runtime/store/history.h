/* SPDX-License-Identifier: Apache-2.0 */
/* The history of a job: what was done for it and what happened to it, one JSON object a line, in its folder of the memory
 * tier and of every durable tier (doc/format.md). */
#ifndef TPCK_RUNTIME_STORE_HISTORY_H
#define TPCK_RUNTIME_STORE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/store/file.h"
#include "runtime/store/tiers.h"

#define TPCK_HISTORY "history"
enum {
	TPCK_HISTORY_BYTES = 1 << 20, /* a file that has grown beyond is cut to half of this, the newest lines */
	TPCK_HISTORY_LINE = 8 << 10,  /* none is longer, its newline included */
};

struct json_object;
struct tpck_event {
	uint64_t at_ns; /* since 1970 */
	char *text;     /* the line without its newline */
	struct json_object *json;
};
struct tpck_history {
	struct tpck_event *events; /* oldest first */
	size_t count, room;
	size_t bad;                /* lines that are no event: torn by a crash, or damaged */
};

/* Adds lines, or those that a file holds; one that is not there holds none. tpck_history_settle() has to follow. */
int tpck_history_add(struct tpck_history *history, const char *lines, size_t size);
int tpck_history_read(struct tpck_history *history, const char *path, struct tpck_error *err);
/* Brings events into their order; of those that were read in several places one is left. */
void tpck_history_settle(struct tpck_history *history);
/* The whole history: memory tier (NULL: none) and all durable tiers. What one of them lacks is not missed; the error is
 * that of the last one that could not be read, and what could be is there all the same. */
int tpck_history_load(struct tpck_history *history, const char *memory_job, const struct tpck_tiers *tiers,
		      struct tpck_error *err);
void tpck_history_free(struct tpck_history *history);

/* A member of an event; "" and 0 where it has none of this name and kind. */
const char *tpck_event_text(const struct tpck_event *event, const char *key);
uint64_t tpck_event_number(const struct tpck_event *event, const char *key);
double tpck_event_real(const struct tpck_event *event, const char *key);
bool tpck_event_is(const struct tpck_event *event, const char *kind);

/* Appends whole lines, each with its newline, and syncs them. Other processes, of other nodes too, may append and cut at
 * the same time; a line that a crash has left torn is closed first. Cuts the file if it is longer than `limit` now. */
int tpck_history_append(struct tpck_below below, const char *path, const char *lines, size_t size, uint64_t limit, struct tpck_error *err);
/* Lines of `history` that `have` lacks, malloc'd; of those that are older than all it has none, as they were cut off. */
int tpck_history_missing(const struct tpck_history *history, const struct tpck_history *have, char **lines, size_t *size);

#endif
