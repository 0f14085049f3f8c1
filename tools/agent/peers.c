/* SPDX-License-Identifier: Apache-2.0 */
/* Copies on other nodes: when one is sent and to whom, what a start gets from others, when copies go. */
#include "config.h"

#include "tools/agent/peers.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/peer/placement.h"
#include "runtime/peer/rendezvous.h"
#include "runtime/store/file.h"
#include "runtime/store/publish.h"
#include "tools/agent/peers_private.h"

#define SEC 1000000000ull
/* How long a start waits for others to say what they have, and for one of them to go on giving it. */
#define ASK_NS (3 * SEC)
#define GET_NS (10 * SEC)
/* Others may not be there yet. */
#define EARLY_NS (10 * SEC)

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
static uint64_t begun_ns;

/* ---- start and end ------------------------------------------------------------------------ */

/* The tier that all nodes see. */
static struct tpck_tier *shared_tier(const struct agent *agent)
{
	for (size_t i = 0; i < agent->tiers.count; i++)
		if (strncmp(agent->tiers.name[i], "site", 4) == 0)
			return agent->tiers.tier[i];
	return agent->tier;
}

static int own_port(const struct agent *agent, uint16_t *port)
{
	char list[TPCK_SETTING_TEXT_MAX], *rest = list, *name, addresses[1024], *lines, *line;

	*port = agent->settings.nodes[0] ? PEERS_PORT : 0;
	snprintf(list, sizeof list, "%s", agent->settings.nodes);
	while ((name = strtok_r(rest, ", ", &rest))) {
		uint16_t said;
		bool own = strncmp(name, peers.host, strlen(peers.host)) == 0 && strchr(":.", name[strlen(peers.host)]);

		if (tpck_rendezvous_resolve(name, PEERS_PORT, addresses, sizeof addresses, &said))
			continue;
		for (lines = addresses; !own && (line = strtok_r(lines, "\n", &lines));) {
			*strrchr(line, ':') = '\0';
			own = tpck_rendezvous_is_local(line);
		}
		if (own) {
			*port = said;
			return 0;
		}
	}
	return 0;
}

static int find_secret(struct agent *agent, struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];
	int rc;

	if (agent->settings.secret[0])
		return tpck_secret_load(agent->settings.secret, 0, peers.secret, err);
	rc = tpck_durable_tier_check(shared_tier(agent), err);
	if (!rc)
		rc = tpck_folder_make(peers.folder, err);
	if (!rc)
		rc = tpck_path_join(path, sizeof path, peers.folder, "secret");
	return rc ? rc : tpck_secret_load(path, 1, peers.secret, err);
}

static void name_self(struct agent *agent)
{
	if (gethostname(peers.host, sizeof peers.host - 1))
		snprintf(peers.host, sizeof peers.host, "unknown");
	for (char *p = peers.host; *p; p++)
		if (*p == '/')
			*p = '_';
	snprintf(peers.domain, sizeof peers.domain, "%.120s", agent->settings.domain[0] ? agent->settings.domain : peers.host);
	/* Numbers of processes are the same in several containers of a host's name. */
	snprintf(peers.node, sizeof peers.node, "%.90s.%d.%04x", peers.host, (int)getpid(),
		 (unsigned)(tpck_clock_realtime_ns() >> 10 & 0xffff));
	snprintf(peers.folder, sizeof peers.folder, "%.1000s/agents", shared_tier(agent)->root);
}

static int start_thread(void)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&peers.thread, NULL, peers_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -rc;
}

