/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's state, shared by the files of this folder and nobody else. */
#ifndef TPCK_RUNTIME_ENGINE_ENGINE_PRIVATE_H
#define TPCK_RUNTIME_ENGINE_ENGINE_PRIVATE_H

#include <pthread.h>
#include <sys/types.h>

#include "runtime/capture/plan.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/ranks.h"
#include "runtime/replay/forward.h"
#include "runtime/replay/record_log.h"
#include "runtime/track/arena.h"
#include "runtime/track/bias.h"
#include "runtime/wire/message.h"
#include "runtime/wire/segment.h"

/* Of three images the program fills one, the agent holds one, and one is being written to the store. */
enum { TPCK_IMAGES_WANTED = 3 };

enum tpck_mode {
	TPCK_MODE_OFF = 0,  /* hooks pass through */
	TPCK_MODE_EARLY,    /* recording into private memory; no device has been used */
	TPCK_MODE_FORWARD,  /* answering from the log */
	TPCK_MODE_LIVE,     /* recording, learning, capturing */
	TPCK_MODE_CHILD,    /* a forked child that has nothing more to do to the outside: paths are those of the overlay, all else is real */
};

struct tpck_engine {
	pid_t pid;
	int complaints;                 /* settings that are wrong; said once a device is used */
	bool unanswered;                /* a store at the start */
	uint64_t start_ns, forward_ns, first_forward_ns; /* the last: once two iterations were through */
	const char *library, *start_folder;
	struct tpck_ranks ranks;
	char *identity;
	uint32_t identity_bytes;
	char job[128];

	struct tpck_log *log;
	const char *unresumable;        /* why later snapshots cannot be resumed */
	bool uncaptured;                /* nor are any taken */
	const char *uncaptured_why;
	_Atomic bool context_ended;     /* by the program: nothing of ours is in it any more */
	struct tpck_control *control;   /* NULL before the agent was met */

	const struct tpck_device *device;
	void *context;
	bool resumable_addresses;       /* the arena serves allocations */
	struct tpck_arena *arena;
	int ordinal;                    /* of the device that the arena is on */
	pthread_mutex_t allocation;     /* order of allocation calls; the only lock held across driver calls (mapping) */
	uint64_t allocations;           /* allocation calls so far */
	_Atomic uint64_t queued;        /* see tpck_memory_queued() */
	uint32_t last_allocator;        /* thread of the last one */
	_Atomic uint32_t futex_turn;
	_Atomic uint32_t variables_count;
	_Atomic bool link_asks;         /* the link's thread has the device load modules */

	struct tpck_infer *infer;
	struct tpck_bias infer_lock;
	_Atomic uint32_t boundary_busy;
	uint64_t copies;                /* between host and device, about so many */
	uint64_t turns;                 /* first uploads behind launches, of threads that launch; the same in each run, and in ranks that do the same */
	_Atomic bool uploads;           /* uploads may be boundaries: see tpck_uploads_boundary() */
	_Atomic int32_t stream_captures;
	uint64_t step;
	bool free_since;                /* nothing is being copied since the last boundary */
	bool phase_seen;                /* an optimizer phase has begun since the last boundary */
	bool bounded;                   /* there was a boundary in this process */
	uint64_t last_boundary_ns, last_capture_ns, last_capture_step;
	uint64_t asked_step;            /* at which the agent was last asked to name a boundary */
	uint64_t last_digest_step;      /* of the last boundary at which digests were queued */
	bool learning;                  /* classes were being learnt at the last boundary */
	_Atomic uint64_t asked_room;    /* data bytes that an agent was asked for, in each of TPCK_IMAGES_WANTED images */
	uint64_t answered_room;         /* so many it gave last, and so many images; the link's */
	uint32_t answered_images;
	struct tpck_plan *plan;
	bool digests;                   /* whether the plan was made with classes */
	uint64_t variables_planned;
	/* What is large comes last: the start of a short program touches few pages. */
	char keep[1200];
	struct tpck_settings settings;
	struct tpck_welcome welcome;
};

extern struct tpck_engine tpck_engine __attribute__((visibility("hidden")));

