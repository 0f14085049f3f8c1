/* SPDX-License-Identifier: Apache-2.0 */
/* Who hears what happens between nodes. */
#include "config.h"

#include "agent/peers/peers_private.h"

static const struct peers_hearer *const *hearers;
static size_t hearer_count;

void peers_heard_by(const struct peers_hearer *const *list, size_t count)
{
	hearers = list;
	hearer_count = count;
}

#define EACH(what, ...)                                                                                                                              \
	for (size_t i = 0; i < hearer_count; i++)                                                                                                    \
		if (hearers[i]->what)                                                                                                                \
			hearers[i]->what(__VA_ARGS__);

void hearers_met(struct agent *agent, const char *node)
{
	EACH(met, agent, node)
}

void hearers_lost(struct agent *agent, const char *node, const char *host)
{
	EACH(lost, agent, node, host)
}

void hearers_said(struct agent *agent, const char *node, const char *host, const struct tpck_accord_message *message, const char *more, size_t size)
{
	EACH(said, agent, node, host, message, more, size)
}

void hearers_ending(struct agent *agent, const char *host)
{
	EACH(ending, agent, host)
}

void hearers_alone(struct agent *agent, const char *host)
{
	EACH(alone, agent, host)
}

void hearers_copied(struct agent *agent, struct launch *launch, uint64_t step, unsigned copies)
{
	EACH(copied, agent, launch, step, copies)
}

void peers_asked(void)
{
	EACH(asked)
}

bool hearers_need(uint64_t generation)
{
	for (size_t i = 0; i < hearer_count; i++)
		if (hearers[i]->needs && hearers[i]->needs(generation))
			return true;
	return false;
}
