/* SPDX-License-Identifier: Apache-2.0 */
/* HELLO: a new generation, its session folder, and what it may go on from. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "runtime/store/stage.h"
#include "tools/agent/accord/accord.h"
#include "tools/agent/hello.h"
#include "tools/agent/history.h"
#include "tools/agent/identity.h"
#include "tools/agent/offer.h"
#include "tools/agent/peers/peers.h"
#include "tools/agent/salvage/salvage.h"
#include "tools/agent/welcome.h"

#define GENERATION "generation"
/* How long a starting process waits for an earlier one of the same program to be quite gone. */
#define PREDECESSOR_WAIT_NS 3000000000ull
/* And for the other ranks to start, which they do not all at once. */
#define RANKS_WAIT_NS 120000000000ull
/* A process that runs already does not wait that long for another node, since the library gives up soon behind it; nor does anybody for mpirun. */
#define APART_WAIT_NS 25000000000ull

/* One process's part in it. */
struct hello_part {
	struct client *client;
	struct tpck_hello hello;
	char *identity;
	struct memory_candidate *memory;
	size_t memory_count;
	int conflict_pid; /* a process of the same program still runs */
	/* found by the clerk */
	int rc;
	struct tpck_error error;
	struct tpck_program *program;
	struct tpck_session *session;
};

/* What the clerk does for one process, or for all ranks of a launch that ask for an offer. */
struct hello_job {
	struct job job; /* first */
	struct agent *agent;
	struct launch *launch;
	size_t count;
	struct hello_part *part;
	struct offer *offer; /* of each part */
	struct tpck_manifest *base;
	uint16_t meeting_ports[2];
	bool resume;         /* an offer is wanted, and can be made */
	bool in_parts;       /* by an accord only: nodes have parts of it */
	char obstacle[300];  /* why it cannot, or "" */
	/* of a launch on several nodes */
	struct tpck_point point; /* that is tried */
	struct tpck_accord_source *sources;
	size_t source_count;
	size_t failed;       /* the part that could not go on, or count */
	bool gone;           /* since the node was gone that was to give it */
	bool begun;          /* its sessions are made */
	uint64_t generation; /* then: theirs */
};

/* ---- generations -------------------------------------------------------------------------- */

static int greatest_of_store(void *context, const char *name)
{
	uint64_t *greatest = context;
	struct tpck_point point;

	if (tpck_checkpoint_name_parse(name, &point) == 0 && point.generation > *greatest)
		*greatest = point.generation;
	return 0;
}

static void greatest_of_text(char *text, uint64_t *greatest)
{
	uint64_t said = strtoull(text, NULL, 10);

	if (said > *greatest)
		*greatest = said;
	free(text);
}

/* One more than any generation that left a trace here or in the store, and noted in all. */
uint64_t hello_generation(struct agent *agent)
{
	char path[TPCK_PATH_MAX], text[32], *said;
	struct tpck_session_name session;
	struct tpck_error err = {0};
	uint64_t greatest = peers_generation();
	struct dirent *entry;
	DIR *folder = opendir(agent->folder);

	while (folder && (entry = readdir(folder)))
		if (tpck_session_name_parse(entry->d_name, &session) == 0 && session.generation > greatest)
			greatest = session.generation;
	if (folder)
		closedir(folder);
	tpck_path_join(path, sizeof path, agent->folder, GENERATION);
	if (tpck_file_read(path, 64, &said, NULL, NULL) == 0)
		greatest_of_text(said, &greatest);
	for (size_t i = 0; i < agent->tiers.count; i++) {
		struct tpck_tier *tier = agent->tiers.tier[i];

		tier->operations->list(tier, "", greatest_of_store, &greatest, NULL);
		if (tier->operations->get_text(tier, GENERATION, 64, &said, NULL, NULL) == 0)
			greatest_of_text(said, &greatest);
	}
	snprintf(text, sizeof text, "%" PRIu64 "\n", greatest + 1);
	if (tpck_file_write(path, text, strlen(text), 0, &err))
		tpck_log_warn("%s", err.text);
	/* A store that cannot be written is said by what needs it. */
	for (size_t i = 0; i < agent->tiers.count; i++)
		(void)agent->tiers.tier[i]->operations->mark(agent->tiers.tier[i], GENERATION, text, NULL);
	return greatest + 1;
}

/* ---- the clerk's part --------------------------------------------------------------------- */

