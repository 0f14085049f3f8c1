/* SPDX-License-Identifier: Apache-2.0 */
/* Inquiries. */
#include "config.h"

#include "runtime/peer/inquiry.h"

#include <errno.h>
#include <stdlib.h>

void tpck_inquiry_free(struct tpck_inquiry *inquiry)
{
	tpck_names_free(&inquiry->nodes);
	free(inquiry->answered);
	free(inquiry->rows);
	*inquiry = (struct tpck_inquiry){0};
}

int tpck_inquiry_ask(struct tpck_inquiry *inquiry, const char *node)
{
	size_t before = inquiry->nodes.count;
	bool *grown;

	/* Powers of two. */
	if ((before & (before - 1)) == 0) {
		grown = reallocarray(inquiry->answered, before ? 2 * before : 1, sizeof *grown);
		if (!grown)
			return -ENOMEM;
		inquiry->answered = grown;
	}
	if (tpck_names_add(&inquiry->nodes, node) == TPCK_NO_NAME)
		return -ENOMEM;
	if (inquiry->nodes.count > before) {
		inquiry->answered[before] = false;
		inquiry->waiting++;
	}
	return 0;
}

bool tpck_inquiry_answered(struct tpck_inquiry *inquiry, const char *node, uint32_t *number)
{
	*number = tpck_names_find(&inquiry->nodes, node);
	if (*number == TPCK_NO_NAME || inquiry->answered[*number])
		return false;
	inquiry->answered[*number] = true;
	inquiry->waiting--;
	return true;
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
