/* SPDX-License-Identifier: Apache-2.0 */
/* The chunks of what a start gets: which one is asked of whom, and how it is put together of fragments. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/pulling.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/log.h"

/* Chunks whose fragments are on their way at a time: the memory that this takes beside what is made of them. */
enum { ROWS_MOST = 16 };
/* Those that have the whole: so many at once, where it is worth it, each asked for so many chunks at a time as it gives soon. */
enum { WHOLES_MOST = 4, SPLIT_CHUNKS = 16, TARGET_MOST = 16 };
#define SOON_NS (SEC / 4)
/* Ways to put a chunk together that are tried. */
enum { CHOICES = 1000 };

static const char *object_of(const struct pull *p, const struct row *row)
{
	const struct tpck_peer_want *at = &p->want[row->number];

	return p->copy->replica->coming->members[at->member].objects[at->object].name;
}

/* ---- whole chunks ------------------------------------------------------------------------- */

/* One that another source was asked for, and has not begun to give. */
static struct row *row_to_steal(const struct pull *p, const struct source *by)
{
	struct row *found = NULL;

	for (struct row *row = p->rows; row; row = row->next)
		if (row->parts && row->parts->source != by && !row->parts->bytes && (!found || row->parts->source->asked >= found->parts->source->asked))
			found = row;
	/* The only one that is asked for may be about to come. */
	if (found && found->parts->source->asked == 1 && tpck_clock_monotonic_ns() < found->parts->begun_ns + SEC)
		return NULL;
	return found;
}

static bool ask_chunk(struct pull *p, struct source *s)
{
	size_t number = pull_next_free(p);
	struct row *row;

	if (number == p->count) {
		row = s->asked || p->next < p->count ? NULL : row_to_steal(p, s);
		if (!row)
			return false;
		number = row->number;
		(void)pull_part_release(row->parts);
	}
	row = pull_row_new(p, number);
	if (!row)
		return false;
	if (!pull_part_new(p, row, s) || !pull_want(s, &p->want[number])) {
		free(row->parts);
		p->taken[number] = 0;
		pull_row_free(p, row);
		return false;
	}
	row->pending = 1;
	return true;
}

void pull_advance_whole(struct pull *p)
{
	unsigned used = pull_use_sources(p, p->count > SPLIT_CHUNKS ? WHOLES_MOST : 1), left = p->sources;

	for (const struct source *s = p->source; s < p->source + p->sources; s++)
		left -= s->state == SOURCE_OUT;
	for (struct source *s = p->source; s < p->source + p->sources; s++)
		while (s->state == SOURCE_READY && (left == 1 || s->asked < s->target) && ask_chunk(p, s))
			;
	pull_send_wants(p);
	if (p->done == p->count)
		pull_end(p, 0, "");
	else if (!used)
		pull_end(p, -EIO, p->why);
}

void pull_whole_arrived(struct pull *p, struct part *part)
{
	struct source *s = part->source;
	struct row *row = part->row;
	uint64_t took = tpck_clock_monotonic_ns() - part->begun_ns;
	struct tpck_error err = {0};
	int rc;

	pull_part_unplace(part);
	rc = tpck_replica_take(p->copy->replica, &p->want[row->number], part->bytes, true, NULL, &err);
	part->bytes = NULL;
	if (rc) {
		tpck_log_warn("a copy from %s is not taken: %s", s->host, err.text);
		(void)pull_part_release(part);
		pull_source_out(p, s, err.text, true);
		return;
	}
	s->asked--;
	s->gave = true;
	/* Each is asked for as much as it gives in a while: a slow one holds up little. */
	if (took < SOON_NS)
		s->target = s->target < TARGET_MOST ? s->target + 1 : TARGET_MOST;
	else if (s->target > TARGET_LEAST)
		s->target--;
	p->done++;
	free(part);
	pull_row_free(p, row);
}

/* ---- fragments ---------------------------------------------------------------------------- */

static bool has_index(const struct row *row, uint16_t index)
{
	for (const struct part *part = row->parts; part; part = part->next)
		if (part->source->fragment.index == index)
			return true;
	return false;
}

/* Of this chunk it has not been asked, and it would be another fragment. */
static bool may_give(const struct pull *p, const struct row *row, const struct source *s)
{
	size_t number = (size_t)(s - p->source);

	return s->state != SOURCE_OUT && !(row->tried[number / 8] >> number % 8 & 1) && !has_index(row, s->fragment.index);
}

void pull_fragment_arrived(struct pull *p, struct part *part)
{
	struct row *row = part->row;
	uint8_t digest[16];

	tpck_digest128(part->bytes, part->length, digest);
	if (memcmp(digest, part->digest, sizeof digest) == 0) {
		part->good = true;
		part->source->gave = true;
		row->good++;
		return;
	}
	p->damaged++;
	/* The chunk was counted as coming, if it was. */
	row->pending++;
	part->source->asked++;
	(void)pull_part_release(part);
}

/* A fragment that is here. */
static void read_part(struct pull *p, struct row *row, struct source *s)
{
	const struct tpck_chunk *chunk = pull_chunk(p, row);
	struct part *part = pull_part_new(p, row, s);

	if (!part)
		return;
	part->length = part->arrived = tpck_fragment_bytes(&p->code, chunk->length);
	part->bytes = malloc(part->length + 1);
	if (!part->bytes || tpck_replica_fragment(s->copy->replica, s->slot, &p->want[row->number], part->bytes, part->digest, NULL)) {
		row->pending++;
		(void)pull_part_release(part);
		return;
	}
	part->next_placed = pull_placed;
	pull_placed = part;
	pull_fragment_arrived(p, part);
}

