/* SPDX-License-Identifier: Apache-2.0 */
/* needs: cores=0.8 about=6s */
/* What a start pulls from peers that get lost, damage what they give and are slow, by chance: it is whole in the end, or nothing is, and no more comes than has to. */
#include "config.h"

#include "agent/copies/copies_private.h"
#include "agent/programs/identity_text.h"
#include "tests/unit/rank_images.h"
#include "tests/unit/shm_room.h"

enum { PEERS = 5, ROUNDS = 40, STEP = 30 };

struct peers peers = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* Another node: what it has, and what it was asked for and has not given yet. */
struct other {
	struct peer peer; /* first */
	struct tpck_fragment fragment;
	bool lost, refuses, rotten; /* rotten: one chunk of its */
	unsigned rots;
	bool offers, slow;
	uint64_t transfer;
	struct tpck_peer_want want[200];
	size_t wants, given;
};

static struct other other[PEERS];
static struct errand *first_errand, **last_errand = &first_errand;
static pthread_mutex_t errands_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned drawn, seed, pieces; /* drawn: by the network */
static struct tpck_manifest *manifest;
static char *text;
static size_t text_size;
static uint64_t numbers;

static unsigned chance(unsigned *state, unsigned of)
{
	*state = *state * 1103515245u + 12345u;
	return (*state >> 16) % of;
}

/* ---- stand-ins for the rest of the agent ----------------------------------------------------- */

void peers_errand(struct errand *errand)
{
	pthread_mutex_lock(&errands_lock);
	errand->next = NULL;
	*last_errand = errand;
	last_errand = &errand->next;
	pthread_mutex_unlock(&errands_lock);
}

struct peer *peer_of_serial(uint64_t serial)
{
	return serial && serial <= PEERS && !other[serial - 1].lost ? &other[serial - 1].peer : NULL;
}

int peer_send(struct peer *peer, enum tpck_peer_type type, const struct tpck_peer_message *fields, const void *bytes, size_t count, void *token)
{
	struct other *o = (struct other *)peer;

	(void)fields;
	(void)bytes;
	(void)count;
	(void)token;
	if (type == TPCK_PEER_HAVE)
		o->wants = o->given = 0;
	return 0;
}

int peer_send_text(struct peer *peer, enum tpck_peer_type type, const struct tpck_peer_message *fields, const char *bytes, size_t count)
{
	struct other *o = (struct other *)peer;

	if (type == TPCK_PEER_GET) {
		o->offers = true;
		o->transfer = fields->transfer;
	} else if (type == TPCK_PEER_WANT && fields->transfer == o->transfer) {
		if (o->wants + count / sizeof *o->want > sizeof o->want / sizeof *o->want)
			abort();
		memcpy(o->want + o->wants, bytes, count);
		o->wants += count / sizeof *o->want;
	}
	return 0;
}

void peer_say_failed(struct peer *peer, uint64_t transfer, const char *why)
{
	struct other *o = (struct other *)peer;

	(void)transfer;
	(void)why;
	o->wants = o->given = 0;
}

size_t sending_twins(struct tpck_replica *replica, struct tpck_peer_want *want, size_t count, uint64_t *bytes)
{
	(void)replica;
	(void)want;
	*bytes = 0;
	return count;
}

uint64_t ask_number(void)
{
	return 1ull << 63 | ++numbers;
}

/* ---- the network --------------------------------------------------------------------------- */

static void lose(struct other *o)
{
	o->lost = true;
	o->wants = o->given = 0;
	pulling_gone(&o->peer);
}

/* A chunk comes in two pieces; between them the node may be lost. */
static void give(struct other *o)
{
	const struct tpck_peer_want at = o->want[o->given++];
	const struct tpck_member *member = &manifest->members[at.member];
	size_t whole = member->objects[at.object].chunks[at.chunk].length;
	size_t length = o->fragment.data ? tpck_fragment_bytes(&o->fragment, whole) : whole, half = length / 2;
	uint8_t *bytes = malloc(whole + 1), *made = malloc(length + 1);
	struct tpck_peer_message head = {.transfer = o->transfer, .member = at.member, .object = at.object, .chunk = at.chunk, .value = length,
					 .fragment = o->fragment};
	void *place;

	if (!bytes || !made)
		abort();
	read_chunk(member, &at, whole, bytes);
	if (o->fragment.data && tpck_erasure_cut(&o->fragment, bytes, whole, made))
		abort();
	if (!o->fragment.data)
		memcpy(made, bytes, length);
	tpck_digest128(made, length, head.digest);
	if (o->rotten && o->rots-- == 0)
		made[length / 3] ^= 1;
	if (pulling_place(&o->peer, &head, half, &place) && place) {
		memcpy(place, made, half);
		pieces++;
		pulling_arrived(&o->peer, place, half, true);
	}
	head.offset = (uint32_t)half;
	if (pulling_place(&o->peer, &head, length - half, &place) && place) {
		bool broken = chance(&drawn, 60) == 0;

		if (!broken)
			memcpy(place, made + half, length - half);
		else
			lose(o);
		pieces++;
		pulling_arrived(broken ? NULL : &o->peer, place, length - half, !broken);
	}
	free(bytes);
	free(made);
}

static _Atomic bool over;

