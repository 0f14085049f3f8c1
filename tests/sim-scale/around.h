/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's code for launches and accords (agent/launch.c, agent/accord) without the rest of the agent: its network, its
 * store, its processes and the other nodes are modelled. Ranks are EACH a node.
 */
#ifndef TPCK_TESTS_SIM_SCALE_AROUND_H
#define TPCK_TESTS_SIM_SCALE_AROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/accord/joint_launches.h"
#include "agent/copies/copies.h"
#include "agent/peers/peers.h"
#include "agent/programs/identity_text.h"
#include "agent/salvage/salvage.h"
#include "runtime/peer/accord.h"
#include "tests/sim-scale/agents.h"

enum { STEP = 300, GENERATION = 5, KEY = 77 };
enum { KINDS = TPCK_ACCORD_TWINS + 1 };

/* What the one agent that there is has said and done. */
extern struct around {
	struct agent *agent;
	char node[24];
	uint64_t number;          /* the leader's of the launch */
	uint64_t left;            /* that of the last question about what is left of a launch */
	uint64_t attempt;         /* at making ready, as it said */
	uint32_t said[KINDS];     /* by it, to whomever */
	size_t bytes[KINDS];
	bool tried, gone_on;      /* its ranks were to make ready, and to go */
	uint32_t own;             /* ranks of which the last start left something here */
} model;

/* The agent, and the launch of its ranks. */
struct here {
	struct agent agent;
	struct launch *launch;
	uint32_t first;
};

/* Node n's name; the identity of a rank, all of which are started alike. */
const char *around_node(uint32_t n, char name[24]);
void around_identity(uint32_t rank, char text[IDENTITY_BYTES + 1]);
/* The agent of node n of a launch of so many ranks, whose own have said HELLO. */
struct here *around_begin(uint32_t world, uint32_t n);
void around_end(struct here *here);
/* A message about that launch. */
struct tpck_accord_message around_message(const struct here *here, enum tpck_accord_kind kind);

#endif