/* Whether what a chunk needs is on its way, or may be yet. */
static bool complete(struct pull *p, struct row *row)
{
	bool later = false;

	for (struct source *s = p->source; s < p->source + p->sources && row->good + row->pending < p->needed + row->extra; s++) {
		if (s->state != SOURCE_READY || !may_give(p, row, s))
			continue;
		if (s->serial == ASK_HERE) {
			read_part(p, row, s);
		} else if (pull_part_new(p, row, s)) {
			row->pending++;
			if (!pull_want(s, &p->want[row->number]))
				(void)pull_part_release(row->parts);
		}
	}
	if (row->good + row->pending >= p->needed + row->extra)
		return true;
	for (const struct source *s = p->source; s < p->source + p->sources; s++)
		later = later || (s->state == SOURCE_ASKED && may_give(p, row, s));
	for (struct source *s = p->source; s < p->source + p->sources && !later; s++) {
		if (s->state != SOURCE_IDLE || !may_give(p, row, s))
			continue;
		if (s->serial == ASK_HERE) {
			s->state = SOURCE_READY;
			return complete(p, row);
		}
		pull_source_ask(p, s);
		later = s->state == SOURCE_ASKED;
	}
	return later || row->pending;
}

/* The next choice of `of` out of `count`, ascending. */
static bool next_choice(unsigned *choice, unsigned of, unsigned count)
{
	for (unsigned i = of; i-- > 0;)
		if (choice[i] < count - of + i) {
			choice[i]++;
			for (unsigned j = i + 1; j < of; j++)
				choice[j] = choice[j - 1] + 1;
			return true;
		}
	return false;
}

/* A chunk out of any K fragments that are good and give what its digest says. -EBADMSG: there are none such. */
static int join(struct pull *p, struct row *row, struct tpck_error *err)
{
	size_t length = pull_chunk(p, row)->length;
	const struct tpck_peer_want *at = &p->want[row->number];
	const struct part *good[TPCK_FRAGMENTS_MAX];
	unsigned choice[TPCK_FRAGMENTS_MAX], count = 0, tries = 0;
	int rc;

	for (const struct part *part = row->parts; part; part = part->next)
		if (part->good && count < TPCK_FRAGMENTS_MAX)
			good[count++] = part;
	for (unsigned i = 0; i < p->needed; i++)
		choice[i] = i;
	do {
		const uint8_t *fragment[TPCK_FRAGMENTS_MAX];
		uint16_t index[TPCK_FRAGMENTS_MAX];
		uint8_t *place = tpck_replica_place(p->copy->replica, at, length);

		if (!place)
			return tpck_error_set(err, ENOMEM, "putting fragments together");
		for (unsigned i = 0; i < p->needed; i++) {
			index[i] = good[choice[i]]->source->fragment.index;
			fragment[i] = good[choice[i]]->bytes;
		}
		rc = tpck_erasure_join(&p->code, index, fragment, place, length);
		if (rc) {
			(void)tpck_replica_take(p->copy->replica, at, place, false, NULL, NULL);
			return tpck_error_set(err, -rc, "putting fragments together");
		}
		rc = tpck_replica_take(p->copy->replica, at, place, true, NULL, err);
	} while (rc == -EBADMSG && ++tries < CHOICES && next_choice(choice, p->needed, count));
	return rc;
}

/* 0: it is here; -EAGAIN: it takes more fragments. */
static int try_join(struct pull *p, struct row *row, struct tpck_error *err)
{
	struct part *next;
	int rc = join(p, row, err);

	if (rc == -EBADMSG) {
		row->extra = row->good - p->needed + 1;
		return -EAGAIN;
	}
	if (rc)
		return rc;
	for (struct part *part = row->parts; part; part = next) {
		next = part->next;
		(void)pull_part_release(part);
	}
	p->done++;
	pull_row_free(p, row);
	return 0;
}

static void too_few(struct pull *p, const struct row *row)
{
	const struct tpck_peer_want *at = &p->want[row->number];
	struct tpck_error err = {0};

	if (row->good < p->needed)
		tpck_error_set(&err, 0, "chunk %u of %s has %u good fragments of %u that it takes", at->chunk, object_of(p, row), row->good, p->needed);
	else
		tpck_error_set(&err, 0, "chunk %u of %s is not what its digest says, whichever of %u fragments it is made of", at->chunk,
			       object_of(p, row), row->good);
	pull_end(p, -EIO, err.text);
}

/* False: the pull has ended. */
static bool advance_row(struct pull *p, struct row *row)
{
	struct tpck_error err = {0};
	int rc = -EAGAIN;

	while (rc == -EAGAIN) {
		if (!complete(p, row)) {
			too_few(p, row);
			return false;
		}
		if (row->good < p->needed + row->extra)
			return true;
		rc = try_join(p, row, &err);
	}
	if (rc)
		pull_end(p, rc, err.text);
	return rc == 0;
}

void pull_advance_fragments(struct pull *p)
{
	(void)pull_use_sources(p, p->needed);
	do {
		struct row *next;

		/* Half of them at a time, so that a message asks for several. */
		while (p->started <= ROWS_MOST / 2 && pull_next_free(p) < p->count)
			for (unsigned i = 0; i < ROWS_MOST / 2 && pull_next_free(p) < p->count; i++)
				if (!pull_row_new(p, p->next)) {
					pull_end(p, -ENOMEM, "out of memory");
					return;
				}
		for (struct row *row = p->rows; row; row = next) {
			next = row->next;
			if (!advance_row(p, row))
				return;
		}
	} while (p->started <= ROWS_MOST / 2 && pull_next_free(p) < p->count);
	pull_send_wants(p);
	if (p->done == p->count)
		pull_end(p, 0, "");
}
