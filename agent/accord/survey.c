/* SPDX-License-Identifier: Apache-2.0 */
/* What the store has that all ranks of a launch could go on from, and which points may not be: the clerk looks. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "agent/accord/accord_private.h"
#include "agent/programs/met_programs.h"
#include "agent/session/clerk.h"

struct survey {
	struct job job; /* first */
	struct launch *launch;
	char *identity;             /* of rank 0 */
	struct tpck_hello hello;
	struct own_start own;
	struct tpck_roll *roll;
	struct tpck_point *points;  /* of the evidence: which may not be offered gets generation 0 */
	size_t point_count;
	struct tpck_point *stored;
	size_t stored_count;
	uint64_t generation, asked_times;
};

static void survey_free(struct survey *survey)
{
	tpck_roll_free(survey->roll);
	free(survey->stored);
	free(survey->points);
	free(survey->identity);
	free(survey);
}

static void survey_run(struct job *job)
{
	struct survey *survey = (struct survey *)job;
	struct tpck_program *program = program_of(survey->identity, NULL);

	if (program)
		tpck_program_refresh(program, &home.tiers);
	survey->own = own_start_of(&survey->hello, program);
	for (size_t i = 0; i < survey->point_count; i++)
		if (program && tpck_program_allows(program, &survey->points[i]) != TPCK_ALLOWED)
			survey->points[i].generation = 0;
	for (size_t t = 0; t < home.tiers.count; t++) {
		struct tpck_catalog catalog = {0};
		struct tpck_point *grown;

		home_enter(t);
		if (tpck_catalog_load(&catalog, home.tiers.tier[t], NULL, NULL, NULL, NULL)) {
			home_leave(t);
			continue;
		}
		grown = reallocarray(survey->stored, survey->stored_count + catalog.count + 1, sizeof *grown);
		if (grown)
			survey->stored = grown;
		for (size_t i = 0; grown && i < catalog.count; i++)
			if (tpck_roll_may_take(survey->roll, catalog.manifests[i]) &&
			    (!program || tpck_program_allows(program, &catalog.manifests[i]->point) == TPCK_ALLOWED))
				survey->stored[survey->stored_count++] = catalog.manifests[i]->point;
		tpck_catalog_free(&catalog);
		home_leave(t);
	}
	if (!survey->launch->generation)
		survey->generation = hello_generation();
}

static void survey_done(struct agent *agent, struct job *job)
{
	struct survey *survey = (struct survey *)job;
	struct launch *launch = survey->launch;
	struct accord *accord = launch->accord;

	loop.jobs--;
	if (!launch->generation)
		launch->generation = survey->generation;
	if (survey->asked_times == accord->asked_times) {
		free(accord->stored);
		accord->stored = survey->stored;
		accord->stored_count = survey->stored_count;
		survey->stored = NULL;
		accord->own = survey->own;
		for (size_t i = 0; i < survey->point_count && i < accord->inquiry.count; i++)
			accord->inquiry.rows[i].bad = !survey->points[i].generation;
		if (accord->broken)
			accord_start_anew(agent, launch, accord_gone);
		else
			accord_stage_next(agent, launch);
	}
	survey_free(survey);
	launch_said(agent, launch, 1);
}

/* One that has been made ready before waits no more; what it said holds. */
static void take_hello(const struct agent *agent, struct launch *launch)
{
	for (const struct client *client = agent->clients; client; client = client->next)
		if (client->launch == launch && client->deferred && ((const struct tpck_hello *)client->deferred)->rank == 0)
			memcpy(&launch->accord->hello, client->deferred, sizeof launch->accord->hello);
}

void accord_begin_survey(const struct agent *agent, struct launch *launch)
{
	struct accord *accord = launch->accord;
	struct survey *survey = calloc(1, sizeof *survey);

	accord->until_ns = 0;
	if (!survey)
		return;
	survey->job.run = survey_run;
	survey->job.done = survey_done;
	survey->launch = launch;
	survey->asked_times = accord->asked_times;
	take_hello(agent, launch);
	survey->hello = accord->hello;
	survey->identity = accord->identity ? strdup(accord->identity) : NULL;
	survey->roll = tpck_roll_copy(accord->roll);
	survey->points = calloc(accord->inquiry.count + 1, sizeof *survey->points);
	if (!survey->identity || !survey->roll || !survey->points) {
		survey_free(survey);
		return;
	}
	survey->point_count = accord->inquiry.count;
	for (size_t i = 0; i < survey->point_count; i++)
		survey->points[i] = accord->inquiry.rows[i].point;
	accord->phase = ACCORD_CHOOSING;
	/* The launch stays until this is through. */
	launch->hellos++;
	loop.jobs++;
	clerk_give(&survey->job);
}
