/* SPDX-License-Identifier: Apache-2.0 */
/* How often a slower tier is worth writing: Young/Daly from measured cost and failures. */
#ifndef TPCK_RUNTIME_POLICY_INTERVAL_H
#define TPCK_RUNTIME_POLICY_INTERVAL_H

#include <stdint.h>

struct tpck_interval_history {
	double cost_sec;     /* of the last write; 0 before the first */
	double observed_sec; /* running time in which failures were counted */
	uint64_t failures;
};

/* Seconds from the begin of one write to the begin of the next. Young's first order (1974),
 * sqrt(2 C M), bounded so that writing takes at most a tenth of the time and at least a second
 * lies between; without failures to go by the bound alone. */
double tpck_interval_auto(const struct tpck_interval_history *history);

#endif
