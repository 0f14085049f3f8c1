/* SPDX-License-Identifier: Apache-2.0 */
/* Copies on other nodes: when one is sent and to whom, who is told, what another node's start gets of what died here. */
#include "config.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/copies/copies_private.h"
#include "agent/loop/trouble.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/peer/placement.h"
#include "runtime/peer/twins.h"
#include "runtime/store/publish.h"

/* Others may not be there yet. */
#define EARLY_NS 10000000000ull

/* What is known of the copies elsewhere of what a launch has here. The event loop's. */
struct owned {
	struct tpck_session_name name; /* of its first rank's session */
	uint32_t ranks;
	bool sending, again;
	struct parcel *parcel;     /* that is being sent */
	unsigned holders;
	struct holder {
		char host[TPCK_PEER_NAME];
		uint64_t step;
		struct tpck_fragment fragment; /* of it */
	} holder[PARCEL_TARGETS];
	/* One more than the newest step that can be had from those who hold it; 0: none yet. */
	uint64_t recoverable;
	/* The step that all have who are to: of a launch on several nodes, on all of these. */
	bool settled_any, settle;  /* the peers are to be told when nothing is on its way any more */
	uint64_t settled;
	uint64_t marked_met;       /* how many others had been met when they were told of the program */
	char told[PARCEL_TARGETS * TPCK_PEER_NAME]; /* holders at the last DROP to the others */
	uint64_t told_met; /* and how many others had been met */
	struct owned *next;
};

static struct owned *owned_list;

/* What the ranks here had in the last round, for copies of others' that come. The courier's. */
static struct {
	pthread_mutex_t lock;  /* the courier makes them, and starts use them, too */
	struct tpck_twins *all;
} twins = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- sending ------------------------------------------------------------------------------ */

static uint32_t ranks_here(const struct launch *launch)
{
	uint32_t count = 0, at = 0;

	while (launch_next(launch, &at))
		count++;
	return count;
}

/* None that is new but for a launch that has ranks here. */
static struct owned *owned_of(const struct launch *launch)
{
	struct owned *owned = owned_list;

	while (owned && owned->name.generation != launch->generation)
		owned = owned->next;
	if (owned)
		return owned;
	owned = calloc(1, sizeof *owned);
	if (owned) {
		owned->name = launch_first(launch)->session->name;
		owned->ranks = ranks_here(launch);
		owned->next = owned_list;
		owned_list = owned;
	}
	return owned;
}

/* Whether so many who have it are enough. As copies are counted: how many of them may be lost, and it is there no more. */
static unsigned copies_of(const struct parcel *parcel)
{
	unsigned has = 0, data = parcel->targets ? parcel->fragment[0].data : 0;

	for (unsigned i = 0; i < parcel->targets; i++)
		has += parcel->has[i];
	if (!data)
		return has;
	return has >= data && !parcel->damaged ? has - data + 1 : 0;
}

/* Which fragment each gets. Who has one already gets the same of the next step: what did not change is there. */
static void assign_fragments(struct parcel *parcel, const struct owned *owned, const struct tpck_fragment *code)
{
	bool taken[TPCK_FRAGMENTS_MAX] = {false}, done[PARCEL_TARGETS] = {false};
	uint16_t index = 0;

	for (unsigned i = 0; i < parcel->targets; i++)
		for (unsigned h = 0; owned && h < owned->holders && !done[i]; h++) {
			const struct tpck_fragment *had = &owned->holder[h].fragment;

			if (strcmp(owned->holder[h].host, parcel->hosts[i]) != 0 || had->data != code->data || had->parity != code->parity ||
			    taken[had->index])
				continue;
			parcel->fragment[i] = *had;
			taken[had->index] = done[i] = true;
		}
	for (unsigned i = 0; i < parcel->targets; i++) {
		while (!done[i] && taken[index])
			index++;
		if (done[i])
			continue;
		parcel->fragment[i] = *code;
		parcel->fragment[i].index = index;
		taken[index] = true;
	}
}