static int begin(struct agent *agent, struct tpck_error *err)
{
	char addresses[4096];
	sigset_t all, before;
	uint16_t port;
	int rc;

	name_self(agent);
	rc = find_secret(agent, err);
	if (!rc)
		rc = own_port(agent, &port);
	if (rc)
		return rc;
	peers.ops = &tpck_transport_ucx;
	/* Threads of the transport's own have no signals either. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = peers.ops->start(&peers.transport, &peers_events, NULL, port, err);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return rc;
	tpck_rendezvous_addresses(peers.ops->port(peers.transport), addresses, sizeof addresses);
	if (!agent->settings.nodes[0])
		rc = tpck_rendezvous_write(peers.folder, peers.node, addresses, err);
	if (!rc)
		rc = worker_start(&peers.courier, &agent->outbox);
	if (!rc)
		rc = start_thread();
	if (rc)
		peers.ops->stop(peers.transport);
	return rc;
}

void peers_start(struct agent *agent)
{
	struct tpck_error err = {0};

	peers.agent = agent;
	peers.errands_end = &peers.errands;
	begun_ns = tpck_clock_monotonic_ns();
	if (!agent->settings.peers)
		return;
	peers.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	copies_here_find();
	if (begin(agent, &err)) {
		tpck_log_warn("this node works alone, without copies on others: %s", err.text);
		return;
	}
	peers.on = true;
	tpck_log_info("node %s of domain %s listens for others at port %u", peers.host, peers.domain,
		      peers.ops->port(peers.transport));
}

void peers_stop(struct agent *agent)
{
	uint64_t one = 1;

	(void)agent;
	if (!peers.on)
		return;
	pthread_mutex_lock(&peers.lock);
	peers.stop = true;
	pthread_mutex_unlock(&peers.lock);
	(void)!write(peers.wake, &one, sizeof one);
	pthread_join(peers.thread, NULL);
	worker_stop(&peers.courier);
	if (!agent->settings.nodes[0])
		tpck_rendezvous_remove(peers.folder, peers.node);
	peers.on = false;
}

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
	if (parcel->targets < peers.agent->settings.peers && tpck_clock_monotonic_ns() > begun_ns + EARLY_NS) {
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

/* ---- how long ----------------------------------------------------------------------------- */

void peers_consider(struct agent *agent)
{
	bool working = agent->clients != NULL || agent->lives != NULL;

	if (!peers.on)
		return;
	pthread_mutex_lock(&peers.lock);
	peers.working = working;
	pthread_mutex_unlock(&peers.lock);
}

uint64_t peers_leave_at(struct agent *agent)
{
	uint64_t until;

	if (!agent->settings.peers)
		return 0;
	pthread_mutex_lock(&peers.lock);
	until = copies_here_until();
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->state == PEER_KNOWN && peer->working)
			until = UINT64_MAX;
	pthread_mutex_unlock(&peers.lock);
	return until;
}

