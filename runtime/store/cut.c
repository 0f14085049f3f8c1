/* SPDX-License-Identifier: Apache-2.0 */
/* Consistent cuts: what ranks have counted on each communicator is held against each other. */
#include "config.h"

#include "runtime/store/cut.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void tpck_counts_free(struct tpck_counts *counts)
{
	free(counts->counted);
	free(counts->transferred);
	*counts = (struct tpck_counts){0};
}

/* Room for `more` rows of `size` bytes behind `count`; NULL: there is no memory, and the rows stay. */
static void *grow(void *rows, size_t *room, size_t count, size_t more, size_t size)
{
	size_t wanted = 2 * *room > count + more ? 2 * *room : count + more;
	void *grown;

	if (rows && count + more <= *room)
		return rows;
	grown = reallocarray(rows, wanted + 1, size);
	if (grown)
		*room = wanted;
	return grown;
}

int tpck_counts_add(struct tpck_counts *counts, const struct tpck_counted *counted, size_t counted_count,
		    const struct tpck_transferred *transferred, size_t transferred_count)
{
	struct tpck_counted *c = grow(counts->counted, &counts->counted_room, counts->counted_count, counted_count, sizeof *c);
	struct tpck_transferred *t;

	if (!c)
		return -ENOMEM;
	counts->counted = c;
	t = grow(counts->transferred, &counts->transferred_room, counts->transferred_count, transferred_count, sizeof *t);
	if (!t)
		return -ENOMEM;
	counts->transferred = t;
	if (counted_count)
		memcpy(c + counts->counted_count, counted, counted_count * sizeof *c);
	if (transferred_count)
		memcpy(t + counts->transferred_count, transferred, transferred_count * sizeof *t);
	counts->counted_count += counted_count;
	counts->transferred_count += transferred_count;
	return 0;
}

int tpck_counts_add_image(struct tpck_counts *counts, const struct tpck_image *image)
{
	const struct tpck_image_communicator *communicators = tpck_image_communicators(image);
	const struct tpck_image_peer *peers = tpck_image_peers(image);
	int rc = 0;

	for (uint32_t i = 0; i < image->header->communicators && !rc; i++) {
		const struct tpck_image_communicator *c = &communicators[i];
		struct tpck_counted row = {c->id, c->collectives, c->order, c->size, c->rank, c->rank + 1, 0};

		rc = tpck_counts_add(counts, &row, 1, NULL, 0);
	}
	for (uint32_t i = 0; i < image->header->peers && !rc; i++) {
		const struct tpck_image_communicator *c = &communicators[peers[i].communicator];
		struct tpck_transferred rows[] = {
			{c->id, peers[i].sends, 0, c->rank, peers[i].peer},
			{c->id, 0, peers[i].receives, peers[i].peer, c->rank},
		};

		rc = tpck_counts_add(counts, NULL, 0, rows, 2);
	}
	return rc;
}

static int by_id_and_begin(const void *a, const void *b)
{
	const struct tpck_counted *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int by_id_and_ranks(const void *a, const void *b)
{
	const struct tpck_transferred *x = a, *y = b;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return x->to < y->to ? -1 : x->to > y->to;
}

static bool continues(const struct tpck_counted *row, const struct tpck_counted *next)
{
	return next->id == row->id && next->begin == row->end && next->size == row->size &&
	       next->collectives == row->collectives && next->order == row->order;
}

void tpck_counts_merge(struct tpck_counts *counts)
{
	struct tpck_counted *c = counts->counted;
	struct tpck_transferred *t = counts->transferred;
	size_t count = 0;

	if (counts->counted_count)
		qsort(c, counts->counted_count, sizeof *c, by_id_and_begin);
	for (size_t i = 0; i < counts->counted_count; i++)
		if (count && continues(&c[count - 1], &c[i]))
			c[count - 1].end = c[i].end;
		else
			c[count++] = c[i];
	counts->counted_count = count;
	if (counts->transferred_count)
		qsort(t, counts->transferred_count, sizeof *t, by_id_and_ranks);
	count = 0;
	for (size_t i = 0, end; i < counts->transferred_count; i = end) {
		struct tpck_transferred sum = t[i];

		for (end = i + 1; end < counts->transferred_count && by_id_and_ranks(&t[end], &t[i]) == 0; end++) {
			sum.sent += t[end].sent;
			sum.received += t[end].received;
		}
		if (sum.sent != sum.received)
			t[count++] = sum;
	}
	counts->transferred_count = count;
}

/* The rows of one communicator, by rank. */
static int match(const struct tpck_counted *rows, size_t count, struct tpck_error *err)
{
	uint32_t size = rows->size, known = 0;

	for (size_t i = 0; i < count; i++) {
		const struct tpck_counted *c = &rows[i];

		if (c->size != size)
			return tpck_error_set(err, 0,
					      "communicator %016" PRIx64 " has %u ranks to its rank %u and %u to its rank %u",
					      c->id, size, rows->begin, c->size, c->begin);
		if (c->begin < known)
			return tpck_error_set(err, 0, "communicator %016" PRIx64 " has a rank %u twice", c->id, c->begin);
		if (c->begin != known)
			return tpck_error_set(err, 0, "communicator %016" PRIx64 " is not known to its rank %u", c->id, known);
		known = c->end;
	}
	if (known != size)
		return tpck_error_set(err, 0, "communicator %016" PRIx64 " is not known to its rank %u", rows->id, known);
	for (size_t i = 1; i < count; i++) {
		if (rows[i].collectives != rows->collectives)
			return tpck_error_set(err, 0,
					      "communicator %016" PRIx64 ": %" PRIu64 " collectives on its rank %u and %" PRIu64
					      " on its rank %u",
					      rows->id, rows->collectives, rows->begin, rows[i].collectives, rows[i].begin);
		if (rows[i].order != rows->order)
			return tpck_error_set(err, 0,
					      "communicator %016" PRIx64 ": its ranks %u and %u have made %" PRIu64
					      " collectives, not the same ones",
					      rows->id, rows->begin, rows[i].begin, rows->collectives);
	}
	return 0;
}

int tpck_counts_match(struct tpck_counts *counts, struct tpck_error *err)
{
	const struct tpck_counted *rows = counts->counted;
	const struct tpck_transferred *one = counts->transferred;
	int rc = 0;

	tpck_counts_merge(counts);
	for (size_t begin = 0, end; begin < counts->counted_count && !rc; begin = end) {
		for (end = begin + 1; end < counts->counted_count && rows[end].id == rows[begin].id;)
			end++;
		rc = match(rows + begin, end - begin, err);
	}
	if (!rc && counts->transferred_count)
		rc = tpck_error_set(err, 0,
				    "communicator %016" PRIx64 ": rank %u has sent %" PRIu64 " times to rank %u, which has received %" PRIu64,
				    one->id, one->from, one->sent, one->to, one->received);
	return rc;
}
