/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent keeps of other nodes' snapshots: of parts of a launch, of two steps of each; what stays, and what goes. */
#include "config.h"

#include <sys/stat.h>

#include "agent/copies/copies_private.h"
#include "agent/programs/identity_text.h"
#include "tests/unit/fake_network.h"
#include "tests/unit/rank_images.h"
#include "tests/unit/shm_room.h"

/* Another node's agent, whom a snapshot may be asked for: it has none, or offers one. */
static _Atomic unsigned asked, broken;
static char *offered;
static size_t offered_size;

static void network_said(unsigned node, const struct tpck_peer_message *head, const void *bytes, size_t count)
{
	static const char why[] = "it has none";

	(void)bytes;
	(void)count;
	if (head->type != TPCK_PEER_GET)
		return;
	asked++;
	if (broken)
		network_bring(node, TPCK_PEER_FAIL, head, why, sizeof why);
	else
		network_bring(node, TPCK_PEER_OFFER, head, offered, offered_size);
}

/* ---- what comes --------------------------------------------------------------------------- */

static void snapshot(uint64_t of, uint64_t step)
{
	char changing[] = "abca";

	changing[3] = (char)('d' + step % 20);
	generation = of;
	fill(step, (letters){changing, "efgh", changing});
}

static int receive(struct copy *copy, struct tpck_manifest *manifest)
{
	struct tpck_peer_want *want;
	size_t size, count;
	char *text;
	int rc;

	if (tpck_manifest_format(manifest, &text, &size, &err))
		abort();
	rc = tpck_replica_begin(copy->replica, manifest, text, size, copy->to, &want, &count, &err);
	for (size_t i = 0; !rc && i < count; i++)
		rc = bring(copy->replica, &want[i], false);
	free(want);
	if (!rc)
		rc = tpck_replica_finish(copy->replica, &err);
	copy_filled(copy, rc == 0);
	return rc;
}

/* The snapshot of some ranks of three comes, whether it was asked for or not, and whatever its owner would keep. */
static int take(uint32_t first, size_t ranks, uint64_t of, uint64_t step, uint64_t keep, bool wanted)
{
	struct tpck_manifest *manifest;
	struct copy *copy;
	int rc;

	snapshot(of, step);
	manifest = describe(first, ranks, RANKS);
	rc = copy_for(manifest, &(struct tpck_fragment){0}, "owner", keep ? keep + 1 : 0, wanted, &copy, &err);
	if (!rc)
		return receive(copy, manifest);
	tpck_manifest_free(manifest);
	return rc;
}

/* The steps of a generation that are held of a rank, in any order; 0: none. */
static bool holds(uint32_t rank, uint64_t of, uint64_t one, uint64_t other)
{
	char form[IDENTITY_FORM];
	struct copies_held *rows;
	size_t count, found = 0;
	bool good = true;

	identity_form(session[rank]->identity, form);
	count = copies_held(form, sizeof form, &rows);
	for (size_t i = 0; i < count; i++) {
		if (rows[i].rank != rank || rows[i].point.generation != of)
			continue;
		found++;
		good = good && rows[i].form == 0 && rows[i].ordinal == 0 && rows[i].resumable &&
		       (rows[i].point.step == one || rows[i].point.step == other);
	}
	free(rows);
	return good && found == (one != 0) + (size_t)(other != 0);
}

static struct copy *pin(uint32_t rank, uint64_t of, uint64_t step, unsigned *slot)
{
	struct tpck_point point = {of, step};

	return copy_pin(session[rank]->identity, rank, 0, of ? &point : NULL, slot);
}

/* ---- checks ------------------------------------------------------------------------------- */

