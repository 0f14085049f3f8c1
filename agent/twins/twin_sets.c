/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of twins: their memory, and what is said of them between nodes. */
#include "config.h"

#include "agent/twins/twin_sets.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/session/launch.h"
#include "runtime/base/kernel.h"
#include "runtime/base/log.h"
#include "runtime/base/shared_file.h"
#include "runtime/peer/protocol.h"
#include "runtime/wire/segment.h"

/* Nobody says that a supervisor is gone: it is looked at so often. */
enum { LOOK_SEC = 1 };

/* A set of a launch that has ranks on other nodes. */
struct mirror {
	struct job job; /* first; from the thread to the event loop, and nothing else */
	uint64_t generation;
	struct tpck_twin_set *set;
	pthread_t thread;
	_Atomic bool posted, ends;
	char leader[TPCK_PEER_NAME]; /* rank 0's node, where this is another one; "": it has not been heard of */
	char (*node)[TPCK_PEER_NAME]; /* here: of each rank its node, "" of those of this one */
	char *said;                  /* what was sent last */
	size_t said_size;
	struct mirror *next;
};
static struct mirror *mirrors;

static const struct tpck_accord_message none = {.kind = TPCK_ACCORD_TWINS};

/* ---- what is there ---------------------------------------------------------------------------- */

static bool is_there(int32_t process)
{
	return process > 0 && (!kill(process, 0) || errno == EPERM);
}

/* A rank of this node whose program is about to end: who saw its connections end may be quicker than its supervisor. */
static void look_at_seats(struct tpck_twin_set *set)
{
	for (uint32_t i = 0; i < set->world; i++) {
		struct tpck_twin_seat *seat = &set->seat[i];
		int32_t living = atomic_load(&seat->living), supervisor = atomic_load(&seat->supervisor);

		if (!atomic_load(&seat->here) || supervisor <= 0)
			continue;
		/* Nobody is left to say so. */
		if (!is_there(supervisor))
			atomic_store(&seat->ended, 1);
		atomic_store(&seat->ending, living > 0 && !atomic_load(&seat->ended) && !atomic_load(&seat->waits) && tpck_twin_set_is_ending(living));
	}
}

static struct tpck_accord_twin_seat row_of(const struct tpck_twin_set *set, uint32_t rank)
{
	const struct tpck_twin_seat *seat = &set->seat[rank];

	return (struct tpck_accord_twin_seat){
		.rank = rank, .there = atomic_load(&seat->supervisor) != 0, .epoch = atomic_load(&seat->epoch), .follows = atomic_load(&seat->follows),
		.ended = atomic_load(&seat->ended), .waits = atomic_load(&seat->waits), .again = atomic_load(&seat->again),
		.asks = atomic_load(&seat->asks), .may = atomic_load(&seat->may), .answered = atomic_load(&seat->answered),
		.ending = atomic_load(&seat->ending), .changed = atomic_load(&seat->changed),
	};
}

/* How it is with all ranks. */
static void sum_up(const struct tpck_twin_set *set, struct tpck_accord_twins *head)
{
	head->whole = tpck_twin_set_is_whole(set);
	for (uint32_t i = 0; i < set->world; i++) {
		const struct tpck_twin_seat *seat = &set->seat[i];

		if (!atomic_load(&seat->supervisor) || atomic_load(&seat->ended))
			continue;
		/* Another one that waits is news too: all look who is about to end. */
		head->waits += atomic_load(&seat->waits);
		head->ending += atomic_load(&seat->ending);
		head->running |= !atomic_load(&seat->waits);
	}
}

/* What is said now, malloc'd; NULL: there is no memory. */
static char *text_of(const struct mirror *mirror, size_t *size)
{
	const struct tpck_twin_set *set = mirror->set;
	bool decides = tpck_twin_set_decides(set);
	struct tpck_accord_twins *head = calloc(1, sizeof *head + set->world * sizeof(struct tpck_accord_twin_seat));
	struct tpck_accord_twin_seat *row = (struct tpck_accord_twin_seat *)(head + 1);

	if (!head)
		return NULL;
	head->decides = decides;
	head->wants = !decides && !mirror->leader[0];
	head->epoch = atomic_load(&set->epoch);
	head->over = atomic_load(&set->over);
	head->changes = atomic_load(&set->changes);
	head->port = atomic_load(&set->port);
	head->again = atomic_load(&set->again);
	if (decides)
		sum_up(set, head);
	for (uint32_t i = 0; i < set->world; i++)
		if (decides ? atomic_load(&set->seat[i].asks) && !atomic_load(&set->seat[i].here) : atomic_load(&set->seat[i].here))
			row[head->seats++] = row_of(set, i);
	*size = sizeof *head + head->seats * sizeof *row;
	return (char *)head;
}

