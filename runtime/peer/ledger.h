/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent that leads a launch knows of the nodes that have its ranks: who is there, who has done what was asked of all, and
 * which steps they hold. Nodes speak for all their ranks at once, so that what has to be heard and looked at in an
 * iteration grows with the nodes, and not with the square of anything. Nothing here waits or speaks.
 */
#ifndef TPCK_RUNTIME_PEER_LEDGER_H
#define TPCK_RUNTIME_PEER_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/store/cut.h"

struct tpck_ledger;

/* What all nodes are asked to do. */
enum tpck_round { TPCK_ROUND_STAGE, TPCK_ROUND_READY, TPCK_ROUND_COPY, TPCK_ROUND_FLUSH, TPCK_ROUNDS };

/* NULL: there is no memory. */
struct tpck_ledger *tpck_ledger_new(uint32_t world);
void tpck_ledger_free(struct tpck_ledger *ledger);

/* A rank is on this node; it may be said again. 0 or -ENOMEM. */
int tpck_ledger_join(struct tpck_ledger *ledger, uint32_t rank, const char *node);
/* A node's agent is gone, and with it all that it said. False: it had no ranks. */
bool tpck_ledger_leave(struct tpck_ledger *ledger, const char *node);
bool tpck_ledger_is_complete(const struct tpck_ledger *ledger);
/* The node that a rank is on, the ledger's own text; NULL: nobody has it. */
const char *tpck_ledger_where(const struct tpck_ledger *ledger, uint32_t rank);
/* How many ranks a node has. */
uint32_t tpck_ledger_ranks(const struct tpck_ledger *ledger, const char *node);
/* The next rank of a node, in order, with *at 0 at first; false: there are no more. */
bool tpck_ledger_rank(const struct tpck_ledger *ledger, const char *node, uint32_t *at, uint32_t *rank);
/* The next node behind *at that has ranks, with *at 0 at first; NULL: there are no more. */
const char *tpck_ledger_node(const struct tpck_ledger *ledger, size_t *at);

void tpck_ledger_begin(struct tpck_ledger *ledger, enum tpck_round round);
/* A node is through. True: all are, and this was the one that was waited for. */
bool tpck_ledger_done(struct tpck_ledger *ledger, enum tpck_round round, const char *node);

/*
 * All ranks of a node are ready to go live, or live already: whom the leader then tells to go live. A node does not take back that it is ready, whoever
 * leads; so some are live only if all are ready, and what a leader that died has told some only, the next one hears of these, and tells the others, or, where
 * none has heard it, decides anew once all have said it again.
 */
enum tpck_ready { TPCK_READY_NOBODY, TPCK_READY_THIS, TPCK_READY_ALL };
enum tpck_ready tpck_ledger_ready(struct tpck_ledger *ledger, const char *node, bool is_live);

/* `ranks` of a node, all that it has, hold a step, and have counted this. 0 or -ENOMEM. */
int tpck_ledger_held(struct tpck_ledger *ledger, const char *node, uint64_t step, uint32_t ranks, const struct tpck_counted *counted,
		     size_t counted_count, const struct tpck_transferred *transferred, size_t transferred_count);
/* The newest step that all ranks hold; 0: none. */
uint64_t tpck_ledger_whole(const struct tpck_ledger *ledger);
/* One that somebody holds, and that a node left out which holds a newer one, or that was given up: nobody needs it. 0: none. */
uint64_t tpck_ledger_missed(const struct tpck_ledger *ledger);
/* Adds what all nodes have counted at a step. 0 or -ENOMEM. */
int tpck_ledger_counts(const struct tpck_ledger *ledger, uint64_t step, struct tpck_counts *counts);
/* A step comes to nothing, whoever has yet to say that he holds it; or it is committed, and older ones are history. */
void tpck_ledger_give_up(struct tpck_ledger *ledger, uint64_t step);
void tpck_ledger_committed(struct tpck_ledger *ledger, uint64_t step);

/* How far a node's ranks are: their furthest boundary, ns an iteration (0: not known), and images that each has at least. */
struct tpck_pace {
	uint64_t furthest, iteration_ns;
	uint32_t images;
};
void tpck_ledger_pace(struct tpck_ledger *ledger, const char *node, const struct tpck_pace *pace);
/* The furthest of all nodes. */
uint64_t tpck_ledger_furthest(const struct tpck_ledger *ledger);
/* The furthest, the fastest, and the fewest images of all; those that have said nothing are left out. */
struct tpck_pace tpck_ledger_pace_of_all(const struct tpck_ledger *ledger);

#endif