/* As many fragments as TRANSPCKPT_PEERS says where there are as many nodes, else as many copies as survive the same. */
static size_t how_many(size_t nodes, struct tpck_fragment *code)
{
	const struct tpck_copies *copies = &home.settings.peers;

	*code = (struct tpck_fragment){0};
	if (!copies->data || !tpck_erasure_can() || nodes < copies->data + copies->parity)
		return copies->count < PARCEL_TARGETS ? copies->count : PARCEL_TARGETS;
	*code = (struct tpck_fragment){(uint16_t)copies->data, (uint16_t)copies->parity, 0, 0};
	return copies->data + copies->parity;
}

static void complain_of_nodes(const struct parcel *parcel, size_t nodes)
{
	const struct tpck_copies *copies = &home.settings.peers;
	struct tpck_error err = {0};

	if (parcel->targets && parcel->fragment[0].data)
		return;
	if (copies->data && !tpck_erasure_can())
		tpck_error_set(&err, 0, "TRANSPCKPT_PEERS is %u+%u, but this agent was built without ISA-L: %u whole copies instead of fragments, where %llu survive as much",
			       copies->data, copies->parity, parcel->targets, (unsigned long long)copies->count);
	else if (copies->data)
		tpck_error_set(&err, 0, "TRANSPCKPT_PEERS is %u+%u, but agents of %zu other nodes are there: %u whole copies instead of fragments, where %llu survive as much",
			       copies->data, copies->parity, nodes, parcel->targets, (unsigned long long)copies->count);
	else if (parcel->targets < copies->count)
		tpck_error_set(&err, 0, "TRANSPCKPT_PEERS is %llu, but agents of %zu other nodes are there: %u copies",
			       (unsigned long long)copies->count, nodes, parcel->targets);
	if (err.text[0])
		trouble_complain(&err);
}

/* Those of the peers that are to have a copy, each node once. */
static void choose(struct parcel *parcel, const struct owned *owned)
{
	enum { MOST = 256 };
	struct tpck_place places[MOST];
	uint64_t serials[MOST];
	size_t count = 0, chosen[PARCEL_TARGETS];
	const struct live *first = parcel->part[0].live;
	struct tpck_fragment code;
	char key[64];

	snprintf(key, sizeof key, "%s r%u.o%u", first->program ? first->program->id : "", first->session->name.rank,
		 first->session->name.ordinal);
	pthread_mutex_lock(&peers.lock);
	for (struct peer *peer = peers.list; peer && count < MOST; peer = peer->next) {
		bool there = peer->state != PEER_KNOWN;

		for (size_t i = 0; i < count && !there; i++)
			there = strcmp(places[i].host, peer->other.host) == 0;
		if (there)
			continue;
		serials[count] = peer->serial;
		places[count++] = (struct tpck_place){peer->other.host, peer->other.domain};
	}
	parcel->targets = (unsigned)tpck_placement(places, count, peers.domain, key, how_many(count, &code), chosen);
	for (unsigned i = 0; i < parcel->targets; i++) {
		parcel->target[i] = serials[chosen[i]];
		snprintf(parcel->hosts[i], TPCK_PEER_NAME, "%s", places[chosen[i]].host);
	}
	pthread_mutex_unlock(&peers.lock);
	if (code.data)
		assign_fragments(parcel, owned, &code);
	if (tpck_clock_monotonic_ns() > peers.begun_ns + EARLY_NS)
		complain_of_nodes(parcel, count);
}

struct drop_errand {
	struct errand errand; /* first */
	uint64_t generation;
	bool ended, mark_only;
	char to[TPCK_PEER_NAME]; /* a node; "": all */
	char but[PARCEL_TARGETS * TPCK_PEER_NAME]; /* hosts that keep theirs, each with a line break behind it */
	char identity[];
};

