/* SPDX-License-Identifier: Apache-2.0 */
/* A record of the log, as far as both sides know it: what else is in one the library alone says (runtime/replay/record_log.h). */
#ifndef TPCK_RUNTIME_WIRE_RECORD_H
#define TPCK_RUNTIME_WIRE_RECORD_H

#include <stdint.h>

enum tpck_record_type {
	TPCK_RECORD_MARK = 1, /* device operations of one thread since its last mark: struct tpck_record_mark */
	TPCK_RECORD_BOUNDARY, /* struct tpck_record_boundary; detail TPCK_BOUNDARY_*: before an upload, or any copy, as no iteration was found */
	TPCK_RECORD_FROM_DEVICE, /* bytes copied to the host; detail TPCK_READ_STASHED: where they are (replay/stash.h) */
	TPCK_RECORD_QUERY,    /* struct tpck_record_query; order: the thread's device operations so far */
	TPCK_RECORD_ELAPSED,  /* float, milliseconds */
	TPCK_RECORD_MEMINFO,  /* two uint64_t */
	TPCK_RECORD_TURN,     /* uint64_t: number of the allocation call from which on this thread allocates */
	/* order of the next two: the thread's device operations so far. How often a program draws between two may differ from
	 * run to run (a pool of workers that is ready sooner). */
	TPCK_RECORD_CHANCE,   /* bytes drawn: getrandom, random_device, /dev/urandom */
	TPCK_RECORD_LOOKS,    /* looks at clocks, many in one: replay/looks.h */
	TPCK_RECORD_FILE,     /* struct tpck_record_file, then the path */
	TPCK_RECORD_SCALARS,  /* what the host told the iteration's optimizer, where that changed: struct tpck_roles_scalar each */
	TPCK_RECORD_COMMUNICATORS, /* those of the process, where they became others: struct tpck_image_communicator each */
	TPCK_RECORD_PLACE,    /* where the log's first process was as a rank: "NAME=VALUE\n" of its environment, each; then a zero */
	TPCK_RECORD_DEVICE,   /* what device that process was on: struct tpck_record_device */
	TPCK_RECORD_PROGRAM,  /* of a program that it started: struct tpck_record_program (runtime/programs) */
	TPCK_RECORD_READING,  /* what the machine told of itself: replay/readings.h */
	TPCK_RECORD_TALK,     /* of a connection to who does not belong to the job: struct tpck_record_talk (runtime/network) */
	TPCK_RECORD_DRAWN,    /* bytes that a library drew for a connection to such a one: struct tpck_record_drawn; order: connections that the thread had made */
	TPCK_RECORD_NCCL,     /* what NCCL answered: a communicator that the thread made or ended (hooks/nccl_birth.c), and some questions; detail
			       * TPCK_NCCL_CAPTURED: a graph has captured a call on a communicator, whose index it is, uint32_t */
	TPCK_RECORD_TYPES,
};

/* Each record begins 16-byte aligned. */
struct tpck_record {
	uint32_t bytes;   /* of the payload */
	uint16_t type;    /* enum tpck_record_type */
	uint16_t detail;  /* by type */
	uint32_t thread;  /* identity of the thread */
	uint32_t order;   /* by type */
};

struct tpck_record_boundary {
	uint64_t step;
	uint64_t allocations; /* allocation calls so far */
	uint64_t wall_ns;     /* CLOCK_MONOTONIC at the boundary: for estimates only */
	uint64_t shown_ns;    /* the same as the program is told it */
};

#endif
