/* SPDX-License-Identifier: Apache-2.0 */
/* Faults that come again: how soon what failed is tried again, and that not each of them is said. */
#ifndef TPCK_AGENT_LOOP_TROUBLE_H
#define TPCK_AGENT_LOOP_TROUBLE_H

#include "runtime/base/error.h"

/* Seconds until a store that failed is tried again, longer from one time to the next; `last` is 0 at the first. */
double trouble_backoff(double last);
/* Logs a fault unless it is one of the last few that were logged. Any thread. */
void trouble_complain(const struct tpck_error *err);

#endif
