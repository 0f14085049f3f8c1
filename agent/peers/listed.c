/* SPDX-License-Identifier: Apache-2.0 */
/* Finding each other where no folder is known to be shared, by Slurm's list of a job's nodes, or by the one node at which the ranks
 * meet (MASTER_ADDR): each agent of a job listens at a port that follows from the job, and has the user's secret. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/peers/peers_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/base/settings.h"
#include "runtime/base/tier_settings.h"
#include "runtime/peer/nodelist.h"
#include "runtime/peer/rendezvous.h"
#include "runtime/store/file.h"

#define SEC 1000000000ull
/* Names, which may come to mean another address or none. */
#define AGAIN_NS (20 * SEC)
#define UNKNOWN_NS (120 * SEC)
/* Of one look: others wait for the thread. */
#define LOOK_NS (SEC / 10)

/* Below the ports that Linux gives away by itself. */
enum { NODES_MOST = 1024, PORT_FIRST = 20000, PORT_COUNT = 10000 };

static struct node {
	char name[TPCK_NODELIST_NAME];
	uint64_t next_ns;
} *nodes;
static struct {
	size_t count, turn;    /* of the nodes */
	uint16_t job_port;
	/* Where the ranks meet: the only node, whose name may come to be another. */
	bool by_master, here;
	/* Under the lock. */
	char master[TPCK_NODELIST_NAME];
	uint64_t master_since_ns; /* CLOCK_REALTIME of the start whose ranks said so; 0: this agent's environment does */
} listed;

static void add(void *unused, const char *name)
{
	(void)unused;
	snprintf(nodes[listed.count++].name, sizeof nodes->name, "%s", name);
}

/* False: there are no others, or the store shows them. */
static bool read_list(void)
{
	const char *list = getenv("SLURM_JOB_NODELIST");
	long long all;

	if (!list || !list[0])
		return false;
	all = tpck_nodelist_each(list, 0, NULL, NULL);
	if (all < 0)
		tpck_log_warn("SLURM_JOB_NODELIST is no list of nodes: '%.100s'", list);
	if (all < 2)
		return false;
	if (all > NODES_MOST)
		tpck_log_warn("of the %lld nodes of SLURM_JOB_NODELIST the first %d are looked at", all, NODES_MOST);
	nodes = calloc(all < NODES_MOST ? (size_t)all : NODES_MOST, sizeof *nodes);
	if (nodes)
		(void)tpck_nodelist_each(list, NODES_MOST, add, NULL);
	return nodes != NULL;
}

static bool is_of_others(const char *host)
{
	return host && host[0] && strlen(host) < sizeof listed.master && strcmp(host, "localhost") != 0 && strncmp(host, "127.", 4) != 0 &&
	       strcmp(host, "::1") != 0;
}

static bool read_master(void)
{
	const char *host = getenv("MASTER_ADDR");

	if (!is_of_others(host))
		return false;
	nodes = calloc(1, sizeof *nodes);
	if (!nodes)
		return false;
	listed.count = 1;
	listed.by_master = true;
	strcpy(listed.master, host);
	return true;
}

bool listed_follow(const char *host, uint64_t since_ns)
{
	bool is_new = false;

	if (!listed.by_master || !is_of_others(host))
		return false;
	pthread_mutex_lock(&peers.lock);
	if (since_ns > listed.master_since_ns) {
		is_new = strcmp(listed.master, host) != 0;
		strcpy(listed.master, host);
		listed.master_since_ns = since_ns;
	}
	pthread_mutex_unlock(&peers.lock);
	return is_new;
}

void listed_say(uint64_t serial)
{
	struct tpck_peer_message head = {0};
	char host[sizeof listed.master];

	pthread_mutex_lock(&peers.lock);
	head.value = listed.by_master ? listed.master_since_ns : 0;
	strcpy(host, listed.master);
	pthread_mutex_unlock(&peers.lock);
	if (head.value)
		peers_say(serial, TPCK_PEER_MASTER, &head, host, strlen(host));
}