/* ---- saying it ---------------------------------------------------------------------------------- */

static void send_to(const struct mirror *mirror, const char *node)
{
	struct tpck_accord_message message = none;

	message.generation = mirror->generation;
	message.world = mirror->set->world;
	peers_talk(node, &message, mirror->said, mirror->said_size);
}

/* always: though nothing has changed. */
static void say(struct mirror *mirror, bool always)
{
	bool decides = tpck_twin_set_decides(mirror->set);
	size_t size = 0;
	char *text;

	look_at_seats(mirror->set);
	text = text_of(mirror, &size);
	if (!text)
		return;
	always = always || size != mirror->said_size || memcmp(text, mirror->said, size) != 0;
	free(mirror->said);
	mirror->said = text;
	mirror->said_size = size;
	if (always)
		send_to(mirror, decides || !mirror->leader[0] ? NULL : mirror->leader);
}

/* ---- hearing it --------------------------------------------------------------------------------- */

static void hear_seat(struct mirror *mirror, const char *node, const struct tpck_accord_twin_seat *row)
{
	struct tpck_twin_seat *seat = row->rank < mirror->set->world ? &mirror->set->seat[row->rank] : NULL;

	if (!seat || atomic_load(&seat->here))
		return;
	snprintf(mirror->node[row->rank], sizeof mirror->node[row->rank], "%s", node);
	atomic_store(&seat->epoch, row->epoch);
	atomic_store(&seat->follows, row->follows);
	atomic_store(&seat->ended, row->ended);
	atomic_store(&seat->waits, row->waits);
	atomic_store(&seat->again, row->again);
	atomic_store(&seat->ending, row->ending);
	atomic_store(&seat->may, row->may);
	atomic_store(&seat->changed, row->changed);
	/* Behind all that belongs to it. */
	atomic_store(&seat->asks, row->asks);
	atomic_store(&seat->supervisor, row->there ? -1 : 0);
}

static void hear_over(struct tpck_twin_set *set, uint32_t epoch)
{
	if (atomic_load(&set->over) < epoch)
		atomic_store(&set->over, epoch);
}

static void hear_decided(struct tpck_twin_set *set, const struct tpck_accord_twins *head, const struct tpck_accord_twin_seat *row)
{
	atomic_store(&set->all_whole, head->whole);
	atomic_store(&set->all_ending, head->ending);
	atomic_store(&set->all_running, head->running);
	atomic_store(&set->again, head->again);
	atomic_store(&set->changes, head->changes);
	atomic_store(&set->port, head->port);
	/* Behind the port at which its twins meet. */
	atomic_store(&set->epoch, head->epoch);
	/* Behind what was decided. */
	for (uint32_t i = 0; i < head->seats; i++)
		if (row[i].rank < set->world && atomic_load(&set->seat[row[i].rank].here))
			atomic_store(&set->seat[row[i].rank].answered, row[i].answered);
}

static struct mirror *mirror_of(uint64_t generation)
{
	struct mirror *mirror = mirrors;

	while (mirror && mirror->generation != generation)
		mirror = mirror->next;
	return mirror;
}

