/* SPDX-License-Identifier: Apache-2.0 */
/* Copies on other nodes: when one is sent and to whom, who is told, what another node's start gets of what died here. */
#include "config.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/peer/placement.h"
#include "runtime/store/publish.h"
#include "tools/agent/peers_private.h"

/* Others may not be there yet. */
#define EARLY_NS 10000000000ull

/* What is known of a launch's copies elsewhere. The event loop's. */
struct owned {
	struct tpck_session_name name; /* of its first rank's session */
	uint32_t world;
	bool sending, again;
	unsigned holders;
	struct holder {
		char host[TPCK_PEER_NAME];
		uint64_t step;
	} holder[PARCEL_TARGETS];
	char told[PARCEL_TARGETS * TPCK_PEER_NAME]; /* holders at the last DROP to the others */
	uint64_t told_met; /* and how many others had been met */
	struct owned *next;
};

static struct owned *owned_list;

/* ---- sending ------------------------------------------------------------------------------ */

/* None that is new but for a launch, whose ranks are all there. */
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
		owned->world = launch->world;
		owned->next = owned_list;
		owned_list = owned;
	}
	return owned;
}

/* Those of the peers that are to have a copy, each node once. */
static void choose(struct parcel *parcel)
{
	enum { MOST = 256 };
	struct tpck_place places[MOST];
	uint64_t serials[MOST];
	size_t count = 0, chosen[PARCEL_TARGETS], wanted = peers.agent->settings.peers;
	const struct live *first = parcel->part[0].live;
	char key[64];

	if (wanted > PARCEL_TARGETS)
		wanted = PARCEL_TARGETS;
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
	parcel->targets = (unsigned)tpck_placement(places, count, peers.domain, key, wanted, chosen);
	for (unsigned i = 0; i < parcel->targets; i++) {
		parcel->target[i] = serials[chosen[i]];
		snprintf(parcel->hosts[i], TPCK_PEER_NAME, "%s", places[chosen[i]].host);
	}
	pthread_mutex_unlock(&peers.lock);
	if (parcel->targets < peers.agent->settings.peers && tpck_clock_monotonic_ns() > peers.begun_ns + EARLY_NS) {
		struct tpck_error err = {0};

		tpck_error_set(&err, 0, "TRANSPCKPT_PEERS is %llu, but agents of %zu other nodes are there: %u copies",
			       (unsigned long long)peers.agent->settings.peers, count, parcel->targets);
		agent_complain(&err);
	}
}

struct drop_errand {
	struct errand errand; /* first */
	uint64_t generation;
	bool ended;
	char but[PARCEL_TARGETS * TPCK_PEER_NAME]; /* hosts that keep theirs, each with a line break behind it */
	char identity[];
};

static void drop_run(struct errand *errand)
{
	struct drop_errand *drop = (struct drop_errand *)errand;
	struct tpck_peer_message head = {.generation = drop->generation, .value = drop->ended};
	char line[TPCK_PEER_NAME + 1];

	for (struct peer *peer = peers.list; peer; peer = peer->next) {
		snprintf(line, sizeof line, "%s\n", peer->other.host);
		if (peer->state == PEER_KNOWN && !drop->ended)
			(void)peer_send_text(peer, TPCK_PEER_MARK, &head, drop->identity, strlen(drop->identity) + 1);
		if (peer->state == PEER_KNOWN && !strstr(drop->but, line))
			(void)peer_send_text(peer, TPCK_PEER_DROP, &head, drop->identity, strlen(drop->identity) + 1);
	}
	free(drop);
}

/* Tells the peers that a program has copies, which those in `but` have; or that it has ended. */
static void drop(const char *identity, uint64_t generation, const char *but, bool ended)
{
	struct drop_errand *drop = calloc(1, sizeof *drop + strlen(identity) + 1);

	if (!drop)
		return;
	drop->errand.run = drop_run;
	drop->generation = generation;
	drop->ended = ended;
	snprintf(drop->but, sizeof drop->but, "%s", but);
	strcpy(drop->identity, identity);
	peers_errand(&drop->errand);
}