static void drop_run(struct errand *errand)
{
	struct drop_errand *drop = (struct drop_errand *)errand;
	struct tpck_peer_message head = {.generation = drop->generation, .value = drop->ended}, older = head;
	char line[TPCK_PEER_NAME + 1];

	older.generation--;
	for (struct peer *peer = peers.list; peer; peer = peer->next) {
		if (peer->state != PEER_KNOWN || (drop->to[0] && strcmp(peer->other.node, drop->to) != 0))
			continue;
		snprintf(line, sizeof line, "%s\n", peer->other.host);
		if (!drop->ended)
			(void)peer_send_text(peer, TPCK_PEER_MARK, &head, drop->identity, strlen(drop->identity) + 1);
		if (!drop->mark_only)
			(void)peer_send_text(peer, TPCK_PEER_DROP, strstr(drop->but, line) ? &older : &head, drop->identity,
					     strlen(drop->identity) + 1);
	}
	free(drop);
}

static struct drop_errand *drop_new(const char *identity, uint64_t generation)
{
	struct drop_errand *drop = calloc(1, sizeof *drop + strlen(identity) + 1);

	if (drop) {
		drop->errand.run = drop_run;
		drop->generation = generation;
		strcpy(drop->identity, identity);
	}
	return drop;
}

static void mark_at(const char *node, const char *identity)
{
	struct drop_errand *drop = drop_new(identity, 0);

	if (!drop)
		return;
	drop->mark_only = true;
	snprintf(drop->to, sizeof drop->to, "%s", node);
	peers_errand(&drop->errand);
}

/* All may have died before it came. */
void sending_met(struct agent *agent, const char *node)
{
	char *copies;
	size_t size;

	for (const struct live *live = agent->lives; live; live = live->next)
		if (live->life != LIFE_GONE && live->newest >= 0)
			mark_at(node, live->session->identity);
	copies = copies_here_identities(&size);
	for (size_t at = 0; copies && at < size; at += strlen(copies + at) + 1)
		mark_at(node, copies + at);
	free(copies);
}

/* Tells the peers that the programs of the ranks that are here have copies: a start there looks for its own mark. */
static void mark(struct owned *owned, const struct launch *launch, uint64_t met)
{
	const struct live *live;
	uint32_t at = 0;

	while ((live = launch_next(launch, &at))) {
		struct drop_errand *drop = drop_new(live->session->identity, launch->generation);

		if (!drop)
			continue;
		drop->mark_only = true;
		peers_errand(&drop->errand);
	}
	owned->marked_met = met;
}

/* Who has nothing of what is settled need not keep what it had of this generation, and nobody what was before it. */
static void settle(struct owned *owned, const struct launch *launch, uint64_t met)
{
	char now[sizeof owned->told] = "";
	uint64_t newest = 0;
	unsigned left = 0;
	const struct live *live;
	uint32_t at = 0;

	for (unsigned i = 0; i < owned->holders; i++)
		if (owned->holder[i].step > newest)
			newest = owned->holder[i].step;
	if (owned->recoverable && newest >= owned->recoverable)
		newest = owned->recoverable - 1;
	for (unsigned i = 0; i < owned->holders; i++) {
		/* Where nobody took that step, an older copy is better than none. */
		if (owned->holder[i].step < owned->settled && owned->holder[i].step < newest)
			continue;
		owned->holder[left++] = owned->holder[i];
		snprintf(now + strlen(now), sizeof now - strlen(now), "%s\n", owned->holder[i].host);
	}
	owned->holders = left;
	owned->settle = false;
	/* What was before is all that there is elsewhere. */
	if (!left)
		return;
	/* Who has come since is to hear of the program, too: without a folder that all see, a start there looks for its mark. */
	if (strcmp(now, owned->told) == 0 && met == owned->told_met)
		return;
	memcpy(owned->told, now, sizeof now);
	owned->told_met = met;
	while ((live = launch_next(launch, &at))) {
		const char *identity = live->session->identity;
		struct drop_errand *drop = drop_new(identity, launch->generation);

		if (!drop)
			continue;
		memcpy(drop->but, now, sizeof now);
		peers_errand(&drop->errand);
		copies_here_drop(identity, launch->generation - 1);
	}
}

