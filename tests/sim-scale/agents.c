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

#include "tools/agent/accord/accord.h"
#include "tools/agent/flush_private.h"
#include "tools/agent/hello/hello.h"
#include "tools/agent/identity.h"
#include "tools/agent/peers/peers.h"
#include "tools/agent/salvage/salvage.h"
#include "tools/agent/welcome.h"

enum { STEP = 300, GENERATION = 5, KEY = 77 };
enum { KINDS = TPCK_ACCORD_SAVED + 1 };

static struct {
	char node[24];
	uint64_t number;          /* the leader's of the launch */
	uint64_t attempt;         /* at making ready, as it said */
	uint32_t said[KINDS];     /* by it, to whomever */
	size_t bytes[KINDS];
	bool tried, gone_on;      /* its ranks were to make ready, and to go */
	uint32_t own;             /* ranks of which the last start left something here */
} model;

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

/* ---- the rest of the agent ---------------------------------------------------------------- */

void peers_talk(const char *node, const struct tpck_accord_message *message, const void *more, size_t size)
{
	(void)node;
	(void)more;
	model.said[message->kind]++;
	model.bytes[message->kind] += size;
	if (message->kind == TPCK_ACCORD_LEAD)
		model.number = message->number;
	if (message->kind == TPCK_ACCORD_STAGE)
		model.attempt = message->value2;
}

const char *peers_node(void)
{
	return model.node;
}

void hello_try(struct agent *agent, struct launch *launch, const struct tpck_point *point, const struct tpck_accord_source *sources, size_t count)
{
	(void)agent;
	(void)launch;
	(void)sources;
	model.tried = point->step == STEP && count == 0;
}

void hello_go(struct agent *agent, struct launch *launch, bool staged, uint64_t ports, const char *notice)
{
	(void)agent;
	(void)launch;
	(void)ports;
	(void)notice;
	model.gone_on = staged;
}

void worker_give(struct worker *worker, struct job *job)
{
	struct agent *agent = (struct agent *)((char *)worker - offsetof(struct agent, clerk));

	job->run(job);
	job->done(agent, job);
}

/* What the leader's own ranks left is here as copies are. */
size_t peers_copies_held(const char *forms, size_t size, struct peers_held **rows)
{
	(void)forms;
	(void)size;
	*rows = model.own ? calloc(model.own, sizeof **rows) : NULL;
	for (uint32_t r = 0; *rows && r < model.own; r++)
		(*rows)[r] = (struct peers_held){.point = {GENERATION - 1, STEP}, .rank = r, .resumable = true};
	return *rows ? model.own : 0;
}

uint64_t hello_generation(struct agent *agent)
{
	(void)agent;
	return GENERATION;
}

/* clang-format off */
bool peers_on(void) { return true; }
bool peers_awaited(void) { return false; }
bool peers_settling(void) { return false; }
const char *peers_host(void) { return "host"; }
uint64_t peers_generation(void) { return GENERATION - 1; }
void peers_heard(uint64_t generation) { (void)generation; }
void peers_committed(struct agent *agent, struct launch *launch) { (void)agent; (void)launch; }
bool peers_copy(struct agent *agent, struct launch *launch, uint64_t step) { (void)agent; (void)launch; (void)step; return true; }
void peers_settled(struct agent *agent, struct launch *launch, uint64_t step) { (void)agent; (void)launch; (void)step; }
void hello_refuse(struct agent *agent, struct launch *launch, const char *why) { (void)agent; (void)launch; fprintf(stderr, "refused: %s\n", why); abort(); }
uint32_t hello_waiting(const struct agent *agent, const struct launch *launch, uint64_t *until_ns) { (void)agent; (void)launch; *until_ns = UINT64_MAX; return 0; }
uint64_t hello_ports(void) { return 0; }
void hello_each_staged(struct agent *agent, struct launch *launch, void (*visit)(struct agent *, struct launch *, const struct tpck_hello *, const char *)) { (void)agent; (void)launch; (void)visit; }
struct tpck_program *program_of(struct agent *agent, const char *identity, struct tpck_error *err) { (void)agent; (void)identity; (void)err; return NULL; }
void clerk_tell(struct agent *agent, struct live *live, enum clerk_news news, const struct tpck_point *point, enum tpck_death death) { (void)agent; (void)live; (void)news; (void)point; (void)death; }
void flush_failed(struct agent *agent, uint64_t step, const char *why) { (void)agent; (void)step; (void)why; }
void flush_join(struct agent *agent, struct launch *launch, uint64_t step, uint64_t began_ns) { (void)agent; (void)launch; (void)step; (void)began_ns; }
void flush_part(struct agent *agent, struct launch *launch, uint64_t step, flush_through *through) { (void)agent; (void)launch; (void)step; (void)through; }
void flush_stored(struct agent *agent, struct launch *launch, uint64_t step) { (void)agent; (void)launch; (void)step; }
void live_committed(struct agent *agent, struct live *live, unsigned image) { (void)agent; (void)live; (void)image; }
int live_image_of(const struct live *live, uint64_t step) { (void)live; (void)step; return -1; }
bool live_image_state(struct live *live, unsigned image, enum tpck_image_state from, enum tpck_image_state to) { (void)live; (void)image; (void)from; (void)to; return false; }
void store_enter(size_t tier) { (void)tier; }
void store_leave(size_t tier) { (void)tier; }
void live_poll(struct agent *agent) { (void)agent; }
void live_release_all(struct agent *agent, struct launch *launch) { (void)agent; (void)launch; }
void live_retire(struct agent *agent, struct live *live) { (void)agent; (void)live; }
void live_settle_launch(struct agent *agent, struct launch *launch) { (void)agent; (void)launch; }
void live_unpin(struct agent *agent, struct live *live, unsigned image) { (void)agent; (void)live; (void)image; }
void salvage_asked(void) { }
void salvage_lost(struct agent *agent, const char *node) { (void)agent; (void)node; }
void salvage_met(const struct agent *agent, const char *node) { (void)agent; (void)node; }
void salvage_said(struct agent *agent, const char *node, const struct tpck_accord_message *message, const char *more, size_t size) { (void)agent; (void)node; (void)message; (void)more; (void)size; }
void stall_describe(const struct tpck_waiting *waiting, uint64_t since_ns, char text[STALL_TEXT]) { (void)waiting; (void)since_ns; text[0] = '\0'; }
uint64_t welcome_missed(uint64_t launch, uint32_t rank, uint32_t ordinal) { (void)launch; (void)rank; (void)ordinal; return 0; }
uint64_t welcome_ports(const struct tpck_session *session) { (void)session; return 0; }
void stall_over(uint64_t since_ns) { (void)since_ns; }
void stall_show(struct launch *launch, const char *text) { (void)launch; (void)text; }
/* clang-format on */