/* Those who have no rank of it are told, too. */
void peers_master(const char *host)
{
	if (listed_follow(host, tpck_clock_realtime_ns()))
		listed_say(0);
}

bool listed_is_master(void)
{
	return listed.by_master;
}

bool listed_here(void)
{
	return listed.here;
}

/* What TRANSPCKPT_SECRET says, or one in the user's state folder, which is mostly at home and all nodes see. */
static int find_secret(char *path, size_t size, struct tpck_error *err)
{
	char folder[TPCK_PATH_MAX];
	int rc = 0;

	if (home.settings.secret[0]) {
		snprintf(path, size, "%s", home.settings.secret);
	} else {
		tpck_settings_state(folder, sizeof folder);
		rc = tpck_folder_make(folder, err);
		if (!rc)
			rc = tpck_path_join(path, size, folder, ".secret");
	}
	return rc ? rc : tpck_secret_load(path, home.settings.secret[0] ? -1 : 0, peers.secret[TPCK_SECRET_USER], err);
}

bool listed_begin(uint16_t *port)
{
	char path[TPCK_PATH_MAX], text[256];
	struct tpck_error err = {0};

	if (!tpck_settings_are_local(&home.settings) || !(read_list() || read_master()))
		return false;
	if (find_secret(path, sizeof path, &err)) {
		tpck_log_warn("nodes are not found by %s, for TRANSPCKPT_SECRET is not set: %s", listed.by_master ? "MASTER_ADDR" : "Slurm's list of them",
			      err.text);
		listed.by_master = false;
		return false;
	}
	snprintf(text, sizeof text, "%u %.200s", (unsigned)getuid(), home.job);
	*port = listed.job_port = (uint16_t)(PORT_FIRST + tpck_digest64(text, strlen(text), 0) % PORT_COUNT);
	if (listed.by_master)
		tpck_log_info("the store may be this node's own: others are also looked for at port %u of %.200s, where the ranks meet, by the secret %s",
			      listed.job_port, listed.master, path);
	else
		tpck_log_info("the store may be this node's own: others are also looked for at port %u of the %zu nodes that Slurm lists, by the secret %s",
			      listed.job_port, listed.count, path);
	return true;
}

/* The name may be another one by now: a start has said so. */
static void follow_master(void)
{
	pthread_mutex_lock(&peers.lock);
	if (strcmp(nodes->name, listed.master) != 0) {
		strcpy(nodes->name, listed.master);
		nodes->next_ns = 0;
	}
	pthread_mutex_unlock(&peers.lock);
}

static bool are_here(const char *addresses)
{
	char address[TPCK_TRANSPORT_ADDRESS];

	for (const char *end; (end = strchr(addresses, '\n')); addresses = end + 1) {
		snprintf(address, sizeof address, "%.*s", (int)(end - addresses), addresses);
		if (tpck_rendezvous_is_local(address))
			return true;
	}
	return false;
}

void listed_look(uint64_t now, void (*visit)(const char *name, const char *addresses))
{
	if (listed.by_master)
		follow_master();
	for (size_t i = 0; i < listed.count && tpck_clock_monotonic_ns() < now + LOOK_NS; i++, listed.turn++) {
		struct node *node = &nodes[listed.turn % listed.count];
		char addresses[1024];
		uint16_t port;

		if (now < node->next_ns || strcmp(node->name, peers.host) == 0)
			continue;
		if (tpck_rendezvous_resolve(node->name, listed.job_port, addresses, sizeof addresses, &port, NULL) == 0) {
			node->next_ns = now + AGAIN_NS;
			listed.here = listed.by_master && are_here(addresses);
			if (!listed.here)
				visit(node->name, addresses);
		} else {
			node->next_ns = now + UNKNOWN_NS;
		}
	}
}