static void said(struct agent *agent, const char *node, const char *host, const struct tpck_accord_message *message, const char *more, size_t size)
{
	const struct tpck_accord_twins *head = (const struct tpck_accord_twins *)more;
	struct mirror *mirror = message->kind == TPCK_ACCORD_TWINS ? mirror_of(message->generation) : NULL;
	const struct tpck_accord_twin_seat *row;
	bool decides, first;

	(void)agent;
	(void)host;
	if (!mirror || size < sizeof *head || message->world != mirror->set->world || head->seats > message->world ||
	    size != sizeof *head + head->seats * sizeof *row)
		return;
	row = (const struct tpck_accord_twin_seat *)(head + 1);
	decides = tpck_twin_set_decides(mirror->set);
	if (decides == (head->decides != 0))
		return;
	hear_over(mirror->set, head->over);
	first = !decides && strcmp(mirror->leader, node) != 0;
	if (first)
		snprintf(mirror->leader, sizeof mirror->leader, "%s", node);
	if (!decides)
		hear_decided(mirror->set, head, row);
	for (uint32_t i = 0; decides && i < head->seats; i++)
		hear_seat(mirror, node, &row[i]);
	tpck_twin_set_signal(mirror->set, mirror->set->world);
	say(mirror, first || (decides && head->wants));
}

static void met(struct agent *agent, const char *node)
{
	(void)agent;
	(void)node;
	for (struct mirror *mirror = mirrors; mirror; mirror = mirror->next)
		say(mirror, true);
}

/* The node's supervisors are there perhaps, and nobody hears of them. */
static void lost(struct agent *agent, const char *node, const char *host)
{
	(void)agent;
	(void)host;
	for (struct mirror *mirror = mirrors; mirror; mirror = mirror->next) {
		struct tpck_twin_set *set = mirror->set;

		if (!tpck_twin_set_decides(set)) {
			if (strcmp(mirror->leader, node) != 0)
				continue;
			mirror->leader[0] = '\0';
			atomic_store(&set->all_whole, 0);
			atomic_store(&set->all_ending, 0);
			continue;
		}
		for (uint32_t i = 0; i < set->world; i++)
			if (strcmp(mirror->node[i], node) == 0) {
				atomic_store(&set->seat[i].supervisor, 0);
				atomic_store(&set->seat[i].follows, 0);
				atomic_store(&set->seat[i].ending, 0);
			}
		say(mirror, false);
	}
}

const struct peers_hearer twins_hears = {.met = met, .lost = lost, .said = said};

void twins_each(void (*visit)(void *context, uint64_t generation, struct tpck_twin_set *set), void *context)
{
	for (struct mirror *mirror = mirrors; mirror; mirror = mirror->next)
		if (!atomic_load(&mirror->ends)) {
			visit(context, mirror->generation, mirror->set);
			say(mirror, false);
		}
}

void twins_each_seat(void (*visit)(void *context, uint64_t generation, const struct tpck_twin_set *set, uint32_t rank), void *context)
{
	for (const struct mirror *mirror = mirrors; mirror; mirror = mirror->next)
		for (uint32_t i = 0; i < mirror->set->world; i++)
			if (atomic_load(&mirror->set->seat[i].here))
				visit(context, mirror->generation, mirror->set, i);
}

/* ---- memory ------------------------------------------------------------------------------------- */

static void *mirror_main(void *argument)
{
	struct mirror *mirror = argument;

	while (!atomic_load(&mirror->ends)) {
		struct timespec limit = {LOOK_SEC, 0};
		uint32_t counted = atomic_load(&mirror->set->said);

		if (!atomic_exchange(&mirror->posted, true))
			outbox_post(&mirror->job);
		tpck_sys_futex(&mirror->set->said, FUTEX_WAIT, counted, &limit, NULL, 0);
	}
	return NULL;
}

/* May be called once for each. */
static void mirror_end(struct mirror *mirror)
{
	atomic_store(&mirror->ends, true);
	atomic_fetch_add(&mirror->set->said, 1);
	tpck_sys_futex(&mirror->set->said, FUTEX_WAKE, 1, NULL, NULL, 0);
	pthread_join(mirror->thread, NULL);
}

static void mirror_free(struct mirror *mirror)
{
	munmap(mirror->set, tpck_twin_set_bytes(mirror->set->world));
	free(mirror->node);
	free(mirror->said);
	free(mirror);
}

/* Nobody looks at it any more. */
static bool is_left(const struct agent *agent, const struct mirror *mirror)
{
	for (const struct live *live = agent->lives; live; live = live->next)
		if (live->session->name.generation == mirror->generation && live->life == LIFE_RUNNING)
			return false;
	for (uint32_t i = 0; i < mirror->set->world; i++)
		if (atomic_load(&mirror->set->seat[i].here) && is_there(atomic_load(&mirror->set->seat[i].supervisor)))
			return false;
	return true;
}

