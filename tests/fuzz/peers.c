/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other agents send. Two peers are known, who each may say anything, and one has just connected. An input is messages:
 * which link, the type, which fields are not small numbers, the fields, the number of bytes behind the head, and these. The
 * thread that speaks with others runs over a transport that brings them; what it gives to other threads is done in between.
 */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/accord/joint_launches.h"
#include "agent/copies/copies_private.h"
#include "agent/copies/held_files.h"
#include "agent/durable/stasher.h"
#include "agent/hello/hello.h"
#include "agent/peers/peers_private.h"
#include "agent/salvage/salvage.h"
#include "runtime/base/digest.h"
#include "runtime/base/log.h"
#include "runtime/peer/sealed.h"
#include "runtime/store/file.h"
#include "runtime/store/manifest_text.h"
#include "tools/agent/leaving.h"
#include "tools/agent/status.h"

enum { LINKS = 3, MESSAGES = 48, PLACED = 1 << 20 };

/* ---- a transport -------------------------------------------------------------------------- */

struct tpck_transport {
	const struct tpck_transport_events *events;
	void *context;
	struct tpck_link link[LINKS];
	bool open[LINKS];
	struct fuzz_input *input;
	int messages;
	/* What was sent, and is not told to have been. */
	struct {
		struct tpck_link *link;
		void *token;
	} sent[1024];
	unsigned sent_count;
};

static struct tpck_transport fake;

static int fake_start(struct tpck_transport **transport, const struct tpck_transport_events *events, void *context, uint16_t port,
		      struct tpck_error *err)
{
	(void)port;
	(void)err;
	fake.events = events;
	fake.context = context;
	*transport = &fake;
	return 0;
}

static uint16_t fake_port(struct tpck_transport *transport)
{
	(void)transport;
	return 1;
}

static int fake_connect(struct tpck_transport *transport, const char *address, struct tpck_link **link, struct tpck_error *err)
{
	(void)transport;
	(void)link;
	return tpck_error_set(err, ENETUNREACH, "connecting to %s", address);
}

static int fake_send(struct tpck_transport *transport, struct tpck_link *link, const void *head, size_t head_bytes, const void *bytes,
		     size_t count, void *token)
{
	(void)transport;
	(void)head;
	(void)head_bytes;
	(void)bytes;
	(void)count;
	if (fake.sent_count == sizeof fake.sent / sizeof *fake.sent)
		return -ENOBUFS;
	if (token) {
		fake.sent[fake.sent_count].link = link;
		fake.sent[fake.sent_count++].token = token;
	}
	return 0;
}

static void fake_close(struct tpck_transport *transport, struct tpck_link *link)
{
	(void)transport;
	fake.open[link - fake.link] = false;
}

static void tell_sent(void)
{
	for (unsigned i = 0; i < fake.sent_count; i++)
		fake.events->sent(fake.context, fake.open[fake.sent[i].link - fake.link] ? fake.sent[i].link : NULL, fake.sent[i].token);
	fake.sent_count = 0;
}

static uint64_t number(struct fuzz_input *input, bool large)
{
	uint64_t value = fuzz_byte(input);

	for (int i = 1; large && i < 8; i++)
		value = value << 8 | fuzz_byte(input);
	return value;
}

static struct tpck_peer_message head_of(struct fuzz_input *input)
{
	struct tpck_peer_message head = {.magic = TPCK_PEER_MAGIC, .version = TPCK_PEER_VERSION};
	uint8_t large;

	head.type = fuzz_byte(input) % (TPCK_PEER_NODE + 2);
	large = fuzz_byte(input);
	head.transfer = number(input, large & 1);
	head.generation = number(input, large & 2);
	head.step = number(input, large & 4);
	head.rank = (uint32_t)number(input, large & 8);
	head.offset = (uint32_t)number(input, large & 16);
	head.value = number(input, large & 32);
	if (large & 64) {
		head.member = fuzz_byte(input);
		head.object = fuzz_byte(input);
		head.chunk = fuzz_byte(input);
		head.fragment = (struct tpck_fragment){.data = fuzz_byte(input), .parity = fuzz_byte(input), .index = fuzz_byte(input)};
	}
	if (large & 128)
		head.version = fuzz_short(input);
	return head;
}

/* A piece of a file comes with its digest, and a manifest with its own. */
static void seal(const struct tpck_peer_message *head, uint8_t *bytes, size_t count)
{
	static const char key[] = "\"digest\":\"";
	char *text = head->type == TPCK_PEER_OFFER ? strndup((char *)bytes, count) : NULL, *place = text ? strstr(text, key) : NULL;

	if (head->type == TPCK_PEER_FILE_BYTES && count > 16)
		tpck_digest128(bytes + 16, count - 16, bytes);
	if (place && strlen(text) == count && strlen(place) >= sizeof key - 1 + 32) {
		memset(place + sizeof key - 1, '0', 32);
		tpck_text_seal(text, count);
		memcpy(bytes, text, count);
	}
	free(text);
}

static void bring(struct fuzz_input *input)
{
	struct tpck_link *link = &fake.link[fuzz_byte(input) % LINKS];
	struct tpck_peer_message head = head_of(input);
	size_t count = fuzz_short(input), got, head_bytes = sizeof head;
	uint8_t *bytes;
	void *place;

	/* Heads that are no whole message. */
	if (count == UINT16_MAX)
		head_bytes = fuzz_byte(input) % sizeof head;
	bytes = fuzz_bytes(input, count, &got);
	seal(&head, bytes, got);
	if (fake.open[link - fake.link]) {
		place = got ? fake.events->place(fake.context, link, &head, head_bytes, got) : NULL;
		if (place)
			memcpy(place, bytes, got);
		if (place || !got)
			fake.events->arrived(fake.context, fake.open[link - fake.link] ? link : NULL, &head, head_bytes, place, got, got != 3);
	}
	free(bytes);
}