static uint64_t others_met(void)
{
	uint64_t met;

	pthread_mutex_lock(&peers.lock);
	met = peers.met;
	pthread_mutex_unlock(&peers.lock);
	return met;
}

static void note_holder(struct owned *owned, const char *host, uint64_t step, const struct tpck_fragment *fragment)
{
	unsigned i = 0, oldest = 0;

	for (; i < owned->holders && strcmp(owned->holder[i].host, host) != 0; i++)
		if (owned->holder[i].step < owned->holder[oldest].step)
			oldest = i;
	if (i == owned->holders && i < PARCEL_TARGETS)
		owned->holders++;
	else if (i == owned->holders)
		i = oldest;
	snprintf(owned->holder[i].host, sizeof owned->holder[i].host, "%s", host);
	owned->holder[i].step = step;
	owned->holder[i].fragment = *fragment;
}

static void note_holders(struct owned *owned, const struct parcel *parcel)
{
	uint64_t step = parcel->manifest->point.step, met = others_met();
	bool all = parcel->targets > 0;

	for (unsigned i = 0; i < parcel->targets; i++) {
		if (parcel->has[i])
			note_holder(owned, parcel->hosts[i], step, &parcel->fragment[i]);
		all = all && parcel->has[i] && !parcel->damaged;
	}
	if (copies_of(parcel))
		owned->recoverable = step + 1;
	if (!all)
		return;
	if (!parcel->launch->apart) {
		owned->settled = step;
		settle(owned, parcel->launch, met);
	} else if (owned->marked_met != met) {
		mark(owned, parcel->launch, met);
	}
}

void copies_settled(struct launch *launch, uint64_t step)
{
	struct owned *owned = peers.on && launch_first(launch) ? owned_of(launch) : NULL;

	if (!owned)
		return;
	owned->settled = step;
	owned->settled_any = true;
	/* What is on its way makes a holder of whom it goes to. */
	if (owned->sending)
		owned->settle = true;
	else
		settle(owned, launch, others_met());
}

/* Nothing of a launch's parcel is on its way any more. */
static void parcel_end(struct agent *agent, struct parcel *parcel)
{
	struct owned *owned = parcel->transfer ? NULL : owned_of(parcel->launch);
	struct launch *launch = parcel->launch;
	bool again = owned && owned->again && launch_is_whole(launch), round = parcel->round;
	uint64_t step = parcel->part[0].step;
	unsigned copies = copies_of(parcel);

	loop.jobs--;
	for (uint32_t i = 0; i < parcel->parts; i++) {
		const struct live *live = parcel->part[i].live;

		/* The process ended meanwhile: who was told so had no copy yet. */
		if (live->life == LIFE_GONE && live->ended_well)
			copies_ended(live->session->identity, live->session->name.generation);
		parcel->part[i].live->jobs--;
		live_unpin(parcel->part[i].live, parcel->part[i].live_image);
	}
	parcel_free(parcel);
	if (owned) {
		owned->sending = false;
		owned->parcel = NULL;
		if (owned->settle)
			settle(owned, launch, others_met());
	}
	if (round)
		hearers_copied(agent, launch, step, copies);
	else if (again)
		copies_committed(launch);
}

static void sent(struct agent *agent, struct job *base)
{
	struct parcel *parcel = (struct parcel *)base;
	struct owned *owned = owned_of(parcel->launch);
	const struct tpck_fragment *code = &parcel->fragment[0];
	unsigned has = 0;

	for (unsigned i = 0; i < parcel->targets; i++)
		has += parcel->has[i];
	if (parcel->damaged)
		tpck_log_warn("step %" PRIu64 " changed while it was read: its fragments on other nodes count for nothing",
			      parcel->manifest->point.step);
	if (parcel->targets)
		tpck_log_debug("step %" PRIu64 " has %u %s on other nodes: %.3f MiB of %.3f sent in %.3f s", parcel->manifest->point.step, has,
			       code->data ? "fragments" : "copies", (double)parcel->sent_bytes / (1 << 20),
			       (double)tpck_manifest_bytes(parcel->manifest) * parcel->targets / (code->data ? code->data : 1) / (1 << 20),
			       (double)(tpck_clock_monotonic_ns() - parcel->begun_ns) / 1e9);
	if (owned && !parcel->transfer)
		note_holders(owned, parcel);
	parcel_end(agent, parcel);
}