static void add_notice(struct offer *offer, const char *text)
{
	size_t used = strlen(offer->notice);

	snprintf(offer->notice + used, sizeof offer->notice - used, "%s%s", used ? "; " : "", text);
}

static void begin_session(struct hello_job *h, struct hello_part *part)
{
	struct tpck_session_name name = {h->launch->generation, part->hello.rank, part->hello.ordinal};

	part->program = program_of(h->agent, part->identity, &part->error);
	part->rc = part->program ? tpck_session_create(&part->session, h->agent->folder, &name, part->identity, &part->error)
				 : -ENOMEM;
	if (part->rc)
		return;
	part->session->control->world = h->launch->world;
	part->session->control->apart = h->launch->apart;
	part->session->control->launch = h->launch->key;
}

/* From now on a start of this program may find something. */
static void mark_program(struct hello_job *h, size_t i, int store_rc, struct tpck_error *store)
{
	char text[340];

	if (tpck_program_mark(h->part[i].program, h->agent->folder, store_rc ? NULL : &h->agent->tiers, true, store))
		store_rc = store_rc ? store_rc : -store->code;
	if (!store_rc)
		return;
	agent_complain(store);
	snprintf(text, sizeof text, "snapshots stay in memory only: %.300s", store->text);
	add_notice(&h->offer[i], text);
}

static struct offer_request request_of(const struct hello_part *part)
{
	return (struct offer_request){
		.identity = part->identity, .rank = part->hello.rank, .ordinal = part->hello.ordinal,
		.wanted_step = part->hello.resume_step, .program = part->program, .memory = part->memory,
		.memory_count = part->memory_count, .session_path = part->session ? part->session->path : NULL,
	};
}

static void choose(struct hello_job *h, bool store, struct offer_request *requests)
{
	bool bad = true;

	for (size_t i = 0; i < h->count; i++) {
		if (h->part[i].rc || !requests[i].program)
			return;
		requests[i].session_path = h->part[i].session->path;
	}
	/* A copy here that turns out bad may be good elsewhere, one that comes is compared as it comes. */
	for (int tries = 0; bad && tries < 2; tries++) {
		if (tries)
			peers_fetch(h->agent, store, peers_first(requests, h->count));
		peers_candidates(requests, h->count);
		offer_choose(h->agent, store, requests, h->offer, h->count, &h->base);
		bad = peers_release(requests, h->count) && !h->offer[0].made;
		/* Grown at its end only: what the sessions' were is as before. */
		for (size_t i = 0; i < h->count; i++)
			h->part[i].memory = requests[i].memory;
	}
}

/* Of ranks that did not expect anything to go on from the first one hears what there is of the program as it was started
 * otherwise, as with other ranks. */
static bool is_to_be_told(const struct hello_job *h, const struct hello_part *part)
{
	return !h->resume && h->launch->world > 1 && part->hello.rank == 0 && (part->hello.flags & TPCK_HELLO_RESUME) &&
	       (part->hello.flags & TPCK_HELLO_LATE);
}

/* What other nodes know and have of the program comes here before a generation is chosen. */
static void ask_others(struct hello_job *h, bool store, struct offer_request *requests)
{
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];

		part->program = program_of(h->agent, part->identity, &part->error);
		if (!part->program)
			return;
		/* It may have run on another node since this one met it. */
		if (h->agent->settings.peers.count)
			tpck_program_refresh(part->program, &h->agent->tiers);
		requests[i] = request_of(part);
		requests[i].told_only = is_to_be_told(h, part);
	}
	if (h->resume || peers_first(requests, h->count)->told_only)
		peers_fetch(h->agent, store, peers_first(requests, h->count));
	h->in_parts = h->resume && h->launch->world > 1 && !h->launch->apart && peers_first(requests, h->count)->in_parts;
}

/* A socket at a port that nobody listens at, of both families where the kernel has them, or -1. */
static int take_port(uint16_t *port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
	socklen_t size = sizeof six;
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0;

	if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
	    bind(fd, (struct sockaddr *)&six, sizeof six) == 0 && getsockname(fd, (struct sockaddr *)&six, &size) == 0) {
		*port = ntohs(six.sin6_port);
		return fd;
	}
	if (fd >= 0)
		close(fd);
	size = sizeof four;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && bind(fd, (struct sockaddr *)&four, sizeof four) == 0 &&
	    getsockname(fd, (struct sockaddr *)&four, &size) == 0)
		*port = ntohs(four.sin_port);
	return fd;
}

