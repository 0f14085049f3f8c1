/* SPDX-License-Identifier: Apache-2.0 */
/* needs: cores=0.8 about=6s */
/* What a start pulls from peers that get lost, damage what they give and are slow, by chance: it is whole in the end, or nothing is, and no more comes than has to. */
#include "config.h"

#include "agent/copies/copies_private.h"
#include "agent/programs/identity_text.h"
#include "tests/unit/fake_network.h"
#include "tests/unit/rank_images.h"
#include "tests/unit/shm_room.h"

enum { PEERS = 5, ROUNDS = 40, STEP = 30 };

/* Another node: what it has, and what it was asked for and has not given yet. The network's thread, while a round is played. */
struct other {
	struct tpck_fragment fragment;
	bool lost, refuses, rotten; /* rotten: one chunk of its */
	unsigned rots;
	bool offers, slow;
	uint64_t transfer;
	struct tpck_peer_want want[200];
	size_t wants, given;
};

static struct other other[PEERS];
static _Atomic bool played;
static _Atomic unsigned pieces;
static unsigned drawn, seed; /* drawn: by the network */
static struct tpck_manifest *manifest;
static char *text;
static size_t text_size;

static unsigned chance(unsigned *state, unsigned of)
{
	*state = *state * 1103515245u + 12345u;
	return (*state >> 16) % of;
}

/* ---- the network --------------------------------------------------------------------------- */

static void network_said(unsigned node, const struct tpck_peer_message *head, const void *bytes, size_t count)
{
	struct other *o = &other[node];

	if (head->type == TPCK_PEER_GET) {
		o->offers = true;
		o->transfer = head->transfer;
	} else if (head->type == TPCK_PEER_WANT && head->transfer == o->transfer) {
		if (o->wants + count / sizeof *o->want > sizeof o->want / sizeof *o->want)
			abort();
		memcpy(o->want + o->wants, bytes, count);
		o->wants += count / sizeof *o->want;
	} else if (head->type == TPCK_PEER_HAVE || head->type == TPCK_PEER_FAIL) {
		o->wants = o->given = 0;
	}
}

static void lose(unsigned node)
{
	other[node].lost = true;
	other[node].wants = other[node].given = 0;
	network_lose_now(node);
}

/* A chunk comes in two pieces; between them the node may be lost. */
static void give(unsigned node)
{
	struct other *o = &other[node];
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
	head = network_head(TPCK_PEER_CHUNK, &head);
	place = network_place(node, &head, half);
	if (place) {
		memcpy(place, made, half);
		pieces++;
		network_arrived(node, &head, place, half, true);
	}
	head.offset = (uint32_t)half;
	place = network_place(node, &head, length - half);
	if (place) {
		bool broken = chance(&drawn, 60) == 0;

		if (!broken)
			memcpy(place, made + half, length - half);
		else
			lose(node);
		pieces++;
		network_arrived(node, &head, place, length - half, !broken);
	}
	free(bytes);
	free(made);
}

static bool turn(void)
{
	unsigned node = played ? chance(&drawn, PEERS) : 0;
	struct other *o = &other[node];

	if (!played)
		return false;
	if (o->lost || (o->slow && chance(&drawn, 8)))
		return true;
	if (o->offers) {
		const struct tpck_peer_message head = {.transfer = o->transfer, .fragment = o->fragment};
		static const char why[] = "it has no such copy any more";

		o->offers = false;
		o->refuses = chance(&drawn, 10) == 0;
		if (o->refuses)
			network_bring_now(node, TPCK_PEER_FAIL, &head, why, sizeof why);
		else
			network_bring_now(node, TPCK_PEER_OFFER, &head, text, text_size);
	} else if (o->given < o->wants) {
		give(node);
	} else {
		usleep(10);
	}
	return true;
}

static const char *name_of(unsigned node, char name[16])
{
	snprintf(name, 16, "node%u", node);
	return name;
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
	char name[16];
	bool there;
	int rc;

	for (unsigned i = 0; i < PEERS; i++)
		network_meet(i, name_of(i, name));
	for (unsigned i = 0; i < PEERS; i++) {
		other[i] = (struct other){.rotten = chance(&seed, 4) == 0, .rots = chance(&seed, 6), .slow = chance(&seed, 3) == 0};
		if (fragments)
			other[i].fragment = (struct tpck_fragment){3, 2, (uint16_t)i, 0};
		answers[i] = (struct ask_answer){.serial = network_serial(name_of(i, name)), .point = manifest->point, .fragment = other[i].fragment};
	}
	pieces = 0;
	drawn = seed;
	played = true;
	rc = pull_snapshot(&ask, answers, PEERS);
	played = false;
	for (unsigned i = 0; i < PEERS; i++)
		network_lose(i, name_of(i, name));
	outbox_deliver(peers.agent);
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
	network_turn = turn;
	network_begin(agent, &copies_cargo);
	fill(STEP, (letters){"abcd", "efgh", "ijkl"});
	manifest = describe(0, RANKS, RANKS);
	if (!manifest || tpck_manifest_format(manifest, &text, &text_size, &err))
		abort();
	check(false);
	if (tpck_erasure_can())
		check(true);
	network_end();
	ok(!copies_here.list && rmdir(home.folder) == 0, "nothing is left");
	tpck_manifest_free(manifest);
	free(text);
	free(agent);
	remove_sessions();
	return tap_done();
}
