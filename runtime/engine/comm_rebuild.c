/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Communicators while running forward and when going live. Forward none is made: what NCCL said of it is in the record. Once the ranks have agreed to go live
 * they are made anew, before the program does anything more, by ids that the ranks tell each other through the agents, never by what the program's own
 * rendezvous says: that may be another start's, or nobody's.
 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/engine/engine_private.h"
#include "runtime/engine/agent_link.h"

/* How long a rank waits for another's id, and after what time it asks for it first. */
#define ID_LIMIT_NS 900000000000ull
#define ID_ASK_NS 2000000000ull
#define ID_SAY_NS 10000000000ull

static struct tpck_engine *const engine = &tpck_engine;

/* ---- answers ------------------------------------------------------------------------------------ */

bool tpck_engine_nccl_answer(struct tpck_thread *self, void *answer, size_t bytes)
{
	const struct tpck_record *record;

	if (tpck_engine_mode() != TPCK_MODE_FORWARD)
		return false;
	record = tpck_resume_record(self, TPCK_RECORD_NCCL);
	if (!record) {
		tpck_engine_nccl_await(self);
		return false;
	}
	if (record->bytes != bytes) {
		tpck_resume_diverged("NCCL is asked for something else than in the first run");
		return false;
	}
	memcpy(answer, record + 1, bytes);
	return true;
}

void tpck_engine_nccl_note(struct tpck_thread *self, const void *answer, size_t bytes)
{
	uint32_t mode = tpck_engine_mode();

	if (mode == TPCK_MODE_LIVE || mode == TPCK_MODE_EARLY)
		tpck_log_append(engine->log, TPCK_RECORD_NCCL, 0, self->id, 0, answer, bytes);
}

void tpck_engine_nccl_captures(struct tpck_thread *self, uint32_t index)
{
	if (tpck_engine_mode() == TPCK_MODE_LIVE || tpck_engine_mode() == TPCK_MODE_EARLY)
		tpck_log_append(engine->log, TPCK_RECORD_NCCL, TPCK_NCCL_CAPTURED, self->id, 0, &index, sizeof index);
}

bool tpck_engine_nccl_will_capture(uint32_t index)
{
	return tpck_forward_captures(index);
}

void tpck_engine_nccl_await(struct tpck_thread *self)
{
	/* A thread without operations of its own, too, is at its end in the record. */
	if (tpck_engine_mode() == TPCK_MODE_FORWARD)
		tpck_resume_at_boundary(self);
}

/* ---- ids ------------------------------------------------------------------------------------------ */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The newest that this process tells, and that it has heard: of those that it needs it hears again if it asks. */
enum { MINE_MAX = 2048, HEARD_MAX = 4096 };
static struct ids {
	struct tpck_communicator_id *id;
	size_t max, count; /* ever */
} mine = {.max = MINE_MAX}, heard = {.max = HEARD_MAX};

/* Under the lock. */
static struct tpck_communicator_id *find(const struct ids *in, uint64_t name)
{
	size_t have = in->count < in->max ? in->count : in->max;

	for (size_t i = 0; i < have; i++)
		if (in->id[i].name == name)
			return &in->id[i];
	return NULL;
}

/* The newest of a name counts. */
static void keep(struct ids *in, const struct tpck_communicator_id *id)
{
	struct tpck_communicator_id *at;

	pthread_mutex_lock(&lock);
	if (!in->id)
		in->id = calloc(in->max, sizeof *in->id);
	at = in->id ? find(in, id->name) : NULL;
	if (!at && in->id)
		at = &in->id[in->count++ % in->max];
	if (at)
		*at = *id;
	pthread_mutex_unlock(&lock);
}

void tpck_communicators_heard(const struct tpck_communicator_id *told)
{
	struct tpck_communicator_id answer = {0};
	const struct tpck_communicator_id *at;

	if (told->known) {
		keep(&heard, told);
		return;
	}
	pthread_mutex_lock(&lock);
	at = find(&mine, told->name);
	if (at)
		answer = *at;
	pthread_mutex_unlock(&lock);
	if (answer.known)
		tpck_agent_send(TPCK_MSG_ID, &answer, sizeof answer);
}

void tpck_engine_id_tell(uint64_t name, const void *bytes)
{
	struct tpck_communicator_id id = {.name = name, .known = 1};

	memcpy(id.id, bytes, sizeof id.id);
	keep(&mine, &id);
	tpck_agent_send(TPCK_MSG_ID, &id, sizeof id);
}

bool tpck_engine_alone(void)
{
	return engine->ranks.world == 1;
}

bool tpck_engine_went_on(void)
{
	return tpck_engine_mode() == TPCK_MODE_LIVE && engine->welcome.offer && engine->control && engine->control->parent_generation;
}

int tpck_engine_id_await(uint64_t name, void *bytes, uint64_t limit_ns)
{
	struct tpck_communicator_id question = {.name = name};
	uint64_t begun = tpck_clock_monotonic_ns(), pause_ns = ID_ASK_NS, ask = begun + pause_ns, now;
	const struct tpck_communicator_id *at;
	bool said = false;

	for (;;) {
		pthread_mutex_lock(&lock);
		at = find(&mine, name);
		if (!at)
			at = find(&heard, name);
		if (at)
			memcpy(bytes, at->id, sizeof at->id);
		pthread_mutex_unlock(&lock);
		if (at)
			return 0;
		if (engine->ranks.world == 1 || !engine->control)
			return -ENXIO;
		now = tpck_clock_monotonic_ns();
		if (now - begun > (limit_ns ? limit_ns : ID_LIMIT_NS))
			return -ETIMEDOUT;
		if (!said && !limit_ns && now - begun > ID_SAY_NS) {
			said = true;
			tpck_log_warn("waits to hear of a communicator's first rank by what to meet, to make it anew");
		}
		/* Ranks may be many, and the one that knows may just not be there yet. */
		if (now >= ask) {
			tpck_agent_send(TPCK_MSG_ID, &question, sizeof question);
			pause_ns = pause_ns < 16 * ID_ASK_NS ? 2 * pause_ns : pause_ns;
			ask = now + pause_ns;
		}
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000000}, NULL);
	}
}

/* ---- going live ------------------------------------------------------------------------------------- */

static const struct tpck_engine_nccl_maker *_Atomic maker;

void tpck_engine_nccl_maker(const struct tpck_engine_nccl_maker *made)
{
	atomic_store(&maker, made);
}

int tpck_communicators_check(char *why, size_t size)
{
	const struct tpck_engine_nccl_maker *at = atomic_load(&maker);

	return at ? at->check(why, size) : 0;
}

void tpck_communicators_anew(void)
{
	const struct tpck_engine_nccl_maker *at = atomic_load(&maker);
	struct tpck_thread *self = tpck_thread_self();
	bool elsewhere;

	if (!at || !self)
		return;
	/* As inside of NCCL's own calls. */
	elsewhere = self->elsewhere;
	self->elsewhere = true;
	at->make();
	self->elsewhere = elsewhere;
}
