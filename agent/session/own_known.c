/* SPDX-License-Identifier: Apache-2.0 */
/* Noting what a program saves itself, what its starts load of that, and how long they take. */
#include "config.h"

#include "agent/session/own_known.h"

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/loop/trouble.h"
#include "agent/session/clerk.h"
#include "agent/session/sessions.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/view/view.h"

/* A program that saves in every iteration costs a write a second. */
#define AFTER_NS 1000000000ull

/* Programs of which something is not written down yet. */
struct changed {
	struct tpck_program *program;
	uint64_t due_ns;
	struct changed *next;
};
static struct changed *changed;

/* Whose the saves of the newest generations are. What was saved may come to its path when their processes are long gone. */
enum { GENERATIONS = 64 };
static struct belongs {
	uint64_t generation; /* 0: none */
	uint32_t rank;       /* the first of them speaks for all */
	struct tpck_program *program;
} belongs[GENERATIONS];
static unsigned belongs_next;
static pthread_mutex_t belongs_lock = PTHREAD_MUTEX_INITIALIZER;

/* A save on its way from the thread that has put it at its path. */
struct saved_job {
	struct job job; /* first */
	struct tpck_own_save save;
	struct tpck_program *program; /* knows of it; NULL: nobody knows whose it is */
};

struct write_job {
	struct job job; /* first */
	struct tpck_program *program;
};

struct began_job {
	struct job job; /* first */
	struct tpck_program *program;
	uint64_t generation;
	struct tpck_begun begun;
	bool none;      /* no rank has loaded anything that the job had saved, and all have begun */
};

/* ---- writing down ------------------------------------------------------------------------- */

static void note_change(struct tpck_program *program)
{
	struct changed *one;

	for (one = changed; one; one = one->next)
		if (one->program == program)
			return;
	one = calloc(1, sizeof *one);
	if (!one)
		return;
	one->program = program;
	one->due_ns = tpck_clock_monotonic_ns() + AFTER_NS;
	one->next = changed;
	changed = one;
}

static void write_down(struct tpck_program *program)
{
	struct tpck_error err = {0};

	if (tpck_program_save(program, home.folder, &home.tiers, &err))
		trouble_complain(&err);
}

static void write_run(struct job *job)
{
	write_down(((struct write_job *)job)->program);
}

static void write_done(struct agent *agent, struct job *job)
{
	(void)agent;
	loop.jobs--;
	free(job);
}

static void consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns();

	(void)agent;
	for (struct changed **place = &changed; *place;) {
		struct changed *one = *place;
		struct write_job *job = now >= one->due_ns ? calloc(1, sizeof *job) : NULL;

		if (!job) {
			place = &one->next;
			continue;
		}
		job->job.run = write_run;
		job->job.done = write_done;
		job->program = one->program;
		*place = one->next;
		free(one);
		loop.jobs++;
		clerk_give(&job->job);
	}
}

static uint64_t deadline(const struct agent *agent)
{
	uint64_t soonest = UINT64_MAX;

	(void)agent;
	for (const struct changed *one = changed; one; one = one->next)
		if (one->due_ns < soonest)
			soonest = one->due_ns;
	return soonest;
}

static void stop(struct agent *agent)
{
	(void)agent;
	while (changed) {
		struct changed *one = changed;

		changed = one->next;
		write_down(one->program);
		free(one);
	}
}

const struct loop_part own_loop = {.consider = consider, .deadline = deadline, .stop = stop};

/* ---- what becomes known ------------------------------------------------------------------- */

/* For all ranks of a launch the first of them that is here speaks. */
static const struct live *speaker(const struct launch *launch)
{
	const struct live *live = launch ? launch_first(launch) : NULL;

	return live && live->program ? live : NULL;
}

/* Of a few iterations it says little. */
static void note_pace(const struct live *live, struct tpck_own *own)
{
	const struct tpck_status *status = &live->session->control->status;
	uint64_t iterations = status->lived_iterations;

	if (iterations >= 4 && status->lived_ns)
		own->iteration_sec = (double)status->lived_ns / 1e9 / (double)iterations;
}

void own_belongs(const struct live *live)
{
	const struct tpck_session_name *name = &live->session->name;
	unsigned at = 0;

	if (!live->program)
		return;
	pthread_mutex_lock(&belongs_lock);
	while (at < GENERATIONS && belongs[at].generation != name->generation)
		at++;
	if (at == GENERATIONS || name->rank <= belongs[at].rank) {
		at = at < GENERATIONS ? at : belongs_next++ % GENERATIONS;
		belongs[at] = (struct belongs){name->generation, name->rank, live->program};
	}
	pthread_mutex_unlock(&belongs_lock);
}

static struct tpck_program *belongs_to(uint64_t generation)
{
	struct tpck_program *program = NULL;

	pthread_mutex_lock(&belongs_lock);
	for (unsigned i = 0; generation && i < GENERATIONS; i++)
		if (belongs[i].generation == generation)
			program = belongs[i].program;
	pthread_mutex_unlock(&belongs_lock);
	return program;
}