void peers_status(struct agent *agent, json_object *json)
{
	json_object *list = json_object_new_array(), *held = json_object_new_array(), *given = json_object_new_array(), *row;

	if (!agent->settings.peers) {
		json_object_put(list);
		json_object_put(held);
		json_object_put(given);
		return;
	}
	pthread_mutex_lock(&peers.lock);
	for (const struct peer *peer = peers.list; peer; peer = peer->next) {
		if (peer->state != PEER_KNOWN)
			continue;
		row = json_object_new_object();
		json_object_object_add(row, "host", json_object_new_string(peer->other.host));
		json_object_object_add(row, "domain", json_object_new_string(peer->other.domain));
		json_object_array_add(list, row);
	}
	for (const struct copy *copy = peers.copies; copy; copy = copy->next) {
		if (copy->slot < 0)
			continue;
		row = json_object_new_object();
		json_object_object_add(row, "owner", json_object_new_string(copy->owner));
		json_object_object_add(row, "generation", json_object_new_uint64(copy->point.generation));
		json_object_object_add(row, "step", json_object_new_uint64(copy->point.step));
		json_object_object_add(row, "rank", json_object_new_int64(copy->member[0].rank));
		json_object_object_add(row, "ordinal", json_object_new_int64(copy->member[0].ordinal));
		json_object_object_add(row, "ranks", json_object_new_int64(copy->world));
		json_object_array_add(held, row);
	}
	pthread_mutex_unlock(&peers.lock);
	for (const struct owned *owned = owned_list; owned; owned = owned->next)
		for (unsigned i = 0; i < owned->holders; i++) {
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
	json_object_object_add(json, "node", json_object_new_string(peers.host));
	json_object_object_add(json, "peers", list);
	json_object_object_add(json, "copies_here", held);
	json_object_object_add(json, "copies_elsewhere", given);
}

/* ---- a start ------------------------------------------------------------------------------ */

uint64_t peers_generation(void)
{
	uint64_t generation;

	pthread_mutex_lock(&peers.lock);
	generation = peers.generation;
	pthread_mutex_unlock(&peers.lock);
	return generation;
}

static void ask_run(struct errand *errand)
{
	struct ask *ask = (struct ask *)errand;

	/* Those that become known later are asked then. The asker must not see it posted, and nobody asked yet. */
	pthread_mutex_lock(&peers.lock);
	ask->posted = true;
	for (struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->state == PEER_KNOWN)
			transfer_greet(peer);
	pthread_cond_broadcast(&peers.changed);
	pthread_mutex_unlock(&peers.lock);
}

struct get_errand {
	struct errand errand; /* first */
	uint64_t serial, number;
	uint32_t rank, ordinal;
	struct tpck_point point;
	char identity[];
};

static void get_run(struct errand *errand)
{
	struct get_errand *get = (struct get_errand *)errand;
	struct peer *peer = peer_of_serial(get->serial);
	struct tpck_peer_message head = {
		.transfer = get->number, .generation = get->point.generation, .step = get->point.step, .rank = get->rank,
		.ordinal = get->ordinal,
	};

	if (peer)
		(void)peer_send_text(peer, TPCK_PEER_GET, &head, get->identity, strlen(get->identity) + 1);
	free(get);
}

/* The lock is held, and let go of while it waits. False: the time is over. */
static bool wait_change(uint64_t until_ns)
{
	uint64_t now = tpck_clock_monotonic_ns();
	struct timespec until;

	if (now >= until_ns)
		return false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += (time_t)((until_ns - now) / SEC);
	until.tv_nsec += (long)((until_ns - now) % SEC);
	if (until.tv_nsec >= (long)SEC) {
		until.tv_nsec -= (long)SEC;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&peers.changed, &peers.lock, &until);
	return true;
}

/* Whether somebody may still say something. */
static bool is_open(const struct ask *ask)
{
	if (!ask->posted || !peers.scanned || ask->answered < ask->asked)
		return true;
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		if (peer->state == PEER_CONNECTING || peer->state == PEER_GREETED)
			return true;
	return false;
}

static bool fetch(struct ask *ask, const struct ask_answer *answer)
{
	struct get_errand *get = calloc(1, sizeof *get + strlen(ask->identity) + 1);

	if (!get)
		return false;
	get->errand.run = get_run;
	get->serial = ask->from = answer->serial;
	get->number = ask->number;
	get->rank = ask->rank;
	get->ordinal = ask->ordinal;
	get->point = ask->wanted = answer->point;
	strcpy(get->identity, ask->identity);
	ask->getting = true;
	ask->got = false;
	ask->moved_ns = tpck_clock_monotonic_ns();
	pthread_mutex_unlock(&peers.lock);
	peers_errand(&get->errand);
	pthread_mutex_lock(&peers.lock);
	while (!ask->got && wait_change(ask->moved_ns + GET_NS))
		;
	ask->getting = false;
	if (!ask->got)
		snprintf(ask->why, sizeof ask->why, "it does not go on");
	if (ask->got && ask->rc == 0) {
		tpck_log_info("got a copy of step %" PRIu64 " of generation %" PRIu64 " from %s", answer->point.step,
			      answer->point.generation, answer->host);
		return true;
	}
	tpck_log_warn("the copy of step %" PRIu64 " of generation %" PRIu64 " that %s has cannot be had: %s", answer->point.step,
		      answer->point.generation, answer->host, ask->why);
	return false;
}

/* The newest that is here or in the store. */
static struct tpck_point newest_here(struct agent *agent, bool store, const struct offer_request *request)
{
	struct tpck_point newest = {0}, point;
	struct copy *copy = copy_pin(request->identity, request->rank, request->ordinal, &point, NULL);

	if (copy) {
		newest = point;
		copy_unpin(copy);
	}
	for (size_t i = 0; i < request->memory_count; i++)
		if (!request->memory[i].identity_differs && tpck_point_compare(&request->memory[i].point, &newest) > 0)
			newest = request->memory[i].point;
	for (size_t t = store ? 0 : 1; t < agent->tiers.count; t++) {
		struct tpck_catalog catalog;

		pthread_mutex_lock(&store_in_use);
		if (tpck_catalog_load(&catalog, agent->tiers.tier[t], NULL, NULL, NULL, NULL) == 0) {
			for (size_t i = 0; i < catalog.count; i++) {
				const struct tpck_member *member =
					tpck_manifest_member(catalog.manifests[i], request->rank, request->ordinal);

				if (member && strcmp(member->identity, request->identity) == 0 &&
				    tpck_point_compare(&catalog.manifests[i]->point, &newest) > 0)
					newest = catalog.manifests[i]->point;
			}
			tpck_catalog_free(&catalog);
		}
		pthread_mutex_unlock(&store_in_use);
	}
	return newest;
}

struct offer_request *peers_first(struct offer_request *requests, size_t count)
{
	struct offer_request *first = requests;

	for (size_t i = 1; i < count; i++)
		if (requests[i].rank < first->rank)
			first = &requests[i];
	return first;
}

void peers_fetch(struct agent *agent, bool store, struct offer_request *request)
{
	static uint64_t numbers;
	struct ask *ask = peers.on ? calloc(1, sizeof *ask) : NULL;
	struct tpck_point newest;
	uint64_t until = tpck_clock_monotonic_ns() + ASK_NS;

	if (!ask)
		return;
	ask->errand.run = ask_run;
	ask->identity = request->identity;
	ask->rank = request->rank;
	ask->ordinal = request->ordinal;
	/* Apart from the numbers that the other side gives. */
	ask->number = 1ull << 63 | ++numbers;
	newest = newest_here(agent, store, request);
	pthread_mutex_lock(&peers.lock);
	ask->next = peers.asks;
	peers.asks = ask;
	pthread_mutex_unlock(&peers.lock);
	peers_errand(&ask->errand);
	pthread_mutex_lock(&peers.lock);
	while (is_open(ask) && wait_change(until))
		;
	while (ask->posted && !request->told_only) {
		struct ask_answer *best = NULL;
		int order = 0;

		for (unsigned i = 0; i < ask->count; i++)
			if (ask->answers[i].serial && tpck_point_compare(&ask->answers[i].point, &newest) > 0 &&
			    tpck_program_allows(request->program, &ask->answers[i].point) == TPCK_ALLOWED) {
				/* Of equals by name: who is asked first is not chance. */
				if (best)
					order = tpck_point_compare(&ask->answers[i].point, &best->point);
				if (best && order == 0)
					order = strcmp(best->host, ask->answers[i].host);
				if (!best || order > 0)
					best = &ask->answers[i];
			}
		if (!best || fetch(ask, best))
			break;
		best->serial = 0;
		request->lost = best->point;
		snprintf(request->lost_why, sizeof request->lost_why, "%.100s: %.180s", best->host, ask->why);
	}
	for (struct ask **place = &peers.asks; *place; place = &(*place)->next)
		if (*place == ask) {
			*place = ask->next;
			break;
		}
	/* One that the thread has not come to yet is its to look at. */
	while (!ask->posted && !peers.ended)
		pthread_cond_wait(&peers.changed, &peers.lock);
	pthread_mutex_unlock(&peers.lock);
	free(request->other_identity);
	request->other_identity = ask->other_identity;
	request->other_point = ask->other_point;
	free(ask);
}

/* Chunks that are equal are there once, as long as nobody starts from them. */
static int make_whole(const struct copy *copy, unsigned slot)
{
	uint64_t bytes = tpck_replica_fill_needs(copy->replica, slot);
	struct tpck_error err = {0};
	char reason[200];
	int rc = 0;

	if (bytes && !prepare_room(peers.agent, bytes, reason, sizeof reason))
		rc = tpck_error_set(&err, ENOSPC, "going on from a peer's copy: %s", reason);
	if (!rc)
		rc = tpck_replica_fill(copy->replica, slot, &err);
	if (rc)
		agent_complain(&err);
	return rc;
}

static void pin_again(struct copy *copy)
{
	pthread_mutex_lock(&peers.lock);
	copy->pins++;
	pthread_mutex_unlock(&peers.lock);
}

static void add_candidate(struct offer_request *request, struct copy *copy, unsigned slot, const struct tpck_point *point)
{
	const struct tpck_manifest *manifest = copy->replica->slot[slot];
	const struct tpck_member *member = tpck_manifest_member(manifest, request->rank, request->ordinal);
	struct memory_candidate *grown, *candidate;

	grown = member ? reallocarray(request->memory, request->memory_count + 1, sizeof *grown) : NULL;
	if (!grown)
		return;
	pin_again(copy);
	request->memory = grown;
	candidate = &grown[request->memory_count++];
	*candidate = (struct memory_candidate){
		.copy = copy, .point = *point, .resumable = member->resumable, .cut = member->cut,
		.identity = member->identity, .identity_differs = strcmp(member->identity, request->identity) != 0,
	};
	tpck_replica_image_path(copy->replica, member, slot, candidate->image_path, sizeof candidate->image_path);
	tpck_replica_path(copy->replica, member, candidate->session_path, sizeof candidate->session_path);
}

void peers_candidates(struct offer_request *requests, size_t count)
{
	const struct offer_request *first = peers_first(requests, count);
	struct tpck_point point;
	struct copy *copy;
	int slot;

	if (!peers.agent->settings.peers)
		return;
	copy = copy_pin(first->identity, first->rank, first->ordinal, &point, &slot);
	if (!copy)
		return;
	if (make_whole(copy, (unsigned)slot) == 0)
		for (size_t i = 0; i < count; i++)
			add_candidate(&requests[i], copy, (unsigned)slot, &point);
	copy_unpin(copy);
}

bool peers_release(struct offer_request *requests, size_t count)
{
	struct copy *bad = NULL;

	/* There is one at most: peers_candidates(). */
	for (size_t r = 0; r < count; r++)
		for (size_t i = 0; i < requests[r].memory_count; i++)
			if (requests[r].memory[i].copy && requests[r].memory[i].bad)
				bad = requests[r].memory[i].copy;
	if (bad)
		pin_again(bad);
	/* Copies stand behind the sessions. */
	for (size_t r = 0; r < count; r++)
		for (struct offer_request *request = &requests[r];
		     request->memory_count && request->memory[request->memory_count - 1].copy; request->memory_count--)
			copy_unpin(request->memory[request->memory_count - 1].copy);
	if (!bad)
		return false;
	copy_discard(bad);
	return true;
}