/* Ports of TCP that nobody listens at now; 0: there is none. */
static void find_ports(uint16_t ports[2])
{
	/* Both at once, so that they are two. */
	int fd[2] = {take_port(&ports[0]), take_port(&ports[1])};

	for (int i = 0; i < 2; i++)
		if (fd[i] >= 0)
			close(fd[i]);
}

static void hello_run(struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;
	struct offer_request *requests = calloc(h->count, sizeof *requests);
	struct tpck_error store = {0};
	int store_rc = tpck_durable_tier_check(h->agent->tier, &store);

	if (requests)
		ask_others(h, store_rc != -EPERM, requests);
	if (h->in_parts) {
		free(peers_first(requests, h->count)->other_identity);
		free(requests);
		return;
	}
	if (!h->launch->generation)
		h->launch->generation = hello_generation(h->agent);
	for (size_t i = 0; i < h->count; i++)
		begin_session(h, &h->part[i]);
	/* What somebody else could have put there is not looked at. */
	if (h->resume && requests)
		choose(h, store_rc != -EPERM, requests);
	for (size_t i = 0; requests && i < h->count; i++) {
		if (requests[i].told_only)
			offer_tell(h->agent, store_rc != -EPERM, &requests[i], &h->offer[i]);
		free(requests[i].other_identity);
	}
	free(requests);
	if (h->count > 1)
		find_ports(h->meeting_ports);
	for (size_t i = 0; i < h->count; i++) {
		if (h->obstacle[0])
			add_notice(&h->offer[i], h->obstacle);
		if (!h->part[i].rc)
			mark_program(h, i, store_rc, &store);
	}
}

/* ---- the clerk's part where ranks are on several nodes ------------------------------------ */

/* What is there was made for a leader that is gone. */
static void discard_sessions(struct hello_job *h)
{
	char path[TPCK_PATH_MAX];

	for (size_t i = 0; i < h->count; i++) {
		if (!h->part[i].session)
			continue;
		snprintf(path, sizeof path, "%s", h->part[i].session->path);
		tpck_session_close(h->part[i].session);
		h->part[i].session = NULL;
		(void)tpck_session_remove(path);
	}
}

static void begin_all(struct hello_job *h)
{
	if (!h->launch->generation)
		h->launch->generation = hello_generation(h->agent);
	if (h->begun && h->generation == h->launch->generation)
		return;
	discard_sessions(h);
	h->begun = true;
	h->generation = h->launch->generation;
	for (size_t i = 0; i < h->count; i++)
		begin_session(h, &h->part[i]);
}

/* What is neither here nor in the store; it is among the copies here then. */
static bool get_all(struct hello_job *h)
{
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];
		struct tpck_error err = {0};

		for (size_t s = 0; s < h->source_count; s++) {
			const struct tpck_accord_source *source = &h->sources[s];

			if (source->rank != part->hello.rank || source->ordinal != part->hello.ordinal)
				continue;
			if (source->node[0] ? peers_get(h->agent, source->node, part->identity, source->rank, source->ordinal, &h->point, &err)
					    : peers_gather(h->agent, part->identity, source->rank, source->ordinal, &h->point, &err)) {
				h->failed = i;
				h->gone = source->node[0] && !peers_has(source->node);
				snprintf(h->offer[i].notice, sizeof h->offer[i].notice, "step %" PRIu64 " cannot be resumed: %.400s",
					 h->point.step, err.text);
				return false;
			}
		}
	}
	return true;
}

static void try_run(struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;
	struct offer_request *requests = calloc(h->count, sizeof *requests);
	struct tpck_error store = {0};
	int store_rc = tpck_durable_tier_check(h->agent->tier, &store);

	begin_all(h);
	h->failed = 0;
	h->gone = false;
	if (!requests)
		return;
	for (size_t i = 0; i < h->count; i++) {
		if (h->part[i].rc) {
			h->failed = i;
			free(requests);
			return;
		}
		tpck_program_refresh(h->part[i].program, &h->agent->tiers);
		requests[i] = request_of(&h->part[i]);
		requests[i].only = h->point;
		tpck_stage_clear(requests[i].session_path);
	}
	tpck_manifest_free(h->base);
	h->base = NULL;
	if (get_all(h)) {
		peers_candidates_at(requests, h->count, &h->point);
		offer_choose(h->agent, store_rc != -EPERM, requests, h->offer, h->count, &h->base);
		peers_release(requests, h->count);
		h->failed = h->count;
		for (size_t i = h->count; i-- > 0;) {
			h->part[i].memory = requests[i].memory;
			/* The others say that it was this one. */
			if (!h->offer[i].made && strncmp(h->offer[i].notice, "rank ", 5) != 0)
				h->failed = i;
			else if (!h->offer[i].made && h->failed == h->count)
				h->failed = 0;
		}
	}
	free(requests);
}

