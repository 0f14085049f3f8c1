/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody without the job's secret who has taken the port at which one agent looks for another: every message of the one goes on to the other
 * and back, as it is, so that both find each other.
 *
 * relay PORT ADDRESS:PORT RECORD
 *
 * Says "ready" once it listens. What passes is appended to RECORD. Its input has lines: "alter", "head", "replay", "reflect", each of which
 * does that to the next large message of who has connected: a byte of its bytes, or of its head, is another one; it goes on twice; it comes
 * back to whom it is from, too. Each is answered by "done" once that has happened. It ends with its input.
 */
#include "config.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#include "runtime/peer/transport.h"

enum { LARGE = 1000 };

/* One connection, whose messages go to another one. */
struct end {
	struct tpck_link *link;
	struct end *other;
	bool asker;
};

static const struct tpck_transport_operations *ops = &tpck_transport_tcp;
static struct tpck_transport *transport;
static const char *target;
static char wanted[16];
static int record_fd;

static void came(void *context, struct tpck_link *link)
{
	struct end *asker = calloc(1, sizeof *asker), *answerer = calloc(1, sizeof *answerer);
	struct tpck_error err = {0};

	(void)context;
	*asker = (struct end){link, answerer, true};
	*answerer = (struct end){NULL, asker, false};
	link->owner = asker;
	if (ops->connect(transport, target, &answerer->link, &err)) {
		fprintf(stderr, "%s\n", err.text);
		ops->close(transport, link);
		link->owner = NULL;
		free(asker);
		free(answerer);
		return;
	}
	answerer->link->owner = answerer;
	/* The relay waits for others to prove themselves to each other. */
	if (ops->proven) {
		ops->proven(transport, link);
		ops->proven(transport, answerer->link);
	}
}

static void gone(void *context, struct tpck_link *link, const char *why)
{
	struct end *end = link->owner;

	(void)context;
	(void)why;
	if (!end)
		return;
	end->other->link->owner = NULL;
	ops->close(transport, end->other->link);
	free(end->other);
	free(end);
}

static void *place(void *context, struct tpck_link *link, const void *head, size_t head_bytes, size_t bytes)
{
	(void)context;
	(void)link;
	(void)head;
	(void)head_bytes;
	return malloc(bytes + 1);
}

static void pass(struct end *to, const void *head, size_t head_bytes, const void *bytes, size_t count)
{
	void *copy = count ? malloc(count) : NULL;

	if (count)
		memcpy(copy, bytes, count);
	if (ops->send(transport, to->link, head, head_bytes, copy, count, copy))
		free(copy);
}

static void arrived(void *context, struct tpck_link *link, const void *head, size_t head_bytes, void *bytes, size_t count, bool whole)
{
	struct end *end = link ? link->owner : NULL;
	char changed[TPCK_TRANSPORT_HEAD_MAX];
	bool now;

	(void)context;
	if (!whole || !end || head_bytes > sizeof changed) {
		free(bytes);
		return;
	}
	(void)!write(record_fd, head, head_bytes);
	if (count)
		(void)!write(record_fd, bytes, count);
	memcpy(changed, head, head_bytes);
	now = wanted[0] && end->asker && count >= LARGE;
	if (now && strcmp(wanted, "alter") == 0)
		((char *)bytes)[count / 2] ^= 4;
	if (now && strcmp(wanted, "head") == 0)
		changed[head_bytes / 2] ^= 4;
	pass(end->other, changed, head_bytes, bytes, count);
	if (now && strcmp(wanted, "replay") == 0)
		pass(end->other, changed, head_bytes, bytes, count);
	if (now && strcmp(wanted, "reflect") == 0)
		pass(end, changed, head_bytes, bytes, count);
	if (now) {
		wanted[0] = '\0';
		puts("done");
		fflush(stdout);
	}
	free(bytes);
}

static void sent(void *context, struct tpck_link *link, void *token)
{
	(void)context;
	(void)link;
	free(token);
}

/* False: the input has ended. */
static bool read_input(void)
{
	char text[64];
	ssize_t got = read(STDIN_FILENO, text, sizeof text - 1);

	if (got <= 0)
		return false;
	text[got] = '\0';
	snprintf(wanted, sizeof wanted, "%.*s", (int)strcspn(text, "\n"), text);
	return true;
}

int main(int argc, char **argv)
{
	static const struct tpck_transport_events events = {came, gone, place, arrived, sent};
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	struct tpck_error err = {0};

	if (getenv("TRANSPCKPT_TRANSPORT") && strcmp(getenv("TRANSPCKPT_TRANSPORT"), "ucx") == 0)
		ops = &tpck_transport_ucx;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	record_fd = argc == 4 ? open(argv[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	if (record_fd < 0) {
		fprintf(stderr, "relay PORT ADDRESS:PORT RECORD\n");
		return 2;
	}
	target = argv[2];
	if (ops->start(&transport, &events, NULL, (uint16_t)atoi(argv[1]), &err)) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (;;) {
		if (!ops->progress(transport))
			ops->wait(transport, STDIN_FILENO, 100);
		if (poll(&input, 1, 0) > 0 && !read_input())
			return 0;
	}
}