static void note_twins(const struct parcel *parcel)
{
	const char **paths = calloc(parcel->parts, sizeof *paths);

	pthread_mutex_lock(&twins.lock);
	tpck_twins_free(twins.all);
	twins.all = NULL;
	for (uint32_t i = 0; paths && i < parcel->parts; i++)
		paths[i] = parcel->publication.shares[i].image_path;
	if (paths && parcel->manifest->member_count == parcel->parts)
		twins.all = tpck_twins_new(parcel->manifest, paths);
	pthread_mutex_unlock(&twins.lock);
	free(paths);
}

size_t sending_twins(struct tpck_replica *replica, struct tpck_peer_want *want, size_t count, uint64_t *bytes)
{
	*bytes = 0;
	pthread_mutex_lock(&twins.lock);
	if (twins.all)
		count = tpck_twins_fill(twins.all, replica, want, count, bytes);
	pthread_mutex_unlock(&twins.lock);
	return count;
}

static void describe_run(struct job *job)
{
	struct parcel *parcel = (struct parcel *)job;

	parcel->rc = tpck_publish_describe(&parcel->publication, &parcel->manifest, &parcel->error);
	if (!parcel->rc)
		parcel->rc = tpck_manifest_format(parcel->manifest, &parcel->text, &parcel->size, &parcel->error);
	/* Nodes that have ranks of the same launch send theirs at the same time. */
	if (!parcel->rc && parcel->round)
		note_twins(parcel);
}

static void describe_done(struct agent *agent, struct job *job)
{
	struct parcel *parcel = (struct parcel *)job;

	if (parcel->rc) {
		trouble_complain(&parcel->error);
		parcel_end(agent, parcel);
		return;
	}
	if (!parcel->transfer) {
		choose(parcel, owned_of(parcel->launch));
		parcel->until_ns = pace_until(parcel);
	}
	parcel->job.done = sent;
	outgoing_send(parcel);
}

static void add_part(struct parcel *parcel, struct live *live, uint64_t step)
{
	struct parcel_part *part = &parcel->part[parcel->parts];
	struct tpck_share *share = &parcel->publication.shares[parcel->parts++];
	unsigned i = (unsigned)live_image_of(live, step);
	const struct live_image *image = &live->images[i];

	part->live = live;
	part->live_image = i;
	part->step = step;
	part->image = image->map;
	snprintf(part->log_folder, sizeof part->log_folder, "%s", live->session->path);
	*share = (struct tpck_share){
		.session_path = part->log_folder, .image_path = image->path, .image = image->map,
		.identity = live->session->identity, .rank = live->session->name.rank, .ordinal = live->session->name.ordinal,
	};
	tpck_notes_take(&share->notes, &live->session->control->status);
	atomic_fetch_add(&image->map.header->pins, 1);
	live->jobs++;
}

/* The images of this step of the ranks that are here, which all have one, pinned. NULL: there is no memory. */
static struct parcel *parcel_new(struct launch *launch, uint64_t step)
{
	const struct tpck_control *control = launch_first(launch)->session->control;
	struct parcel *parcel = calloc(1, sizeof *parcel);
	uint32_t ranks = ranks_here(launch), at = 0;
	struct live *live;

	if (!parcel)
		return NULL;
	parcel->part = calloc(ranks, sizeof *parcel->part);
	parcel->publication.shares = calloc(ranks, sizeof *parcel->publication.shares);
	if (!parcel->part || !parcel->publication.shares) {
		parcel_free(parcel);
		return NULL;
	}
	parcel->job.run = describe_run;
	parcel->job.done = describe_done;
	parcel->launch = launch;
	parcel->publication.share_count = ranks;
	parcel->publication.world = launch->world;
	parcel->publication.parent = (struct tpck_point){control->parent_generation, control->resume_step};
	while ((live = launch_next(launch, &at)))
		add_part(parcel, live, step);
	loop.jobs++;
	return parcel;
}