static void go_run(struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;
	struct tpck_error store = {0};
	int store_rc = tpck_durable_tier_check(h->agent->tier, &store);

	begin_all(h);
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];

		if (!h->resume) {
			h->offer[i].made = false;
			h->offer[i].notice[0] = '\0';
			if (!part->rc)
				tpck_stage_clear(part->session->path);
			if (!part->rc && is_to_be_told(h, part)) {
				struct offer_request request = request_of(part);

				offer_tell(h->agent, store_rc != -EPERM, &request, &h->offer[i]);
			}
		}
		if (h->obstacle[0])
			add_notice(&h->offer[i], h->obstacle);
		if (!part->rc)
			mark_program(h, i, store_rc, &store);
	}
}

/* ---- the event loop's part ---------------------------------------------------------------- */

static void give_back_candidates(struct agent *agent, struct hello_part *part)
{
	for (size_t i = 0; i < part->memory_count; i++) {
		struct memory_candidate *candidate = &part->memory[i];

		candidate->live->jobs--;
		if (candidate->bad) {
			atomic_store(&candidate->live->images[candidate->image].map.header->state,
				     TPCK_IMAGE_ABANDONED);
			live_retire(agent, candidate->live);
		}
		live_unpin(agent, candidate->live, candidate->image);
	}
}

static void refuse(struct client *client, const char *why)
{
	struct tpck_welcome welcome = {0};

	tpck_log_warn("process %d is not served: %s", (int)client->pid, why);
	snprintf(welcome.notice, sizeof welcome.notice, "%s", why);
	client_send(client, TPCK_MSG_WELCOME, &welcome, sizeof welcome);
}

/* What one process is told, by what its session says of it. */
static struct tpck_welcome welcome_of(const struct hello_job *h, size_t i)
{
	const struct hello_part *part = &h->part[i];
	const struct offer *offer = &h->offer[i];
	struct tpck_welcome w = {.generation = part->session->name.generation};

	if (offer->made) {
		w.offer = 1;
		w.offer_generation = offer->point.generation;
		w.offer_step = offer->point.step;
		w.log_sequence = offer->cut.sequence;
		w.log_offset = offer->cut.offset;
		w.tries = tpck_program_tries(part->program, &offer->point);
		memcpy(w.meeting_ports, h->meeting_ports, sizeof w.meeting_ports);
	}
	snprintf(w.session, sizeof w.session, "%s", part->session->path);
	snprintf(w.notice, sizeof w.notice, "%s", offer->notice);
	return w;
}

/*
 * From here on all of them go on so, or begin so: one that has not been told when this agent dies is told by the next one. First all is noted, since the first
 * session that says whose it is stands for all.
 */
static void settle_welcomes(struct hello_job *h)
{
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];
		struct tpck_welcome w;

		if (part->rc)
			continue;
		if (h->offer[i].made) {
			part->session->control->parent_generation = h->offer[i].point.generation;
			part->session->control->resume_step = h->offer[i].point.step;
		}
		w = welcome_of(h, i);
		if (h->launch->world > 1)
			welcome_note(part->session, part->client->pid, &w);
	}
	atomic_thread_fence(memory_order_seq_cst);
	for (size_t i = 0; i < h->count; i++)
		if (!h->part[i].rc)
			h->part[i].session->control->pid = h->part[i].client->pid;
}