/* A copy's owner, which lives and has copies elsewhere now, says that it may go in the moment in which a start here goes on from it. */
static void check_wanted(void)
{
	struct tpck_point point = {4, 50};
	struct tpck_manifest *manifest;
	struct copy *coming, *pinned;
	unsigned slot;

	snapshot(4, 50);
	manifest = describe(1, 2, RANKS);
	copies_here_want(session[2]->identity, 2, 0, &point);
	ok(copy_for(manifest, &(struct tpck_fragment){0}, "owner", 0, true, &coming, &err) == 0, "a start gets a copy");
	copies_here_drop(session[2]->identity, 4);
	ok(receive(coming, manifest) == 0, "which comes, though its owner says meanwhile that it may go");
	pinned = pin(1, 4, 50, &slot);
	ok(pinned && copies_get("nobody", session[2]->identity, 2, 0, &point, &err) == 0, "it can be gone on from");
	if (pinned)
		copy_unpin(pinned, slot);
	ok(take(1, 2, 4, 50, 0, true) == -EALREADY, "and need not come again");
	pinned = pin(1, 4, 50, &slot);
	copies_here_want_none();
	ok(pinned && pinned->slot[slot].pins == 1 && !pin(1, 4, 50, &slot), "behind the start nobody else can");
	if (pinned)
		copy_unpin(pinned, slot);
	ok(holds(1, 4, 0, 0) && take(1, 2, 4, 50, 0, true) == 0, "and it goes with who reads it");
	copies_here_want(session[2]->identity, 2, 0, &point);
	pinned = pin(1, 4, 50, &slot);
	if (!pinned)
		abort();
	copy_discard(pinned, slot);
	ok(!pin(1, 4, 50, &slot), "one that is bad goes, whoever wants it");
	copies_here_want_none();
}

static void check_steps(void)
{
	struct copy *pinned;
	unsigned slot;

	ok(take(0, 1, 5, 10, 0, false) == 0 && take(1, 2, 5, 10, 0, false) == 0, "two parts of a launch are kept");
	ok(holds(0, 5, 10, 0) && holds(1, 5, 10, 0) && holds(2, 5, 10, 0), "and known by each of their ranks");
	ok(take(0, 2, 5, 11, 0, false) == -EEXIST, "what has ranks of both is neither");
	ok(take(1, 2, 5, 11, 0, false) == 0 && holds(2, 5, 10, 11), "two steps are there");
	ok(take(1, 2, 5, 11, 0, false) == -EALREADY && take(1, 2, 5, 10, 0, false) == -EALREADY, "neither has to come again");
	ok(take(1, 2, 5, 12, 10, false) == 0 && holds(2, 5, 10, 12), "what its owner would keep stays, though it is older");
	ok(take(1, 2, 5, 13, 0, false) == 0 && holds(2, 5, 12, 13), "else the newer one does");
	pinned = pin(2, 5, 12, &slot);
	ok(pinned && take(1, 2, 5, 14, 13, false) == -EBUSY && holds(2, 5, 12, 13), "nothing comes where all that is there is read or kept");
	copy_unpin(pinned, slot);
	pinned = pin(1, 5, 13, &slot);
	ok(pinned && take(1, 2, 5, 14, 13, false) == 0 && holds(1, 5, 13, 14), "but in the other place it does");
	copy_unpin(pinned, slot);
	ok(take(1, 2, 5, 9, 0, false) == -ESTALE, "an older one is not taken");
	ok(take(1, 2, 5, 9, 0, true) == 0 && holds(1, 5, 9, 14), "unless it was asked for");
	ok(!pin(0, 0, 0, &slot), "the part of a launch is not the newest of one node's");
	ok(copies_get("nobody", session[2]->identity, 2, 0, &(struct tpck_point){5, 9}, &err) == 0 &&
		   copies_get("nobody", session[2]->identity, 2, 0, &(struct tpck_point){5, 10}, &err) == -ENOENT,
	   "what is here need not be got");
	copies_got();
}

/* A copy that comes by itself is on its way, and is there a moment after it is asked for. */
static struct copy *on_its_way;
static struct tpck_manifest *to_come;

static void *come(void *unused)
{
	(void)unused;
	usleep(150000);
	if (receive(on_its_way, to_come))
		abort();
	return NULL;
}

