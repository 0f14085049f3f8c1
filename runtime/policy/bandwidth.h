/* SPDX-License-Identifier: Apache-2.0 */
/* How fast bytes may go: a ceiling for all of them, by a token bucket, and some of them spread over a time. */
#ifndef TPCK_RUNTIME_POLICY_BANDWIDTH_H
#define TPCK_RUNTIME_POLICY_BANDWIDTH_H

#include <stdint.h>

/* A sender that was late may catch up with what the rate gives in so long. */
#define TPCK_BANDWIDTH_DEPTH_NS 100000000ull

/* Bytes are sent whole, in pieces: in any time t there go at most (t + the depth) * rate and one piece. */
struct tpck_bandwidth {
	uint64_t rate;    /* bytes a second; 0: no ceiling */
	uint64_t next_ns; /* from when on the bucket has something; CLOCK_MONOTONIC, as all times here */
};
/* So many have been sent now. */
void tpck_bandwidth_spend(struct tpck_bandwidth *bandwidth, uint64_t now_ns, uint64_t bytes);
/* When the next piece may go: what is not later than now is at once. */
uint64_t tpck_bandwidth_next(const struct tpck_bandwidth *bandwidth);

/* So many bytes evenly from `begun_ns` on, to be sent by `until_ns`: one that is behind goes on at once. */
struct tpck_spread {
	uint64_t begun_ns, until_ns;
	uint64_t bytes, sent;
};
/* A copy takes so long at most, and no longer than its bytes do at that rate: a copy that disturbs nobody is not to wait. */
#define TPCK_SPREAD_MOST_NS 10000000000ull
#define TPCK_SPREAD_LEAST_RATE (1ull << 20)
void tpck_spread_begin(struct tpck_spread *spread, uint64_t now_ns, uint64_t until_ns, uint64_t bytes);
/* When the next piece is due. */
uint64_t tpck_spread_next(const struct tpck_spread *spread);

#endif