/* To those that are to have copies. */
static bool send(struct launch *launch, struct owned *owned, uint64_t step, bool round)
{
	struct parcel *parcel = parcel_new(launch, step);

	if (!parcel)
		return false;
	parcel->round = round;
	/* Who has a fragment of the newest step may be one of too few. */
	parcel->keep = round ? (owned->settled_any ? owned->settled + 1 : 0) : home.settings.peers.data ? owned->recoverable : 0;
	owned->sending = true;
	owned->parcel = parcel;
	worker_give(&peers.courier, &parcel->job);
	return true;
}

void copies_committed(struct launch *launch)
{
	uint64_t step;
	struct owned *owned = peers.on && !launch->apart && launch_newest(launch, &step) ? owned_of(launch) : NULL;

	if (!owned)
		return;
	owned->again = owned->sending;
	if (!owned->sending)
		(void)send(launch, owned, step, false);
}

/* Whether all ranks that are here have an image of this step. */
static bool have_all(const struct launch *launch, uint64_t step)
{
	if (!launch->apart && launch->here.count < launch->world)
		return false;
	for (uint32_t i = 0; i < launch->here.count; i++) {
		const struct live *live = launch->here.row[i].live;

		if (live ? live->life == LIFE_GONE || live_image_of(live, step) < 0 : !launch->apart)
			return false;
	}
	return launch_first(launch) != NULL;
}

bool copies_send(struct launch *launch, uint64_t step)
{
	struct owned *owned = peers.on && have_all(launch, step) ? owned_of(launch) : NULL;

	return owned && !owned->sending && send(launch, owned, step, true);
}

/* ---- what a start elsewhere asks for ------------------------------------------------------ */

/* Whether the processes of this launch are gone and left what is asked for: on this node alone its newest, else, of those ranks
 * that were here, the very step, which who asks knows to be good for all ranks. */
static bool is_dead_with(const struct launch *launch, const struct inquiry *inquiry, uint64_t *step)
{
	const struct tpck_peer_message *head = &inquiry->head;
	const struct live *live = launch_rank(launch, head->rank);
	uint32_t at = 0;

	if (!live || live->session->name.ordinal != head->ordinal || strcmp(live->session->identity, inquiry->identity) != 0)
		return false;
	*step = head->step;
	if (inquiry->get ? launch->generation != head->generation || !have_all(launch, *step) : !launch_newest(launch, step))
		return false;
	while ((live = launch_next(launch, &at)))
		if (live->life != LIFE_DEAD)
			return false;
	return true;
}

/* The newest launch of this program that may come back, but whose processes are gone. */
static struct launch *dead_launch(struct agent *agent, const struct inquiry *inquiry, struct tpck_point *point)
{
	struct launch *found = NULL;
	uint64_t step;

	for (struct launch *launch = agent->launches; launch; launch = launch->next)
		if (is_dead_with(launch, inquiry, &step) && (!found || launch->generation > found->generation)) {
			found = launch;
			*point = (struct tpck_point){launch->generation, step};
		}
	return found;
}

static void inquiry_answer(struct errand *errand)
{
	struct inquiry *inquiry = (struct inquiry *)((char *)errand - offsetof(struct inquiry, errand));
	static const char none[] = "it has no such copy any more";
	struct peer *peer = peer_of_serial(inquiry->serial);

	if (peer && inquiry->get)
		(void)peer_send_text(peer, TPCK_PEER_FAIL, &inquiry->answer, none, sizeof none);
	else if (peer)
		(void)peer_send_text(peer, TPCK_PEER_TELL, &inquiry->answer, inquiry->other, inquiry->other_size);
	free(inquiry->other);
	free(inquiry);
}

