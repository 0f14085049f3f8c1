/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses are the job's own: each agent tells its peers all that its node has, and the library finds there in a file what they have said. */
#include "config.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/peers/peers_private.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/peer/address.h"
#include "runtime/peer/rendezvous.h"
#include "runtime/store/file.h"
#include "runtime/store/file_names.h"
#include "runtime/wire/nodes.h"

enum { LOCAL_MOST = 64 };

/* The thread's: the file as it is. */
static struct {
	struct tpck_nodes_head head;
	uint8_t address[][TPCK_NODES_ADDRESS];
} *known;

void nodes_known(struct peer *peer)
{
	struct tpck_local list[LOCAL_MOST];
	size_t count = tpck_address_local(list, LOCAL_MOST), used = 0;
	char text[LOCAL_MOST * TPCK_TRANSPORT_ADDRESS + 1] = "", line[TPCK_TRANSPORT_ADDRESS];

	for (size_t i = 0; i < count; i++)
		if (tpck_address_print((const struct sockaddr *)&list[i].address, TPCK_PEERS_PORT, line, sizeof line))
			used += (size_t)snprintf(text + used, sizeof text - used, "%s\n", line);
	(void)peer_send_text(peer, TPCK_PEER_NODE, NULL, text, used);
}

/* Whether it is a new one. */
static bool add(const uint8_t address[TPCK_NODES_ADDRESS])
{
	uint32_t count = known ? known->head.count : 0;
	void *larger;

	for (uint32_t i = 0; i < count; i++)
		if (memcmp(known->address[i], address, TPCK_NODES_ADDRESS) == 0)
			return false;
	larger = count < TPCK_NODES_MOST ? realloc(known, sizeof *known + (count + 1) * sizeof known->address[0]) : NULL;
	if (!larger)
		return false;
	known = larger;
	known->head = (struct tpck_nodes_head){TPCK_NODES_MAGIC, TPCK_WIRE_VERSION, count + 1};
	memcpy(known->address[count], address, TPCK_NODES_ADDRESS);
	return true;
}

/* What means another machine on each of them is left out. */
static bool add_line(const char *line)
{
	struct sockaddr_storage given;
	struct sockaddr_in four;
	struct sockaddr_in6 six;
	uint8_t address[TPCK_NODES_ADDRESS];
	socklen_t bytes;

	if (tpck_address_read(line, &given, &bytes) || tpck_address_is_link_local((const struct sockaddr *)&given))
		return false;
	if (given.ss_family == AF_INET) {
		memcpy(&four, &given, sizeof four);
		tpck_nodes_address(&four.sin_addr, sizeof four.sin_addr, address);
		return ntohl(four.sin_addr.s_addr) >> 24 != 127 && four.sin_addr.s_addr && add(address);
	}
	memcpy(&six, &given, sizeof six);
	tpck_nodes_address(&six.sin6_addr, sizeof six.sin6_addr, address);
	return !IN6_IS_ADDR_LOOPBACK(&six.sin6_addr) && !IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) && add(address);
}

/* Without its port. */
static bool print_host(const struct sockaddr *given, char *address, size_t size)
{
	struct sockaddr_in6 six;
	struct sockaddr_in four;

	if (given->sa_family == AF_INET) {
		memcpy(&four, given, sizeof four);
		return inet_ntop(AF_INET, &four.sin_addr, address, (socklen_t)size);
	}
	memcpy(&six, given, sizeof six);
	return inet_ntop(AF_INET6, &six.sin6_addr, address, (socklen_t)size);
}

bool peers_address(const char *node, char *address, size_t size)
{
	char line[TPCK_TRANSPORT_ADDRESS] = "";
	struct sockaddr_storage given;
	struct tpck_local own;
	socklen_t bytes;

	if (strcmp(node, peers.node) == 0)
		return tpck_address_local(&own, 1) && print_host((const struct sockaddr *)&own.address, address, size);
	pthread_mutex_lock(&peers.lock);
	for (const struct peer *peer = peers.list; peer && !line[0]; peer = peer->next)
		if (peer->state == PEER_KNOWN && strcmp(peer->other.node, node) == 0)
			memcpy(line, peer->first, sizeof line);
	pthread_mutex_unlock(&peers.lock);
	return line[0] && !tpck_address_read(line, &given, &bytes) && print_host((const struct sockaddr *)&given, address, size);
}

void nodes_said(struct peer *peer, const char *text, size_t count)
{
	char path[TPCK_PATH_MAX], line[TPCK_TRANSPORT_ADDRESS];
	const char *end, *last = text + count;
	struct tpck_error err = {0};
	bool more = false, first = true;

	for (unsigned lines = 0; lines < LOCAL_MOST && (end = memchr(text, '\n', (size_t)(last - text))); text = end + 1, lines++)
		if (end - text < (long)sizeof line) {
			snprintf(line, sizeof line, "%.*s", (int)(end - text), text);
			more |= add_line(line);
			pthread_mutex_lock(&peers.lock);
			if (first)
				memcpy(peer->first, line, sizeof peer->first);
			pthread_mutex_unlock(&peers.lock);
			first = false;
		}
	if (!more)
		return;
	if (tpck_path_join(path, sizeof path, home.folder, TPCK_NODES_NAME) ||
	    tpck_file_write(path, known, sizeof *known + known->head.count * sizeof known->address[0], 0, &err))
		tpck_log_debug("which addresses are the job's own is not told: %s", err.text);
}
