/* SPDX-License-Identifier: Apache-2.0 */
/* What a twin says of itself (doc/twin.md): "SESSION/twin", of a second one "SESSION/twin.1", beside the living one's control page. Written by the twin; the first
 * of them also by a process that has taken over. */
#ifndef TPCK_RUNTIME_WIRE_TWIN_H
#define TPCK_RUNTIME_WIRE_TWIN_H

#include <stdatomic.h>
#include <stdint.h>

#define TPCK_TWIN_FILE "twin"
#define TPCK_TWIN_SECOND_FILE "twin.1"
#define TPCK_TWIN_MAGIC 0x6e6977746b637074ull /* "tpcktwin" */

struct tpck_twin_says {
	uint64_t magic;              /* written last */
	uint32_t version;            /* TPCK_WIRE_VERSION */
	_Atomic int32_t process;     /* the twin; 0: there was none yet for this session */
	_Atomic uint32_t takeovers;  /* of the program, up to now */
	uint32_t reserved;
	_Atomic uint64_t step;       /* up to which it may go: the newest committed one that it knows */
	_Atomic uint64_t proven;     /* iterations that it has repeated, each call as in the living one's record */
	uint64_t begun_ns;           /* CLOCK_MONOTONIC: since when it runs forward */
};

#endif
