/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of salvage share. */
#ifndef TPCK_AGENT_SALVAGE_SALVAGE_PRIVATE_H
#define TPCK_AGENT_SALVAGE_SALVAGE_PRIVATE_H

#include "agent/salvage/salvage.h"
#include "runtime/peer/inquiry.h"
#include "runtime/peer/protocol.h"

enum salvage_phase {
	SALVAGE_IDLE,
	SALVAGE_ASKING,  /* nodes, for what they have */
	SALVAGE_LOOKING, /* the flusher looks into the store */
	SALVAGE_WRITING, /* parts are */
	SALVAGE_JOINING,
};

/* A part of the step that is being written. */
struct salvage_part {
	uint32_t rank, ordinal;      /* its first */
	enum tpck_left_from from;
	char node[TPCK_PEER_NAME];   /* who writes it */
	bool told, written;
};

/* A launch some of whose nodes are lost. */
struct salvage {
	uint64_t generation;
	uint32_t world;
	bool left;                   /* there is something of it here */
	bool unproven;               /* of a copy here the owner may be lost, which nobody knows yet */
	bool done, gave_up;          /* gave_up: nothing comes of it, as things are */
	uint64_t since_ns, next_ns;
	/* who does it, if that is another one */
	char leader[TPCK_PEER_NAME];
	uint64_t leader_until_ns;
	/* who does it */
	enum salvage_phase phase;
	uint64_t number, asked_ns;
	bool runs, tended;           /* somebody says so */
	char led[TPCK_PEER_NAME];    /* this one does */
	struct tpck_inquiry inquiry;
	uint32_t *part_of;           /* [world] the first rank of its part; UINT32_MAX: nobody has it */
	uint32_t *ordinal;           /* [world] */
	struct tpck_point point;
	struct salvage_part *part;
	size_t part_count;
	bool failed, again, hopeless; /* again: what others have may do; hopeless: nothing will */
	unsigned tries;
	char why[300];
	struct salvage *next;
};

/* The identity of one of the ranks that there is something of here; malloc'd, or NULL. */
char *salvage_identity(struct agent *agent, const struct salvage *salvage, uint32_t *rank, uint32_t *ordinal);
struct launch *salvage_launch(struct agent *agent, uint64_t generation);

/* choice.c: of rows that were heard, the newest step that all parts can be written of, and who writes which. False: there is none, or
 * no memory. */
bool salvage_choose(struct salvage *salvage);
/* These rows are a node's. */
void salvage_take(struct salvage *salvage, uint32_t node, const struct tpck_accord_holding *rows, size_t count);

/* write.c. Whether the store has this step of the program or a newer one, or may not have it: salvage_looked() is told. */
void salvage_look(struct agent *agent, const struct salvage *salvage);
void salvage_looked(struct agent *agent, uint64_t number, bool there);
/* Of a WRITE, here: salvage_wrote() is told. */
void salvage_write(struct agent *agent, const char *node, const struct tpck_accord_message *message);
void salvage_wrote(struct agent *agent, const char *node, const struct tpck_accord_message *message, int rc, const char *why);
/* All parts are there: salvage_joined() is told. */
void salvage_join(struct agent *agent, const struct salvage *salvage);
void salvage_joined(struct agent *agent, uint64_t number, int rc, const char *why);

#endif
