/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's state. All of it belongs to the event loop's thread, except where a line says else. */
#ifndef TPCK_AGENT_SESSION_AGENT_H
#define TPCK_AGENT_SESSION_AGENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/home/home.h"
#include "agent/loop/loop.h"
#include "agent/loop/worker.h"
#include "agent/session/launch.h"
#include "runtime/base/error.h"
#include "runtime/base/settings.h"
#include "runtime/base/tier_settings.h"
#include "runtime/policy/interval.h"
#include "runtime/store/manifest.h"
#include "runtime/store/memory_tier.h"
#include "runtime/store/program.h"
#include "runtime/store/tiers.h"
#include "runtime/wire/message.h"

struct tpck_waiting;

/* One connection. */
struct client {
	struct watch watch; /* first: the event loop hands this back */
	pid_t pid;          /* by SO_PEERCRED */
	struct live *live;  /* its session, once welcomed */
	bool busy;          /* HELLO is with the clerk */
	char *deferred;     /* a HELLO that waits until an earlier process of the program is settled, or for the other ranks */
	uint64_t deferred_until_ns;
	struct launch *launch; /* that the HELLO belongs to; NULL: not yet */
	bool gone;          /* closed while busy */
	uint64_t look;      /* the number of its LOOK; 0: none is to be answered */
	uint64_t meets_until_ns; /* it waits for others' agents until then; 0: it does not */
	uint32_t meets;     /* of so many nodes; 0: it does not say */
	bool files, ended;  /* it writes files; it is at its end, and has not failed */
	struct client *next;
};

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

	int newest;                   /* index of the newest committed image; -1: none */
	uint64_t newest_step;

	bool ending;                  /* ENDING came, BYE is owed */
	int32_t status;
	bool end_known;               /* it ended by itself, with `status` */
	bool ended_well;              /* with status 0; the others of its launch have not all */
	bool adopted;                 /* from the last agent, and its process has not come to this one yet */
	bool resumed;
	const char *offered_from;     /* memory or a tier's name, if it was offered something */
	uint64_t died_ns, begun_ns;
	struct live *next;
};

/* A tier behind the first one, which gets copies of what that has. */
struct slower {
	struct worker worker;
	bool busy;
	bool behind;                 /* the first tier may have something newer */
	bool joined;                 /* and so may the one that all nodes see, which is another */
	uint64_t begun_ns, retry_ns;
	double backoff_sec;
	char said[sizeof ((struct tpck_error *)0)->text];
	struct tpck_interval_history history;
	bool slow_said;              /* it has been said that what is on its way takes long */
};

struct agent {
	struct client *clients;
	struct live *lives;
	struct launch *launches;

	uint64_t files_died_ns; /* when a process that writes files died last; 0: the program has ended since, or none did */
	bool launched;               /* by mpirun, together with those of the job's other nodes */
	bool together;               /* it ends them all when one ends */
	bool served;                 /* somebody said HELLO since the start */
	bool stopping;               /* SIGTERM: finish the newest, keep the memory tier */
	bool gathering;              /* stopping: all that mpirun has started end now, and it is to be called again */
	bool nobody_returns;         /* SIGUSR1: what is durable does not linger, until the next program comes */

	uint64_t flush_retry_ns;     /* nothing is flushed before */
	double flush_backoff_sec;
	char flush_said[sizeof ((struct tpck_error *)0)->text]; /* last complaint, not to be repeated */
	struct tpck_interval_history history; /* of the first tier; failures are counted by history.c */
	struct slower slower[TPCK_TIERS_MAX]; /* by tier; the first is not used */
};