/* ---- who is there ------------------------------------------------------------------------- */

static const char *node_name(uint32_t n, char name[24])
{
	snprintf(name, 24, "node%06u", n);
	return name;
}

/* All ranks are started alike. */
static void identity_of(uint32_t rank, char text[IDENTITY_BYTES + 1])
{
	/* The same length behind the rank's number, whatever that is. */
	int begun = snprintf(text, IDENTITY_BYTES, "user 1000\njob many\nrank %u\nordinal 0\nenvironment LONG=", rank);

	memset(text + begun, 'x', IDENTITY_BYTES - 100);
	strcpy(text + begun + IDENTITY_BYTES - 100, "\n");
}

struct here {
	struct agent agent;
	struct launch *launch;
	uint32_t first;
};

/* Their HELLOs have come. */
static struct here *begin(uint32_t world, uint32_t n)
{
	struct here *here = calloc(1, sizeof *here);

	memset(&model, 0, sizeof model);
	node_name(n, model.node);
	here->first = n * EACH;
	for (uint32_t r = 0; here && r < EACH; r++) {
		struct tpck_hello hello = {
			.flags = TPCK_HELLO_RESUME | TPCK_HELLO_APART, .rank = here->first + r, .world = world, .resume_step = UINT64_MAX, .launch = KEY,
		};
		struct client *client = calloc(1, sizeof *client);

		client->launch = here->launch = launch_join(&here->agent, &hello, false);
		client->deferred = malloc(sizeof hello + IDENTITY_BYTES + 1);
		memcpy(client->deferred, &hello, sizeof hello);
		identity_of(hello.rank, client->deferred + sizeof hello);
		here->launch->hellos++;
		client->next = here->agent.clients;
		here->agent.clients = client;
		accord_came(&here->agent, here->launch, &hello, client->deferred + sizeof hello);
	}
	return here;
}

static void end(struct here *here)
{
	while (here->agent.clients) {
		struct client *client = here->agent.clients;

		here->agent.clients = client->next;
		free(client->deferred);
		free(client);
	}
	launch_said(&here->agent, here->launch, here->launch->hellos);
	free(here);
}

static struct tpck_accord_message message_of(const struct here *here, enum tpck_accord_kind kind)
{
	return (struct tpck_accord_message){
		.kind = kind, .world = here->launch->world, .key = KEY, .number = model.number, .generation = here->launch->generation,
	};
}

/* ---- one that follows --------------------------------------------------------------------- */

static void led(struct here *here, struct tpck_accord_message message, const void *more, size_t size)
{
	accord_said(&here->agent, "node000000", "host", &message, more, size);
	accord_consider(&here->agent);
}

