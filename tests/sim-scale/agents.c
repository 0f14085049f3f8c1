/* SPDX-License-Identifier: Apache-2.0 */
/* An agent among very many: what the others say to it is made up here, what it keeps of that is its own code's. */
#include "config.h"

#include "tests/sim-scale/agents.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim-scale/around.h"

static size_t memory(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static double thread_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* ---- one that follows --------------------------------------------------------------------- */

static void led(struct here *here, struct tpck_accord_message message, const void *more, size_t size)
{
	accord_hears.said(&here->agent, "node000000", "host", &message, more, size);
	accord_loop.consider(&here->agent);
}

static struct agent_costs follow(uint32_t world)
{
	char text[IDENTITY_FORM], identity[IDENTITY_BYTES + 1];
	struct agent_costs costs = {0};
	size_t before = memory();
	struct here *here = around_begin(world, world / EACH / 2);
	struct tpck_accord_message message;

	model.number = 1;
	led(here, around_message(here, TPCK_ACCORD_LEAD), "", 1);
	around_identity(here->first, identity);
	identity_form(identity, text);
	led(here, around_message(here, TPCK_ACCORD_ASK), text, sizeof text);
	message = around_message(here, TPCK_ACCORD_STAGE);
	message.generation = GENERATION;
	message.parent = GENERATION - 1;
	message.step = STEP;
	led(here, message, NULL, 0);
	launch_apart->staged(&here->agent, here->launch, LAUNCH_STAGED_ALL, 0, "");
	costs.choosing = memory() - before;
	message = around_message(here, TPCK_ACCORD_START);
	message.value = 1;
	led(here, message, "", 1);
	led(here, around_message(here, TPCK_ACCORD_LIVE), NULL, 0);
	message = around_message(here, TPCK_ACCORD_CAPTURE);
	message.step = STEP + 10;
	led(here, message, NULL, 0);
	message.kind = TPCK_ACCORD_COMMIT;
	led(here, message, NULL, 0);
	costs.running = memory() - before;
	costs.said = model.bytes[TPCK_ACCORD_MEMBER];
	costs.right = model.said[TPCK_ACCORD_MEMBER] == EACH && model.said[TPCK_ACCORD_HOLDS] == 1 && model.tried &&
		      model.said[TPCK_ACCORD_STAGED] == 1 && model.gone_on && here->launch->capture_step == STEP + 10;
	around_end(here);
	return costs;
}

/* ---- the one that leads ------------------------------------------------------------------- */

static double said(struct here *here, uint32_t n, const struct tpck_accord_message *message, const void *more, size_t size)
{
	double before = thread_ns();
	char name[24];

	accord_hears.said(&here->agent, around_node(n, name), "host", message, more, size);
	accord_loop.consider(&here->agent);
	return thread_ns() - before;
}

/* What a node's agent sends of its ranks, as another one's code would (accord_say_member()). */
static void members(struct here *here, uint32_t n, struct agent_costs *costs)
{
	char identity[IDENTITY_BYTES + 1];

	for (uint32_t r = n * EACH; r < (n + 1) * EACH && r < here->launch->world; r++) {
		struct tpck_accord_message message = around_message(here, TPCK_ACCORD_MEMBER);
		struct tpck_accord_member member = {.form = ""};

		around_identity(r, identity);
		tpck_identity_key(identity, &member.key);
		identity_form(identity, member.form);
		message.rank = r;
		message.step = UINT64_MAX;
		message.value = TPCK_HELLO_RESUME | TPCK_HELLO_APART;
		costs->said += sizeof member;
		costs->members_ns += said(here, n, &message, &member, sizeof member);
	}
}

static void holds(struct here *here, uint32_t n)
{
	struct tpck_accord_message message = around_message(here, TPCK_ACCORD_HOLDS);
	struct tpck_accord_holding rows[EACH];
	size_t count = 0;

	for (uint32_t r = n * EACH; r < (n + 1) * EACH && r < here->launch->world; r++)
		rows[count++] = (struct tpck_accord_holding){
			.generation = GENERATION - 1, .step = STEP, .rank = r, .resumable = 1, .kind = TPCK_HOLDING_COMMITTED,
		};
	said(here, n, &message, rows, count * sizeof *rows);
}

/* By all nodes. */
static void all_say(struct here *here, enum tpck_accord_kind kind, uint64_t step, uint64_t value)
{
	uint32_t nodes = (here->launch->world + EACH - 1) / EACH;
	struct tpck_accord_message message = around_message(here, kind);

	message.parent = GENERATION - 1;
	message.step = step;
	message.value = value;
	message.value2 = kind == TPCK_ACCORD_STAGED ? model.attempt : 0;
	for (uint32_t n = 0; n < nodes; n++) {
		message.rank = n * EACH;
		if (kind == TPCK_ACCORD_HELD)
			message.ordinal = n + 1 < nodes ? EACH : here->launch->world - n * EACH;
		said(here, n, &message, NULL, 0);
	}
}

static void all_end(struct here *here, struct agent_costs *costs)
{
	struct tpck_accord_message message = around_message(here, TPCK_ACCORD_ENDED);

	message.value = 1;
	for (message.rank = 0; message.rank < here->launch->world; message.rank++)
		costs->ended_ns += said(here, message.rank / EACH, &message, NULL, 0);
}

static struct agent_costs lead(uint32_t world)
{
	uint32_t nodes = (world + EACH - 1) / EACH;
	struct agent_costs costs = {0};
	size_t before = memory();
	struct here *here = around_begin(world, 0);
	char name[24];

	model.own = EACH;

	for (uint32_t n = 1; n < nodes; n++)
		accord_hears.met(&here->agent, around_node(n, name));
	for (uint32_t n = 1; n < nodes; n++)
		members(here, n, &costs);
	/* The leader waits until those that left are gone, and then asks. */
	accord_loop.consider(&here->agent);
	accord_loop.consider(&here->agent);
	costs.right = model.said[TPCK_ACCORD_ASK] == 1;
	for (uint32_t n = 1; n < nodes; n++)
		holds(here, n);
	costs.choosing = memory() - before;
	costs.right = costs.right && model.said[TPCK_ACCORD_STAGE] == nodes - 1 && model.tried;
	launch_apart->staged(&here->agent, here->launch, LAUNCH_STAGED_ALL, 0, "");
	all_say(here, TPCK_ACCORD_STAGED, STEP, 0);
	all_say(here, TPCK_ACCORD_INJECTED, STEP, 0);
	costs.right = costs.right && model.gone_on && model.said[TPCK_ACCORD_LIVE] == nodes - 1;
	all_say(here, TPCK_ACCORD_HELD, STEP + 10, 0);
	all_say(here, TPCK_ACCORD_COPIED, STEP + 10, 0);
	costs.right = costs.right && model.said[TPCK_ACCORD_COMMIT] == nodes - 1 && model.said[TPCK_ACCORD_SETTLED] == nodes - 1;
	costs.running = memory() - before;
	all_end(here, &costs);
	costs.right = costs.right && model.said[TPCK_ACCORD_RELEASE] == nodes - 1;
	around_end(here);
	return costs;
}

/* ---- each in a process of its own, since an agent does not forget whom it has met ----------- */

static struct agent_costs apart(struct agent_costs (*act)(uint32_t world), uint32_t world)
{
	struct agent_costs costs = {0};
	int pipes[2];
	pid_t child;

	if (pipe(pipes))
		return costs;
	child = fork();
	if (child == 0) {
		costs = act(world);
		_exit(write(pipes[1], &costs, sizeof costs) != sizeof costs);
	}
	close(pipes[1]);
	if (child < 0 || read(pipes[0], &costs, sizeof costs) != sizeof costs)
		costs = (struct agent_costs){0};
	close(pipes[0]);
	if (child > 0)
		waitpid(child, NULL, 0);
	return costs;
}

struct agent_costs agent_that_follows(uint32_t world)
{
	return apart(follow, world);
}

struct agent_costs agent_that_leads(uint32_t world)
{
	return apart(lead, world);
}