static void note_holders(struct owned *owned, const struct parcel *parcel)
{
	uint64_t generation = owned->name.generation;
	char now[sizeof owned->told] = "";
	bool all = parcel->targets > 0;
	uint64_t met;

	owned->holders = parcel->targets;
	for (unsigned i = 0; i < parcel->targets; i++) {
		if (strcmp(owned->holder[i].host, parcel->hosts[i]) != 0) {
			snprintf(owned->holder[i].host, sizeof owned->holder[i].host, "%s", parcel->hosts[i]);
			owned->holder[i].step = 0;
		}
		if (parcel->has[i])
			owned->holder[i].step = parcel->manifest->point.step;
		all = all && parcel->has[i];
		snprintf(now + strlen(now), sizeof now - strlen(now), "%s\n", parcel->hosts[i]);
	}
	pthread_mutex_lock(&peers.lock);
	met = peers.met;
	pthread_mutex_unlock(&peers.lock);
	/* Who has come since is to hear of the program, too: without a folder that all see, a start there looks for its mark. */
	if (!all || (strcmp(now, owned->told) == 0 && met == owned->told_met))
		return;
	/* Who had copies before, and is not among those who have them now, need not keep them; nor does this node. Each rank
	 * is a program whose start looks for its own mark. */
	memcpy(owned->told, now, sizeof now);
	owned->told_met = met;
	for (uint32_t r = 0; r < parcel->parts; r++)
		drop(parcel->part[r].live->session->identity, generation, now, false);
	copies_here_drop(parcel->part[0].live->session->identity, generation - 1);
}

/* Nothing of a launch's parcel is on its way any more. */
static void parcel_end(struct agent *agent, struct parcel *parcel)
{
	struct owned *owned = parcel->transfer ? NULL : owned_of(parcel->launch);
	struct launch *launch = parcel->launch;
	bool again = owned && owned->again && launch_is_whole(launch);

	agent->jobs--;
	for (uint32_t r = 0; r < parcel->parts; r++) {
		parcel->part[r].live->jobs--;
		live_unpin(agent, parcel->part[r].live, parcel->part[r].live_image);
	}
	if (owned)
		owned->sending = false;
	parcel_free(parcel);
	if (again)
		peers_committed(agent, launch);
}

static void sent(struct agent *agent, struct job *base)
{
	struct parcel *parcel = (struct parcel *)base;
	struct owned *owned = owned_of(parcel->launch);
	unsigned copies = 0;

	for (unsigned i = 0; i < parcel->targets; i++)
		copies += parcel->has[i];
	if (parcel->targets)
		tpck_log_debug("step %" PRIu64 " has %u copies on other nodes: %.3f MiB of %.3f sent in %.3f s",
			       parcel->manifest->point.step, copies, (double)parcel->sent_bytes / (1 << 20),
			       (double)tpck_manifest_bytes(parcel->manifest) * parcel->targets / (1 << 20),
			       (double)(tpck_clock_monotonic_ns() - parcel->begun_ns) / 1e9);
	if (owned && !parcel->transfer)
		note_holders(owned, parcel);
	parcel_end(agent, parcel);
}

static void describe_run(struct job *job)
{
	struct parcel *parcel = (struct parcel *)job;

	parcel->rc = tpck_publish_describe(&parcel->publication, &parcel->manifest, &parcel->error);
	if (!parcel->rc)
		parcel->rc = tpck_manifest_format(parcel->manifest, &parcel->text, &parcel->size, &parcel->error);
}

static void describe_done(struct agent *agent, struct job *job)
{
	struct parcel *parcel = (struct parcel *)job;

	if (parcel->rc) {
		agent_complain(&parcel->error);
		parcel_end(agent, parcel);
		return;
	}
	if (!parcel->transfer)
		choose(parcel);
	parcel->job.done = sent;
	transfer_send(parcel);
}