static void check_busy(void)
{
	struct tpck_point point = {5, 15};
	pthread_t thread;

	network_meet(0, "there");
	snapshot(5, 15);
	to_come = describe(1, 2, RANKS);
	if (tpck_manifest_format(to_come, &offered, &offered_size, &err))
		abort();
	ok(copy_for(to_come, &(struct tpck_fragment){0}, "owner", 0, false, &on_its_way, &err) == 0, "a copy is on its way");
	broken = 1;
	ok(copies_get("there", session[2]->identity, 2, 0, &point, &err) == -ENOENT && asked == 1, "one that cannot be had is asked for once");
	broken = 0;
	if (pthread_create(&thread, NULL, come, NULL))
		abort();
	ok(copies_get("there", session[2]->identity, 2, 0, &point, &err) == 0 && asked == 2 && holds(2, 5, 14, 15) && peers_has("there"),
	   "one that comes by itself is waited for");
	pthread_join(thread, NULL);
	copies_got();
	network_lose(0, "there");
	free(offered);
}

static void check_generations(void)
{
	unsigned slot;
	struct copy *copy;

	ok(take(1, 2, 6, 20, 0, false) == 0 && holds(1, 6, 20, 0) && holds(1, 5, 14, 15), "a part of a newer start leaves the older ones alone");
	copies_here_drop(session[2]->identity, 5);
	ok(holds(1, 6, 20, 0) && holds(1, 5, 0, 0) && holds(0, 5, 10, 0), "until it is said that they may go");
	ok(take(0, 3, 7, 30, 0, false) == 0 && holds(0, 5, 0, 0) && holds(2, 6, 0, 0) && holds(2, 7, 30, 0), "all ranks of a newer one need nothing older");
	copy = pin(0, 0, 0, &slot);
	ok(copy && copy->slot[slot].point.step == 30, "which is the newest of one node's");
	if (copy)
		copy_unpin(copy, slot);
}

static void check_candidates(void)
{
	struct offer_request requests[RANKS] = {0};
	struct tpck_point point = {8, 41};
	struct tpck_manifest *manifest;
	struct copy *coming;
	bool all = true;

	for (uint64_t step = 40; step < 43; step++)
		if (take(0, 1, 8, step, 41, false) || take(1, 2, 8, step, 41, false))
			abort();
	for (uint32_t r = 0; r < RANKS; r++)
		requests[r] = (struct offer_request){.identity = session[r]->identity, .rank = r};
	copies_candidates_at(requests, RANKS, &point);
	for (uint32_t r = 0; r < RANKS; r++)
		all = all && requests[r].memory_count == 1 && tpck_point_compare(&requests[r].memory[0].point, &point) == 0 &&
		      !requests[r].memory[0].identity_differs && access(requests[r].memory[0].image_path, R_OK) == 0;
	ok(all, "the ranks find their parts of the step that they ask for");
	ok(take(0, 1, 8, 43, 42, false) == -EBUSY, "which stay meanwhile");
	/* The first of its ranks: the other one's pin must be gone before its own. */
	requests[1].memory[0].bad = true;
	snapshot(8, 43);
	manifest = describe(1, 2, RANKS);
	ok(copy_for(manifest, &(struct tpck_fragment){0}, "owner", 42, false, &coming, &err) == 0, "the next comes beside it");
	tpck_manifest_free(manifest);
	ok(copies_release(requests, RANKS), "one is bad");
	ok(holds(1, 8, 0, 0) && holds(2, 8, 0, 0) && holds(0, 8, 41, 42), "its part goes, and no other");
	ok(take(1, 2, 8, 41, 0, true) == 0, "and may come again, though what was coming is not over");
	copy_filled(coming, false);
	for (uint32_t r = 0; r < RANKS; r++)
		free(requests[r].memory);
}

