/* SPDX-License-Identifier: Apache-2.0 */
/* The transport whose messages are sealed, over one of the test's own that does to messages what somebody between two nodes can do. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/peer/sealed.h"
#include "tests/unit/store_tap.h"

static struct {
	char text[240];
} err;

enum { HEAD = 88, LARGE = 300000, MOST = 6000 };

/* ---- a transport that the test moves by hand ----------------------------------------------- */

/* One side; it has one link. */
struct tpck_transport {
	struct tpck_link link; /* first */
	const struct tpck_transport_events *events;
	void *context;
	bool closed;
};

static struct tpck_transport *ends[2];
static unsigned end_count;

struct message {
	unsigned to;
	size_t head_bytes, count;
	uint8_t *head, *bytes;
};

static struct message wire[MOST];
static unsigned wire_count;

static uint8_t *copy_of(const void *bytes, size_t count)
{
	uint8_t *copy = malloc(count + 1);

	memcpy(copy, bytes, count);
	return copy;
}

static int fake_start(struct tpck_transport **out, const struct tpck_transport_events *events, void *context, uint16_t port, struct tpck_error *e)
{
	(void)port;
	(void)e;
	*out = ends[end_count++] = calloc(1, sizeof **out);
	(*out)->events = events;
	(*out)->context = context;
	return 0;
}

static int fake_connect(struct tpck_transport *t, const char *address, struct tpck_link **link, struct tpck_error *e)
{
	(void)address;
	(void)e;
	*link = &t->link;
	ends[1]->events->came(ends[1]->context, &ends[1]->link);
	return 0;
}

static int fake_send(struct tpck_transport *t, struct tpck_link *link, const void *head, size_t head_bytes, const void *bytes, size_t count, void *token)
{
	(void)link;
	if (t->closed || wire_count == MOST)
		return -ENOTCONN;
	wire[wire_count++] = (struct message){t == ends[0], head_bytes, count, copy_of(head, head_bytes), count ? copy_of(bytes, count) : NULL};
	if (token)
		t->events->sent(t->context, link, token);
	return 0;
}

static void fake_close(struct tpck_transport *t, struct tpck_link *link)
{
	(void)link;
	t->closed = true;
}

static bool fake_progress(struct tpck_transport *t)
{
	(void)t;
	return false;
}

static void fake_wait(struct tpck_transport *t, int wake, int timeout_ms)
{
	(void)t;
	(void)poll(&(struct pollfd){.fd = wake, .events = POLLIN}, 1, timeout_ms);
}

static uint16_t fake_port(struct tpck_transport *t)
{
	(void)t;
	return 1;
}

static void fake_stop(struct tpck_transport *t)
{
	(void)t;
}

static struct tpck_transport_operations fake = {
	.name = "fake", .start = fake_start, .port = fake_port, .connect = fake_connect, .send = fake_send, .close = fake_close,
	.progress = fake_progress, .wait = fake_wait, .stop = fake_stop,
};

/* The bytes come a while behind the head, where it is to have them. */
static void *begin(const struct message *message)
{
	struct tpck_transport *t = ends[message->to];

	return t->closed || !message->count ? NULL
					    : t->events->place(t->context, &t->link, message->head, message->head_bytes, message->count);
}

static void finish(const struct message *message, void *place, bool whole)
{
	struct tpck_transport *t = ends[message->to];

	if (message->count && !place)
		return;
	if (place && whole)
		memcpy(place, message->bytes, message->count);
	if (place || !t->closed)
		t->events->arrived(t->context, t->closed ? NULL : &t->link, message->head, message->head_bytes, place, message->count, whole && !t->closed);
}

static void bring(const struct message *message)
{
	finish(message, begin(message), true);
}

/* ---- two users ----------------------------------------------------------------------------- */

static struct user {
	struct tpck_transport *transport;
	struct tpck_link *link;
	unsigned got, sent, lost;  /* messages; bytes that did not come */
	unsigned order[MOST];      /* as they came */
	bool right;                /* each as it was sent */
	char gone[120];
	bool broken;
	bool refuses;              /* gives no place */
} users[2];
static int wake;
static const struct tpck_transport_operations *ops;

