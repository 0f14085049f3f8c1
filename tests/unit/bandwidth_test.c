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

/* As whole pieces over a time, by a link that takes `link_ns` for each. When the last one is through. */
static uint64_t spread_all(struct tpck_spread *spread, uint64_t link_ns, uint64_t *longest)
{
	uint64_t now = spread->begun_ns;

	*longest = 0;
	while (spread->sent < spread->bytes) {
		if (tpck_spread_next(spread) > now) {
			*longest = tpck_spread_next(spread) - now > *longest ? tpck_spread_next(spread) - now : *longest;
			now = tpck_spread_next(spread);
		}
		spread->sent += PIECE;
		now += link_ns;
	}
	return now;
}

static void test_spread(void)
{
	const uint64_t second = 1000000000, begin = 5 * second, bytes = 100ull * PIECE;
	struct tpck_spread spread;
	uint64_t end, longest;

	tpck_spread_begin(&spread, begin, begin + second, bytes);
	end = spread_all(&spread, second / 1000, &longest);
	tap_ok(end > begin + second * 98 / 100 && end <= begin + second, "a round takes its time, and is over then", "");
	tap_ok(longest < second / 50, "without long gaps", "");
	tpck_spread_begin(&spread, begin, begin + second, bytes);
	end = spread_all(&spread, second / 50, &longest);
	tap_ok(end == begin + 2 * second && !longest, "a link that takes longer is never held back", "");
	tpck_spread_begin(&spread, begin, begin - 1, bytes);
	end = spread_all(&spread, second / 1000, &longest);
	tap_ok(end == begin + second / 10 && !longest, "nor what is late from its beginning", "");
	tpck_spread_begin(&spread, begin, begin + 1000 * second, bytes);
	end = spread_all(&spread, second / 1000, &longest);
	tap_ok(end <= begin + TPCK_SPREAD_MOST_NS, "nor does a round take longer than is good for a copy", "");
	tpck_spread_begin(&spread, begin, begin + 1000 * second, PIECE);
	tap_ok(spread.until_ns <= begin + 4 * second, "a small one less", "");
	tpck_spread_begin(&spread, begin, begin + second, 0);
	tap_ok(tpck_spread_next(&spread) <= begin + second, "nothing can be spread", "");
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
	test_spread();
	return tap_done();
}
