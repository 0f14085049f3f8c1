/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions, as the agent sees them: their processes, and images that become committed and free (live.c, post_mortem.c). Event loop. */
#ifndef TPCK_AGENT_SESSION_LIVE_H
#define TPCK_AGENT_SESSION_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/loop/loop.h"
#include "runtime/store/memory_tier.h"
#include "runtime/store/program.h"
#include "runtime/wire/message.h"

struct client;
struct launch;

enum life {
	LIFE_RUNNING,
	LIFE_SETTLING, /* the process is gone; held images are being checked */
	LIFE_DEAD,     /* may come back: images are kept and made durable */
	LIFE_GONE,     /* nothing of it is needed; freed when no job uses it */
};

struct live_image {
	struct tpck_image map;
	char path[TPCK_PATH_MAX];
	bool checking; /* a job compares it with the device's digests */
	_Atomic uint64_t check_begun_ns; /* 0: others are before it. The checker's thread */
	bool good;     /* they agreed, for good_step */
	uint64_t good_step;
	uint64_t told_step; /* the leader of an accord was told of this one */
	bool adopted;       /* pinned: the last agent may have kept it for the others of an accord */
};

/* A session as the agent sees it. */
struct live {
	struct watch pid_watch; /* first; a pidfd: readable when the process is gone */
	struct tpck_session *session;
	struct tpck_program *program; /* the clerk's; never freed before the agent ends */
	struct client *client;
	pid_t pid;
	enum life life;
	unsigned jobs;                /* that use this structure */
	struct launch *launch;

	unsigned image_count;
	struct live_image images[TPCK_IMAGES_MAX];
	/* Shorter mappings of files that have grown since; a job may still look through one. */
	struct tpck_image *outgrown;
	size_t outgrown_count;
	bool preparing;
	struct tpck_prepare asked;    /* the last PREPARE, and how many images it got */
	unsigned granted;
	bool answered;
	struct tpck_prepare wanted;   /* the PREPARE that came while one was under way */
	bool wanted_set;

	/* The packer's (agent/durable/packer.h). */
	struct live_packing {
		uint64_t next;        /* segment of the log that is looked at next */
		bool busy;
		bool packed;          /* it is packed, and what it was before goes when those that may read it have ended: images that were pinned */
		uint64_t readers[TPCK_IMAGES_MAX];
		uint64_t after_ns;    /* not before that: the last attempt failed */
	} packing;

	int newest;                   /* index of the newest committed image; -1: none */
	uint64_t newest_step;

	bool ending;                  /* ENDING came, BYE is owed */
	int32_t status;
	bool end_known;               /* it ended by itself, with `status` */
	bool ended_well;              /* with status 0; the others of its launch have not all */
	bool adopted;                 /* from the last agent, and its process has not come to this one yet */
	bool resumed;
	bool by_twin;                 /* it was the twin of the one before, and takes over */
	bool in_place;                /* its supervisor has forked it once more */
	uint32_t after;               /* either: enum tpck_failure of the one before */
	pid_t twin;                   /* the process that was to take over when it died; 0: none */
	const char *offered_from;     /* memory or a tier's name, if it was offered something */
	uint64_t died_ns, begun_ns;
	struct live *next;
};

/* Who compares images with the device's digests; and sessions that an earlier agent left, which are taken over at the beginning. */
extern const struct loop_part live_loop, adoption_loop;

struct live *live_new(struct agent *agent, struct tpck_session *session, pid_t pid);
void live_attach(struct live *live, struct client *client);
/* Opens image files that are there; what is in them counts. */
void live_open_images(struct live *live);
void live_held(struct live *live, unsigned image);
/* Somebody waits for the process to be settled: of its last snapshots, which are being checked, those are given up that take longer than the iterations took
 * that lie behind the newest committed one. */
void live_hurry(struct agent *agent, struct live *live);
void live_died(struct agent *agent, struct live *live);
/* Polls all processes, for a HELLO that overtakes the news of a death. */
void live_poll(struct agent *agent);
void live_retire(struct live *live);
/* Frees what is gone and used by nobody. */
void live_sweep(struct agent *agent);
void live_unpin(struct live *live, unsigned image);
/* Index of the session's image of a step that is held and good, or committed; -1: there is none. */
int live_image_of(const struct live *live, uint64_t step);
/* Changes an image's state, if it is that. */
bool live_image_state(struct live *live, unsigned image, enum tpck_image_state from, enum tpck_image_state to);
/* Image `i` is the newest that is committed; older ones are given back. */
void live_committed(struct agent *agent, struct live *live, unsigned image);
/* What earlier starts of its program have left here is not needed any more. */
void live_retire_ancestors(struct agent *agent, const struct live *heir);
/* All processes of a launch have ended well: nobody goes on from it. */
void live_release_all(struct agent *agent, struct launch *launch);
/* The last process of a launch is gone: what cannot be offered goes. */
void live_settle_launch(struct launch *launch);
void live_settle(struct agent *agent, struct live *live);

#endif
