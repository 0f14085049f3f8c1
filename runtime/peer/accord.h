/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agents say to each other about a launch whose ranks are on several nodes (TPCK_PEER_ACCORD). The agent of rank 0
 * leads: it chooses the generation and what all ranks go on from, names the boundaries that all of them capture, and
 * commits a step once every rank holds it. `number` is the leader's of the launch, and another in each start.
 */
#ifndef TPCK_RUNTIME_PEER_ACCORD_H
#define TPCK_RUNTIME_PEER_ACCORD_H

#include <stdint.h>

#include "runtime/store/file_names.h"

/* How ranks begin. */
enum tpck_begins {
	TPCK_BEGINS_ANEW,
	TPCK_BEGINS_STAGED, /* with what was made ready */
	TPCK_BEGINS_OWN,    /* as they would without the library; what there is to go on from stays that */
};

enum tpck_accord_kind {
	/* the start */
	TPCK_ACCORD_LEAD = 1, /* leader: here is rank 0. generation: the launch's, or 0: ranks are waited for; parent, step: what its ranks went on
			       * from, parent 0: nothing; value: enum tpck_lead; value2 1: nodes that have ranks of that generation are not there */
	TPCK_ACCORD_CLOSED,   /* leader: nobody else belongs to this start */
	TPCK_ACCORD_MEMBER,   /* to the leader: a rank is here (again). ordinal, step: the one it wants; value: its HELLO's flags; struct tpck_accord_member.
			       * value2 1: it waits, and has been told nothing; generation: what it was made ready for, 0: nothing */
	TPCK_ACCORD_ASK,      /* leader to all: who has what? The forms of all ranks' identities (agent/programs/identity_text.h) */
	TPCK_ACCORD_HOLDS,    /* to an ASK: struct tpck_accord_holding, of ranks of these forms; value: greatest generation heard of */
	TPCK_ACCORD_STAGE,    /* leader: make ready to go on from parent and step as `generation`; struct tpck_accord_source. value2: number of the
			       * attempt. What was made ready before counts no more */
	TPCK_ACCORD_STAGED,   /* to a STAGE, of all ranks there, with its value2. value 0: done; 1: rank cannot, a text says why; 2: nor can it, since
			       * the node is gone that was to give its part */
	TPCK_ACCORD_START,    /* leader: go. generation; value: enum tpck_begins; value2: ports to meet at, and TPCK_ACCORD_MOVED; a text for the user */
	TPCK_ACCORD_INJECTED, /* to the leader, and to the next one again: all ranks there are ready to go live; value 1: some are live. parent, step: where */
	TPCK_ACCORD_LIVE,     /* leader: they do */
	TPCK_ACCORD_OVER,     /* a rank could not go on from parent and step: all begin anew. value 1: with the same once more */
	/* while it runs */
	TPCK_ACCORD_DUE,      /* to the leader: a snapshot is due. step: the furthest boundary; value: ns an iteration; value2: images
			       * that each rank there has at least */
	TPCK_ACCORD_CAPTURE,  /* leader: step is captured */
	TPCK_ACCORD_HELD,     /* to the leader: all ranks there, as many as ordinal says, hold step. value: struct tpck_counted, value2: struct
			       * tpck_transferred, put together for all of them (store/cut.h) */
	TPCK_ACCORD_MISSED,   /* to the leader: one rank there has left step out, and holds a newer one */
	TPCK_ACCORD_COMMIT,   /* leader: all ranks hold step, and make one cut */
	TPCK_ACCORD_ABANDON,  /* leader: step comes to nothing */
	TPCK_ACCORD_COPY,     /* leader: copies of step are to be made */
	TPCK_ACCORD_COPIED,   /* to the leader: value ranks are through with step's; value2: how many copies there are; of fragments, how many may be
			       * lost until there is nothing */
	TPCK_ACCORD_SETTLED,  /* leader: copies of step are everywhere, value of each part at least: what was kept for the one before goes */
	TPCK_ACCORD_FLUSH,    /* leader: step is to be made durable: each node writes its part */
	TPCK_ACCORD_FLUSHED,  /* to the leader: value 0: the part of the ranks there is written; else an errno, and a text why not */
	TPCK_ACCORD_DURABLE,  /* leader: all parts of step are one checkpoint in the store */
	TPCK_ACCORD_UNSTORED, /* leader: step could not be made durable, and a text says why; it is tried again, later and later */
	TPCK_ACCORD_HASTE,    /* to the leader: this agent is to end, and waits until the newest is durable */
	TPCK_ACCORD_ENDED,    /* to the leader: rank has ended; value 1: well */
	TPCK_ACCORD_RELEASE,  /* leader: all have ended well; nobody comes back */
	TPCK_ACCORD_RETIRE,   /* leader to all nodes: what earlier generations left of the ranks is history. Forms as with ASK */
	TPCK_ACCORD_STALLED,  /* to the leader: no rank there has ended an iteration for value ns; the host's name, 128 bytes, and
			       * rows (waiting.h), or nothing: they get on again */
	TPCK_ACCORD_WAITING,  /* leader: a text says which rank all wait for; "": they get on */
	TPCK_ACCORD_ID,       /* to the leader, and by it to all: struct tpck_communicator_id (wire/message.h), for the ranks of other nodes than rank's */
	/* Once nodes of it were lost. Whoever finds so asks, and then is who the others do it for; `number` is that of the attempt. */
	TPCK_ACCORD_LEFT,     /* to all: what is there of `generation`? value 1: the asker is to end */
	TPCK_ACCORD_HAS_LEFT, /* to a LEFT: struct tpck_accord_holding, whose form is the first rank of the part that a rank belongs to; value: enum tpck_left */
	TPCK_ACCORD_WRITE,    /* the part of step and generation whose first are rank and ordinal is to be written; value: enum tpck_left_from; value2: it is all */
	TPCK_ACCORD_WRITTEN,  /* to a WRITE: value 0: it is; else an errno, and a text why not */
	TPCK_ACCORD_SAVED,    /* to all. value: enum tpck_left_end, of generation, at step; of a failure a text says why */
	/* Of twins, by `generation`; `number` is 0. */
	TPCK_ACCORD_TWINS,    /* struct tpck_accord_twins and so many seats: from rank 0's node to all, and from the others to that */
	/* Of spare nodes (agent/spares). `number` is 0. */
	TPCK_ACCORD_SPARE,    /* to all: value ranks may be started here; a text: this node's addresses, a line each. value2 0: it is a spare node no more */
	TPCK_ACCORD_COMMAND,  /* to a spare: how rank, of world, of generation was started here: the text of runtime/wire/command.h. value 1: the rank has ended */
	TPCK_ACCORD_BALLOT,   /* from a spare to all: may the ranks of this host be started here? A host, 128 bytes */
	TPCK_ACCORD_VOTE,     /* to a BALLOT, with its text: they may, as far as this node is concerned: that host has been lost for long enough */
	TPCK_ACCORD_STAND,    /* from a spare to all: the ranks that this host had, of generation, are started here. A host, 128 bytes */
};

