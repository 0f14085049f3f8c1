/* SPDX-License-Identifier: Apache-2.0 */
/* Consistent cuts: what ranks have counted on each communicator is held against each other. */
#include "config.h"

#include "runtime/store/cut.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* A communicator as one image has it. */
struct member {
	const struct tpck_image_communicator *communicator;
	const struct tpck_image_peer *peers; /* of it alone, by peer */
	uint32_t peer_count;
};

static int by_id_and_rank(const void *a, const void *b)
{
	const struct member *left = a, *right = b;

	if (left->communicator->id != right->communicator->id)
		return left->communicator->id < right->communicator->id ? -1 : 1;
	return left->communicator->rank < right->communicator->rank ? -1 :
									left->communicator->rank > right->communicator->rank;
}

static size_t members_of(const struct tpck_cut_part *part, struct member *out)
{
	uint32_t p = 0;

	for (uint32_t i = 0; i < part->communicator_count; i++) {
		out[i] = (struct member){&part->communicators[i], part->peers + p, 0};
		while (p < part->peer_count && part->peers[p].communicator == i) {
			p++;
			out[i].peer_count++;
		}
	}
	return part->communicator_count;
}

static struct tpck_image_peer transfers(const struct member *from, uint32_t peer)
{
	for (uint32_t i = 0; i < from->peer_count; i++)
		if (from->peers[i].peer == peer)
			return from->peers[i];
	return (struct tpck_image_peer){.peer = peer};
}

#define ID(member) (member)->communicator->id

/* All ranks of one communicator, by rank. */
static int complete(const struct member *of, size_t count, struct tpck_error *err)
{
	uint32_t size = of->communicator->size;

	for (size_t i = 0; i < count; i++) {
		const struct tpck_image_communicator *c = of[i].communicator;

		if (c->size != size)
			return tpck_error_set(err, 0,
					      "communicator %016" PRIx64 " has %u ranks to its rank %u and %u to its rank %u",
					      ID(of), size, of->communicator->rank, c->size, c->rank);
		if (i && c->rank == of[i - 1].communicator->rank)
			return tpck_error_set(err, 0, "communicator %016" PRIx64 " has a rank %u twice", ID(of), c->rank);
		if (c->rank != i)
			return tpck_error_set(err, 0, "communicator %016" PRIx64 " is not known to its rank %zu", ID(of), i);
	}
	return count == size ? 0 : tpck_error_set(err, 0, "communicator %016" PRIx64 " is not known to its rank %zu",
						  ID(of), count);
}

static int match(const struct member *of, size_t count, struct tpck_error *err)
{
	int rc = complete(of, count, err);

	for (size_t i = 1; i < count && !rc; i++) {
		if (of[i].communicator->collectives != of->communicator->collectives)
			rc = tpck_error_set(err, 0,
					    "communicator %016" PRIx64 ": %" PRIu64 " collectives on its rank 0 and %" PRIu64
					    " on its rank %zu",
					    ID(of), of->communicator->collectives, of[i].communicator->collectives, i);
		else if (of[i].communicator->order != of->communicator->order)
			rc = tpck_error_set(err, 0,
					    "communicator %016" PRIx64 ": its ranks 0 and %zu have made %" PRIu64
					    " collectives, not the same ones",
					    ID(of), i, of->communicator->collectives);
	}
	for (uint32_t from = 0; from < count && !rc; from++)
		for (uint32_t to = 0; to < count && !rc; to++) {
			uint64_t sent = transfers(&of[from], to).sends, received = transfers(&of[to], from).receives;

			if (sent != received)
				rc = tpck_error_set(err, 0,
						    "communicator %016" PRIx64 ": rank %u has sent %" PRIu64
						    " times to rank %u, which has received %" PRIu64,
						    ID(of), from, sent, to, received);
		}
	return rc;
}

struct tpck_cut_part tpck_cut_part(const struct tpck_image *image)
{
	return (struct tpck_cut_part){
		.communicators = tpck_image_communicators(image), .communicator_count = image->header->communicators,
		.peers = tpck_image_peers(image), .peer_count = image->header->peers,
	};
}

int tpck_cut_match(const struct tpck_cut_part *parts, size_t count, struct tpck_error *err)
{
	struct member *all;
	size_t most = 0, members = 0;
	int rc = 0;

	for (size_t i = 0; i < count; i++)
		most += parts[i].communicator_count;
	all = calloc(most + 1, sizeof *all);
	if (!all)
		return tpck_error_set(err, ENOMEM, "comparing communicators");
	for (size_t i = 0; i < count; i++)
		members += members_of(&parts[i], all + members);
	qsort(all, members, sizeof *all, by_id_and_rank);
	for (size_t begin = 0, end; begin < members && !rc; begin = end) {
		for (end = begin + 1; end < members && ID(&all[end]) == ID(&all[begin]);)
			end++;
		rc = match(all + begin, end - begin, err);
	}
	free(all);
	return rc;
}