static void check_again(void)
{
	char stray[TPCK_PATH_MAX];

	snprintf(stray, sizeof stray, "%.500s/copy.g8.r7.o0", home.folder);
	mkdir(stray, 0700);
	/* Twice: one may forget what it has just found. */
	for (int i = 0; i < 2; i++) {
		copies_here_close();
		ok(holds(0, 8, 0, 0), "the agent goes");
		copies_here_find();
	}
	ok(holds(0, 8, 41, 42) && holds(2, 8, 41, 0) && holds(2, 7, 30, 0), "the next one finds all");
	ok(access(stray, F_OK) != 0, "and removes what belongs to nothing");
	for (uint32_t r = 0; r < RANKS; r++)
		copies_here_drop(session[r]->identity, 8);
	ok(!copies_here.list && rmdir(home.folder) == 0, "what nobody needs leaves nothing");
}

/* ---- fragments ---------------------------------------------------------------------------- */

/* A snapshot's fragment comes; where it is `wrong` it was made of something else, as its digest, and only that of the whole chunk tells. */
static int take_made(uint16_t index, uint64_t of, uint64_t step, uint64_t keep, bool wrong)
{
	struct tpck_fragment fragment = {2, 1, index, 0};
	struct tpck_manifest *manifest;
	struct copy *copy;
	int rc;

	snapshot(of, step);
	manifest = describe(0, RANKS, RANKS);
	rc = copy_for(manifest, &fragment, "owner", keep ? keep + 1 : 0, false, &copy, &err);
	/* In what the second of two fragments has of the last chunk. */
	if (wrong)
		tpck_image_data(&image[0])[3 * TPCK_CHUNK_BYTES + 4000] ^= 1;
	if (!rc)
		rc = receive(copy, manifest);
	else
		tpck_manifest_free(manifest);
	snapshot(of, step);
	return rc;
}

static int take_fragment(uint16_t index, uint64_t of, uint64_t step, uint64_t keep)
{
	return take_made(index, of, step, keep, false);
}

static size_t told(uint64_t of, uint64_t step)
{
	size_t count, found = 0;
	struct tpck_peer_told *rows = copies_here_pieces(session[1]->identity, 1, 0, &count);

	for (size_t i = 0; i < count; i++)
		found += rows[i].generation == of && rows[i].step == step && !rows[i].part;
	free(rows);
	return found;
}

/* Changes a byte of a fragment that is here, of each chunk's. */
static bool rot(uint16_t index, uint64_t step, size_t chunk)
{
	struct tpck_fragment fragment = {2, 1, index, 0};
	struct tpck_point point = {9, step};
	unsigned slot;
	struct copy *copy = copy_pin_fragment(session[0]->identity, 0, 0, &point, &fragment, &slot);
	char path[TPCK_PATH_MAX];
	bool done = false;
	int fd;

	if (!copy)
		return false;
	snprintf(path, sizeof path, "%.500s/fragment.2+1.%u.g9.r0.o0/part.%u.1", home.folder, index, slot);
	fd = open(path, O_RDWR);
	if (fd >= 0) {
		done = pwrite(fd, "?", 1, (off_t)(chunk * TPCK_CHUNK_BYTES / 2 + 7)) == 1;
		close(fd);
	}
	copy_unpin(copy, slot);
	return done;
}

static bool gathers(uint64_t step)
{
	struct tpck_point point = {9, step};
	bool got = copies_gather(session[1]->identity, 1, 0, &point, &err) == 0;
	unsigned slot;
	struct copy *copy = copy_pin(session[1]->identity, 1, 0, &point, &slot);
	bool same = copy != NULL;

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
	return got && same;
}

