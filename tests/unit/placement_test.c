/* SPDX-License-Identifier: Apache-2.0 */
/* Where copies go: other domains first, the same places again, and little moves when a node comes or goes. */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/peer/placement.h"
#include "tests/unit/store_tap.h"

enum { NODES = 12, PROGRAMS = 400 };

static struct tpck_place places[NODES];
static char names[NODES][8], domains[NODES][8];

/* Twelve nodes, `each` in a domain. */
static void make(size_t each)
{
	for (size_t i = 0; i < NODES; i++) {
		snprintf(names[i], sizeof names[i], "n%zu", i);
		snprintf(domains[i], sizeof domains[i], "d%zu", i / each);
		places[i] = (struct tpck_place){names[i], domains[i]};
	}
}

/* Copies in the fullest domain less those in the emptiest, the original in `own` counted. */
static size_t spread(const char *own, size_t domain_count, const size_t *chosen, size_t count)
{
	size_t most = 0, least = count + 1;

	for (size_t d = 0; d < domain_count; d++) {
		char domain[8];
		size_t copies;

		snprintf(domain, sizeof domain, "d%zu", d);
		copies = strcmp(domain, own) == 0;
		for (size_t c = 0; c < count; c++)
			copies += strcmp(places[chosen[c]].domain, domain) == 0;
		most = copies > most ? copies : most;
		least = copies < least ? copies : least;
	}
	return most - least;
}

static bool always_apart(void)
{
	size_t chosen[NODES];

	make(3);
	for (unsigned p = 0; p < PROGRAMS; p++)
		for (size_t k = 1; k <= NODES; k++) {
			char key[32];

			snprintf(key, sizeof key, "program %u", p);
			if (tpck_placement(places, NODES, "d1", key, k, chosen) != k)
				return false;
			/* d1 has the original, and three more nodes as all have: one more than the others at the end. */
			if (k < NODES && spread("d1", 4, chosen, k) > 1)
				return false;
			for (size_t c = 0; c < k; c++)
				for (size_t e = c + 1; e < k; e++)
					if (chosen[c] == chosen[e])
						return false;
			if (k < 4)
				for (size_t c = 0; c < k; c++)
					if (strcmp(places[chosen[c]].domain, "d1") == 0)
						return false;
		}
	return true;
}

/* How many of the programs' copies are elsewhere when node `gone` is not there. Order must not matter either. */
static unsigned moved(size_t gone, bool *needless)
{
	struct tpck_place fewer[NODES];
	unsigned count = 0;

	make(1);
	for (size_t i = 0, n = 0; i < NODES; i++)
		if (i != gone)
			fewer[NODES - 2 - n++] = places[i];
	*needless = false;
	for (unsigned p = 0; p < PROGRAMS; p++) {
		size_t before, after;
		char key[32];

		snprintf(key, sizeof key, "program %u", p);
		tpck_placement(places, NODES, "elsewhere", key, 1, &before);
		tpck_placement(fewer, NODES - 1, "elsewhere", key, 1, &after);
		if (strcmp(places[before].host, fewer[after].host) == 0)
			continue;
		count++;
		*needless = *needless || before != gone;
	}
	return count;
}

int main(void)
{
	size_t chosen[NODES];
	bool needless;
	unsigned count;

	tap_ok(always_apart(), "no domain has two copies while another has none", NULL);
	count = moved(5, &needless);
	tap_ok(count > 0 && !needless, "without a node only what it had moves", NULL);
	tap_ok(count > PROGRAMS / NODES / 3 && count < PROGRAMS / NODES * 3, "and it had its share", NULL);
	make(NODES);
	tap_ok(tpck_placement(places, 2, "d0", "p", 5, chosen) == 2, "with fewer nodes than copies there are fewer copies", NULL);
	tap_ok(tpck_placement(places, 0, "d0", "p", 5, chosen) == 0, "and without others none", NULL);
	return tap_done();
}
