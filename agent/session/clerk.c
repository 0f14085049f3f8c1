/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent remembers of programs, written down by the clerk's thread. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/loop/trouble.h"
#include "agent/session/clerk.h"
#include "agent/session/sessions.h"
#include "runtime/base/log.h"
#include "runtime/base/tier_settings.h"

/* ---- the clerk's thread ------------------------------------------------------------------- */

static struct worker clerk;

void clerk_give(struct job *job)
{
	worker_give(&clerk, job);
}

static int begin(struct agent *agent, struct tpck_error *err)
{
	(void)agent;
	(void)err;
	return worker_start(&clerk);
}

static void stop(struct agent *agent)
{
	(void)agent;
	worker_stop(&clerk);
}

const struct loop_part clerk_loop = {.begin = begin, .stop = stop};

struct news_job {
	struct job job; /* first */
	struct tpck_program *program;
	enum clerk_news news;
	struct tpck_point point;
	enum tpck_death death;
	struct tpck_program_last last; /* with NEWS_DIED */
};

/* What the next start will make of it. */
static void say_death(const struct news_job *news, uint64_t deaths)
{
	unsigned long long step = news->point.step;

	if (!deaths)
		return;
	if (news->death == TPCK_DEATH_STARTING)
		tpck_log_warn("died on the way to step %llu, %llu times in a row; %s", step, (unsigned long long)deaths,
			      deaths < TPCK_CRASH_LOOP_STARTS ? "the next start goes there all the same"
							      : "an earlier step is next");
	else
		tpck_log_warn("died within an iteration of resuming at step %llu, %llu times in a row; %s", step,
			      (unsigned long long)deaths,
			      deaths < TPCK_CRASH_LOOP_DEATHS ? "the next start goes there once more"
							      : "an earlier step is next");
}

static void news_run(struct job *job)
{
	struct news_job *news = (struct news_job *)job;
	struct tpck_error err = {0};
	uint64_t deaths;
	int rc = 0;

	switch (news->news) {
	case NEWS_DIED:
		deaths = tpck_program_died(news->program, &news->point, news->death);
		say_death(news, deaths);
		tpck_program_left(news->program, &news->last);
		break;
	case NEWS_ENDED:
		tpck_program_ended(news->program, news->point.generation);
		/* What a newer start has noted, and keeps, is its own. */
		if (tpck_program_marked(news->program, home.folder, &home.tiers) > news->point.generation)
			break;
		session_beyond->forget(news->program);
		rc = tpck_program_unmark(news->program, home.folder, &home.tiers, &err);
		break;
	case NEWS_RESUMED:
		tpck_program_resumed(news->program, news->point.generation, news->point.step);
		break;
	case NEWS_DIVERGED:
		tpck_program_refuse(news->program, &news->point);
		break;
	case NEWS_GAVE_UP:
		/* The program could not start over, and would end again at any other step of the same log. */
		tpck_program_ended(news->program, news->point.generation);
		break;
	}
	if (!rc)
		rc = tpck_program_save(news->program, home.folder, &home.tiers, &err);
	if (rc)
		trouble_complain(&err);
}

static void news_done(struct agent *agent, struct job *job)
{
	(void)agent;
	loop.jobs--;
	free(job);
}

static void tell(struct live *live, enum clerk_news kind, const struct tpck_point *point, enum tpck_death death,
		 const struct tpck_program_last *last)
{
	struct news_job *news = live->program ? calloc(1, sizeof *news) : NULL;

	if (!news)
		return;
	news->job.run = news_run;
	news->job.done = news_done;
	news->program = live->program;
	news->news = kind;
	news->point = *point;
	news->death = death;
	if (last)
		news->last = *last;
	loop.jobs++;
	clerk_give(&news->job);
}

void clerk_tell(struct live *live, enum clerk_news kind, const struct tpck_point *point, enum tpck_death death)
{
	tell(live, kind, point, death, NULL);
}

void clerk_tell_death(struct live *live, const struct tpck_point *from, enum tpck_death death, const struct tpck_program_last *last)
{
	tell(live, NEWS_DIED, from, death, last);
}
