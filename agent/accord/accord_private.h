/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of an accord share. */
#ifndef TPCK_AGENT_ACCORD_ACCORD_PRIVATE_H
#define TPCK_AGENT_ACCORD_ACCORD_PRIVATE_H

#include "agent/accord/joint_launches.h"
#include "agent/hello/hello.h"
#include "agent/peers/peers.h"
#include "agent/session/own_start.h"
#include "runtime/peer/inquiry.h"
#include "runtime/peer/ledger.h"
#include "runtime/peer/protocol.h"
#include "runtime/peer/roll.h"
#include "runtime/peer/waiting.h"
#include "runtime/store/cut.h"

/* How often the leader looks who has been met, while it waits for that. */
#define ACCORD_LOOK_NS 50000000ull
/* How long ranks that are on their way to their step wait for the next agent of a node. */
#define ACCORD_NEXT_NS 60000000000ull

enum accord_phase {
	ACCORD_GATHERING, /* ranks, or who leads, are waited for */
	ACCORD_ASKING,    /* nodes, for what they have */
	ACCORD_CHOOSING,  /* the clerk looks into the store */
	ACCORD_STAGING,   /* ranks make ready */
	ACCORD_RUNNING,
};

struct accord {
	bool leads, broken;           /* broken: somebody was gone before it had begun, and nothing is agreed on any more */
	char leader[TPCK_PEER_NAME];  /* "": not known */
	uint64_t number;
	enum accord_phase phase;
	uint64_t until_ns;            /* nobody waits longer for the next phase; 0: for ever */
	uint64_t next_ns;             /* gathering again since an agent was gone: nobody waits longer for its node's next one; 0: this is not so */
	struct tpck_point point;      /* that is being staged, or was */
	uint64_t committed, kept, copying; /* steps; 0: none. Images of the latter two are pinned */
	bool copied;                  /* what is being copied is through here, with so many copies */
	unsigned copies;
	uint64_t copy_next;           /* to be copied once what is being copied is through: another leader says so */
	bool injected_said, closed_said;
	bool live;                    /* its ranks here were told to go live, which nobody takes back */
	bool trying, given_up;        /* hello_try() is under way; and nobody waits for it any more */
	uint64_t attempt;             /* at staging, by the leader's number */
	struct accord_stage *to_stage; /* a STAGE that came while another one was under way */
	bool lacks;                   /* who leads says that nodes with ranks of it are not there; the leader's: has said so */
	bool late;                    /* the others have begun, and who leads will say how (late.c) */

	/* the leader's */
	struct tpck_roll *roll;       /* the ranks */
	struct tpck_ledger *ledger;   /* the nodes that have them */
	char *identity;               /* of rank 0, which is here */
	uint32_t ordinal;
	uint64_t wanted;              /* the step that rank 0 wants; UINT64_MAX: the newest */
	struct tpck_hello hello;      /* rank 0's */
	bool moved;                   /* rank 0 was started on a spare node */
	struct own_start own;         /* whether what all can go on from is to be gone on from */
	struct tpck_inquiry inquiry;
	uint64_t asked_ns;            /* when */
	uint64_t asked_times;         /* what is under way for an earlier question is of no use */
	unsigned gone_times;          /* how often somebody who was to give a part was gone */
	bool gone;                    /* so it is in this attempt */
	struct tpck_point *stored;
	size_t stored_count;
	uint64_t named, named_ns;     /* boundary */
	unsigned fewest_copies;
	bool settled_any;             /* something of this generation outlives a node: earlier ones are not needed */
	uint64_t announced;           /* the generation that was said with LEAD */
	bool failed;                  /* a rank could not make ready for what is being staged */
	bool due;                     /* a snapshot is, and there was no room */
	uint64_t flushing, flush_began_ns; /* step; 0: none */
	char flush_why[300];          /* a part of it is not written; "": all are so far */
	bool haste, haste_said;
	char notice[300];
	bool resumed;                 /* its ranks went on from `point`, and meet at `ports` */
	uint64_t ports;
	struct accord_late *latecomers; /* nodes that were not told that all begin */
	struct tpck_waiting *waiting; /* nodes whose ranks do not get on; NULL: there were none yet */
	uint64_t waiting_ns;          /* since when, by the newest of their iterations; 0: it has not been said */
};

/* A STAGE, as it came. */
struct accord_stage {
	struct tpck_accord_message message;
	size_t count;
	struct tpck_accord_source sources[];
};

/* What a launch goes by (struct launch_apart), each where its name says. */
struct accord *accord_new(void);
void accord_free(struct launch *launch);
void accord_came(struct agent *agent, struct launch *launch, const struct tpck_hello *hello, const char *identity);
void accord_staged(struct agent *agent, struct launch *launch, enum launch_staged how, uint32_t rank, const char *why);
void accord_welcomed(struct launch *launch);
void accord_held(struct agent *agent, struct live *live);
void accord_adopt(struct launch *launch);
bool accord_newest(const struct launch *launch, uint64_t *step);
void accord_due(struct agent *agent, struct launch *launch);
bool accord_may_flush(const struct launch *launch);
bool accord_hurries(const struct launch *launch);
void accord_flush(struct agent *agent, struct launch *launch, uint64_t step);
/* flush_part(), as the leader said, is through. */
void accord_flushed(struct agent *agent, struct launch *launch, uint64_t step, int rc, const char *why);
void accord_joined(struct agent *agent, struct launch *launch, uint64_t step, const char *why);
void accord_pass_id(struct agent *agent, struct launch *launch, const struct tpck_communicator_id *id);
void accord_injected(struct agent *agent, struct launch *launch);
void accord_over(struct agent *agent, struct live *live, bool again);
void accord_stalled(struct agent *agent, struct launch *launch, uint64_t age_ns, const char *rows, size_t size);
void accord_ended(struct agent *agent, struct live *live);

