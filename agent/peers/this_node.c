/* SPDX-License-Identifier: Apache-2.0 */
/* Other nodes: who this one is to them, and how long this agent stays for them. */
#include "config.h"

#include "agent/peers/peers.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "agent/peers/peers_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/peer/address.h"
#include "runtime/peer/rendezvous.h"
#include "runtime/peer/sealed.h"
#include "runtime/store/file.h"

#define MEET_NS 1500000000ull
enum { SAY_US = 200000, LOCAL_MOST = 64 };
/* Before it leaves: who is on the way has not said whether it would; one that is gone never says it. */
#define UNMET_NS 10000000000ull

/* ---- start and end ------------------------------------------------------------------------ */

/* Whether an entry of TRANSPCKPT_NODES is this node's. */
static bool is_own(const char *name, const char *addresses)
{
	if (strncmp(name, peers.host, strlen(peers.host)) == 0 && strchr(":.", name[strlen(peers.host)]))
		return true;
	for (const char *line = addresses, *end; (end = strchr(line, '\n')); line = end + 1) {
		char one[TPCK_TRANSPORT_ADDRESS];

		snprintf(one, sizeof one, "%.*s", (int)(end - line), line);
		if (tpck_rendezvous_is_local(one))
			return true;
	}
	return false;
}

/* Where this agent listens, by the entry of TRANSPCKPT_NODES that is this node's. What is no entry, or names nobody now,
 * is said: it is looked for again, but without a word. */
static uint16_t own_port(const struct agent *agent)
{
	char list[TPCK_SETTING_TEXT_MAX], *rest = list, *name, addresses[1024], first[TPCK_TRANSPORT_ADDRESS];
	uint16_t port = home.settings.nodes[0] && !agent->launched ? TPCK_PEERS_PORT : 0, said;
	bool own = false;

	snprintf(list, sizeof list, "%s", home.settings.nodes);
	/* mpirun says who there is. */
	while (!agent->launched && (name = strtok_r(rest, ", ", &rest))) {
		struct tpck_error err = {0};

		if (tpck_rendezvous_resolve(name, TPCK_PEERS_PORT, addresses, sizeof addresses, &said, &err)) {
			tpck_log_warn("of TRANSPCKPT_NODES %s", err.text);
			continue;
		}
		if (own || !is_own(name, addresses))
			continue;
		own = true;
		port = said;
		if (strcmp(peers.ops->name, "ucx") == 0 && !tpck_rendezvous_answers(addresses, first, sizeof first))
			tpck_log_warn("of TRANSPCKPT_NODES '%.100s' is this node, but UCX answers over TCP at the first address of an "
				      "interface only: that is %s", name, first);
	}
	return port;
}

static int find_secret(struct tpck_error *err)
{
	char path[TPCK_PATH_MAX];
	int rc;

	if (home.settings.secret[0])
		return tpck_secret_load(home.settings.secret, -1, peers.secret[TPCK_SECRET_JOB], err);
	rc = tpck_tier_check(home_shared_tier(), err);
	if (!rc)
		rc = peers.folder[0] ? tpck_path_join(path, sizeof path, peers.folder, "secret")
				     : tpck_error_set(err, ENOTSUP, "the store has no folder for a secret: TRANSPCKPT_SECRET can name a file");
	return rc ? rc : tpck_secret_load(path, 1, peers.secret[TPCK_SECRET_JOB], err);
}

static void name_self(void)
{
	if (gethostname(peers.host, sizeof peers.host - 1))
		snprintf(peers.host, sizeof peers.host, "unknown");
	for (char *p = peers.host; *p; p++)
		if (*p == '/')
			*p = '_';
	snprintf(peers.domain, sizeof peers.domain, "%.120s", home.settings.domain[0] ? home.settings.domain : peers.host);
	/* Numbers of processes are the same in several containers of a host's name. */
	snprintf(peers.node, sizeof peers.node, "%.90s.%d.%04x", peers.host, (int)getpid(),
		 (unsigned)(tpck_clock_realtime_ns() >> 10 & 0xffff));
	/* Where the tier is no folder nodes meet by their addresses alone. */
	if (tpck_tier_path(home_shared_tier(), "agents", peers.folder, sizeof peers.folder, NULL))
		peers.folder[0] = '\0';
}

