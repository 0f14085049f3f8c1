/* SPDX-License-Identifier: Apache-2.0 */
/* Inquiries. */
#include "config.h"

#include "runtime/peer/inquiry.h"

#include <errno.h>
#include <stdlib.h>

void tpck_inquiry_free(struct tpck_inquiry *inquiry)
{
	tpck_names_free(&inquiry->nodes);
	free(inquiry->state);
	free(inquiry->rows);
	*inquiry = (struct tpck_inquiry){0};
}

enum { WAITED_FOR, ANSWERED, GONE };

int tpck_inquiry_ask(struct tpck_inquiry *inquiry, const char *node)
{
	size_t before = inquiry->nodes.count;
	uint32_t number;
	uint8_t *grown;

	/* Powers of two. */
	if ((before & (before - 1)) == 0) {
		grown = realloc(inquiry->state, before ? 2 * before : 1);
		if (!grown)
			return -ENOMEM;
		inquiry->state = grown;
	}
	number = tpck_names_add(&inquiry->nodes, node);
	if (number == TPCK_NO_NAME)
		return -ENOMEM;
	if (inquiry->nodes.count > before || inquiry->state[number] == GONE) {
		inquiry->state[number] = WAITED_FOR;
		inquiry->waiting++;
	}
	return 0;
}

static bool is_waited_for(struct tpck_inquiry *inquiry, const char *node, uint32_t *number, uint8_t then)
{
	*number = tpck_names_find(&inquiry->nodes, node);
	if (*number == TPCK_NO_NAME || inquiry->state[*number] != WAITED_FOR)
		return false;
	inquiry->state[*number] = then;
	inquiry->waiting--;
	return true;
}

bool tpck_inquiry_answered(struct tpck_inquiry *inquiry, const char *node, uint32_t *number)
{
	return is_waited_for(inquiry, node, number, ANSWERED);
}

void tpck_inquiry_gone(struct tpck_inquiry *inquiry, const char *node)
{
	uint32_t number;

	(void)is_waited_for(inquiry, node, &number, GONE);
}

int tpck_inquiry_add(struct tpck_inquiry *inquiry, const struct tpck_evidence *row)
{
	if (inquiry->count == inquiry->room) {
		size_t room = 2 * inquiry->room + 64;
		struct tpck_evidence *grown = reallocarray(inquiry->rows, room, sizeof *grown);

		if (!grown)
			return -ENOMEM;
		inquiry->rows = grown;
		inquiry->room = room;
	}
	inquiry->rows[inquiry->count++] = *row;
	return 0;
}
