/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of others. */
#include "config.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "runtime/network/network_private.h"

/* False: it has none, or one that is longer than is kept. */
static bool local_of(const struct sockaddr *address, socklen_t bytes, struct tpck_record_peer *peer)
{
	enum { PATH = offsetof(struct sockaddr_un, sun_path) };
	const char *path = (const char *)address + PATH;
	size_t most = bytes > PATH ? bytes - PATH : 0, length = most && path[0] ? strnlen(path, most) : most;

	if (!length || length >= sizeof peer->path)
		return false;
	memcpy(peer->path, path, length);
	peer->family = AF_UNIX;
	/* An abstract name may have zeros. */
	peer->port = (uint16_t)length;
	return true;
}

bool tpck_peer_of(const struct sockaddr *address, socklen_t bytes, struct tpck_record_peer *peer)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	/* As RFC 2133 has it, without the scope. */
	enum { SIX = offsetof(struct sockaddr_in6, sin6_scope_id) };
	struct sockaddr_in four;
	struct sockaddr_in6 six;

	memset(peer, 0, sizeof *peer);
	if (bytes >= sizeof(sa_family_t) && address->sa_family == AF_UNIX)
		return local_of(address, bytes, peer);
	if (bytes >= sizeof four && address->sa_family == AF_INET) {
		memcpy(&four, address, sizeof four);
		peer->family = AF_INET;
		peer->port = ntohs(four.sin_port);
		memcpy(peer->address, &four.sin_addr, sizeof four.sin_addr);
		return true;
	}
	if (bytes < SIX || address->sa_family != AF_INET6)
		return false;
	memcpy(&six, address, SIX);
	peer->port = ntohs(six.sin6_port);
	peer->family = memcmp(&six.sin6_addr, mapped, sizeof mapped) == 0 ? AF_INET : AF_INET6;
	if (peer->family == AF_INET)
		memcpy(peer->address, (const char *)&six.sin6_addr + sizeof mapped, 4);
	else
		memcpy(peer->address, &six.sin6_addr, sizeof six.sin6_addr);
	return true;
}

bool tpck_peer_same(const struct tpck_record_peer *one, const struct tpck_record_peer *other)
{
	return one->family == other->family && one->port == other->port && memcmp(one->address, other->address, sizeof one->address) == 0 &&
	       memcmp(one->path, other->path, sizeof one->path) == 0;
}

const char *tpck_peer_text(const struct tpck_record_peer *peer, char text[TPCK_PEER_TEXT])
{
	char address[INET6_ADDRSTRLEN] = "?";

	if (peer->family == AF_UNIX) {
		snprintf(text, TPCK_PEER_TEXT, "%s%.107s", peer->path[0] ? "" : "@", peer->path + !peer->path[0]);
		return text;
	}
	inet_ntop(peer->family == AF_INET ? AF_INET : AF_INET6, peer->address, address, sizeof address);
	snprintf(text, TPCK_PEER_TEXT, peer->family == AF_INET ? "%s:%u" : "[%s]:%u", address, peer->port);
	return text;
}

void tpck_peer_name_add(char names[TPCK_PEER_NAMES], const struct tpck_record_peer *peer)
{
	char text[TPCK_PEER_TEXT];
	size_t used = strlen(names);

	tpck_peer_text(peer, text);
	if (!strstr(names, text))
		snprintf(names + used, TPCK_PEER_NAMES - used, "%s%s", used ? ", " : "", text);
}