struct json_object;
/* What becomes of sessions elsewhere: main() says what that is before the beginning. None is NULL. */
struct session_beyond {
	/* A process has said HELLO (with the identity text behind it), and is told how it begins, sooner or later; or it comes from an earlier agent. */
	void (*hello)(struct agent *agent, struct client *client, const struct tpck_hello *hello, const char *identity);
	void (*adopt)(struct agent *agent, struct client *client, const struct tpck_hello *hello);
	/* A process that begins will look at what was saved: TPCK_MSG_LOOKED is sent to it when it may. It waits until the nodes of its launch are known:
	 * TPCK_MSG_MET. */
	void (*look)(struct client *client);
	void (*meet)(struct client *client, const struct tpck_meet *meet);
	/* All ranks of a launch have a new committed image. */
	void (*committed)(struct launch *launch);
	/* The program with this identity ended well: up to this generation nobody comes back. */
	void (*ended)(const char *identity, uint64_t generation);
	/* For QUERY. */
	void (*status)(struct json_object *json);
};
extern const struct session_beyond *session_beyond;

/* What the loop turns of it (loop.h), each where its name says; the others are in headers of their own. */
extern const struct loop_part adoption_loop, clerk_loop, clients_loop, copies_loop, flush_loop, live_loop, prepare_loop, stall_loop;

/* connections (client.c) */
/* False: the connection is broken (it is closed by its own event). */
bool client_send(struct client *client, enum tpck_message_type type, const void *payload, size_t size);
void client_close(struct agent *agent, struct client *client);
/* What a process said before it died and nobody has read yet: how it ended, and where it went on. */
void client_last_words(struct agent *agent, struct client *client);

/* sessions (live.c, post_mortem.c) */
struct live *live_new(struct agent *agent, struct tpck_session *session, pid_t pid);
void live_attach(struct live *live, struct client *client);
/* Opens image files that are there; what is in them counts. */
void live_open_images(struct live *live);
void live_held(struct live *live, unsigned image);
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

/* Gives the clerk's thread a job (clerk.c). */
void clerk_give(struct job *job);
/* What is to be remembered of a program; saved by the clerk. */
enum clerk_news { NEWS_DIED, NEWS_ENDED, NEWS_RESUMED, NEWS_DIVERGED, NEWS_GAVE_UP };
/* `death` counts with NEWS_DIED. */
void clerk_tell(struct live *live, enum clerk_news news, const struct tpck_point *point,
		enum tpck_death death);

/* images (prepare.c) */
/* Takes a folder's memory back, in the background. */
void prepare_remove(const char *session_path);
void prepare_begin(struct agent *agent, struct live *live, const struct tpck_prepare *prepare);
/* Memory came free: those that got less than they asked for may get more. */
void prepare_again(struct agent *agent);

/* durable tier (flush.c) */
/* Of a launch on several nodes: writes the part of the ranks here, then tells who asked for it, rc: 0 or -errno; joins all parts,
 * then accord_joined(). (flush_parts.c) */
typedef void flush_through(struct agent *agent, struct launch *launch, uint64_t step, int rc, const char *why);
void flush_part(struct agent *agent, struct launch *launch, uint64_t step, flush_through *through);
void flush_join(struct agent *agent, struct launch *launch, uint64_t step, uint64_t began_ns);
/* Gives the flusher's thread a job. */
void flush_give(struct job *job);

/* copies in slower tiers (copies.c) */
/* The first tier has something new. */
void copies_wanted(struct agent *agent);
/* The tier that all nodes see has something newer, from several of them: tiers behind it get it from there. */
void copies_joined(struct agent *agent);
/* Whether a checkpoint of the first tier is being copied. Any thread. */
bool copies_need(const struct tpck_point *point);

/* Retention for every tier: a rule of this agent's settings; `generations` (0 at the end) may have work in progress in
 * the tier, which is entered. */
int flush_retain(struct tpck_tier *tier, const uint64_t *generations, struct tpck_error *err);

/* ranks that wait for each other (stall.c) */
/* Whom the ranks of a launch have been waiting for since then: logs it, and says it in `text`. */
enum { STALL_TEXT = sizeof ((struct tpck_control *)0)->waiting };
void stall_describe(const struct tpck_waiting *waiting, uint64_t since_ns, char text[STALL_TEXT]);
/* The ranks go on, and it is logged. */
void stall_over(uint64_t since_ns);
/* In the control pages of the ranks here, for who looks; "": they get on. */
void stall_show(struct launch *launch, const char *text);

/* QUERY (status.c) */
void status_answer(struct agent *agent, struct client *client);

#endif