bool peers_launched(bool foreground)
{
	/* One that the library has started may have the environment of a rank of the program's, and must not pass for it. */
	return foreground && getenv("OMPI_COMM_WORLD_SIZE") && home.settings.peers.count && tpck_transport_mpi.each &&
	       strcmp(home.settings.transport, "ucx") != 0 && strcmp(home.settings.transport, "tcp") != 0;
}

static int choose_transport(const struct agent *agent, struct tpck_error *err)
{
	const char *security = home.settings.peer_security;

	peers.ops = tpck_sealed_over(agent->launched ? &tpck_transport_mpi
				     : strcmp(home.settings.transport, "ucx") == 0 ? &tpck_transport_ucx : &tpck_transport_tcp);
	peers.level = strcmp(security, "off") == 0 ? TPCK_SEAL_OFF : strcmp(security, "auth") == 0 ? TPCK_SEAL_AUTH : TPCK_SEAL_ENCRYPT;
	if (agent->launched || strcmp(home.settings.transport, "mpi") != 0)
		return 0;
	if (!tpck_transport_mpi.each)
		return tpck_error_set(err, ENOTSUP, "TRANSPCKPT_TRANSPORT is mpi, which this agent was built without");
	peers.awaited = true;
	return tpck_error_set(err, ENOTCONN, "TRANSPCKPT_TRANSPORT is mpi, but this agent was not started by mpirun (mpirun --map-by ppr:1:node transpckptd --job %s --foreground)",
			      home.job);
}

