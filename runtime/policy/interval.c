/* SPDX-License-Identifier: Apache-2.0 */
/* Young/Daly for a durable tier. */
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

void tpck_interval_terms(const struct tpck_interval_history *history, struct tpck_interval_terms *terms)
{
	double cost = history->cost_sec > 0 ? history->cost_sec : 0, observed = history->observed_sec > 0 ? history->observed_sec : 0;

	terms->mean = (observed + TPCK_INTERVAL_PRIOR_SEC) / ((double)history->failures + 1);
	terms->formula = square_root(2 * cost * terms->mean);
	terms->bound = cost * TPCK_INTERVAL_SHARE;
	if (terms->bound < TPCK_INTERVAL_LEAST_SEC)
		terms->bound = TPCK_INTERVAL_LEAST_SEC;
	terms->interval = terms->formula > terms->bound ? terms->formula : terms->bound;
}

double tpck_interval_auto(const struct tpck_interval_history *history)
{
	struct tpck_interval_terms terms;

	tpck_interval_terms(history, &terms);
	return terms.interval;
}
