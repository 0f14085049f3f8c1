/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch's leader was told when it asked all nodes what they have: who has answered, and the evidence (consensus.h). */
#ifndef TPCK_RUNTIME_PEER_INQUIRY_H
#define TPCK_RUNTIME_PEER_INQUIRY_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/peer/consensus.h"
#include "runtime/peer/node_names.h"

struct tpck_inquiry {
	struct tpck_names nodes;   /* that were asked */
	uint8_t *state;            /* [nodes.count] */
	size_t waiting;            /* for so many */
	struct tpck_evidence *rows; /* their node: its number in `nodes`, or TPCK_NO_NAME: the leader's own */
	size_t count, room;
};

void tpck_inquiry_free(struct tpck_inquiry *inquiry);
/* One that is gone and has come back may be asked again. 0 or -ENOMEM. */
int tpck_inquiry_ask(struct tpck_inquiry *inquiry, const char *node);
/* True: that of a node which was asked and had not answered; its rows follow, and it has now. `node` gets its number. */
bool tpck_inquiry_answered(struct tpck_inquiry *inquiry, const char *node, uint32_t *number);
/* The node is not waited for any more. */
void tpck_inquiry_gone(struct tpck_inquiry *inquiry, const char *node);
/* 0 or -ENOMEM. */
int tpck_inquiry_add(struct tpck_inquiry *inquiry, const struct tpck_evidence *row);

#endif
