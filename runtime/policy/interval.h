/* SPDX-License-Identifier: Apache-2.0 */
/* How often a tier is worth writing: Young/Daly from the measured cost and the failures that only it survives. */
#ifndef TPCK_RUNTIME_POLICY_INTERVAL_H
#define TPCK_RUNTIME_POLICY_INTERVAL_H

#include <stdint.h>

/* What is believed before anything is known: one failure in a day. It counts as much as one that was seen, so that some
 * days or some failures outweigh it. */
#define TPCK_INTERVAL_PRIOR_SEC 86400.0
/* Writing takes at most one part in so many of the time. */
#define TPCK_INTERVAL_SHARE 10.0
/* Seconds that lie between two at least. */
#define TPCK_INTERVAL_LEAST_SEC 1.0

struct tpck_interval_history {
	double cost_sec;     /* of the last write; 0 before the first */
	double observed_sec; /* running time in which failures were counted */
	uint64_t failures;
};

/* The interval and what it comes from, all in seconds. */
struct tpck_interval_terms {
	double mean;     /* time between failures: with the prior, (observed + a day) / (failures + 1) */
	double formula;  /* Young's first order (1974): sqrt(2 x cost x mean) */
	double bound;    /* so much at least, by the two above */
	double interval; /* the greater of both: from the begin of one write to that of the next */
};
void tpck_interval_terms(const struct tpck_interval_history *history, struct tpck_interval_terms *terms);
double tpck_interval_auto(const struct tpck_interval_history *history);

#endif
