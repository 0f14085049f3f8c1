/* SPDX-License-Identifier: Apache-2.0 */
/* A ceiling holds over any time, whenever the sender looks, and is used up where there is enough to send. */
#include "config.h"

#include <stdbool.h>
#include <stdint.h>

#include "runtime/policy/bandwidth.h"
#include "tests/unit/store_tap.h"

enum { PIECE = 4 << 20, PIECES = 4000 };

static struct {
	uint64_t at_ns, bytes; /* of this piece, and of all with it */
} sent[PIECES];

static uint64_t seed = 1;

static uint64_t some(uint64_t limit)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % limit;
}

/* Sends pieces as soon as they may go, but looks late, by up to `late_ns`. */
static void send_all(uint64_t rate, uint64_t late_ns)
{
	struct tpck_bandwidth bandwidth = {.rate = rate};
	uint64_t now = 1000000000, bytes = 0;

	for (int i = 0; i < PIECES; i++) {
		uint64_t piece = 1 + some(PIECE);

		if (tpck_bandwidth_next(&bandwidth) > now)
			now = tpck_bandwidth_next(&bandwidth) + some(late_ns + 1);
		tpck_bandwidth_spend(&bandwidth, now, piece);
		bytes += piece;
		sent[i].at_ns = now;
		sent[i].bytes = bytes;
	}
}

/* Over each stretch of pieces. */
static bool holds(uint64_t rate)
{
	for (int i = 0; i < PIECES; i++)
		for (int j = i + 1; j < PIECES; j += 1 + j / 50) {
			double time = (double)(sent[j].at_ns - sent[i].at_ns + TPCK_BANDWIDTH_DEPTH_NS) / 1e9;

			if ((double)(sent[j].bytes - sent[i].bytes) > time * (double)rate + PIECE)
				return false;
		}
	return true;
}

static double share(uint64_t rate)
{
	return (double)sent[PIECES - 1].bytes / ((double)(sent[PIECES - 1].at_ns - sent[0].at_ns) / 1e9) / (double)rate;
}

int main(void)
{
	static const uint64_t rates[] = {1 << 20, 100 << 20, 10ull << 30};
	struct tpck_bandwidth none = {0};

	tpck_bandwidth_spend(&none, 1000, PIECE);
	tap_ok(tpck_bandwidth_next(&none) == 0, "without a ceiling everything goes at once", "");
	for (unsigned i = 0; i < sizeof rates / sizeof *rates; i++) {
		send_all(rates[i], 0);
		tap_ok(holds(rates[i]), "the ceiling holds", "");
		tap_ok(share(rates[i]) > 0.99, "and is used up", "");
		send_all(rates[i], TPCK_BANDWIDTH_DEPTH_NS / 2);
		tap_ok(holds(rates[i]), "it holds where the sender is late now and then", "");
		tap_ok(share(rates[i]) > 0.97, "who catches up", "");
		send_all(rates[i], 20 * TPCK_BANDWIDTH_DEPTH_NS);
		tap_ok(holds(rates[i]), "and where he is much later", "");
	}
	return tap_done();
}
