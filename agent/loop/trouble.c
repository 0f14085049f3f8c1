/* SPDX-License-Identifier: Apache-2.0 */
/* Faults that come again. */
#include "config.h"

#include "agent/loop/trouble.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"

double trouble_backoff(double last)
{
	const double first = 1, longest = 60;

	return last <= 0 ? first : last * 2 < longest ? last * 2 : longest;
}

void trouble_complain(const struct tpck_error *err)
{
	enum { MEMORY = 8 };
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static char said[MEMORY][sizeof err->text];
	static unsigned turn;
	bool known = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < MEMORY; i++)
		known = known || strcmp(said[i], err->text) == 0;
	if (!known)
		strcpy(said[turn++ % MEMORY], err->text);
	pthread_mutex_unlock(&lock);
	if (!known)
		tpck_log_warn("%s", err->text);
}
