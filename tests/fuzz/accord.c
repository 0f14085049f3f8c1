/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What agents of other nodes say of a launch. The agent has half of its ranks. An input is whether it leads, and whether it has
 * something of lost nodes and is to end (the two lowest bits of the first byte), and what it is told: a node, the kind of the
 * message, which of its numbers are to be right, its fields, the size of what goes with it, and that.
 */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "agent/accord/accord_private.h"
#include "agent/copies/copies.h"
#include "agent/salvage/salvage_private.h"
#include "runtime/base/log.h"
#include "tests/sim-scale/around.h"

enum { WORLD = 2 * EACH, NODES = 3, MOST = 64 };

/* ---- what is left of lost nodes --------------------------------------------------------- */

enum { LEFT = 9 };
static bool is_left;

size_t copies_left(struct copies_left **rows)
{
	*rows = is_left ? calloc(1, sizeof **rows) : NULL;
	if (*rows)
		**rows = (struct copies_left){.generation = LEFT, .step = STEP, .world = WORLD, .seen_ns = 1};
	return *rows != NULL;
}

/* Of the other half of the ranks there are copies here. */
size_t copies_left_of(uint64_t generation, struct copies_held **rows)
{
	size_t count = is_left && generation == LEFT ? EACH : 0;

	*rows = calloc(count + 1, sizeof **rows);
	for (uint32_t r = 0; r < count; r++)
		(*rows)[r] = (struct copies_held){.rank = EACH + r, .point = {LEFT, STEP}, .resumable = true, .form = EACH};
	return count;
}

char *copies_left_identity(uint64_t generation, uint32_t rank, uint32_t ordinal)
{
	(void)generation;
	(void)rank;
	(void)ordinal;
	return NULL;
}

void salvage_look(struct agent *agent, const struct salvage *salvage)
{
	salvage_looked(agent, salvage->number, false);
}

void salvage_write(struct agent *agent, const char *node, const struct tpck_accord_message *message)
{
	salvage_wrote(agent, node, message, 0, "");
}

void salvage_join(struct agent *agent, const struct salvage *salvage)
{
	salvage_joined(agent, salvage->number, 0, "");
}

/* Both hear all. */
static void met(struct agent *agent, const char *node)
{
	accord_hears.met(agent, node);
	salvage_hears.met(agent, node);
}

static void lost(struct agent *agent, const char *node, const char *host)
{
	accord_hears.lost(agent, node, host);
	salvage_hears.lost(agent, node, host);
}

static void said(struct agent *agent, const char *node, const char *host, const struct tpck_accord_message *message, const char *more, size_t size)
{
	accord_hears.said(agent, node, host, message, more, size);
	salvage_hears.said(agent, node, host, message, more, size);
}

/* ---- what is said ----------------------------------------------------------------------- */

static uint64_t number(struct fuzz_input *input)
{
	uint8_t first = fuzz_byte(input);
	uint64_t value = 0;

	if (first < 250)
		return first;
	for (int i = 0; i < 8; i++)
		value = value << 8 | fuzz_byte(input);
	return value;
}

static struct tpck_accord_message message_of(struct here *here, struct fuzz_input *input, enum tpck_accord_kind kind)
{
	struct tpck_accord_message message = around_message(here, kind);
	uint8_t wrong = fuzz_byte(input);

	message.number = wrong & 1 ? number(input) : kind >= TPCK_ACCORD_LEFT ? model.left : model.number;
	if (wrong & 2)
		message.generation = number(input);
	if (wrong & 4)
		message.world = (uint32_t)number(input);
	if (wrong & 8)
		message.key = number(input);
	message.parent = wrong & 16 ? number(input) : GENERATION - 1;
	message.step = wrong & 32 ? number(input) : STEP;
	message.rank = (uint32_t)number(input);
	message.ordinal = (uint32_t)number(input);
	message.value = number(input);
	message.value2 = wrong & 64 ? number(input) : model.attempt;
	return message;
}

static void member_of(uint32_t rank, struct tpck_accord_member *member)
{
	char identity[IDENTITY_BYTES + 1];

	around_identity(rank, identity);
	tpck_identity_key(identity, &member->key);
	identity_form(identity, member->form);
}

/* What goes with a message; of what its form is given its digests are right. */
static char *more_of(struct fuzz_input *input, struct tpck_accord_message *message, size_t *size)
{
	uint8_t made = fuzz_byte(input), count = fuzz_byte(input);
	struct tpck_accord_member member = {.form = ""};
	char *more, *text;

	if (made == 1) {
		member_of(message->rank, &member);
		more = (char *)&member;
		*size = sizeof member;
	} else if (made == 2) {
		more = member.form;
		member_of(0, &member);
		*size = IDENTITY_FORM;
	} else {
		more = NULL;
		*size = made == 3 ? 64u * count : count;
	}
	/* With a NUL behind it, as the agent has it (agent/peers/talk.c). */
	if (!more && *size > input->left)
		*size = input->left;
	text = malloc(*size + 1);
	FUZZ_HOLDS(text);
	if (more)
		memcpy(text, more, *size);
	else if (*size)
		memcpy(text, input->at, *size);
	if (!more) {
		input->at += *size;
		input->left -= *size;
	}
	text[*size] = '\0';
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	uint8_t first = fuzz_byte(&input);
	bool leads = first & 1;
	struct here *here;
	char name[24];

	(void)tpck_log_configure("none");
	here = around_begin(WORLD, leads ? 0 : 1);
	FUZZ_HOLDS(here);
	home.settings.peers.count = is_left = here->agent.stopping = (first & 2) != 0;
	for (uint32_t n = 0; n < NODES; n++)
		met(&here->agent, around_node(n, name));
	for (int i = 0; input.left && i < MOST; i++) {
		uint32_t node = fuzz_byte(&input) % (NODES + 1);
		uint8_t kind = fuzz_byte(&input) % (KINDS + 2);
		struct tpck_accord_message message;
		size_t bytes;
		char *more;

		if (node == NODES) {
			lost(&here->agent, around_node(kind % NODES, name), "host");
		} else if (kind == KINDS + 1) {
			launch_apart->staged(&here->agent, here->launch, fuzz_byte(&input) % 3, here->first, "why");
		} else {
			message = message_of(here, &input, kind);
			more = more_of(&input, &message, &bytes);
			said(&here->agent, around_node(node, name), "host", &message, more, bytes);
			free(more);
		}
		accord_loop.consider(&here->agent);
		salvage_loop.consider(&here->agent);
	}
	is_left = false;
	salvage_loop.consider(&here->agent);
	for (uint32_t n = 0; n < NODES; n++)
		lost(&here->agent, around_node(n, name), "host");
	around_end(here);
	return 0;
}
