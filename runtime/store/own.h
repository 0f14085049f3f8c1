/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a program's two ways to go on (doc/record.md, "Two ways to go on"): forward to a snapshot, or as it would without the library, from
 * the newest checkpoint that it saved itself. Kept with the program's state (program.h), under its lock. A step is one of a timeline: of a process and those
 * that went on from it, which count from the beginning of the first. The timeline is called by the generation of that one.
 */
#ifndef TPCK_RUNTIME_STORE_OWN_H
#define TPCK_RUNTIME_STORE_OWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "runtime/store/file_names.h"

/* So many starts in a row that do not get anywhere with its own make the next one go forward. */
enum { TPCK_OWN_TRIES = 2 };
/* Most saves that are known, and of one name (digits do not count) and timeline; and most of what the rest has. */
enum { TPCK_OWN_SAVES = 96, TPCK_OWN_SAME = 4, TPCK_OWN_LOADS = 16, TPCK_OWN_ROWS = 64 };

/* A file that the program saved, as it was put at its path. */
struct tpck_own_save {
	char *path;
	uint64_t pattern;   /* of its name (tpck_view_pattern()) */
	uint64_t inode, bytes, modified_sec, modified_ns;
	uint64_t generation, timeline;
	uint64_t step;      /* the last that had ended when it was opened to be written */
};

/* Two numbers, or three. */
struct tpck_own_row {
	uint64_t of, is, at;
};

struct tpck_own_rows {
	struct tpck_own_row row[TPCK_OWN_ROWS];
	size_t count;
};

struct tpck_own {
	struct tpck_own_save save[TPCK_OWN_SAVES]; /* oldest first */
	size_t saves;
	uint64_t loads[TPCK_OWN_LOADS];            /* patterns of what a start was seen to load that an earlier one had saved behind its first iteration */
	size_t load_count;
	uint64_t tries;                            /* starts that were to begin with its own, and have not come to a first boundary since */
	struct tpck_own_rows timelines;            /* generation `of`, which went on from another one, is of timeline `is` */
	struct tpck_own_rows bases;                /* timeline `of` began with what timeline `is` had saved at step `at` */
	/* Seconds; 0: never measured. */
	double begin_sec;     /* from a process's start to the end of its first iteration */
	double load_sec;      /* the same of one that had loaded what it saved */
	double iteration_sec; /* an iteration, live: all that the program does from one to the next */
	struct tpck_own_forward {
		double staged_sec;    /* from a process's start until it runs forward */
		double first_sec;     /* from there through the first iteration */
		double iteration_sec; /* each that follows; of a resume at step 1 none was measured */
		double inject_sec;    /* state in place */
		bool measured;
	} forward;
};

void tpck_own_free(struct tpck_own *own);
/* A copy, to be freed by both. NULL: no memory. */
struct tpck_own *tpck_own_copy(const struct tpck_own *own);
/* A file is at this path, and is this one. Who went on with the same file under another name has renamed it. */
void tpck_own_saved(struct tpck_own *own, const struct tpck_own_save *save);
/*
 * A start of this generation, which did not go on from a snapshot, has come to its first boundary so long after its beginning, and had opened files of these
 * patterns before that which the job had saved. Whether some were its own. `passed_over`: else no rank did, and there was one to load.
 */
bool tpck_own_began(struct tpck_own *own, uint64_t generation, double seconds, const uint64_t *patterns, size_t count, bool passed_over);
/* `generation` has gone on from `parent`. */
void tpck_own_resumed(struct tpck_own *own, uint64_t generation, uint64_t parent);

/* What a start may choose from. */
struct tpck_own_choice {
	/* forward */
	bool measured;        /* else it is what the first run took, which is more */
	double forward_sec;   /* 0: not known */
	/* or the program's own way */
	bool saved;           /* there is a checkpoint of its own, as far as is known */
	bool loads;           /* of which the like has been loaded */
	bool fails;           /* the last starts that were to begin with it have not got anywhere */
	uint64_t step, timeline;
	char path[512];
	double own_sec;       /* through what is lost; 0: not known */
};

/* Whether files of such names were seen to be loaded. */
bool tpck_own_loads(const struct tpck_own *own, uint64_t pattern);
/* The newest of its own that is there as it was saved: looks at the file system. Those that have been loaded go before all others. */
void tpck_own_find(const struct tpck_own *own, struct tpck_own_choice *choice);
/* What both would take to come behind this point. */
void tpck_own_weigh(const struct tpck_own *own, const struct tpck_point *point, struct tpck_own_choice *choice);

struct json_object;
/* As a member of the program's state; and from there, where what is not as it should be counts as not there. */
struct json_object *tpck_own_json(const struct tpck_own *own);
void tpck_own_parse(struct tpck_own *own, struct json_object *json);

#endif
