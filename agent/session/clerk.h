/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent remembers of programs, written down by a thread of its own. */
#ifndef TPCK_AGENT_SESSION_CLERK_H
#define TPCK_AGENT_SESSION_CLERK_H

#include "agent/loop/loop.h"
#include "agent/loop/worker.h"
#include "runtime/store/program.h"

struct live;

extern const struct loop_part clerk_loop;

/* Gives the clerk's thread a job (clerk.c). */
void clerk_give(struct job *job);
/* What is to be remembered of a program; saved by the clerk. */
enum clerk_news { NEWS_DIED, NEWS_ENDED, NEWS_RESUMED, NEWS_DIVERGED, NEWS_GAVE_UP };
/* NEWS_DIED by clerk_tell_death(). */
void clerk_tell(struct live *live, enum clerk_news news, const struct tpck_point *point,
		enum tpck_death death);
/* The same of a death, and how its start ended. */
void clerk_tell_death(struct live *live, const struct tpck_point *from, enum tpck_death death, const struct tpck_program_last *last);

#endif