static void saved_done(struct agent *agent, struct job *base)
{
	struct saved_job *job = (struct saved_job *)base;
	struct tpck_own *own;

	if (job->program)
		note_change(job->program);
	for (struct live *any = agent->lives; any; any = any->next)
		if (any->program && any->launch && speaker(any->launch) == any && (any->program == job->program || !job->save.generation)) {
			own = tpck_program_own(any->program);
			/* Of one that nobody knows the maker of, any program may have saved it that has saved the same file before. */
			if (!job->save.generation)
				tpck_own_saved(own, &job->save);
			note_pace(any, own);
			tpck_program_own_done(any->program);
			note_change(any->program);
		}
	free(job->save.path);
	free(job);
}

void own_saved(const char *path, const struct stat *put, uint64_t generation, uint64_t timeline, uint64_t step)
{
	const char *slash = strrchr(path, '/');
	struct saved_job *job = slash && slash - path < PATH_MAX ? calloc(1, sizeof *job) : NULL;
	char folder[PATH_MAX];

	if (!job)
		return;
	snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
	job->job.done = saved_done;
	job->save = (struct tpck_own_save){
		.path = strdup(path), .pattern = tpck_view_pattern(folder, slash + 1), .inode = put->st_ino, .bytes = (uint64_t)put->st_size,
		.modified_sec = (uint64_t)put->st_mtim.tv_sec, .modified_ns = (uint64_t)put->st_mtim.tv_nsec, .generation = generation, .timeline = timeline,
		.step = step,
	};
	job->program = belongs_to(generation);
	/* At once: a start that comes now looks for the newest. */
	if (job->save.path && job->program) {
		tpck_own_saved(tpck_program_own(job->program), &job->save);
		tpck_program_own_done(job->program);
	}
	if (job->save.path)
		outbox_post(&job->job);
	else
		free(job);
}

void own_tried(struct tpck_program *program)
{
	tpck_program_own(program)->tries++;
	tpck_program_own_done(program);
	note_change(program);
}

static void began_run(struct job *base)
{
	struct began_job *job = (struct began_job *)base;
	struct tpck_own *known = job->none ? tpck_program_own_copy(job->program) : NULL;
	struct tpck_own_choice choice = {0};
	struct tpck_own *own;
	bool loaded;

	/* A file system may hang: nothing is held meanwhile. */
	if (known)
		tpck_own_find(known, &choice);
	own = tpck_program_own(job->program);
	loaded = tpck_own_began(own, job->generation, (double)job->begun.took_ns / 1e9, job->begun.load, job->begun.loads, choice.loads);
	tpck_program_own_done(job->program);
	if (known)
		tpck_own_free(known);
	free(known);
	if (loaded)
		tpck_log_info("generation %" PRIu64 " began with a checkpoint that the program had saved itself, %.3g s behind its start", job->generation,
			      (double)job->begun.took_ns / 1e9);
	write_down(job->program);
}

void own_began(const struct live *live, const struct tpck_begun *begun)
{
	struct launch *launch = live->launch;
	const struct live *first = speaker(launch);
	struct began_job *job = first ? calloc(1, sizeof *job) : NULL;

	if (!job)
		return;
	launch->began++;
	launch->loaded = launch->loaded || begun->loads;
	job->job.run = began_run;
	job->job.done = write_done;
	job->program = first->program;
	job->generation = launch->generation;
	job->begun = *begun;
	job->begun.loads = begun->loads < TPCK_BEGUN_LOADS ? begun->loads : TPCK_BEGUN_LOADS;
	job->none = launch->began >= launch->here.count && !launch->loaded;
	loop.jobs++;
	clerk_give(&job->job);
}

void own_resumed(const struct live *live)
{
	const struct tpck_control *control = live->session->control;
	const struct tpck_status *status = &control->status;
	struct tpck_own_forward *forward;
	struct tpck_own *own;
	uint64_t first, rest;

	if (speaker(live->launch) != live)
		return;
	first = status->forward_first_ns && status->forward_first_ns < status->forward_ns ? status->forward_first_ns : status->forward_ns;
	rest = status->forward_ns - first;
	own = tpck_program_own(live->program);
	tpck_own_resumed(own, live->session->name.generation, control->parent_generation);
	forward = &own->forward;
	forward->measured = true;
	forward->staged_sec = (double)status->start_ns / 1e9;
	forward->first_sec = (double)first / 1e9;
	forward->inject_sec = (double)status->inject_ns / 1e9;
	if (control->resume_step > 1)
		forward->iteration_sec = (double)rest / 1e9 / (double)(control->resume_step - 1);
	tpck_program_own_done(live->program);
	note_change(live->program);
}

void own_died(const struct live *live)
{
	struct tpck_own *own;

	if (speaker(live->launch) != live)
		return;
	own = tpck_program_own(live->program);
	note_pace(live, own);
	tpck_program_own_done(live->program);
	note_change(live->program);
}