static void welcome(struct agent *agent, struct hello_job *h, size_t i)
{
	struct hello_part *part = &h->part[i];
	const struct offer *offer = &h->offer[i];
	struct tpck_welcome w = welcome_of(h, i);
	struct live *live;

	/* Another node's rank may have given up before this one is told to go. */
	if (offer->made && h->launch->began_anew)
		atomic_store(&part->session->control->go, h->launch->over);
	live = live_new(agent, part->session, part->client->pid);
	if (!live) {
		refuse(part->client, "out of memory");
		tpck_session_close(part->session);
		return;
	}
	live->program = part->program;
	live->launch = h->launch;
	live->offered_from = offer->from;
	ranks_here_find(&h->launch->here, part->hello.rank)->live = live;
	if (h->launch->world > 1)
		tpck_log_info("process %d is rank %u of generation %" PRIu64 "%s%s", (int)live->pid, part->hello.rank, w.generation,
			      w.notice[0] ? "; " : "", w.notice);
	else
		tpck_log_info("process %d is generation %" PRIu64 "%s%s", (int)live->pid, w.generation, w.notice[0] ? "; " : "",
			      w.notice);
	if (part->hello.rank == 0)
		history_started(agent, live);
	if (part->client->gone) {
		live_died(agent, live);
		return;
	}
	live_attach(live, part->client);
	client_send(part->client, TPCK_MSG_WELCOME, &w, sizeof w);
}

static void job_free(struct hello_job *h)
{
	for (size_t i = 0; i < h->count; i++) {
		free(h->part[i].memory);
		free(h->part[i].identity);
	}
	tpck_manifest_free(h->base);
	free(h->sources);
	free(h->part);
	free(h->offer);
	free(h);
}

static bool keep(struct client *client, const struct tpck_hello *hello, const char *identity)
{
	if (client->deferred)
		return true;
	client->deferred = malloc(sizeof *hello + strlen(identity) + 1);
	if (!client->deferred)
		return false;
	memcpy(client->deferred, hello, sizeof *hello);
	strcpy(client->deferred + sizeof *hello, identity);
	return true;
}

/* All ranks are here, and what they can go on from is in parts on several nodes: as if some of them were elsewhere. */
static void begin_accord(struct agent *agent, struct hello_job *h)
{
	struct launch *launch = h->launch;
	struct client *next;

	launch->hellos++; /* it stays till the end of this */
	if (!launch->apart) {
		launch->accord = accord_new();
		launch->apart = launch->accord != NULL;
	}
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];

		part->client->busy = false;
		give_back_candidates(agent, part);
		if (part->client->gone || !launch->apart || !keep(part->client, &part->hello, part->identity))
			client_close(agent, part->client);
		else
			part->client->deferred_until_ns = tpck_clock_monotonic_ns() + RANKS_WAIT_NS;
	}
	job_free(h);
	for (struct client *client = agent->clients; client; client = next) {
		next = client->next;
		if (client->launch == launch && client->deferred)
			accord_came(agent, launch, (struct tpck_hello *)client->deferred, client->deferred + sizeof(struct tpck_hello));
	}
	launch_said(agent, launch, 1);
}

static void hello_done(struct agent *agent, struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;

	agent->jobs--;
	if (h->in_parts) {
		begin_accord(agent, h);
		return;
	}
	if (h->base) {
		tpck_manifest_free(h->launch->base);
		h->launch->base = h->base;
		h->base = NULL;
	}
	settle_welcomes(h);
	for (size_t i = 0; i < h->count; i++) {
		struct hello_part *part = &h->part[i];

		part->client->busy = false;
		part->client->launch = NULL;
		give_back_candidates(agent, part);
		if (part->rc)
			refuse(part->client, part->error.text);
		else
			welcome(agent, h, i);
		if (part->client->gone)
			client_close(agent, part->client);
	}
	if (h->launch->apart)
		accord_welcomed(agent, h->launch);
	launch_said(agent, h->launch, (uint32_t)h->count);
	job_free(h);
}

/* Committed images of processes that are gone, pinned. */
static void gather_candidates(const struct hello_job *h, struct hello_part *part)
{
	struct agent *agent = h->agent;
	size_t room = 0;

	for (struct live *live = agent->lives; live; live = live->next)
		room += live->life == LIFE_DEAD ? live->image_count : 0;
	part->memory = calloc(room + 1, sizeof *part->memory);
	if (!part->memory)
		return;
	for (struct live *live = agent->lives; live; live = live->next) {
		for (unsigned i = 0; live->life == LIFE_DEAD && i < live->image_count; i++) {
			struct tpck_image_header *header = live->images[i].map.header;
			struct memory_candidate *candidate = &part->memory[part->memory_count];

			/* Of what only is held the leader may learn that it was committed elsewhere. */
			if (live_image_of(live, header->step) != (int)i ||
			    (!h->launch->apart && atomic_load(&header->state) != TPCK_IMAGE_COMMITTED))
				continue;
			atomic_fetch_add(&header->pins, 1);
			live->jobs++;
			candidate->live = live;
			candidate->image = i;
			candidate->point = (struct tpck_point){header->generation, header->step};
			candidate->resumable = header->resumable;
			candidate->cut = (struct tpck_cut){header->log_sequence, header->log_offset};
			candidate->identity = live->session->identity;
			candidate->identity_differs = strcmp(live->session->identity, part->identity) != 0;
			snprintf(candidate->image_path, sizeof candidate->image_path, "%s", live->images[i].path);
			snprintf(candidate->session_path, sizeof candidate->session_path, "%s", live->session->path);
			part->memory_count++;
		}
	}
}