struct said {
	uint32_t number, count;
	uint8_t rest[HEAD - 8];
};

static uint8_t byte_at(uint32_t number, size_t i)
{
	return (uint8_t)((i + 1) * (number + 3) * 2654435761u >> 17);
}

static void user_came(void *context, struct tpck_link *link)
{
	((struct user *)context)->link = link;
}

static void user_gone(void *context, struct tpck_link *link, const char *why)
{
	struct user *user = context;

	snprintf(user->gone, sizeof user->gone, "%s", why);
	user->broken = tpck_sealed_is_broken(link);
	user->link = NULL;
}

static void *user_place(void *context, struct tpck_link *link, const void *head, size_t head_bytes, size_t bytes)
{
	(void)link;
	(void)head;
	(void)head_bytes;
	return ((struct user *)context)->refuses ? NULL : calloc(1, bytes);
}

static void user_arrived(void *context, struct tpck_link *link, const void *head, size_t head_bytes, void *bytes, size_t count, bool whole)
{
	struct user *user = context;
	const struct said *said = head;

	(void)link;
	if (!whole) {
		user->lost++;
		free(bytes);
		return;
	}
	user->right = user->right && head_bytes == HEAD && said->count == count;
	for (size_t i = 0; user->right && i < count; i++)
		user->right = ((uint8_t *)bytes)[i] == byte_at(said->number, i);
	user->order[user->got++ % MOST] = said->number;
	free(bytes);
}

static void user_sent(void *context, struct tpck_link *link, void *token)
{
	(void)link;
	((struct user *)context)->sent++;
	free(token);
}

static const struct tpck_transport_events events = {user_came, user_gone, user_place, user_arrived, user_sent};

static int say(unsigned by, uint32_t number, size_t count)
{
	struct said said = {.number = number, .count = (uint32_t)count};
	uint8_t *bytes = count ? malloc(count) : NULL;
	int rc;

	memcpy(said.rest, "a head in clear", 15);
	for (size_t i = 0; i < count; i++)
		bytes[i] = byte_at(number, i);
	rc = ops->send(users[by].transport, users[by].link, &said, sizeof said, bytes, count, bytes);
	if (rc)
		free(bytes);
	return rc;
}

static void turn(void)
{
	for (int i = 0; i < 2; i++)
		while (ops->progress(users[i].transport))
			;
}

/* Until it holds; some work is threads'. */
#define UNTIL(condition) \
	do { \
		uint64_t over = tpck_clock_monotonic_ns() + 60000000000ull; \
		for (turn(); !(condition) && tpck_clock_monotonic_ns() < over; turn()) \
			for (int side = 0; side < 2; side++) \
				ops->wait(users[side].transport, wake, 1); \
	} while (0)

static void seal_both(enum tpck_seal_level level, uint32_t cipher, bool strict)
{
	static const uint8_t secret[TPCK_SECRET_BYTES] = "secret", shared[TPCK_NONCE_BYTES] = "shared";
	struct tpck_seal seal;

	tpck_seal_make(&seal, level, cipher, secret, shared, "said", 4, true);
	tpck_sealed_use(users[0].link, &seal, true);
	tpck_seal_make(&seal, level, cipher, secret, shared, "said", 4, false);
	tpck_sealed_use(users[1].link, &seal, strict);
}

static void meet(bool ordered)
{
	fake.ordered = ordered;
	ops = tpck_sealed_over(&fake);
	end_count = wire_count = 0;
	for (int i = 0; i < 2; i++) {
		users[i] = (struct user){.right = true};
		(void)ops->start(&users[i].transport, &events, &users[i], 0, NULL);
	}
	(void)ops->connect(users[0].transport, "", &users[0].link, NULL);
}

static void clear_wire(void)
{
	for (unsigned i = 0; i < wire_count; i++) {
		free(wire[i].head);
		free(wire[i].bytes);
	}
	wire_count = 0;
}