static void mirror_done(struct agent *agent, struct job *job)
{
	struct mirror *mirror = (struct mirror *)job, **place = &mirrors;

	atomic_store(&mirror->posted, false);
	if (!atomic_load(&mirror->ends)) {
		say(mirror, false);
		if (!is_left(agent, mirror))
			return;
		mirror_end(mirror);
	}
	/* The thread may have posted once more. */
	if (atomic_load(&mirror->posted))
		return;
	while (*place != mirror)
		place = &(*place)->next;
	*place = mirror->next;
	mirror_free(mirror);
}

static void mirror_new(const char *path, uint64_t generation, uint32_t world)
{
	struct mirror *mirror = calloc(1, sizeof *mirror);
	sigset_t all, before;
	int rc = ENOMEM;

	if (!mirror)
		return;
	mirror->job.done = mirror_done;
	mirror->generation = generation;
	mirror->node = calloc(world, sizeof *mirror->node);
	mirror->set = mirror->node ? tpck_shared_file_open(path, tpck_twin_set_bytes(world)) : NULL;
	if (mirror->set) {
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &before);
		rc = pthread_create(&mirror->thread, NULL, mirror_main, mirror);
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	}
	if (!rc) {
		mirror->next = mirrors;
		mirrors = mirror;
		return;
	}
	tpck_log_warn("generation %" PRIu64 " has no twins: what its nodes' supervisors share cannot be told to others: %s", generation, strerror(rc));
	if (mirror->set)
		munmap(mirror->set, tpck_twin_set_bytes(world));
	free(mirror->node);
	free(mirror);
}

static bool set_path(const struct live *live, char path[TPCK_PATH_MAX])
{
	return !tpck_path_join(path, TPCK_PATH_MAX, live->session->path, TPCK_TWIN_SET_FILE);
}

static bool set_new(const char *path, uint32_t world, bool apart)
{
	struct tpck_twin_set *set = tpck_shared_file_new(path, tpck_twin_set_bytes(world));

	if (!set)
		return false;
	set->version = TPCK_WIRE_VERSION;
	set->world = world;
	set->apart = apart;
	atomic_thread_fence(memory_order_release);
	set->magic = TPCK_TWIN_SET_MAGIC;
	munmap(set, tpck_twin_set_bytes(world));
	return true;
}

/* Whether the file of another rank here has a name in this session, too. */
static bool is_linked(const struct agent *agent, const struct live *live, const char *path)
{
	char other[TPCK_PATH_MAX];

	for (const struct live *any = agent->lives; any; any = any->next)
		if (any != live && any->launch == live->launch && any->session->name.generation == live->session->name.generation && set_path(any, other) &&
		    !link(other, path))
			return true;
	return false;
}

void twins_seat(struct agent *agent, const struct live *live)
{
	const struct tpck_session_name *name = &live->session->name;
	const struct launch *launch = live->launch;
	struct tpck_twin_set *set = NULL;
	char path[TPCK_PATH_MAX];

	if (set_path(live, path) && (is_linked(agent, live, path) || set_new(path, launch->world, launch->apart)))
		set = tpck_shared_file_open(path, tpck_twin_set_bytes(launch->world));
	if (!set) {
		tpck_log_warn("generation %" PRIu64 " has no twins: what its supervisors share cannot be made in %s: %m", name->generation, live->session->path);
		return;
	}
	atomic_store(&set->seat[name->rank].here, 1);
	munmap(set, tpck_twin_set_bytes(launch->world));
	if (launch->apart && !mirror_of(name->generation))
		mirror_new(path, name->generation, launch->world);
}

/* What an earlier agent has made. */
static int begin(struct agent *agent, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];

	(void)err;
	for (const struct live *live = agent->lives; live; live = live->next)
		if (live->launch && live->launch->apart && !mirror_of(live->session->name.generation) && set_path(live, path) && !access(path, F_OK))
			mirror_new(path, live->session->name.generation, live->launch->world);
	return 0;
}

static void stop(struct agent *agent)
{
	(void)agent;
	for (struct mirror *mirror = mirrors; mirror; mirror = mirror->next)
		if (!atomic_load(&mirror->ends))
			mirror_end(mirror);
}

const struct loop_part twins_loop = {.begin = begin, .stop = stop};