static void add_part(struct parcel *parcel, uint32_t r, struct live *live)
{
	struct parcel_part *part = &parcel->part[r];
	struct tpck_share *share = &parcel->publication.shares[r];
	const struct live_image *image = &live->images[live->newest];

	part->live = live;
	part->live_image = (unsigned)live->newest;
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

/* The newest image of each rank, pinned, on its way to the courier; all are of one step. NULL: there is no memory. */
static struct parcel *parcel_new(struct agent *agent, struct launch *launch)
{
	const struct tpck_control *control = launch_first(launch)->session->control;
	struct parcel *parcel = calloc(1, sizeof *parcel);

	if (!parcel)
		return NULL;
	parcel->part = calloc(launch->world, sizeof *parcel->part);
	parcel->publication.shares = calloc(launch->world, sizeof *parcel->publication.shares);
	if (!parcel->part || !parcel->publication.shares) {
		parcel_free(parcel);
		return NULL;
	}
	parcel->job.run = describe_run;
	parcel->job.done = describe_done;
	parcel->agent = agent;
	parcel->launch = launch;
	parcel->publication.share_count = parcel->publication.world = parcel->parts = launch->world;
	parcel->publication.parent = (struct tpck_point){control->parent_generation, control->resume_step};
	for (uint32_t r = 0; r < launch->world; r++)
		add_part(parcel, r, launch->rank[r]);
	agent->jobs++;
	return parcel;
}

void peers_committed(struct agent *agent, struct launch *launch)
{
	uint64_t step;
	struct owned *owned = peers.on && launch_newest(launch, &step) ? owned_of(launch) : NULL;
	struct parcel *parcel;

	if (!owned)
		return;
	owned->again = owned->sending;
	if (owned->sending)
		return;
	parcel = parcel_new(agent, launch);
	if (!parcel)
		return;
	owned->sending = true;
	worker_give(&peers.courier, &parcel->job);
}

/* ---- what a start elsewhere asks for ------------------------------------------------------ */

/* The newest launch of this program that may come back, but whose processes are gone. */
static struct launch *dead_launch(struct agent *agent, const struct inquiry *inquiry, struct tpck_point *point)
{
	struct launch *found = NULL;
	uint64_t step;

	for (struct launch *launch = agent->launches; launch; launch = launch->next) {
		bool dead = launch_newest(launch, &step);

		for (uint32_t r = 0; dead && r < launch->world; r++)
			dead = launch->rank[r]->life == LIFE_DEAD;
		if (dead && launch->rank[0]->session->name.rank == inquiry->head.rank &&
		    launch->rank[0]->session->name.ordinal == inquiry->head.ordinal &&
		    strcmp(launch->rank[0]->session->identity, inquiry->identity) == 0 &&
		    (!found || launch->generation > found->generation)) {
			found = launch;
			*point = (struct tpck_point){launch->generation, step};
		}
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
		(void)peer_send_text(peer, TPCK_PEER_TELL, &inquiry->answer, inquiry->other,
				     inquiry->other ? strlen(inquiry->other) + 1 : 0);
	free(inquiry->other);
	free(inquiry);
}

static void inquiry_done(struct agent *agent, struct job *job)
{
	struct inquiry *inquiry = (struct inquiry *)job;
	struct tpck_point point = {0};
	struct launch *launch = dead_launch(agent, inquiry, &point);
	struct tpck_point other = {inquiry->answer.generation, inquiry->answer.step};
	struct tpck_point wanted = {inquiry->head.generation, inquiry->head.step};
	struct parcel *parcel;

	if (launch && inquiry->get && tpck_point_compare(&point, &wanted) == 0 && (parcel = parcel_new(agent, launch))) {
		parcel->transfer = inquiry->head.transfer;
		parcel->targets = 1;
		parcel->target[0] = inquiry->serial;
		worker_give(&peers.courier, &parcel->job);
		free(inquiry);
		return;
	}
	if (launch && !inquiry->get && (inquiry->answer.value != 1 || tpck_point_compare(&point, &other) > 0)) {
		free(inquiry->other);
		inquiry->other = NULL;
		inquiry->answer.value = 1;
		inquiry->answer.generation = point.generation;
		inquiry->answer.step = point.step;
	}
	inquiry->errand.run = inquiry_answer;
	peers_errand(&inquiry->errand);
}

void peers_inquire(struct peer *peer, const struct tpck_peer_message *head, const struct tpck_peer_message *answer,
		   const char *identity, char *other, bool get)
{
	struct inquiry *inquiry = calloc(1, sizeof *inquiry + strlen(identity) + 1);

	if (!inquiry) {
		free(other);
		return;
	}
	inquiry->other = other;
	inquiry->job.done = inquiry_done;
	inquiry->serial = peer->serial;
	inquiry->head = *head;
	inquiry->answer = answer ? *answer : (struct tpck_peer_message){.transfer = head->transfer};
	inquiry->get = get;
	strcpy(inquiry->identity, identity);
	outbox_post(&peers.agent->outbox, &inquiry->job);
}

void peers_ended(struct agent *agent, const char *identity, uint64_t generation)
{
	(void)agent;
	if (!peers.on)
		return;
	drop(identity, generation, "", true);
	copies_here_drop(identity, generation);
}

/* ---- what is seen ------------------------------------------------------------------------- */

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
			json_object_object_add(row, "ranks", json_object_new_int64(owned->world));
			json_object_object_add(row, "step", json_object_new_uint64(owned->holder[i].step));
			json_object_array_add(given, row);
		}
}