/* An entry that is wrong opens nothing: the others hold. */
static void choose_addresses(void)
{
	struct tpck_error err = {0};
	struct tpck_local list[LOCAL_MOST];

	if (tpck_address_choose(home.settings.interfaces, &err))
		tpck_log_warn("of TRANSPCKPT_INTERFACES %s", err.text);
	if (!peers.ops->each && !tpck_address_chosen(list, LOCAL_MOST) && tpck_address_local(list, LOCAL_MOST))
		tpck_log_warn("this node has no address that TRANSPCKPT_INTERFACES names ('%.200s'): it is not reached by agents of other nodes",
			      home.settings.interfaces);
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

	name_self();
	rc = choose_transport(agent, err);
	if (!rc)
		rc = find_secret(err);
	if (rc)
		return rc;
	choose_addresses();
	port = own_port(agent);
	/* Whoever worked alone here has left: its lock is this one's. */
	if (agent->launched)
		alone_clear();
	/* Threads of the transport's own have no signals either. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	peers.listed = !peers.ops->each && !home.settings.nodes[0] && listed_begin(&port);
	rc = peers.ops->start(&peers.transport, &peers_events, NULL, port, err);
	if (rc && peers.listed) {
		tpck_log_info("port %u is taken: nodes are not found by Slurm's list of them, but in the store", port);
		peers.listed = false;
		port = 0;
		rc = peers.ops->start(&peers.transport, &peers_events, NULL, port, err);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		return rc;
	peers.port = port;
	if (!peers.ops->each && tpck_address_all_link_local())
		tpck_log_warn("this node has link-local addresses only, which agents do not use: no agents of other nodes are reached over TCP");
	tpck_rendezvous_addresses(peers.ops->port(peers.transport), addresses, sizeof addresses);
	if (!home.settings.nodes[0] && !peers.ops->each && !peers.folder[0])
		rc = tpck_error_set(err, ENOTSUP, "the store has no folder in which nodes meet: TRANSPCKPT_NODES can name them");
	else if (!home.settings.nodes[0] && !peers.ops->each)
		rc = tpck_rendezvous_write(peers.folder, peers.node, addresses, err);
	if (!rc)
		rc = worker_start(&peers.courier);
	if (!rc)
		rc = start_thread();
	if (rc)
		peers.ops->stop(peers.transport);
	return rc;
}

/* What does not work is one line, and an error only where mpirun has started the agents: the others would wait
 * for this one. */
static int begin_peers(struct agent *agent, struct tpck_error *err)
{
	int rc;

	peers.agent = agent;
	peers.errands_end = &peers.errands;
	peers.begun_ns = tpck_clock_monotonic_ns();
	if (!home.settings.peers.count)
		return 0;
	peers.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rc = begin(agent, err);
	if (rc && agent->launched)
		return rc;
	if (rc) {
		tpck_log_warn("this node works alone, without copies on others: %s", err->text);
		if (peers.awaited)
			alone_say();
		return 0;
	}
	peers.on = true;
	if (peers.level == TPCK_SEAL_OFF)
		tpck_log_warn("TRANSPCKPT_PEER_SECURITY is off: who is between the nodes can read and change copies that agents send each other, and "
			      "copies go right into the memory of images");
	if (strcmp(peers.ops->name, "ucx") == 0)
		tpck_log_warn("TRANSPCKPT_TRANSPORT is ucx: whoever reaches UCX's ports can end this agent, before it has been asked for the job's secret");
	if (agent->launched)
		tpck_log_info("node %s of domain %s speaks with others over MPI", peers.host, peers.domain);
	else
		tpck_log_info("node %s of domain %s listens for others at port %u", peers.host, peers.domain,
			      peers.ops->port(peers.transport));
	return 0;
}

void peers_meet(void)
{
	uint64_t until = tpck_clock_monotonic_ns() + MEET_NS;
	bool any = false;

	if (!peers.on || !peers.listed)
		return;
	while (peers_connecting() && tpck_clock_monotonic_ns() < until)
		usleep(5000);
	pthread_mutex_lock(&peers.lock);
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		any = any || peer->state == PEER_KNOWN;
	pthread_mutex_unlock(&peers.lock);
	/* Peers say it as soon as they know who this is. */
	if (any)
		usleep(SAY_US);
}

static void stop(struct agent *agent)
{
	uint64_t one = 1;

	(void)agent;
	alone_end();
	if (!peers.on)
		return;
	pthread_mutex_lock(&peers.lock);
	peers.stop = true;
	pthread_mutex_unlock(&peers.lock);
	(void)!write(peers.wake, &one, sizeof one);
	pthread_join(peers.thread, NULL);
	worker_stop(&peers.courier);
	if (peers.folder[0] && !home.settings.nodes[0] && !peers.ops->each)
		tpck_rendezvous_remove(peers.folder, peers.node);
	peers.on = false;
}

const struct loop_part peers_loop = {.begin = begin_peers, .stop = stop};

/* ---- how long ----------------------------------------------------------------------------- */

/* Under the lock. */
static void say_at_once(void)
{
	uint64_t one = 1;

	peers.tick_now = true;
	(void)!write(peers.wake, &one, sizeof one);
}

static void consider(struct agent *agent)
{
	bool working = agent->clients != NULL || agent->lives != NULL;

	meeting_consider(agent);
	if (!peers.on)
		return;
	pthread_mutex_lock(&peers.lock);
	peers.working = working;
	if (!peers.ending && agent->stopping && agent->together) {
		peers.ending = true;
		say_at_once();
	}
	pthread_mutex_unlock(&peers.lock);
}

const struct loop_part peers_state_loop = {.consider = consider, .deadline = meeting_deadline};

bool peers_may_leave(bool willing)
{
	uint64_t now = tpck_clock_monotonic_ns();
	bool may = willing;

	if (!peers.on || !peers.ops->each)
		return willing;
	pthread_mutex_lock(&peers.lock);
	if (!willing || !peers.willing_ns)
		peers.willing_ns = willing ? now : 0;
	may = may && (!peers_unmet() || peers.left || now >= peers.willing_ns + UNMET_NS);
	if (peers.staying == willing && peers.ending)
		say_at_once();
	peers.staying = !willing;
	for (const struct peer *peer = peers.list; peer; peer = peer->next)
		may = may && !(peer->state == PEER_KNOWN && peer->staying);
	pthread_mutex_unlock(&peers.lock);
	return may;
}

void peers_finish(void)
{
	if (peers.ops && peers.ops->finish)
		peers.ops->finish();
}

void peers_status(json_object *json)
{
	json_object *list, *row;

	if (!home.settings.peers.count)
		return;
	list = json_object_new_array();
	pthread_mutex_lock(&peers.lock);
	for (const struct peer *peer = peers.list; peer; peer = peer->next) {
		if (peer->state != PEER_KNOWN)
			continue;
		row = json_object_new_object();
		json_object_object_add(row, "host", json_object_new_string(peer->other.host));
		json_object_object_add(row, "domain", json_object_new_string(peer->other.domain));
		json_object_array_add(list, row);
	}
	pthread_mutex_unlock(&peers.lock);
	json_object_object_add(json, "node", json_object_new_string(peers.host));
	json_object_object_add(json, "peers", list);
}

uint64_t peers_generation(void)
{
	uint64_t generation;

	pthread_mutex_lock(&peers.lock);
	generation = peers.generation;
	pthread_mutex_unlock(&peers.lock);
	return generation;
}
