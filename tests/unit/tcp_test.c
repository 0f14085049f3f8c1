/* SPDX-License-Identifier: Apache-2.0 */
/* The transport over TCP: two of them over the loopback, and strangers who connect to one. */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/peer/address.h"
#include "runtime/peer/transport.h"
#include "tests/unit/store_tap.h"

static struct tpck_error err;
static const struct tpck_transport_operations *ops = &tpck_transport_tcp;

enum { HEAD = 88, MOST = 600, IDLE = 200, EACH = 64, STRANGERS = 2000, LARGE = 3 << 20 };
#define PATIENCE_NS 20000000000ull
#define MAGIC 0x31504354u

struct frame {
	uint32_t magic;
	uint16_t head_bytes, flags;
	uint64_t count;
};

/* ---- two users ----------------------------------------------------------------------------- */

static struct user {
	struct tpck_transport *transport;
	struct tpck_link *link;
	unsigned came, gone, got, torn, sent, early;
	bool in_order, right;
	bool refuses;              /* gives no place */
	bool proves;               /* whoever comes is known */
	unsigned next;             /* number of the message that is to come */
	char why[100];
} users[2];

static uint8_t byte_of(unsigned number, size_t place)
{
	return (uint8_t)(number * 31 + place * 7 + place / 251);
}

static void came(void *context, struct tpck_link *link)
{
	struct user *user = context;

	user->came++;
	user->link = link;
	if (user->proves)
		ops->proven(user->transport, link);
}

static void gone(void *context, struct tpck_link *link, const char *why)
{
	struct user *user = context;

	user->gone++;
	snprintf(user->why, sizeof user->why, "%s", why);
	if (user->link == link)
		user->link = NULL;
}

static void *place(void *context, struct tpck_link *link, const void *head, size_t head_bytes, size_t bytes)
{
	const struct user *user = context;

	(void)link;
	(void)head;
	(void)head_bytes;
	return user->refuses ? NULL : malloc(bytes);
}

static void arrived(void *context, struct tpck_link *link, const void *head, size_t head_bytes, void *bytes, size_t count, bool whole)
{
	struct user *user = context;
	unsigned number;

	(void)link;
	if (!whole) {
		user->torn++;
		free(bytes);
		return;
	}
	memcpy(&number, head, sizeof number);
	user->in_order = user->in_order && number == user->next && head_bytes == HEAD;
	user->next = number + 1;
	for (size_t i = 0; i < count; i += i + 4096 < count ? 997 : 1)
		user->right = user->right && ((uint8_t *)bytes)[i] == byte_of(number, i);
	user->got++;
	free(bytes);
}

/* A token is the other side's count before which a large message cannot have arrived, and its bytes. */
struct token {
	unsigned number;
	bool large;
	uint8_t bytes[];
};

static void sent(void *context, struct tpck_link *link, void *token)
{
	struct user *user = context;
	const struct token *t = token;
	const struct user *other = &users[user == &users[0]];

	user->sent++;
	user->early += link && t->large && other->next <= t->number;
	free(token);
}

static const struct tpck_transport_events events = {came, gone, place, arrived, sent};

static bool pass(const unsigned *what, unsigned wanted)
{
	uint64_t until = tpck_clock_monotonic_ns() + PATIENCE_NS;

	while (*what < wanted && tpck_clock_monotonic_ns() < until)
		for (int i = 0; i < 2; i++)
			if (users[i].transport)
				ops->progress(users[i].transport);
	return *what >= wanted;
}

/* Until nothing has happened for a while. */
static void settle(void)
{
	for (int idle = 0; idle < 20; idle++)
		for (int i = 0; i < 2; i++)
			while (users[i].transport && ops->progress(users[i].transport))
				idle = 0;
}