/* An earlier process of the same program that is not settled yet, or NULL. */
static struct live *predecessor(struct agent *agent, const struct client *client, const char *identity)
{
	for (struct live *live = agent->lives; live; live = live->next) {
		if (strcmp(live->session->identity, identity) != 0)
			continue;
		/* The same process, new program text: execve ended what it was. */
		if (live->life == LIFE_RUNNING && live->pid == client->pid)
			live_died(agent, live);
		if (live->life == LIFE_RUNNING || live->life == LIFE_SETTLING)
			return live;
	}
	return NULL;
}

static bool defer(struct client *client, const struct tpck_hello *hello, const char *identity)
{
	uint64_t now = tpck_clock_monotonic_ns();

	if (client->deferred)
		return now < client->deferred_until_ns;
	client->deferred_until_ns = now + PREDECESSOR_WAIT_NS;
	return keep(client, hello, identity);
}

/* Whether a process can take an offer. */
static bool asks(const struct tpck_hello *hello)
{
	return (hello->flags & (TPCK_HELLO_RESUME | TPCK_HELLO_LATE)) == TPCK_HELLO_RESUME;
}

static struct hello_job *job_new(struct agent *agent, struct launch *launch, size_t room)
{
	struct hello_job *h = calloc(1, sizeof *h);

	if (!h)
		return NULL;
	h->part = calloc(room, sizeof *h->part);
	h->offer = calloc(room, sizeof *h->offer);
	if (!h->part || !h->offer) {
		job_free(h);
		return NULL;
	}
	h->job.run = hello_run;
	h->job.done = hello_done;
	h->agent = agent;
	h->launch = launch;
	return h;
}

static void job_add(struct hello_job *h, struct client *client, const struct tpck_hello *hello, const char *identity,
		    const struct live *before)
{
	struct hello_part *part = &h->part[h->count];

	part->identity = strdup(identity);
	if (!part->identity) {
		client_close(h->agent, client);
		return;
	}
	h->count++;
	part->client = client;
	part->hello = *hello;
	part->conflict_pid = before ? (int)before->pid : 0;
	if (before)
		snprintf(h->obstacle, sizeof h->obstacle, "not resuming: process %d of the same program is still running",
			 part->conflict_pid);
	if (hello->flags & TPCK_HELLO_RESUME)
		gather_candidates(h, part);
	free(client->deferred);
	client->deferred = NULL;
	client->busy = true;
}

static void job_give(struct hello_job *h)
{
	h->resume = h->resume && !h->obstacle[0];
	if (h->count == 0) {
		job_free(h);
		return;
	}
	h->agent->jobs++;
	worker_give(&h->agent->clerk, &h->job);
}

/* The ranks of a launch whose HELLOs wait for one another. */
static void gather_ranks(struct agent *agent, struct launch *launch)
{
	uint64_t now = tpck_clock_monotonic_ns();
	uint32_t here = 0, missing = 0;
	bool late = false;
	struct hello_job *h;
	struct client *next;

	for (struct client *client = agent->clients; client; client = client->next)
		if (client->launch == launch && client->deferred) {
			here++;
			late = late || now >= client->deferred_until_ns;
		}
	/* Who began without asking will not come to any step but its own. */
	if (here == 0 || (here < launch->world && !late && !launch->alone_any))
		return;
	h = job_new(agent, launch, here);
	if (!h)
		return;
	h->resume = here == launch->world;
	while (missing < launch->world - 1 && ranks_here_find(&launch->here, missing))
		missing++;
	if (launch->alone_any)
		snprintf(h->obstacle, sizeof h->obstacle, "not resuming: another rank of this job has begun from its beginning");
	else if (here < launch->world)
		snprintf(h->obstacle, sizeof h->obstacle, "not resuming: rank %u did not come within %.0f s", missing,
			 (double)RANKS_WAIT_NS / 1e9);
	for (struct client *client = agent->clients; client; client = next) {
		next = client->next;
		if (client->launch == launch && client->deferred)
			job_add(h, client, (struct tpck_hello *)client->deferred, client->deferred + sizeof(struct tpck_hello),
				predecessor(agent, client, client->deferred + sizeof(struct tpck_hello)));
	}
	job_give(h);
}

