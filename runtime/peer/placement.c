/* SPDX-License-Identifier: Apache-2.0 */
/* Placement of copies. */
#include "config.h"

#include "runtime/peer/placement.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "runtime/base/digest.h"

static uint64_t score(const char *key, const struct tpck_place *place)
{
	return tpck_digest64(place->host, strlen(place->host), tpck_digest64(key, strlen(key), 0));
}

static bool is_chosen(size_t i, const size_t *chosen, size_t have)
{
	for (size_t c = 0; c < have; c++)
		if (chosen[c] == i)
			return true;
	return false;
}

static size_t in_domain(const char *domain, const struct tpck_place *places, const char *own, const size_t *chosen,
			size_t have)
{
	size_t copies = strcmp(domain, own) == 0;

	for (size_t c = 0; c < have; c++)
		copies += strcmp(places[chosen[c]].domain, domain) == 0;
	return copies;
}

size_t tpck_placement(const struct tpck_place *places, size_t count, const char *domain, const char *key, size_t copies,
		      size_t *chosen)
{
	size_t have = 0;

	while (have < copies && have < count) {
		size_t best = count, best_load = 0;

		for (size_t i = 0; i < count; i++) {
			size_t load = in_domain(places[i].domain, places, domain, chosen, have);

			if (is_chosen(i, chosen, have))
				continue;
			if (best == count || load < best_load ||
			    (load == best_load && score(key, &places[i]) > score(key, &places[best]))) {
				best = i;
				best_load = load;
			}
		}
		chosen[have++] = best;
	}
	return have;
}