static struct agent_costs follow(uint32_t world)
{
	char text[IDENTITY_FORM], identity[IDENTITY_BYTES + 1];
	struct agent_costs costs = {0};
	size_t before = memory();
	struct here *here = begin(world, world / EACH / 2);
	struct tpck_accord_message message;

	model.number = 1;
	led(here, message_of(here, TPCK_ACCORD_LEAD), "", 1);
	identity_of(here->first, identity);
	identity_form(identity, text);
	led(here, message_of(here, TPCK_ACCORD_ASK), text, sizeof text);
	message = message_of(here, TPCK_ACCORD_STAGE);
	message.generation = GENERATION;
	message.parent = GENERATION - 1;
	message.step = STEP;
	led(here, message, NULL, 0);
	accord_staged(&here->agent, here->launch, ACCORD_STAGED_ALL, 0, "");
	costs.choosing = memory() - before;
	message = message_of(here, TPCK_ACCORD_START);
	message.value = 1;
	led(here, message, "", 1);
	led(here, message_of(here, TPCK_ACCORD_LIVE), NULL, 0);
	message = message_of(here, TPCK_ACCORD_CAPTURE);
	message.step = STEP + 10;
	led(here, message, NULL, 0);
	message.kind = TPCK_ACCORD_COMMIT;
	led(here, message, NULL, 0);
	costs.running = memory() - before;
	costs.said = model.bytes[TPCK_ACCORD_MEMBER];
	costs.right = model.said[TPCK_ACCORD_MEMBER] == EACH && model.said[TPCK_ACCORD_HOLDS] == 1 && model.tried &&
		      model.said[TPCK_ACCORD_STAGED] == 1 && model.gone_on && here->launch->capture_step == STEP + 10;
	end(here);
	return costs;
}

/* ---- the one that leads ------------------------------------------------------------------- */

static double said(struct here *here, uint32_t n, const struct tpck_accord_message *message, const void *more, size_t size)
{
	double before = thread_ns();
	char name[24];

	accord_said(&here->agent, node_name(n, name), "host", message, more, size);
	accord_consider(&here->agent);
	return thread_ns() - before;
}

/* What a node's agent sends of its ranks, as another one's code would (accord_say_member()). */
static void members(struct here *here, uint32_t n, struct agent_costs *costs)
{
	char identity[IDENTITY_BYTES + 1];

	for (uint32_t r = n * EACH; r < (n + 1) * EACH && r < here->launch->world; r++) {
		struct tpck_accord_message message = message_of(here, TPCK_ACCORD_MEMBER);
		struct tpck_accord_member member = {.form = ""};

		identity_of(r, identity);
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
	struct tpck_accord_message message = message_of(here, TPCK_ACCORD_HOLDS);
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
	struct tpck_accord_message message = message_of(here, kind);

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
	struct tpck_accord_message message = message_of(here, TPCK_ACCORD_ENDED);

	message.value = 1;
	for (message.rank = 0; message.rank < here->launch->world; message.rank++)
		costs->ended_ns += said(here, message.rank / EACH, &message, NULL, 0);
}

static struct agent_costs lead(uint32_t world)
{
	uint32_t nodes = (world + EACH - 1) / EACH;
	struct agent_costs costs = {0};
	size_t before = memory();
	struct here *here = begin(world, 0);
	char name[24];

	model.own = EACH;

	for (uint32_t n = 1; n < nodes; n++)
		accord_met(&here->agent, node_name(n, name));
	for (uint32_t n = 1; n < nodes; n++)
		members(here, n, &costs);
	/* It waits until those that left are gone, and then asks. */
	accord_consider(&here->agent);
	accord_consider(&here->agent);
	costs.right = model.said[TPCK_ACCORD_ASK] == 1;
	for (uint32_t n = 1; n < nodes; n++)
		holds(here, n);
	costs.choosing = memory() - before;
	costs.right = costs.right && model.said[TPCK_ACCORD_STAGE] == nodes - 1 && model.tried;
	accord_staged(&here->agent, here->launch, ACCORD_STAGED_ALL, 0, "");
	all_say(here, TPCK_ACCORD_STAGED, STEP, 0);
	all_say(here, TPCK_ACCORD_INJECTED, STEP, 0);
	costs.right = costs.right && model.gone_on && model.said[TPCK_ACCORD_LIVE] == nodes - 1;
	all_say(here, TPCK_ACCORD_HELD, STEP + 10, 0);
	all_say(here, TPCK_ACCORD_COPIED, STEP + 10, 0);
	costs.right = costs.right && model.said[TPCK_ACCORD_COMMIT] == nodes - 1 && model.said[TPCK_ACCORD_SETTLED] == nodes - 1;
	costs.running = memory() - before;
	all_end(here, &costs);
	costs.right = costs.right && model.said[TPCK_ACCORD_RELEASE] == nodes - 1;
	end(here);
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
