/* SPDX-License-Identifier: Apache-2.0 */
/* What the rest of the agent knows of other nodes' agents. All of it does nothing where TRANSPCKPT_PEERS is 0. */
#ifndef TPCK_TOOLS_AGENT_PEERS_H
#define TPCK_TOOLS_AGENT_PEERS_H

#include <json-c/json.h>

#include "tools/agent/agent.h"
#include "tools/agent/offer.h"

/* Event loop. Copies that are in the memory tier are found; what does not work is one line. */
void peers_start(struct agent *agent);
void peers_stop(struct agent *agent);
/* All ranks of a launch have a new committed image. */
void peers_committed(struct agent *agent, struct launch *launch);
/* The program with this identity ended well: up to this generation nobody comes back. */
void peers_ended(struct agent *agent, const char *identity, uint64_t generation);
/* Copies that nobody needs any more go; UINT64_MAX or when the agent may leave as far as others are concerned. */
void peers_consider(struct agent *agent);
uint64_t peers_leave_at(struct agent *agent);
void peers_status(struct agent *agent, json_object *json);

/* Clerk. Gets the newest copy of a launch from other nodes, if it is newer than all that is here and in the store; the request
 * is that of its first rank, and is told of what could not be had. `store`: the first tier may be looked at. */
void peers_fetch(struct agent *agent, bool store, struct offer_request *request);
/* Adds the copy that is here to the candidates of all ranks' requests. They stay as they are until peers_release(), which says
 * whether one was bad. */
void peers_candidates(struct offer_request *requests, size_t count);
bool peers_release(struct offer_request *requests, size_t count);
/* That of the first rank, which stands for all in what agents say to each other. */
struct offer_request *peers_first(struct offer_request *requests, size_t count);
/* The greatest generation that a peer was heard to have. */
uint64_t peers_generation(void);

#endif