static bool say(int by, unsigned number, size_t count)
{
	struct token *token = malloc(sizeof *token + count);
	char head[HEAD] = {0};

	memcpy(head, &number, sizeof number);
	*token = (struct token){number, count >= 16 << 10};
	for (size_t i = 0; i < count; i++)
		token->bytes[i] = byte_of(number, i);
	if (ops->send(users[by].transport, users[by].link, head, sizeof head, token->bytes, count, token) == 0)
		return true;
	free(token);
	return false;
}

static void begin(bool proves)
{
	char address[TPCK_TRANSPORT_ADDRESS];

	memset(users, 0, sizeof users);
	for (int i = 0; i < 2; i++) {
		users[i].in_order = users[i].right = true;
		users[i].proves = proves;
		ok(ops->start(&users[i].transport, &events, &users[i], 0, &err) == 0, "it listens");
	}
	snprintf(address, sizeof address, "127.0.0.1:%u", ops->port(users[1].transport));
	ok(ops->connect(users[0].transport, address, &users[0].link, &err) == 0, "and connects");
	if (proves)
		ops->proven(users[0].transport, users[0].link);
}

static void end(void)
{
	for (int i = 0; i < 2; i++)
		ops->stop(users[i].transport);
}

/* ---- messages ------------------------------------------------------------------------------ */

static void test_messages(void)
{
	static const size_t sizes[] = {0, 1, 672, 4096, 16 << 10, (16 << 10) - 1, 100000, 1 << 20, LARGE};
	unsigned count = 0;

	begin(true);
	/* The first one goes before anything else, and is small. */
	while (count < MOST / 4)
		(void)say(0, count, count ? sizes[(unsigned)rand() % 9] : 10), count++;
	ok(pass(&users[1].got, count) && users[1].came == 1, "messages of all sizes arrive");
	ok(users[1].in_order && users[1].right, "in their order, as they were sent");
	ok(pass(&users[0].sent, count) && users[0].sent == count, "and each is told to have gone, once");
	ok(users[0].early == 0, "a large one not before it is there");
	for (unsigned i = 0; i < MOST / 4; i++) {
		(void)say(0, count + i, sizes[(unsigned)rand() % 9]);
		(void)say(1, i, sizes[(unsigned)rand() % 9]);
	}
	ok(pass(&users[1].got, count + MOST / 4) && pass(&users[0].got, MOST / 4) && pass(&users[1].sent, MOST / 4), "so it is in both directions at a time");
	ok(users[0].in_order && users[0].right && users[1].in_order && users[1].right && users[0].early + users[1].early == 0, "in their order");
	ok(users[0].gone + users[1].gone + users[0].torn + users[1].torn == 0, "and nothing is lost");
	end();
}

static void test_refused(void)
{
	begin(true);
	(void)say(0, 0, 10);
	pass(&users[1].got, 1);
	users[1].refuses = true;
	(void)say(0, 1, LARGE);
	ok(pass(&users[0].sent, 2) && users[1].got == 1, "what is given no place is dropped");
	users[1].refuses = false;
	users[1].next = 2;
	(void)say(0, 2, LARGE);
	ok(pass(&users[1].got, 2) && users[1].right && users[1].in_order, "and what is behind it arrives");
	end();
}

static void test_closed(void)
{
	begin(true);
	(void)say(0, 0, 10);
	pass(&users[1].got, 1);
	for (unsigned i = 1; i <= 40; i++)
		(void)say(0, i, LARGE);
	for (int i = 0; i < 3; i++)
		ops->progress(users[1].transport);
	ops->close(users[0].transport, users[0].link);
	ok(pass(&users[0].sent, 41), "of what does not go, after the user has closed the connection, the bytes are free");
	ok(pass(&users[1].gone, 1), "the other side is told");
	ok(users[1].torn <= 1 && users[1].right, "of a message whose bytes did not come it is told, too");
	ok(users[0].gone == 0, "who has closed it is not");
	end();
	begin(true);
	(void)say(0, 0, 10);
	pass(&users[1].got, 1);
	for (unsigned i = 1; i <= 40; i++)
		(void)say(0, i, LARGE);
	ops->progress(users[1].transport);
	ops->stop(users[1].transport);
	users[1].transport = NULL;
	ok(pass(&users[0].gone, 1) && pass(&users[0].sent, 41), "where the other side ends, it is gone, and all bytes are free");
	ok(!users[0].link || !say(0, 41, 1), "nothing can be sent");
	end();
}