static void part(void)
{
	for (int i = 0; i < 2; i++)
		ops->stop(users[i].transport);
	clear_wire();
	for (int i = 0; i < 2; i++)
		free(ends[i]);
}

/* Three messages, the middle one of so many bytes, all on the wire. */
static void three(size_t count)
{
	(void)say(0, 0, 10);
	(void)say(0, 1, count);
	(void)say(0, 2, 0);
	UNTIL(wire_count >= 3);
}

static bool ended(unsigned user, const char *why)
{
	turn();
	snprintf(err.text, sizeof err.text, "%s, %u came", users[user].gone, users[user].got);
	return !users[user].link && users[user].broken && strstr(users[user].gone, why);
}

/* ---- the cases ----------------------------------------------------------------------------- */

static bool shows(const struct message *message)
{
	uint8_t bytes[32];

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = byte_at(1, i + 100);
	return memmem(message->head, message->head_bytes, "a head in clear", 15) ||
	       (message->count && memmem(message->bytes, message->count, bytes, sizeof bytes));
}

static void check_passing(enum tpck_seal_level level, uint32_t cipher, bool ordered)
{
	char name[80], what[200];
	bool order = true;

	tpck_seal_describe(level, cipher, name, sizeof name);
	meet(ordered);
	(void)say(0, 0, 100);
	(void)say(1, 0, 0);
	for (unsigned i = 0; i < wire_count; i++)
		bring(&wire[i]);
	snprintf(what, sizeof what, "%s: before that messages pass as they are", name);
	ok(users[0].got == 1 && users[1].got == 1 && shows(&wire[0]), what);
	if (level != TPCK_SEAL_OFF)
		seal_both(level, cipher, false);
	clear_wire();
	for (uint32_t i = 1; i <= 40; i++) {
		(void)say(0, i, i % 3 == 0 ? 0 : i % 3 == 1 ? LARGE : 1000);
		(void)say(1, i, i % 2 ? LARGE : 5);
	}
	UNTIL(wire_count >= 80);
	for (unsigned i = 0; i < wire_count; i++)
		bring(&wire[i]);
	UNTIL(users[0].got >= 41 && users[1].got >= 41);
	for (uint32_t i = 0; i < 41; i++)
		order = order && users[0].order[i] == i && users[1].order[i] == i;
	snprintf(what, sizeof what, "%s: all come, in their order, as they were sent", name);
	ok(order && users[0].right && users[1].right && users[0].got == 41 && users[1].got == 41 && users[0].sent == 28 && !users[0].lost, what);
	snprintf(what, sizeof what, "%s: who is between %s", name, level == TPCK_SEAL_ENCRYPT ? "reads nothing" : "may read");
	order = false;
	for (unsigned i = 0; i < wire_count; i++)
		order = order || shows(&wire[i]);
	ok(order == (level != TPCK_SEAL_ENCRYPT), what);
	part();
}

/* Any byte of any part of a message, and the messages that are large and small. */
static void check_tampering(enum tpck_seal_level level, uint32_t cipher)
{
	size_t counts[] = {100, LARGE};
	unsigned bad = 0, heads = 0;
	char what[200], name[80];

	tpck_seal_describe(level, cipher, name, sizeof name);
	for (size_t c = 0; c < 2; c++)
		for (size_t at = 0; at < HEAD + TPCK_SEAL_HEAD_MORE + 4; at++) {
			struct message *message;

			meet(false);
			seal_both(level, cipher, true);
			three(counts[c]);
			message = &wire[1];
			if (at < message->head_bytes)
				message->head[at] ^= 0x40;
			else
				message->bytes[(at - message->head_bytes) * (message->count - 1) / 3] ^= 1;
			heads += at < message->head_bytes;
			for (unsigned i = 0; i < 3; i++)
				bring(&wire[i]);
			UNTIL(!users[1].link);
			/* Of the third nothing is taken either. */
			bad += users[1].link || !users[1].broken || users[1].got != 1 || !users[1].right;
			if (bad == 1 && !err.text[0])
				snprintf(err.text, sizeof err.text, "byte %zu of %zu: %u came, %s", at, counts[c], users[1].got, users[1].gone);
			part();
		}
	snprintf(what, sizeof what, "%s: a changed byte ends the link, and nothing of that message or behind it is given", name);
	ok(bad == 0 && heads, what);
}

