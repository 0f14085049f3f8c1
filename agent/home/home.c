/* SPDX-License-Identifier: Apache-2.0 */
/* Where the agent is at home, and turns at its tiers. */
#include "config.h"

#include "agent/home/home.h"
#include "runtime/base/lock_order.h"

#include <pthread.h>
#include <string.h>

struct home home;

static pthread_mutex_t in_use[TPCK_TIERS_MAX] = {[0 ... TPCK_TIERS_MAX - 1] = PTHREAD_MUTEX_INITIALIZER};

void home_enter(size_t tier)
{
	pthread_mutex_lock(&in_use[tier]);
}

void home_leave(size_t tier)
{
	pthread_mutex_unlock(&in_use[tier]);
}

size_t home_number(const struct tpck_tier *tier)
{
	size_t number = 0;

	while (number + 1 < home.tiers.count && home.tiers.tier[number] != tier)
		number++;
	return number;
}

struct tpck_tier *home_shared_tier(void)
{
	for (size_t i = 0; i < home.tiers.count; i++)
		if (strncmp(home.tiers.name[i], "site", 4) == 0)
			return home.tiers.tier[i];
	return home.tier;
}