/* ---- other threads ------------------------------------------------------------------------ */

static struct job *given, **given_end = &given, *finished, **finished_end = &finished;

int outbox_make(void)
{
	return 0;
}

void outbox_post(struct job *job)
{
	job->next = NULL;
	*finished_end = job;
	finished_end = &job->next;
}

void outbox_deliver(struct agent *agent)
{
	while (finished) {
		struct job *job = finished;

		finished = job->next;
		if (!finished)
			finished_end = &finished;
		job->done(agent, job);
	}
}

int worker_start(struct worker *worker)
{
	(void)worker;
	return 0;
}

void worker_give(struct worker *worker, struct job *job)
{
	(void)worker;
	job->next = NULL;
	*given_end = job;
	given_end = &job->next;
}

void worker_stop(struct worker *worker)
{
	(void)worker;
}

static void work(struct agent *agent)
{
	while (given || finished) {
		struct job *job = given;

		if (job) {
			given = job->next;
			if (!given)
				given_end = &given;
			job->run(job);
			outbox_post(job);
		}
		outbox_deliver(agent);
	}
}

/* ---- the thread --------------------------------------------------------------------------- */

static bool fake_progress(struct tpck_transport *transport)
{
	(void)transport;
	tell_sent();
	work(peers.agent);
	/* What follows from one message is done before the next one comes. */
	if (peers.errands)
		return true;
	if (fake.input->left && fake.messages++ < MESSAGES)
		bring(fake.input);
	else
		peers.stop = true;
	return true;
}

static void fake_wait(struct tpck_transport *transport, int wake, int timeout_ms)
{
	(void)transport;
	(void)wake;
	(void)timeout_ms;
}

static void fake_stop(struct tpck_transport *transport)
{
	(void)transport;
	for (unsigned i = 0; i < LINKS; i++)
		fake.open[i] = false;
	tell_sent();
}

static const struct tpck_transport_operations operations = {
	.name = "fake", .ordered = true, .start = fake_start, .port = fake_port, .connect = fake_connect, .send = fake_send, .close = fake_close,
	.progress = fake_progress, .wait = fake_wait, .stop = fake_stop,
};

/* ---- an agent ----------------------------------------------------------------------------- */

static struct agent agent;
static char folder[400];

static void tidy(void)
{
	(void)tpck_folder_remove(folder);
}

static const struct session_beyond beyond = {
	.hello = hello_begin,
	.adopt = hello_adopt,
	.look = copies_look,
	.meet = peers_meet_for,
	.committed = copies_committed,
	.ended = copies_ended,
	.forget = stash_remove,
	.query = status_answer,
};

static void begin(void)
{
	static const struct peers_hearer *const hearers[] = {&copies_hears, &accord_hears, &salvage_hears, &leaving_hears};
	char store[sizeof folder + 8];

	(void)tpck_log_configure("none");
	launch_apart = &accord_apart;
	session_beyond = &beyond;
	peers_carry(&copies_cargo);
	peers_heard_by(hearers, sizeof hearers / sizeof *hearers);
	snprintf(folder, sizeof folder, "%.350s/tpck-fuzz.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	FUZZ_HOLDS(mkdtemp(folder));
	atexit(tidy);
	for (const struct tpck_setting_row *row = tpck_setting_rows; row->name; row++)
		if (row->standard[0])
			(void)tpck_settings_parse(row, row->standard, &home.settings);
	snprintf(home.folder, sizeof home.folder, "%s", folder);
	strcpy(home.job, "job");
	snprintf(store, sizeof store, "%s/store", folder);
	FUZZ_HOLDS(tpck_durable_tier_open(&home.tier, store, "job", TPCK_WRITER_THREADS, NULL) == 0);
	home.tiers.count = 1;
	home.tiers.tier[0] = home.tier;
	home.settings.peers.count = 1;
	home.settings.memory = 64 << 20;
	peers.agent = &agent;
	peers.on = true;
	peers.level = TPCK_SEAL_OFF;
	peers.ops = tpck_sealed_over(&operations);
	peers.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	strcpy(peers.node, "here.1");
	strcpy(peers.host, "here");
	strcpy(peers.domain, "here");
}

static void meet(unsigned i)
{
	struct peer *peer;

	fake.open[i] = true;
	fake.events->came(fake.context, &fake.link[i]);
	peer = peers.list;
	FUZZ_HOLDS(peer);
	if (i == LINKS - 1)
		return;
	snprintf(peer->other.node, sizeof peer->other.node, "there%u.1", i);
	snprintf(peer->other.host, sizeof peer->other.host, "there%u", i);
	peer->state = PEER_KNOWN;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};

	if (!folder[0])
		begin();
	fake = (struct tpck_transport){.input = &input};
	peers.stop = peers.ended = false;
	peers.errands = NULL;
	peers.errands_end = &peers.errands;
	FUZZ_HOLDS(peers.ops->start(&peers.transport, &peers_events, NULL, 0, NULL) == 0);
	for (unsigned i = 0; i < LINKS; i++)
		meet(i);
	(void)peers_thread(NULL);
	work(&agent);
	if (copies_here.list) {
		copies_here_close();
		FUZZ_HOLDS(tpck_folder_remove(folder) == 0 && mkdir(folder, 0700) == 0);
	}
	while (held.tables) {
		held.tables->peer = 0;
		held_drop(held.tables, UINT64_MAX);
	}
	return 0;
}
