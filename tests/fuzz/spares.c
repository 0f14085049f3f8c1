/* SPDX-License-Identifier: Apache-2.0 */
/* What agents say to each other of spare nodes, and how a rank was started. An input is what happens, again and again: a node is met or lost, or says
 * something, of which the kind, the numbers and the text follow. */
#include "config.h"

#include <stdio.h>

#include "agent/spares/spares_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/wire/command.h"
#include "tests/fuzz/fuzz.h"

enum { MOST = 64, HOSTS = 3 };

static const char *const hosts[HOSTS] = {"hosta", "hostb", "hostc"}, *const nodes[HOSTS] = {"hosta.1", "hostb.1", "hostc.1"};

static void say(struct agent *agent, struct fuzz_input *input, unsigned from)
{
	struct tpck_accord_message message = {.kind = TPCK_ACCORD_SPARE + fuzz_byte(input) % 6u};
	size_t size = fuzz_short(input) % 512;
	char *text;

	message.generation = fuzz_byte(input);
	message.rank = fuzz_byte(input);
	message.world = fuzz_byte(input);
	message.value = fuzz_byte(input);
	message.value2 = fuzz_byte(input) & 1;
	if (size > input->left)
		size = input->left;
	/* In memory of just that size, with a NUL behind it, as the agent has it. */
	text = malloc(size + 1);
	FUZZ_HOLDS(text);
	memcpy(text, input->at, size);
	text[size] = '\0';
	input->at += size;
	input->left -= size;
	spares_hears.said(agent, nodes[from], hosts[from], &message, text, size);
	free(text);
}

static void parse(const uint8_t *data, size_t size)
{
	struct tpck_command command;
	char *text = malloc(size + 1);

	FUZZ_HOLDS(text);
	if (size)
		memcpy(text, data, size);
	if (!tpck_command_parse(text, size, &command)) {
		FUZZ_HOLDS(command.program && command.folder && command.arguments[0]);
		for (char **variable = command.environment; *variable; variable++)
			FUZZ_HOLDS(*variable > command.program && *variable < text + size);
		tpck_command_free(&command);
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	struct agent agent = {0};
	uint64_t generation;

	(void)tpck_log_configure("none");
	parse(data, size);
	spares.spare = true;
	for (int i = 0; input.left && i < MOST; i++) {
		uint8_t what = fuzz_byte(&input);
		unsigned from = what / 8 % HOSTS;

		if (what % 8 == 0)
			spares_hears.met(&agent, nodes[from]);
		else if (what % 8 == 1)
			spares_hears.lost(&agent, nodes[from], hosts[from]);
		else
			say(&agent, &input, from);
		/* Nobody is lost for long enough here. */
		ballots_consider(&agent);
		lease_consider(tpck_clock_monotonic_ns());
	}
	/* What is known is given up. */
	for (unsigned i = 0; i < HOSTS; i++) {
		while (host_find(hosts[i]))
			host_drop(host_find(hosts[i]));
		wards_start(&agent, hosts[i]);
		FUZZ_HOLDS(!wards_count(hosts[i], &generation));
	}
	return 0;
}