/* Whether what is here of this program's ranks is of a launch that was on several nodes: one node's agent alone does not put that
 * together. */
static bool was_apart(struct agent *agent, const char *identity)
{
	char form[IDENTITY_FORM];

	identity_form(identity, form);
	for (const struct live *live = agent->lives; live; live = live->next)
		if (live->session->control->apart && identity_form_among(live->session->identity, form, sizeof form) >= 0)
			return true;
	return peers_on() && peers_parts_held(form, sizeof form);
}

void hello_begin(struct agent *agent, struct client *client, const struct tpck_hello *hello, const char *identity)
{
	struct hello_job *h;
	struct live *before;

	agent->served = true;
	agent->nobody_returns = false;
	salvage_asked();
	live_poll(agent);
	peers_master(hello->master);
	if (welcome_again(agent, client, hello, identity))
		return;
	before = predecessor(agent, client, identity);
	if (before && (before->life == LIFE_SETTLING || (hello->flags & TPCK_HELLO_RESUME)) &&
	    defer(client, hello, identity))
		return;
	client->launch = launch_join(agent, hello, hello->world > 1 && asks(hello) && was_apart(agent, identity));
	if (!client->launch) {
		tpck_log_warn("process %d says that it is rank %u of %u", (int)client->pid, hello->rank, hello->world);
		client_close(agent, client);
		return;
	}
	client->launch->hellos++;
	if (client->launch->apart) {
		uint64_t wait_ns = asks(hello) && !peers_awaited() ? RANKS_WAIT_NS : APART_WAIT_NS;

		if (keep(client, hello, identity)) {
			client->deferred_until_ns = tpck_clock_monotonic_ns() + wait_ns;
			accord_came(agent, client->launch, hello, identity);
			return;
		}
		client_close(agent, client);
		return;
	}
	if (client->launch->world > 1 && asks(hello)) {
		if (keep(client, hello, identity)) {
			client->deferred_until_ns = tpck_clock_monotonic_ns() + RANKS_WAIT_NS;
			return;
		}
		client_close(agent, client);
		return;
	}
	if (client->launch->world > 1)
		client->launch->alone_any = true;
	h = job_new(agent, client->launch, 1);
	if (!h) {
		client_close(agent, client);
		return;
	}
	/* An offer that a process of many could not take is not made. */
	h->resume = (hello->flags & TPCK_HELLO_RESUME) && client->launch->world == 1;
	job_add(h, client, hello, identity, before);
	job_give(h);
}

void hello_consider(struct agent *agent)
{
	struct client *next;

	for (struct client *client = agent->clients; client; client = next) {
		next = client->next;
		if (client->deferred && !client->busy && !client->launch)
			hello_begin(agent, client, (struct tpck_hello *)client->deferred,
				    client->deferred + sizeof(struct tpck_hello));
	}
	for (struct launch *launch = agent->launches; launch; launch = launch->next)
		if (launch->world > 1 && !launch->apart)
			gather_ranks(agent, launch);
}

/* ---- as the leader says ------------------------------------------------------------------- */

uint32_t hello_waiting(const struct agent *agent, const struct launch *launch, uint64_t *until_ns)
{
	uint32_t waiting = 0;

	*until_ns = UINT64_MAX;
	for (const struct client *client = agent->clients; client; client = client->next)
		if (client->launch == launch && client->deferred && !client->busy) {
			waiting++;
			if (client->deferred_until_ns < *until_ns)
				*until_ns = client->deferred_until_ns;
		}
	return waiting;
}

uint64_t hello_ports(void)
{
	uint16_t ports[2] = {0};

	find_ports(ports);
	return (uint64_t)ports[1] << 16 | ports[0];
}

/* Those that wait. NULL: nobody does, or there is no memory. */
static struct hello_job *job_of_waiting(struct agent *agent, struct launch *launch)
{
	uint64_t until;
	uint32_t waiting = hello_waiting(agent, launch, &until);
	struct hello_job *h = waiting ? job_new(agent, launch, waiting) : NULL;
	struct client *next;

