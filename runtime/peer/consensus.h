/* SPDX-License-Identifier: Apache-2.0 */
/* The newest step that all ranks of a job can go on from, out of what each node says that it has. */
#ifndef TPCK_RUNTIME_PEER_CONSENSUS_H
#define TPCK_RUNTIME_PEER_CONSENSUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/peer/accord.h"
#include "runtime/store/file_names.h"

/* Something that can be had. */
struct tpck_evidence {
	struct tpck_point point;
	uint32_t rank;
	uint32_t kind;   /* enum tpck_holding */
	uint32_t node;   /* who has it, as the caller counts */
	uint8_t data, parity, index; /* which fragment (erasure.h), of kind TPCK_HOLDING_FRAGMENT */
	bool bad;        /* it was tried */
};

/*
 * The newest point that every rank of `world` has, by one row or more that are not bad, fragments by as many as it takes, and that was agreed on: what only is
 * held, and was never committed by anybody, may be no cut of them. `stored` are points of which all is in a store.
 * Rows are sorted. `only`: UINT64_MAX, or the step that is wanted. False: there is none.
 */
bool tpck_consensus(struct tpck_evidence *rows, size_t count, const struct tpck_point *stored, size_t stored_count,
		    uint32_t world, uint64_t only, struct tpck_point *newest);
/*
 * Of these rows, which have been through tpck_consensus(), the best for one rank at a point: the node's own, else a process's
 * own, else a copy, else a fragment, which then stands for all of them; NULL: there is none.
 */
struct tpck_evidence *tpck_consensus_source(struct tpck_evidence *rows, size_t count, const struct tpck_point *point,
					    uint32_t rank, uint32_t node);
/* What tpck_consensus_source() gave turned out bad, or all fragments did. */
void tpck_consensus_bad(struct tpck_evidence *rows, size_t count, struct tpck_evidence *tried);

#endif
