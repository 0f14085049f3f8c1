/* SPDX-License-Identifier: Apache-2.0 */
/* A token bucket, kept as the time at which it is not empty any more. */
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