	for (struct client *client = agent->clients; h && client; client = next) {
		const char *identity = client->deferred + sizeof(struct tpck_hello);

		next = client->next;
		if (client->launch == launch && client->deferred && !client->busy)
			job_add(h, client, (struct tpck_hello *)client->deferred, identity, predecessor(agent, client, identity));
	}
	if (h && h->count == 0) {
		job_free(h);
		h = NULL;
	}
	return h;
}

static void try_done(struct agent *agent, struct job *job)
{
	struct hello_job *h = (struct hello_job *)job;
	bool done = h->failed == h->count;
	size_t i = done ? 0 : h->failed;

	agent->jobs--;
	accord_staged(agent, h->launch, done ? ACCORD_STAGED_ALL : h->gone ? ACCORD_STAGED_GONE : ACCORD_STAGED_BAD, h->part[i].hello.rank,
		      h->part[i].rc ? h->part[i].error.text : h->offer[i].notice);
}

void hello_try(struct agent *agent, struct launch *launch, const struct tpck_point *point, const struct tpck_accord_source *sources,
	       size_t count)
{
	struct hello_job *h = launch->staged ? launch->staged : job_of_waiting(agent, launch);

	if (!h) {
		accord_staged(agent, launch, ACCORD_STAGED_BAD, 0, "none of its processes is there any more");
		return;
	}
	launch->staged = h;
	h->point = *point;
	free(h->sources);
	h->sources = count ? calloc(count, sizeof *sources) : NULL;
	h->source_count = h->sources ? count : 0;
	if (h->sources)
		memcpy(h->sources, sources, count * sizeof *sources);
	h->job.run = try_run;
	h->job.done = try_done;
	agent->jobs++;
	worker_give(&agent->clerk, &h->job);
}

void hello_go(struct agent *agent, struct launch *launch, bool staged, uint64_t ports, const char *notice)
{
	struct hello_job *h = launch->staged ? launch->staged : job_of_waiting(agent, launch);

	launch->staged = NULL;
	if (!h)
		return;
	h->resume = staged;
	h->meeting_ports[0] = (uint16_t)ports;
	h->meeting_ports[1] = (uint16_t)(ports >> 16);
	snprintf(h->obstacle, sizeof h->obstacle, "%.290s", notice);
	/* Other nodes' ranks may be told already: the store, which is asked next, can take its time. */
	if (staged && h->begun && h->generation == launch->generation)
		settle_welcomes(h);
	h->job.run = go_run;
	h->job.done = hello_done;
	agent->jobs++;
	worker_give(&agent->clerk, &h->job);
}

void hello_each_staged(struct agent *agent, struct launch *launch,
		       void (*visit)(struct agent *agent, struct launch *launch, const struct tpck_hello *hello, const char *identity))
{
	struct hello_job *h = launch->staged;

	for (size_t i = 0; h && i < h->count; i++)
		if (!h->part[i].client->gone)
			visit(agent, launch, &h->part[i].hello, h->part[i].identity);
}

void hello_refuse(struct agent *agent, struct launch *launch, const char *why)
{
	struct client *next;

	for (struct client *client = agent->clients; client; client = next) {
		next = client->next;
		if (client->launch != launch || !client->deferred || client->busy)
			continue;
		refuse(client, why);
		free(client->deferred);
		client->deferred = NULL;
		client->launch = NULL;
		launch->hellos--;
	}
}

/* ------------------------------------------------------------------------------------------- */

void hello_adopt(struct agent *agent, struct client *client, const struct tpck_hello *hello)
{
	struct tpck_welcome w = {.generation = hello->generation};

	agent->served = true;
	agent->nobody_returns = false;
	for (struct live *live = agent->lives; live; live = live->next) {
		const struct tpck_session_name *name = &live->session->name;

		if (name->generation != hello->generation || name->rank != hello->rank ||
		    name->ordinal != hello->ordinal || live->life != LIFE_RUNNING || live->client)
			continue;
		live_attach(live, client);
		w.images = live->image_count;
		snprintf(w.session, sizeof w.session, "%s", live->session->path);
		client_send(client, TPCK_MSG_WELCOME, &w, sizeof w);
		for (unsigned i = 0; i < live->image_count; i++)
			live_held(agent, live, i);
		launch_injected(agent, live->launch);
		return;
	}
	snprintf(w.notice, sizeof w.notice, "generation %" PRIu64 " is not known to the agent any more",
		 hello->generation);
	w.generation = 0;
	client_send(client, TPCK_MSG_WELCOME, &w, sizeof w);
}