/* To the leader, which may be this one. */
void accord_tell_leader(struct agent *agent, struct launch *launch, struct tpck_accord_message *message, const void *more, size_t size);
/* From the leader to all nodes that have ranks, itself among them, and last. */
void accord_tell_all(struct agent *agent, struct launch *launch, struct tpck_accord_message *message, const void *more, size_t size);
/* And first: what it has noted its next agent finds, if the others have heard it. */
void accord_do_and_tell_all(struct agent *agent, struct launch *launch, struct tpck_accord_message *message, const void *more, size_t size);
/* Those who wait here, to whom nobody has said anything yet. */
void accord_say_members(struct agent *agent, struct launch *launch);
/* To one node: what it leads, and whom it takes in. */
void accord_announce(const struct launch *launch, const char *node, enum tpck_lead whom);
/* What the leader says: of this launch. */
void accord_obey(struct agent *agent, struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size);
/* What is said to the leader. */
void accord_hear(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
		 const char *more, size_t size);
struct tpck_accord_message accord_message(const struct launch *launch, enum tpck_accord_kind kind);
/* Of a rank here: `message` has all but its identity. */
void accord_say_member(struct agent *agent, struct launch *launch, struct tpck_accord_message *message, const char *identity);
/* Ranks here tell the leader what it is to know of them. */
void accord_rejoin(struct agent *agent, struct launch *launch);
/* A rank has come back: what its node has missed. */
void accord_catch_up(struct agent *agent, struct launch *launch, const char *node);

/* holdings.c */
struct accord_holdings {
	struct tpck_accord_holding *row; /* malloc'd */
	size_t count, room;
};
/* Snapshots that are here of ranks of these forms (agent/programs/identity_text.h). */
struct accord_holdings accord_holdings_here(struct agent *agent, const char *forms, size_t size);
/* Whether processes of these forms that an earlier start left are not quite gone. */
bool accord_are_going(struct agent *agent, uint32_t ordinal, const char *forms, size_t size);
void accord_answer(struct agent *agent, const char *node, const struct tpck_accord_message *message, const char *forms, size_t size);
void accord_answer_all(struct agent *agent);
uint64_t accord_answer_deadline(void);

/* launch_start.c */
void accord_start_obey(struct agent *agent, struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size);
void accord_start_hear(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
		       const char *more, size_t size);
void accord_start_consider(struct agent *agent, struct launch *launch);
void accord_take_holdings(struct launch *launch, const char *node, const struct tpck_accord_message *message,
			  const char *more, size_t size);
/* The forms of all ranks' identities; malloc'd. NULL: there is no memory. */
char *accord_forms(const struct launch *launch, size_t *size);
void accord_forget_asked(struct agent *agent, const char *node);
/* One that has been met while others are asked is asked, too. */
void accord_ask_met(struct launch *launch, const char *node);
/* Who can be asked. */
void accord_note_node(const char *node, bool there);
/* The launch's ranks here are on their way to a step that they go on from. */
bool accord_is_starting(const struct launch *launch);
/* Some of its ranks here were told to go live. */
bool accord_has_live(const struct launch *launch);
/* A node that has ranks of it, or leads it, is gone. */
void accord_break(struct agent *agent, struct launch *launch, const char *host);

/* The best that is left of what has been said, or from the beginning. */
void accord_stage_next(struct agent *agent, struct launch *launch);
/* All begin from their beginning. */
void accord_start_anew(struct agent *agent, struct launch *launch, const char *notice);
extern const char accord_gone[]; /* why, where an agent is gone */

/* late.c */
/* By a node that waits: who leads a launch that has begun is asked whether it is of it. */
void accord_late_ask(struct agent *agent, struct launch *launch, const char *leader, uint64_t number);
/* By the leader: a rank asks so. False: it is no latecomer. */
bool accord_late_hear(struct launch *launch, const char *node, const struct tpck_accord_message *message,
		      const struct tpck_accord_member *member);
/* Once all are there again those that are late are told. */
void accord_late_consider(struct launch *launch);
void accord_late_staged(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message, const char *why);
/* One is gone. */
void accord_late_forget(struct launch *launch, const char *node);
void accord_late_free(struct accord *accord);
bool accord_late_any(const struct launch *launch);
/* The launch's sessions are a dead agent's: what that told the ranks. */
void accord_late_adopt(struct launch *launch);

/* survey.c */
/* Behind the inquiry; then accord_stage_next(). */
void accord_begin_survey(const struct agent *agent, struct launch *launch);

/* steps.c */
/* copies_send() is through. */
void accord_copied(struct agent *agent, struct launch *launch, uint64_t step, unsigned copies);
void accord_steps_obey(struct agent *agent, struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size);
void accord_steps_hear(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
		       const char *more, size_t size);
/* What processes of these forms left here in generations before this one. */
void accord_retire(struct agent *agent, uint64_t generation, const char *forms, size_t size);

/* ids.c */
void accord_ids_hear(struct agent *agent, struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size);
void accord_ids_obey(struct launch *launch, const struct tpck_accord_message *message, const char *more, size_t size);

/* stalls.c */
void accord_stalls_hear(struct agent *agent, struct launch *launch, const char *node, const struct tpck_accord_message *message,
			const char *more, size_t size);
void accord_stalls_obey(struct launch *launch, const char *text, size_t size);
/* A node is gone. */
void accord_stalls_forget(struct launch *launch, const char *node);

#endif
