/* SPDX-License-Identifier: Apache-2.0 */
/* An agent of another version, as far as its first message goes: says what it is answered. stranger ADDRESS:PORT */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/peer/protocol.h"
#include "runtime/peer/transport.h"

static const struct tpck_transport_operations *ops = &tpck_transport_tcp;
static bool over;

static void came(void *context, struct tpck_link *link)
{
	(void)context;
	(void)link;
}

static void gone(void *context, struct tpck_link *link, const char *why)
{
	(void)context;
	(void)link;
	printf("gone: %s\n", why);
	over = true;
}

static void *place(void *context, struct tpck_link *link, const void *head, size_t head_bytes, size_t bytes)
{
	(void)context;
	(void)link;
	(void)head;
	(void)head_bytes;
	return calloc(1, bytes + 1);
}

static void arrived(void *context, struct tpck_link *link, const void *head, size_t head_bytes, void *bytes, size_t count,
		    bool whole)
{
	const struct tpck_peer_message *message = head;

	(void)context;
	(void)link;
	(void)head_bytes;
	if (whole && message->type == TPCK_PEER_REFUSE)
		printf("refused: %s\n", count ? (char *)bytes : "");
	else
		printf("message %u\n", message->type);
	over = true;
	free(bytes);
}

static void sent(void *context, struct tpck_link *link, void *token)
{
	(void)context;
	(void)link;
	(void)token;
}

int main(int argc, char **argv)
{
	static const struct tpck_transport_events events = {came, gone, place, arrived, sent};
	struct tpck_peer_message head = {.magic = TPCK_PEER_MAGIC, .version = TPCK_PEER_VERSION + 1, .type = TPCK_PEER_GREET};
	static struct tpck_greeting greeting = {.job = "j", .node = "stranger", .host = "stranger", .domain = "stranger"};
	uint64_t end = tpck_clock_monotonic_ns() + 20000000000ull;
	struct tpck_transport *transport;
	struct tpck_error err = {0};
	struct tpck_link *link;

	if (getenv("TRANSPCKPT_TRANSPORT") && strcmp(getenv("TRANSPCKPT_TRANSPORT"), "ucx") == 0)
		ops = &tpck_transport_ucx;
	if (argc != 2 || ops->start(&transport, &events, NULL, 0, &err) ||
	    ops->connect(transport, argv[1], &link, &err) ||
	    ops->send(transport, link, &head, sizeof head, &greeting, sizeof greeting, NULL)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	while (!over && tpck_clock_monotonic_ns() < end)
		if (!ops->progress(transport))
			ops->wait(transport, -1, 100);
	ops->stop(transport);
	return over ? 0 : 1;
}
