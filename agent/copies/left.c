/* SPDX-License-Identifier: Apache-2.0 */
/* What is here of launches whose own nodes may be lost, for whoever makes it durable. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/copies_private.h"
#include "runtime/base/lock_order.h"

bool copies_owner_is_there(const char *host)
{
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->state == PEER_KNOWN && peer->working && strcmp(peer->other.host, host) == 0)
			return true;
	return false;
}

/* What somebody put here for this node's own start counts as any other. */
static bool counts(const struct copy *copy)
{
	return !copy->doomed && copy_newest(copy) >= 0;
}

size_t copies_left(struct copies_left **rows)
{
	size_t count = 0, room = 0;

	*rows = NULL;
	pthread_mutex_lock(&peers.lock);
	for (const struct copy *copy = copies_here.list; copy; copy = copy->next)
		room += counts(copy);
	*rows = room ? calloc(room, sizeof **rows) : NULL;
	for (const struct copy *copy = copies_here.list; copy && *rows; copy = copy->next) {
		int s = copy_newest(copy);

		if (counts(copy))
			(*rows)[count++] = (struct copies_left){
				.generation = copy->slot[s].point.generation, .step = copy->slot[s].point.step,
				.world = copy->replica->slot[s]->world, .there = copies_owner_is_there(copy->owner), .seen_ns = copy->seen_ns,
			};
	}
	pthread_mutex_unlock(&peers.lock);
	return count;
}

static bool add_rows(struct copies_held **rows, size_t *count, const struct copy *copy, unsigned s)
{
	struct copies_held *grown = reallocarray(*rows, *count + copy->ranks, sizeof *grown);

	if (!grown)
		return false;
	*rows = grown;
	for (uint32_t m = 0; m < copy->ranks; m++)
		grown[(*count)++] = (struct copies_held){
			.rank = copy->member[m].rank, .ordinal = copy->member[m].ordinal, .point = copy->slot[s].point,
			.resumable = copy->replica->slot[s]->members[m].resumable, .form = copy->member[0].rank,
			.fragment = copy->replica->fragment,
		};
	return true;
}

size_t copies_left_of(uint64_t generation, struct copies_held **rows)
{
	size_t count = 0;
	bool more = true;

	*rows = NULL;
	pthread_mutex_lock(&peers.lock);
	for (const struct copy *copy = copies_here.list; copy && more; copy = copy->next)
		for (unsigned s = 0; s < TPCK_REPLICA_SLOTS && more; s++)
			more = !counts(copy) || !copy->slot[s].whole || copy->slot[s].point.generation != generation || add_rows(rows, &count, copy, s);
	pthread_mutex_unlock(&peers.lock);
	return count;
}

char *copies_left_identity(uint64_t generation, uint32_t rank, uint32_t ordinal)
{
	char *identity = NULL;

	pthread_mutex_lock(&peers.lock);
	for (const struct copy *copy = copies_here.list; copy && !identity; copy = copy->next)
		for (uint32_t m = 0; m < copy->ranks && !identity; m++)
			if (counts(copy) && copy->replica->name.generation == generation && copy->member[m].rank == rank &&
			    copy->member[m].ordinal == ordinal)
				identity = strdup(copy->member[m].identity);
	pthread_mutex_unlock(&peers.lock);
	return identity;
}

/* ---- to be published ---------------------------------------------------------------------- */

/* Chunks that are equal are there once: where each lies. */
static int find_data(struct copies_shares *shares, struct tpck_error *err)
{
	const struct tpck_firsts *firsts = &shares->copy->replica->firsts[shares->slot];

	for (size_t m = 0; m < shares->manifest->member_count; m++) {
		size_t chunks = shares->manifest->members[m].objects[TPCK_OBJECT_OF_DATA].count;
		const uint8_t **data = calloc(chunks + 1, sizeof *data);

		if (!data)
			return tpck_error_set(err, ENOMEM, "reading a copy");
		for (size_t i = 0; i < chunks; i++)
			data[i] = tpck_image_data(&shares->shares[firsts->of[m][i].member].image) + (uint64_t)firsts->of[m][i].chunk * TPCK_CHUNK_BYTES;
		shares->shares[m].data = data;
	}
	return 0;
}

static int open_share(struct copies_shares *shares, size_t m, struct tpck_error *err)
{
	const struct tpck_member *member = &shares->manifest->members[m];
	char image[TPCK_PATH_MAX], session[TPCK_PATH_MAX];
	struct tpck_share *share = &shares->shares[m];

	tpck_replica_image_path(shares->copy->replica, member, shares->slot, image, sizeof image);
	tpck_replica_path(shares->copy->replica, member, session, sizeof session);
	*share = (struct tpck_share){
		.session_path = strdup(session), .image_path = strdup(image), .identity = member->identity, .rank = member->rank,
		.ordinal = member->ordinal, .notes = member->notes,
	};
	if (!share->session_path || !share->image_path)
		return tpck_error_set(err, ENOMEM, "reading a copy");
	return tpck_image_open(&share->image, image, true, err);
}

int copies_shares_open(struct copies_shares *shares, const char *identity, uint32_t rank, uint32_t ordinal, const struct tpck_point *point,
		       struct tpck_error *err)
{
	unsigned slot = 0;
	struct copy *copy = copy_pin(identity, rank, ordinal, point, &slot);
	int rc = 0;

	*shares = (struct copies_shares){.copy = copy, .slot = slot};
	if (!shares->copy)
		return tpck_error_set(err, ENOENT, "using the copy of rank %u, which is not here any more", rank);
	shares->manifest = shares->copy->replica->slot[shares->slot];
	shares->shares = calloc(shares->manifest->member_count, sizeof *shares->shares);
	if (!shares->shares)
		rc = tpck_error_set(err, ENOMEM, "reading a copy");
	for (size_t m = 0; !rc && m < shares->manifest->member_count; m++)
		rc = open_share(shares, m, err);
	if (!rc)
		rc = find_data(shares, err);
	if (rc)
		copies_shares_close(shares, false);
	return rc;
}

void copies_shares_close(struct copies_shares *shares, bool bad)
{
	for (size_t m = 0; shares->shares && m < shares->manifest->member_count; m++) {
		tpck_image_close(&shares->shares[m].image);
		free((char *)(uintptr_t)shares->shares[m].session_path);
		free((char *)(uintptr_t)shares->shares[m].image_path);
		free((void *)(uintptr_t)shares->shares[m].data);
	}
	free(shares->shares);
	if (shares->copy && bad)
		copy_discard(shares->copy, shares->slot);
	else if (shares->copy)
		copy_unpin(shares->copy, shares->slot);
	*shares = (struct copies_shares){0};
}
