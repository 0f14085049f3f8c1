/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spare nodes (doc/twin.md, "A spare node"): where `transpckpt spare` runs, ranks of a node that is lost are started in their places, and all others are forked
 * once more. Each node tells spare nodes how its ranks were started. A node is lost for good once a majority of the job's agents says that it has not heard
 * from it for long enough; and a node that has not heard from a majority ends its ranks before that. Event loop.
 */
#ifndef TPCK_AGENT_SPARES_SPARES_H
#define TPCK_AGENT_SPARES_SPARES_H

#include <json-c/json.h>

#include "agent/peers/peers.h"
#include "agent/session/sessions.h"

extern const struct loop_part spares_loop;
extern const struct peers_hearer spares_hears;

/* To what the agent says of itself. */
void spares_status(json_object *json);

#endif