static void check_order(uint32_t cipher)
{
	meet(true);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	three(100);
	bring(&wire[0]);
	bring(&wire[0]);
	ok(ended(1, "came before") && users[1].got == 1, "a message that comes again ends the link");
	part();
	meet(true);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	three(100);
	bring(&wire[1]);
	ok(ended(1, "is not the next one") && users[1].got == 0, "over a transport that keeps the order, so does one that comes too early");
	part();
	meet(true);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	three(100);
	bring(&wire[0]);
	bring(&wire[2]);
	ok(ended(1, "is not the next one") && users[1].got == 1, "and one before which another one was taken away");
	part();
	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	three(LARGE);
	bring(&wire[2]);
	bring(&wire[1]);
	ok(users[1].got == 0 && users[1].link, "over one that does not, what comes too early waits");
	bring(&wire[0]);
	UNTIL(users[1].got >= 3);
	ok(users[1].got == 3 && users[1].right && users[1].order[0] == 0 && users[1].order[1] == 1 && users[1].order[2] == 2, "and all come in their order");
	bring(&wire[1]);
	ok(ended(1, "came before"), "each once");
	part();
	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	for (uint32_t i = 0; i <= TPCK_SEALED_AHEAD; i++)
		(void)say(0, i, 0);
	bring(&wire[2]);
	bring(&wire[2]);
	ok(ended(1, "came before") && !users[1].got, "also of those that wait");
	part();
	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	for (uint32_t i = 0; i <= TPCK_SEALED_AHEAD; i++)
		(void)say(0, i, 0);
	bring(&wire[TPCK_SEALED_AHEAD]);
	ok(ended(1, "is not the next one") && !users[1].got, "far too early is never");
	part();
}

/* Who has proved himself, or has found out a head's form, has no more kept for him before his bytes are looked at than there is room for. */
static void check_room(uint32_t cipher)
{
	static const uint8_t secret[TPCK_SECRET_BYTES] = "secret", shared[TPCK_NONCE_BYTES] = "shared";
	const uint64_t counts[] = {TPCK_SEALED_HELD / 2 + 1, TPCK_SEALED_HELD / 2};
	uint8_t sealed[HEAD + TPCK_SEAL_HEAD_MORE];
	struct tpck_seal seal;
	struct said said = {.number = 0};
	void *places[2];

	tpck_seal_make(&seal, TPCK_SEAL_ENCRYPT, cipher, secret, shared, "said", 4, true);
	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	for (int i = 0; i < 2; i++) {
		struct message message = {.to = 1, .head_bytes = sizeof sealed, .count = counts[i] + TPCK_SEAL_TAG, .head = sealed};

		(void)tpck_seal_head(&seal, (uint64_t)i, &said, sizeof said, counts[i], sealed);
		places[i] = begin(&message);
		if (i == 0)
			ok(places[0] && users[1].link && !users[1].gone[0], "half of what may be held has a place");
	}
	ok(!places[1] && ended(1, "than there is room for"), "what would be more than that together has none, and ends the link");
	/* The bytes of the first do not come either. */
	ends[1]->events->arrived(ends[1]->context, NULL, sealed, sizeof sealed, places[0], counts[0] + TPCK_SEAL_TAG, false);
	part();
}

