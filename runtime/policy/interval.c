/* SPDX-License-Identifier: Apache-2.0 */
/* Young/Daly for the durable tier. */
#include "config.h"

#include "runtime/policy/interval.h"

/* Newton's iteration; the library stays free of libm. */
static double square_root(double x)
{
	double guess = x > 1 ? x : 1;

	for (int i = 0; i < 60; i++)
		guess = (guess + x / guess) / 2;
	return guess;
}

double tpck_interval_auto(const struct tpck_interval_history *history)
{
	double least = history->cost_sec * 10, wanted = least;

	if (least < 1)
		least = 1;
	if (history->failures == 0 || history->observed_sec <= 0)
		return least;
	wanted = square_root(2 * history->cost_sec * history->observed_sec / (double)history->failures);
	return wanted > least ? wanted : least;
}
