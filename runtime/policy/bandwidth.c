/* SPDX-License-Identifier: Apache-2.0 */
/* A token bucket, kept as the time at which it is not empty any more, and an even spread. */
#include "config.h"

#include "runtime/policy/bandwidth.h"

void tpck_bandwidth_spend(struct tpck_bandwidth *bandwidth, uint64_t now_ns, uint64_t bytes)
{
	uint64_t full_ns = now_ns > TPCK_BANDWIDTH_DEPTH_NS ? now_ns - TPCK_BANDWIDTH_DEPTH_NS : 0;

	if (!bandwidth->rate)
		return;
	if (bandwidth->next_ns < full_ns)
		bandwidth->next_ns = full_ns;
	bandwidth->next_ns += (uint64_t)((double)bytes * 1e9 / (double)bandwidth->rate);
}

uint64_t tpck_bandwidth_next(const struct tpck_bandwidth *bandwidth)
{
	return bandwidth->next_ns;
}

void tpck_spread_begin(struct tpck_spread *spread, uint64_t now_ns, uint64_t until_ns, uint64_t bytes)
{
	uint64_t most = (uint64_t)((double)bytes * 1e9 / (double)TPCK_SPREAD_LEAST_RATE);

	if (most > TPCK_SPREAD_MOST_NS)
		most = TPCK_SPREAD_MOST_NS;
	*spread = (struct tpck_spread){.begun_ns = now_ns, .until_ns = until_ns, .bytes = bytes};
	if (until_ns < now_ns)
		spread->until_ns = now_ns;
	else if (until_ns - now_ns > most)
		spread->until_ns = now_ns + most;
}

uint64_t tpck_spread_next(const struct tpck_spread *spread)
{
	double share = spread->bytes ? (double)spread->sent / (double)spread->bytes : 1;

	return spread->begun_ns + (uint64_t)((double)(spread->until_ns - spread->begun_ns) * share);
}
