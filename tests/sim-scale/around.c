/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent's code for launches and accords calls beside itself, as far as it matters to that. */
#include "config.h"

#include "tests/sim-scale/around.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/durable/flush.h"
#include "agent/files/publisher.h"
#include "agent/hello/hello.h"
#include "agent/programs/met_programs.h"
#include "agent/session/clerk.h"
#include "agent/session/stall.h"
#include "agent/session/welcome.h"

struct around model;

/* ---- the rest of the agent ---------------------------------------------------------------- */

void peers_talk(const char *node, const struct tpck_accord_message *message, const void *more, size_t size)
{
	(void)node;
	(void)more;
	model.said[message->kind]++;
	model.bytes[message->kind] += size;
	if (message->kind == TPCK_ACCORD_LEAD)
		model.number = message->number;
	if (message->kind == TPCK_ACCORD_LEFT)
		model.left = message->number;
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

void clerk_give(struct job *job)
{
	job->run(job);
	job->done(model.agent, job);
}

/* What the leader's own ranks left is here as copies are. */
size_t copies_held(const char *forms, size_t size, struct copies_held **rows)
{
	(void)forms;
	(void)size;
	*rows = model.own ? calloc(model.own, sizeof **rows) : NULL;
	for (uint32_t r = 0; *rows && r < model.own; r++)
		(*rows)[r] = (struct copies_held){.point = {GENERATION - 1, STEP}, .rank = r, .resumable = true};
	return *rows ? model.own : 0;
}

uint64_t hello_generation(void)
{
	return GENERATION;
}

/* clang-format off */
bool peers_on(void) { return true; }
bool peers_awaited(void) { return false; }
bool peers_settling(void) { return false; }
const char *peers_host(void) { return "host"; }
uint64_t peers_generation(void) { return GENERATION - 1; }
void peers_heard(uint64_t generation) { (void)generation; }
bool peers_address(const char *node, char *address, size_t size)
{
	(void)node;
	(void)address;
	(void)size;
	return false;
}
static void committed(struct launch *launch) { (void)launch; }
static const struct session_beyond beyond = {.committed = committed};
void files_each_owed(void (*visit)(void *context, const char *path, uint64_t pattern, uint64_t order, uint64_t timeline, uint64_t step), void *context)
{
	(void)visit;
	(void)context;
}

bool copies_send(struct launch *launch, uint64_t step) { (void)launch; (void)step; return true; }
void copies_settled(struct launch *launch, uint64_t step) { (void)launch; (void)step; }
bool client_send(struct client *client, enum tpck_message_type type, const void *payload, size_t size) { (void)client; (void)type; (void)payload; (void)size; return true; }
void hello_refuse(struct agent *agent, struct launch *launch, const char *why) { (void)agent; (void)launch; fprintf(stderr, "refused: %s\n", why); abort(); }
uint32_t hello_waiting(const struct agent *agent, const struct launch *launch, uint64_t *until_ns) { (void)agent; (void)launch; *until_ns = UINT64_MAX; return 0; }
uint64_t hello_ports(void) { return 0; }
void hello_each_staged(struct agent *agent, struct launch *launch, void (*visit)(struct agent *, struct launch *, const struct tpck_hello *, const char *)) { (void)agent; (void)launch; (void)visit; }
struct tpck_program *program_of(const char *identity, struct tpck_error *err) { (void)identity; (void)err; return NULL; }
void clerk_tell(struct live *live, enum clerk_news news, const struct tpck_point *point, enum tpck_death death) { (void)live; (void)news; (void)point; (void)death; }
void flush_failed(uint64_t step, const char *why) { (void)step; (void)why; }
void flush_join(struct agent *agent, struct launch *launch, uint64_t step, uint64_t began_ns) { (void)agent; (void)launch; (void)step; (void)began_ns; }
void flush_part(struct agent *agent, struct launch *launch, uint64_t step, flush_through *through) { (void)agent; (void)launch; (void)step; (void)through; }
const char *flush_complaint(void) { return ""; }
uint64_t flush_retry_ns(void) { return 0; }
void flush_stored(struct agent *agent, struct launch *launch, uint64_t step) { (void)agent; (void)launch; (void)step; }
void live_committed(struct agent *agent, struct live *live, unsigned image) { (void)agent; (void)live; (void)image; }
int live_image_of(const struct live *live, uint64_t step) { (void)live; (void)step; return -1; }
bool live_image_state(struct live *live, unsigned image, enum tpck_image_state from, enum tpck_image_state to) { (void)live; (void)image; (void)from; (void)to; return false; }
void live_poll(struct agent *agent) { (void)agent; }
void live_release_all(struct agent *agent, struct launch *launch) { (void)agent; (void)launch; }
void live_retire(struct live *live) { (void)live; }
void live_settle_launch(struct launch *launch) { (void)launch; }
void live_unpin(struct live *live, unsigned image) { (void)live; (void)image; }
void stall_describe(const struct tpck_waiting *waiting, uint64_t since_ns, char text[STALL_TEXT]) { (void)waiting; (void)since_ns; text[0] = '\0'; }
uint64_t welcome_missed(uint64_t launch, uint32_t rank, uint32_t ordinal) { (void)launch; (void)rank; (void)ordinal; return 0; }
uint64_t welcome_ports(const struct tpck_session *session) { (void)session; return 0; }
void stall_over(uint64_t since_ns) { (void)since_ns; }
void stall_show(struct launch *launch, const char *text) { (void)launch; (void)text; }
/* clang-format on */

/* ---- who is there ------------------------------------------------------------------------- */

const char *around_node(uint32_t n, char name[24])
{
	snprintf(name, 24, "node%06u", n);
	return name;
}

/* All ranks are started alike. */
void around_identity(uint32_t rank, char text[IDENTITY_BYTES + 1])
{
	/* The same length behind the rank's number, whatever that is. */
	int begun = snprintf(text, IDENTITY_BYTES, "user 1000\njob many\nrank %u\nordinal 0\nenvironment LONG=", rank);

	memset(text + begun, 'x', IDENTITY_BYTES - 100);
	strcpy(text + begun + IDENTITY_BYTES - 100, "\n");
}

/* The ranks' HELLOs have come. */
struct here *around_begin(uint32_t world, uint32_t n)
{
	struct here *here = calloc(1, sizeof *here);

	memset(&model, 0, sizeof model);
	around_node(n, model.node);
	model.agent = &here->agent;
	launch_apart = &accord_apart;
	session_beyond = &beyond;
	here->first = n * EACH;
	for (uint32_t r = 0; here && r < EACH; r++) {
		struct tpck_hello hello = {
			.flags = TPCK_HELLO_RESUME | TPCK_HELLO_APART, .rank = here->first + r, .world = world, .resume_step = UINT64_MAX, .launch = KEY,
		};
		struct client *client = calloc(1, sizeof *client);

		client->launch = here->launch = launch_join(&here->agent, &hello, false);
		client->deferred = malloc(sizeof hello + IDENTITY_BYTES + 1);
		memcpy(client->deferred, &hello, sizeof hello);
		around_identity(hello.rank, client->deferred + sizeof hello);
		here->launch->hellos++;
		client->next = here->agent.clients;
		here->agent.clients = client;
		launch_apart->came(&here->agent, here->launch, &hello, client->deferred + sizeof hello);
	}
	return here;
}

void around_end(struct here *here)
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

struct tpck_accord_message around_message(const struct here *here, enum tpck_accord_kind kind)
{
	return (struct tpck_accord_message){
		.kind = kind, .world = here->launch->world, .key = KEY, .number = model.number, .generation = here->launch->generation,
	};
}
