/* SPDX-License-Identifier: Apache-2.0 */
/* A leader's roll: a row for each rank, and counts, so that nobody has to look through the rows for one message. */
#include "config.h"

#include "runtime/peer/roll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct row {
	struct tpck_identity_key key;
	uint32_t form, ordinal;
	bool known, there, asks, well;
};

struct tpck_roll {
	uint32_t world, known, asking, begun, well;
	struct row *row;         /* [world] */
	struct tpck_names forms; /* not of a copy */
};

struct tpck_roll *tpck_roll_new(uint32_t world)
{
	struct tpck_roll *roll = calloc(1, sizeof *roll);

	if (!roll)
		return NULL;
	roll->world = world;
	roll->row = calloc(world, sizeof *roll->row);
	if (!roll->row) {
		free(roll);
		return NULL;
	}
	return roll;
}

struct tpck_roll *tpck_roll_copy(const struct tpck_roll *roll)
{
	struct tpck_roll *copy = roll->known == roll->world ? tpck_roll_new(roll->world) : NULL;

	if (copy)
		memcpy(copy->row, roll->row, roll->world * sizeof *copy->row);
	return copy;
}

void tpck_roll_free(struct tpck_roll *roll)
{
	if (!roll)
		return;
	tpck_names_free(&roll->forms);
	free(roll->row);
	free(roll);
}

static void count(struct tpck_roll *roll, const struct row *row, uint32_t by)
{
	if (row->there && row->asks)
		roll->asking += by;
	else if (row->there)
		roll->begun += by;
}

int tpck_roll_enter(struct tpck_roll *roll, uint32_t rank, uint32_t ordinal, const struct tpck_identity_key *key, const char *form, bool asks)
{
	struct row *row = &roll->row[rank];
	uint32_t number = tpck_names_add(&roll->forms, form);

	if (number == TPCK_NO_NAME)
		return -ENOMEM;
	count(roll, row, UINT32_MAX);
	roll->known += !row->known;
	row->key = *key;
	row->form = number;
	row->ordinal = ordinal;
	row->asks = asks;
	row->known = row->there = true;
	count(roll, row, 1);
	return 0;
}

void tpck_roll_leave(struct tpck_roll *roll, uint32_t rank)
{
	count(roll, &roll->row[rank], UINT32_MAX);
	roll->row[rank].there = false;
}

uint32_t tpck_roll_ordinal(const struct tpck_roll *roll, uint32_t rank)
{
	return roll->row[rank].ordinal;
}

uint32_t tpck_roll_asking(const struct tpck_roll *roll)
{
	return roll->asking;
}

uint32_t tpck_roll_begun(const struct tpck_roll *roll)
{
	return roll->begun;
}

bool tpck_roll_ended(struct tpck_roll *roll, uint32_t rank, bool well)
{
	roll->well += (uint32_t)well - (uint32_t)roll->row[rank].well;
	roll->row[rank].well = well;
	return roll->well == roll->world;
}

const struct tpck_names *tpck_roll_forms(const struct tpck_roll *roll)
{
	return &roll->forms;
}

bool tpck_roll_is(const struct tpck_roll *roll, uint32_t rank, uint32_t ordinal, uint32_t form)
{
	const struct row *row = rank < roll->world ? &roll->row[rank] : NULL;

	return row && row->known && row->form == form && row->ordinal == ordinal;
}

bool tpck_roll_may_take(const struct tpck_roll *roll, const struct tpck_manifest *manifest)
{
	if (!tpck_manifest_resumable(manifest))
		return false;
	for (uint32_t r = 0; r < roll->world; r++)
		if (!tpck_manifest_is_of_key(manifest, r, roll->row[r].ordinal, &roll->row[r].key))
			return false;
	return true;
}