/* ---- engine.c ---- */
static inline uint32_t tpck_engine_mode(void)
{
	return atomic_load_explicit(&tpck_engine_mode_now, memory_order_acquire);
}
void tpck_engine_mode_set(enum tpck_mode mode);
/* Asks the agent for images of so many bytes of data, if they are not there. */
void tpck_engine_ask_for_room(uint64_t bytes);
void tpck_engine_reason(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- memory.c ---- */
/* An operation was queued: freeing waits for the context, until such a wait has come back that began later. A light
 * thread that finds the mark there does not store it again; who takes the mark away passes the heavy barrier. */
enum { TPCK_NOTHING_QUEUED, TPCK_QUEUED, TPCK_WAITS_FROM };
static inline void tpck_memory_queued(const struct tpck_thread *self)
{
	if (!atomic_load_explicit(&self->light, memory_order_relaxed) ||
	    atomic_load_explicit(&tpck_engine.queued, memory_order_relaxed) != TPCK_QUEUED)
		atomic_store_explicit(&tpck_engine.queued, TPCK_QUEUED, memory_order_release);
}
/* Opens the arena on the device; without it snapshots are not resumable. */
void tpck_memory_open(void);
/* The plan for what is live now. NULL without memory. The plan is kept and made again only when the
 * live set changes. */
/* Around one call that orders memory, which comes in the logged order while running forward. */
void tpck_memory_order_begin(struct tpck_thread *self);
void tpck_memory_order_end(struct tpck_thread *self);
struct tpck_plan *tpck_memory_plan(void);
/* Compares the live set with an image's rows. NULL if they agree, else what does not. */
const char *tpck_memory_compare(const struct tpck_image_row *rows, uint32_t count, char *buffer, size_t size);
uint64_t tpck_memory_variable(const char *symbol, uint64_t bytes);

/* ---- uploads.c ---- */
/* No iteration is found, for that reason. False: uploads cannot be boundaries in its place; true: they are, or whether they are to be is looked at.
 * By the link's thread, now and then. */
bool tpck_uploads_watch(const char *reason);
/* Uploads were boundaries in the run that this one goes on with; copies of `any` thread, read-backs too. */
void tpck_uploads_go_on(bool any);
bool tpck_uploads_any(void);
/* An iteration has been found after all. */
void tpck_uploads_end(void);
/* Whether boundaries are at uploads. */
bool tpck_uploads_on(void);
/* Whether there is one before this operation. Called inside the gate, which may be left and entered again. */
bool tpck_uploads_boundary(struct tpck_thread *self, const struct tpck_call *call);

/* ---- witness.c ---- */
/* Uploads so far; no iteration is found by what is launched. Has the memory witness learn, where it may. Not in ranks, which would not begin at one step. */
enum { TPCK_WITNESS_TURNS = 64 };
void tpck_witness_begin(struct tpck_thread *self);
/* Has digests taken of memory that persists, for TPCK_V_LOOK. Not inside the gate. */
void tpck_witness_look(const struct tpck_thread *self);
/* Digests of that look. By the copier's thread. */
void tpck_witness_digests(uint32_t rows, const uint64_t *digests, uint64_t id);

/* ---- boundary.c ---- */
/* An iteration ended: every operation before is the last one's. */
void tpck_boundary(struct tpck_thread *self);
/* The optimizer is about to write what a capture may still be copying: from here on streams wait for
 * all of it. While classes are learnt, digests taken here tell what changed before. */
void tpck_boundary_phase(const struct tpck_thread *self);

/* ---- resume.c ---- */
/* Asks the agent for an offer and, if there is one, makes ready to run forward. */
void tpck_resume_begin(void);
/* What no thread is answered by: files, programs, connections, places. */
void tpck_resume_learn(const struct tpck_record *record);
/* What lies behind the cut of the session's log, as far as it is there. */
void tpck_resume_learn_behind(struct tpck_log_position cut);
/* Data bytes of the image that is resumed from. */
uint64_t tpck_resume_bytes(void);
/* An operation while running forward. */
enum tpck_go tpck_resume_operation(struct tpck_thread *self, struct tpck_call *call, uint32_t token, uint32_t content);
/* What of launches is compared (operation.c). */
void tpck_operation_tell(struct tpck_ways *ways);
/* The next record of a type for this thread; NULL: the caller does the real thing (the process went live,
 * or the thread is foreign). */
const struct tpck_record *tpck_resume_record(struct tpck_thread *self, enum tpck_record_type type);
/* The same for a draw from chance or a query. *again: the first run did not draw so often; the record is the
 * last one that it did draw, or NULL. */
const struct tpck_record *tpck_resume_draw(struct tpck_thread *self, enum tpck_record_type type, bool *again);
/* The thread has come to its end in the log: goes live if all have, else waits until they do. */
void tpck_resume_at_boundary(struct tpck_thread *self);
/* Waits for the thread's turn to allocate. */
void tpck_resume_turn(struct tpck_thread *self);
/* Of several ranks, while running forward: a thread that looks whether the others resume. False: it cannot be started. */
bool tpck_resume_watch_ranks(void);
/* The program differs from the first run: says so and starts over. Returns only if that is not possible;
 * then the process has gone on without resuming in TPCK_MODE_OFF. */
void tpck_resume_diverged(const char *what);
/* The same where it may differ by chance (threads, addresses): a few more starts are tried before. */
void tpck_resume_missed(const char *what);

/* ---- begun.c ---- */
/* An iteration ends now, by the clock; the one before is still the last. */
void tpck_begun_boundary(uint64_t now);
/* An operation while running forward, until two iterations are through. */
void tpck_begun_forward(const struct tpck_thread *self);
/* Running forward may take so long; 0: as long as it takes. */
uint64_t tpck_begun_limit_ns(void);
/* Whether it takes longer, and why that is thought. */
bool tpck_begun_is_long(char *why, size_t size);

/* ---- stillness.c ---- */
/* Called now and then while running forward: whether the program waits for what does not come. */
void tpck_stillness_look(void);

/* ---- attach.c ---- */
/* Why later snapshots cannot be resumed where tpck_programs_session() fails. */
#define TPCK_UNNOTED "what forked children of the program write to files cannot be noted"
/* Asks the agent for a session, and maps its control page, in place of the one that is there. 0 or -errno, which has been said. */
int tpck_attach_hello(bool resume);
/* Meets the agent without a resume, moves the log to the session. */
int tpck_attach(bool resume);
/* A new timeline in the session that tpck_attach() got. */
int tpck_attach_fresh(void);
/* Forgets the folder for versions of files where the job's folder in the store is another user's. */
void tpck_attach_own_keep(void);
/* Says where stashes are (replay/stash.h): beside the session that tpck_attach() got, and in the store. */
void tpck_attach_stashes(void);
/* Starts link and copier threads once there is a context. */
void tpck_attach_threads(void);
/* Starts the link's thread, for a session that is there. room: a resume asks for room for its next snapshots at once. */
void tpck_attach_link(bool room);

/* ---- collective.c ---- */
/* Writes the communicators into the log where they are others than at the last call. The gate is closed. */
void tpck_record_communicators(void);
/* Whether the process has the communicators of the image that is resumed from, and has done as much on them: NULL, or what
 * differs, in the buffer. */
const char *tpck_offered_communicators(char *buffer, size_t size);

/* ---- comm_rebuild.c ---- */
/* Whether they can be made by this job's ranks: 0 or -errno, with why. Waits for nobody. */
int tpck_communicators_check(char *why, size_t size);
/* Makes them, all ranks together. On those that cannot be made calls fail, as where a rank is gone. */
void tpck_communicators_anew(void);
/* An agent has passed this on. By the link's thread. */
void tpck_communicators_heard(const struct tpck_communicator_id *told);

/* ---- recorder.c ---- */
/* Flushes what a thread did since its last mark into the log. */
void tpck_record_mark(struct tpck_thread *thread);
/* The same in the thread itself, for an operation that its lists have no room for: there is room then. */
void tpck_record_room(struct tpck_thread *thread);
/* Adds an operation to the thread's current mark. */
static inline void tpck_record_operation(struct tpck_thread *thread, uint32_t token, uint32_t content, bool has_content)
{
	if (__builtin_expect(thread->pending == thread->room || (has_content && thread->contents == TPCK_PENDING_CONTENTS), 0))
		tpck_record_room(thread);
	thread->pending_ops[thread->pending++] = token;
	if (has_content)
		thread->pending_contents[thread->contents++] = content;
	thread->operations++;
}

/* ---- clocks.c ---- */
/* Running forward begins: other threads than those of the record are told the first run's time, too. */
void tpck_clocks_begin(void);
/* Running forward ends: CLOCK_MONOTONIC goes on from the boundary. */
void tpck_clocks_live(void);
/* What CLOCK_MONOTONIC tells the program now. */
uint64_t tpck_clocks_shown_ns(void);

/* ---- host_writes.c ---- */
/* Host memory that kernels may write to has been changed: later snapshots are marked so. Only small pieces are looked at unless all are to be. */
void tpck_host_memory_look(bool all);

#endif