static void check_others(uint32_t cipher)
{
	struct message message;

	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	three(100);
	message = wire[0];
	message.to = 0;
	bring(&message);
	ok(ended(0, "does not verify") && !users[0].got, "what comes back to whom it is from ends the link");
	part();
	meet(false);
	(void)say(0, 0, 10);
	message = wire[0];
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	bring(&message);
	ok(ended(1, "is not sealed") && !users[1].got, "so does what is not sealed, where it has to be");
	part();
	meet(false);
	(void)say(0, 0, 10);
	(void)say(0, 0, 0);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, false);
	bring(&wire[0]);
	ok(users[1].got == 1 && users[1].link && !tpck_sealed_has_come(users[1].link), "where it has not, it may come until the first that is");
	(void)say(0, 1, 10);
	bring(&wire[2]);
	ok(users[1].got == 2 && tpck_sealed_has_come(users[1].link), "which comes");
	bring(&wire[1]);
	ok(ended(1, "is not sealed") && users[1].got == 2, "and no longer");
	part();
	meet(false);
	(void)say(0, 0, 10);
	{
		struct tpck_seal_front front = {.magic = TPCK_SEAL_MAGIC, .number = 0};

		memcpy(wire[0].head, &front, sizeof front);
	}
	bring(&wire[0]);
	ok(ended(1, "nothing has been agreed on") && !users[1].got, "and what is sealed before anything is agreed on");
	part();
	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	three(100);
	wire[1].count--;
	for (unsigned i = 0; i < 3; i++)
		bring(&wire[i]);
	ok(ended(1, "another length") && users[1].got == 1, "and what is cut off");
	part();
}

/* What is under way when a link ends. */
static void check_ends(uint32_t cipher)
{
	struct tpck_link *link;
	void *place;

	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	three(LARGE);
	for (unsigned i = 0; i < 3; i++)
		bring(&wire[i]);
	ends[1]->closed = true;
	ends[1]->events->gone(ends[1]->context, &ends[1]->link, "it has closed");
	UNTIL(!users[1].link);
	ok(users[1].got == 3 && users[1].right && !users[1].broken && strcmp(users[1].gone, "it has closed") == 0, "what came before the other side was gone is given");
	part();
	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	three(LARGE);
	bring(&wire[0]);
	place = begin(&wire[1]);
	link = users[1].link;
	ops->close(users[1].transport, link);
	turn();
	finish(&wire[1], place, false);
	turn();
	ok(users[1].got == 1 && !users[1].gone[0] && users[1].lost == 0, "bytes that come behind the end are nobody's");
	part();
	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	three(LARGE);
	bring(&wire[0]);
	bring(&wire[1]);
	ops->close(users[1].transport, users[1].link);
	UNTIL(users[1].lost);
	ok(users[1].got == 1 && users[1].lost == 1, "of bytes that are being opened it is said that they did not come");
	part();
	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	users[1].refuses = true;
	three(LARGE);
	bring(&wire[0]);
	bring(&wire[1]);
	bring(&wire[2]);
	UNTIL(users[1].got >= 1);
	ok(users[1].got == 1 && users[1].link && users[1].order[0] == 2, "bytes that have no place are left, and what is behind them comes");
	part();
	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	for (uint32_t i = 0; i < 20; i++)
		(void)say(0, i, LARGE);
	ops->close(users[0].transport, users[0].link);
	UNTIL(users[0].sent >= 20);
	ok(users[0].sent == 20, "of all that was to be sent it is said that it is not read any more");
	part();
	meet(false);
	seal_both(TPCK_SEAL_ENCRYPT, cipher, true);
	for (uint32_t i = 0; i < 20; i++)
		(void)say(0, i, LARGE);
	part();
	ok(users[0].sent == 20, "also where it ends at once");
}

int main(void)
{
	uint32_t ciphers = tpck_seal_ciphers();

	if (!ciphers) {
		printf("1..0 # SKIP built without libsodium\n");
		return 77;
	}
	wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	check_passing(TPCK_SEAL_OFF, 0, false);
	for (uint32_t cipher = TPCK_SEAL_AES256_GCM; cipher <= TPCK_SEAL_CHACHA20_POLY1305; cipher <<= 1) {
		if (!(ciphers & cipher))
			continue;
		for (enum tpck_seal_level level = TPCK_SEAL_AUTH; level <= TPCK_SEAL_ENCRYPT; level++) {
			check_passing(level, cipher, false);
			check_passing(level, cipher, true);
			check_tampering(level, cipher);
		}
		check_order(cipher);
		check_room(cipher);
		check_others(cipher);
		check_ends(cipher);
	}
	close(wake);
	return tap_done();
}