/* Of a launch on several nodes only those ranks that were here are. */
static void tell_part(struct inquiry *inquiry, const struct tpck_point *point)
{
	struct tpck_peer_told told = {.generation = point->generation, .step = point->step, .part = 1};
	size_t size = inquiry->answer.value == 2 ? 0 : inquiry->other_size;
	char *grown = realloc(inquiry->other, size + sizeof told);

	if (!grown)
		return;
	memcpy(grown + size, &told, sizeof told);
	inquiry->other = grown;
	inquiry->other_size = size + sizeof told;
	inquiry->answer.value = inquiry->answer.value == 1;
}

static void inquiry_done(struct agent *agent, struct job *job)
{
	struct inquiry *inquiry = (struct inquiry *)job;
	struct tpck_point point = {0};
	struct launch *launch = dead_launch(agent, inquiry, &point);
	struct tpck_point other = {inquiry->answer.generation, inquiry->answer.step};
	struct parcel *parcel;

	peers_asked();
	/* What is left of processes is the whole. */
	if (inquiry->get && inquiry->head.fragment.data)
		launch = NULL;
	if (launch && inquiry->get && (parcel = parcel_new(launch, point.step))) {
		parcel->transfer = inquiry->head.transfer;
		parcel->targets = 1;
		parcel->target[0] = inquiry->serial;
		worker_give(&peers.courier, &parcel->job);
		free(inquiry->other);
		free(inquiry);
		return;
	}
	if (launch && !inquiry->get && launch->apart)
		tell_part(inquiry, &point);
	else if (launch && !inquiry->get && (inquiry->answer.value != 1 || tpck_point_compare(&point, &other) > 0)) {
		if (inquiry->answer.value == 2)
			inquiry->other_size = 0;
		inquiry->answer.value = 1;
		inquiry->answer.generation = point.generation;
		inquiry->answer.step = point.step;
	}
	inquiry->errand.run = inquiry_answer;
	peers_errand(&inquiry->errand);
}

void copies_inquire(struct peer *peer, const struct tpck_peer_message *head, const struct tpck_peer_message *answer,
		    const char *identity, char *other, size_t other_size, bool get)
{
	struct inquiry *inquiry = calloc(1, sizeof *inquiry + strlen(identity) + 1);

	if (!inquiry) {
		free(other);
		return;
	}
	inquiry->other = other;
	inquiry->other_size = other_size;
	inquiry->job.done = inquiry_done;
	inquiry->serial = peer->serial;
	inquiry->head = *head;
	inquiry->answer = answer ? *answer : (struct tpck_peer_message){.transfer = head->transfer};
	inquiry->get = get;
	strcpy(inquiry->identity, identity);
	outbox_post(&inquiry->job);
}

void copies_ended(const char *identity, uint64_t generation)
{
	struct drop_errand *drop = peers.on ? drop_new(identity, generation) : NULL;

	if (!drop)
		return;
	drop->ended = true;
	peers_errand(&drop->errand);
	copies_here_drop(identity, generation);
}

/* ---- what is seen ------------------------------------------------------------------------- */

void owned_consider(struct agent *agent)
{
	for (struct owned *owned = owned_list; owned; owned = owned->next)
		if (owned->parcel)
			pace_consider(agent, owned->parcel, owned->again);
}

void owned_status(json_object *given)
{
	for (const struct owned *owned = owned_list; owned; owned = owned->next)
		for (unsigned i = 0; i < owned->holders; i++) {
			json_object *row;

			if (!owned->holder[i].step)
				continue;
			row = json_object_new_object();
			json_object_object_add(row, "host", json_object_new_string(owned->holder[i].host));
			json_object_object_add(row, "generation", json_object_new_uint64(owned->name.generation));
			json_object_object_add(row, "rank", json_object_new_int64(owned->name.rank));
			json_object_object_add(row, "ordinal", json_object_new_int64(owned->name.ordinal));
			json_object_object_add(row, "ranks", json_object_new_int64(owned->ranks));
			json_object_object_add(row, "step", json_object_new_uint64(owned->holder[i].step));
			copies_fragment_status(row, &owned->holder[i].fragment);
			json_object_array_add(given, row);
		}
}