/* Rank 0 was started on a spare node: ranks meet at the leader's, and not where their launcher has said. */
#define TPCK_ACCORD_MOVED (1ull << 32)

/* Whom a leader takes in. */
enum tpck_lead {
	TPCK_LEAD_OPEN,   /* all that have its key */
	TPCK_LEAD_CLOSED, /* ranks of its generation, whose agent or whose leader's was gone; and of these such as wait may ask, by MEMBER */
	TPCK_LEAD_LATE,   /* those that have asked, and are told: with STAGE, if parent is not 0, and START */
};

/* What a node says of a launch with its answer. */
enum tpck_left {
	TPCK_LEFT_DEAD,    /* no process of it runs there */
	TPCK_LEFT_RUNS,    /* one does, but nothing is agreed on any more */
	TPCK_LEFT_TENDED,  /* its node is there, or who leads it with all that belong to it, and makes it durable */
	TPCK_LEFT_LED,     /* who answers has asked before, and writes already */
};
enum tpck_left_from { TPCK_LEFT_OWN, TPCK_LEFT_COPY, TPCK_LEFT_FRAGMENTS };
enum tpck_left_end {
	TPCK_LEFT_DURABLE, /* all that could be is */
	TPCK_LEFT_HISTORY, /* the store has a newer one, or another start has gone on from an older one */
	TPCK_LEFT_NOTHING, /* no step is whole */
	TPCK_LEFT_FAILED,  /* it could not be written */
	TPCK_LEFT_LATER,   /* it is not the time for it */
};

struct tpck_accord_message {
	uint32_t kind, world;
	uint64_t key;                /* the launch, by the launcher's variables */
	uint64_t number;
	uint64_t generation, parent; /* parent: that of what they go on from */
	uint64_t step;
	uint32_t rank, ordinal;
	uint64_t value, value2;
};

/* A rank's identity: by its digests, and its form (agent/programs/identity_text.h). The text stays where the rank is. */
struct tpck_accord_member {
	struct tpck_identity_key key;
	char form[40];
};

/* A snapshot that a node has of a rank. */
enum tpck_holding { TPCK_HOLDING_HELD, TPCK_HOLDING_COMMITTED, TPCK_HOLDING_COPY, TPCK_HOLDING_FRAGMENT };
struct tpck_accord_holding {
	uint64_t generation, step;
	uint32_t rank, ordinal;
	uint32_t kind;               /* enum tpck_holding */
	uint32_t resumable;
	uint32_t form;               /* of the rank's identity, as the ASK counts them */
	uint8_t data, parity, index; /* which fragment (erasure.h), of a holding that is one */
	uint8_t reserved;
};

/* Where a rank's part is got from, where it is neither at hand nor in the store. */
struct tpck_accord_source {
	uint32_t rank, ordinal;
	char node[128];              /* "": by fragments, whoever has them */
};

/* What supervisors of a node share (runtime/wire/twin_set.h, where the fields are explained). */
struct tpck_accord_twins {
	uint32_t decides;            /* 1: rank 0's node says it */
	uint32_t wants;              /* 1: and wants to hear what the other one has; who does not decide has not heard of rank 0's node yet */
	uint32_t epoch, over, changes, port, again;
	uint32_t whole, ending, running; /* of all ranks; of rank 0's node */
	uint32_t waits;              /* so many ranks' programs have ended, and it is not decided what follows */
	uint32_t seats;              /* of the sender's ranks; of rank 0's node those of other nodes that have asked */
};
struct tpck_accord_twin_seat {
	uint32_t rank;
	uint32_t there;              /* 1: it has a supervisor */
	uint32_t epoch, follows, ended, waits, again, asks, may, answered, ending, changed;
};

#endif