static void *network(void *unused)
{
	(void)unused;
	while (!over) {
		struct errand *errand, *next;
		struct other *o = &other[chance(&drawn, PEERS)];

		pthread_mutex_lock(&errands_lock);
		errand = first_errand;
		first_errand = NULL;
		last_errand = &first_errand;
		pthread_mutex_unlock(&errands_lock);
		for (; errand; errand = next) {
			next = errand->next;
			errand->run(errand);
		}
		if (o->lost || (o->slow && chance(&drawn, 8)))
			continue;
		if (o->offers) {
			struct tpck_peer_message head = {.transfer = o->transfer, .fragment = o->fragment};

			o->offers = false;
			o->refuses = chance(&drawn, 10) == 0;
			if (o->refuses)
				pulling_fail(&o->peer, o->transfer, "it has no such copy any more");
			else
				pulling_offer(&o->peer, &head, text, text_size);
		} else if (o->given < o->wants) {
			give(o);
		} else {
			usleep(10);
		}
	}
	return NULL;
}

/* ---- what comes of it ------------------------------------------------------------------------ */

static bool is_same(const struct tpck_point *point, bool *there)
{
	unsigned slot;
	struct copy *copy = copy_pin(session[0]->identity, 0, 0, point, &slot);
	bool same = true;

	*there = copy != NULL;
	for (uint32_t r = 0; copy && r < RANKS; r++) {
		struct tpck_image copied = {0};
		char path[512];

		tpck_replica_image_path(copy->replica, &copy->replica->slot[slot]->members[r], slot, path, sizeof path);
		same = same && tpck_replica_fill(copy->replica, slot, &err) == 0 && tpck_image_open(&copied, path, false, &err) == 0 &&
		       tpck_image_check_chunks(&copied, path, false, &err) == 0 &&
		       memcmp(tpck_image_data(&copied), tpck_image_data(&image[r]), BYTES) == 0;
		tpck_image_close(&copied);
	}
	if (copy)
		copy_discard(copy, slot);
	return same;
}

/* How many that are left could give it all. */
static unsigned good_ones(void)
{
	unsigned good = 0;

	for (unsigned i = 0; i < PEERS; i++)
		good += !other[i].lost && !other[i].refuses && !other[i].rotten;
	return good;
}

static void round_of(bool fragments, unsigned *got, unsigned *wrong, unsigned *given_up, unsigned *most)
{
	struct ask ask = {.identity = session[0]->identity};
	struct ask_answer answers[PEERS];
	unsigned needed = fragments ? 3 : 1;
	pthread_t thread;
	bool there;
	int rc;

	for (unsigned i = 0; i < PEERS; i++) {
		other[i] = (struct other){.peer = {.serial = i + 1, .state = PEER_KNOWN}, .rotten = chance(&seed, 4) == 0, .rots = chance(&seed, 6), .slow = chance(&seed, 3) == 0};
		if (fragments)
			other[i].fragment = (struct tpck_fragment){3, 2, (uint16_t)i, 0};
		answers[i] = (struct ask_answer){.serial = i + 1, .point = manifest->point, .fragment = other[i].fragment};
	}
	pieces = 0;
	drawn = seed;
	over = false;
	if (pthread_create(&thread, NULL, network, NULL))
		abort();
	rc = pull_snapshot(&ask, answers, PEERS);
	over = true;
	pthread_join(thread, NULL);
	if (!is_same(&manifest->point, &there) || there != (rc == 0))
		++*wrong;
	*got += rc == 0;
	*given_up += rc && good_ones() >= needed;
	*most = pieces > *most ? pieces : *most;
	copies_here_drop_left(NULL, 0, 0);
}

static void check(bool fragments)
{
	unsigned got = 0, wrong = 0, given_up = 0, most = 0, chunks = RANKS * (CHUNKS + 2);
	char what[200];

	for (seed = 1; seed <= ROUNDS;) {
		unsigned this = seed;

		seed = this * 7919u;
		round_of(fragments, &got, &wrong, &given_up, &most);
		seed = this + 1;
	}
	snprintf(what, sizeof what, "%s: %u of %u got through, all of them right", fragments ? "fragments" : "whole", got, (unsigned)ROUNDS);
	ok(got >= ROUNDS / 3 && got < ROUNDS + 1 && !wrong, what);
	snprintf(what, sizeof what, "%s: none was given up where there were enough (%u)", fragments ? "fragments" : "whole", given_up);
	ok(!given_up, what);
	snprintf(what, sizeof what, "%s: %u pieces of %u chunks came at most", fragments ? "fragments" : "whole", most, chunks);
	ok(most <= (fragments ? 5 : 2) * 2 * chunks, what);
}

int main(void)
{
	struct agent *agent = calloc(1, sizeof *agent);

	tap_need_shm(256);
	setenv("TRANSPCKPT_LOG", "none", 1);
	if (!agent)
		return 1;
	make_sessions();
	snprintf(home.folder, sizeof home.folder, "%s", tap_folder("/dev/shm"));
	home.settings.memory = UINT64_MAX / 2;
	peers.agent = agent;
	peers.on = true;
	fill(STEP, (letters){"abcd", "efgh", "ijkl"});
	manifest = describe(0, RANKS, RANKS);
	if (!manifest || tpck_manifest_format(manifest, &text, &text_size, &err))
		abort();
	check(false);
	if (tpck_erasure_can())
		check(true);
	ok(!copies_here.list && rmdir(home.folder) == 0, "nothing is left");
	tpck_manifest_free(manifest);
	free(text);
	free(agent);
	remove_sessions();
	return tap_done();
}
