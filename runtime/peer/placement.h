/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes hold the copies of what: by rendezvous hashing, so that a node that comes or goes moves no more than its own. */
#ifndef TPCK_RUNTIME_PEER_PLACEMENT_H
#define TPCK_RUNTIME_PEER_PLACEMENT_H

#include <stddef.h>

struct tpck_place {
	const char *host, *domain;
};

/* Chooses `copies` of the places for what `key` names, whose original is in `domain`; their indexes go to `chosen`, the
 * first choice first. A domain has two copies, the original counted, only once every domain has one. Returns how many
 * were chosen: fewer than wanted where there are fewer places. */
size_t tpck_placement(const struct tpck_place *places, size_t count, const char *domain, const char *key, size_t copies,
		      size_t *chosen);

#endif