static void test_ports(void)
{
	struct tpck_transport *third = NULL;
	struct tpck_link *link;
	char address[TPCK_TRANSPORT_ADDRESS];
	uint16_t port;

	begin(true);
	port = ops->port(users[1].transport);
	ok(ops->start(&third, &events, NULL, port, &err) == -EADDRINUSE && !third, "a port that is taken is an error");
	ops->stop(users[1].transport);
	users[1].transport = NULL;
	settle();
	snprintf(address, sizeof address, "127.0.0.1:%u", port);
	users[0].gone = 0;
	ok(ops->connect(users[0].transport, address, &link, &err) || pass(&users[0].gone, 1), "where nobody listens, that is told");
	ok(ops->connect(users[0].transport, "no address", &link, &err) == -EINVAL, "what is no address is an error");
	end();
}

/* ---- strangers ----------------------------------------------------------------------------- */

static int stranger_at(uint32_t address)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address), .sin_port = htons(ops->port(users[1].transport))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (struct sockaddr *)&to, sizeof to)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int stranger(void)
{
	return stranger_at(INADDR_LOOPBACK);
}

/* Of this machine's addresses that are told to others, how many are listened at. */
static size_t answering(size_t *all)
{
	struct tpck_local list[64];
	size_t count = tpck_address_local(list, 64), answer = 0;

	*all = count;
	for (size_t i = 0; i < count; i++) {
		int fd = socket(list[i].address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		in_port_t port = htons(ops->port(users[1].transport));

		if (list[i].address.ss_family == AF_INET6)
			((struct sockaddr_in6 *)&list[i].address)->sin6_port = port;
		else
			((struct sockaddr_in *)&list[i].address)->sin_port = port;
		answer += connect(fd, (struct sockaddr *)&list[i].address, list[i].bytes) == 0;
		close(fd);
	}
	return answer;
}

static void test_addresses(void)
{
	size_t all, answer;
	int fd;

	begin(true);
	fd = stranger_at(INADDR_LOOPBACK + 1);
	ok(fd < 0, "an address of this machine's that others are not told is not listened at");
	if (fd >= 0)
		close(fd);
	answer = answering(&all);
	ok(answer == all, "those that they are told are");
	end();
	ok(tpck_address_choose("none0", &err) == 0, "the user names an interface that is not here");
	begin(true);
	ok(answering(&all) == 0, "then none of them is");
	fd = stranger();
	ok(fd >= 0, "the loopback is");
	close(fd);
	end();
	(void)tpck_address_choose("", &err);
}

/* Whether the other side has ended it. */
static bool ended(int fd)
{
	char bytes[64];
	ssize_t rc;

	while ((rc = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
		;
	return rc == 0 || errno != EAGAIN;
}

static bool is_ended(int fd)
{
	uint64_t until = tpck_clock_monotonic_ns() + PATIENCE_NS;

	while (!ended(fd) && tpck_clock_monotonic_ns() < until)
		ops->progress(users[1].transport);
	return ended(fd);
}

/* A frame and what is behind it, from a stranger; whether the connection ends. */
static bool ends(struct frame frame, size_t behind)
{
	static char bytes[4096];
	int fd = stranger();
	bool yes;

	memcpy(bytes, &frame, sizeof frame);
	(void)send(fd, bytes, sizeof frame + behind, MSG_NOSIGNAL);
	settle();
	yes = is_ended(fd);
	close(fd);
	return yes;
}

static void test_garbage(void)
{
	unsigned came_before;

	begin(false);
	(void)say(0, 0, 10);
	pass(&users[1].got, 1);
	ops->proven(users[0].transport, users[0].link);
	ops->proven(users[1].transport, users[1].link);
	users[1].link = NULL;
	came_before = users[1].came;
	ok(ends((struct frame){MAGIC + 1, HEAD, 0, 0}, 10), "what does not begin as a frame ends the connection");
	ok(ends((struct frame){MAGIC, TPCK_TRANSPORT_HEAD_MAX + 1, 0, 0}, 100), "so does a head that is too long");
	ok(ends((struct frame){MAGIC, 0, 0, 10}, 100), "none");
	ok(ends((struct frame){MAGIC, HEAD, 4, 10}, 100), "a flag that there is not");
	ok(ends((struct frame){MAGIC, HEAD, 0, 1 << 20}, 100), "and of one that has not proved itself, a message that is large");
	ok(ends((struct frame){MAGIC, 0, 2, 1}, 0), "or which says that something is there");
	ok(users[1].came == came_before, "nobody else hears of those");
	users[1].right = true;
	for (int i = 0; i < STRANGERS; i++) {
		struct frame frame = {rand() % 4 ? MAGIC : (uint32_t)rand(), (uint16_t)(rand() % 600), (uint16_t)(rand() % 5), (uint64_t)(rand() % 3000)};
		char bytes[3000];
		int fd = stranger();

		for (size_t k = 0; k < sizeof bytes; k++)
			bytes[k] = (char)rand();
		memcpy(bytes, &frame, sizeof frame);
		(void)send(fd, bytes, (size_t)rand() % sizeof bytes, MSG_NOSIGNAL);
		ops->progress(users[1].transport);
		close(fd);
		ops->progress(users[1].transport);
	}
	settle();
	users[1].next = 1;
	users[1].in_order = users[1].right = true;
	users[1].got = 0;
	(void)say(0, 1, LARGE);
	ok(pass(&users[1].got, 1) && users[1].in_order && users[1].right && users[0].gone == 0, "whatever they send, the connection of one that is known goes on");
	end();
}

/* One that is known says that what was not sent is there. */
static void test_liar(void)
{
	struct frame lie = {MAGIC, 0, 2, 5}, first = {MAGIC, HEAD, 0, 0};
	char bytes[sizeof first + HEAD] = {0};
	int fd;

	begin(true);
	(void)say(0, 0, 10);
	pass(&users[1].got, 1);
	users[1].gone = 0;
	fd = stranger();
	memcpy(bytes, &first, sizeof first);
	(void)send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
	ok(pass(&users[1].came, 2), "one comes that is known");
	(void)send(fd, &lie, sizeof lie, MSG_NOSIGNAL);
	ok(pass(&users[1].gone, 1) && strstr(users[1].why, "not sent"), "that it has what was not sent ends its connection");
	close(fd);
	end();
}

static void test_idle(void)
{
	int fds[IDLE], open = 0;

	begin(false);
	(void)say(0, 0, 10);
	pass(&users[1].got, 1);
	ops->proven(users[1].transport, users[1].link);
	for (int i = 0; i < IDLE; i++) {
		fds[i] = stranger();
		ops->progress(users[1].transport);
	}
	settle();
	for (int i = 0; i < IDLE; i++)
		open += !ended(fds[i]);
	ok(open > 0 && open <= EACH, "of connections from one address that say nothing there are only so many");
	ok(!ended(fds[IDLE - 1]) && ended(fds[0]), "the newest ones");
	users[1].next = 1;
	(void)say(0, 1, LARGE);
	ok(pass(&users[1].got, 2) && users[1].in_order && users[1].right, "the one that is known goes on");
	for (int i = 0; i < IDLE; i++)
		close(fds[i]);
	end();
}

int main(void)
{
	unsigned seed = getenv("SEED") ? (unsigned)atoi(getenv("SEED")) : (unsigned)tpck_clock_realtime_ns();

	printf("# SEED=%u\n", seed);
	srand(seed);
	test_messages();
	test_refused();
	test_closed();
	test_ports();
	test_addresses();
	test_garbage();
	test_liar();
	test_idle();
	return tap_done();
}