static void check_fragments(void)
{
	ok(take_fragment(0, 9, 60, 0) == 0 && take_fragment(0, 9, 61, 60) == 0 && told(9, 60) == 1 && told(9, 61) == 1,
	   "fragments: two steps of one are kept, and told of");
	ok(take_fragment(0, 9, 62, 60) == 0 && told(9, 60) == 1 && told(9, 61) == 0 && told(9, 62) == 1,
	   "fragments: the step stays of which enough are elsewhere");
	ok(!gathers(62) && strstr(err.text, "too few"), "fragments: one is not enough");
	ok(take_fragment(1, 9, 62, 60) == 0 && told(9, 62) == 2 && told(9, 60) == 1, "fragments: another one beside it");
	ok(gathers(62), "fragments: of two the snapshot is put together");
	ok(rot(1, 62, 0) && !gathers(62) && strstr(err.text, "has 1 good fragments of 2"), "fragments: with one of them rotten it is not");
	ok(take_fragment(2, 9, 62, 60) == 0 && gathers(62), "fragments: but with a third one it is");
	ok(rot(2, 62, 1) && gathers(62), "fragments: though that is bad elsewhere");
	ok(take_fragment(2, 9, 63, 62) == 0 && told(9, 62) == 3, "fragments: others than the owner gives now stay while their step is to");
	ok(take_fragment(2, 9, 64, 63) == 0 && told(9, 62) == 0 && told(9, 63) == 1 && told(9, 64) == 1, "fragments: and go then");
	ok(take(0, 3, 9, 65, 64, false) == 0 && told(9, 64) == 1 && take(0, 3, 9, 66, 65, false) == 0 && told(9, 64) == 0,
	   "fragments: so it is where the owner turns to whole copies");
	ok(take_fragment(0, 9, 67, 66) == 0 && take_made(1, 9, 67, 66, true) == 0 && !gathers(67) && strstr(err.text, "whichever of 2 fragments"),
	   "fragments: one that was made wrong gives nothing");
	ok(take_fragment(2, 9, 67, 66) == 0 && gathers(67), "fragments: until there are others to choose from");
	copies_here_drop(session[0]->identity, 9);
	ok(take_fragment(2, 9, 67, 66) == 0 && take_fragment(2, 10, 70, 0) == 0 && told(9, 67) == 1 && told(10, 70) == 1,
	   "fragments: that of a newer start leaves older ones alone");
	copies_here_close();
	ok(told(10, 70) == 0, "fragments: the agent goes");
	copies_here_find();
	ok(told(9, 67) == 1 && told(10, 70) == 1, "fragments: the next one finds them");
	for (uint32_t r = 0; r < RANKS; r++)
		copies_here_drop(session[r]->identity, 10);
	ok(!copies_here.list && rmdir(home.folder) == 0, "fragments: and they go, and leave nothing");
}

static bool alike(const char *a, const char *b)
{
	char forms[2 * IDENTITY_FORM];

	identity_form("user 0\nrank 9\nargument z\n", forms);
	identity_form(b, forms + IDENTITY_FORM);
	return identity_form_among(a, forms, sizeof forms) == 1;
}

static void forms(void)
{
	const char *one = "user 0\njob j\nrank 3\nordinal 0\nargument a\n";

	ok(alike(one, one) && alike(one, "user 0\njob j\nrank 12\nordinal 0\nargument a\n"), "ranks of one launch have one form");
	ok(!alike(one, "user 0\njob j\nrank 3\nordinal 0\nargument b\n") && !alike(one, "user 1\njob j\nrank 3\nordinal 0\nargument a\n") &&
		   !alike(one, "user 0\njob j\nordinal 0\nargument a\n"),
	   "another program has another");
	ok(!alike("user 0\nrank 3\nargument a\n", "user 0\nargument a\nrank 3\n"), "the line's place counts");
}

int main(void)
{
	struct agent *agent = calloc(1, sizeof *agent);

	tap_need_shm(256);
	if (!agent)
		return 1;
	forms();
	make_sessions();
	snprintf(home.folder, sizeof home.folder, "%s", tap_folder("/dev/shm"));
	home.settings.peers.count = 1;
	home.settings.memory = UINT64_MAX / 2;
	network_begin(agent, &copies_cargo);
	check_wanted();
	check_steps();
	check_busy();
	check_generations();
	check_candidates();
	check_again();
	snprintf(home.folder, sizeof home.folder, "%s", tap_folder("/dev/shm"));
	if (tpck_erasure_can())
		check_fragments();
	network_end();
	remove_sessions();
	free(agent);
	return tap_done();
}
