/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts, ports and addresses of IPv4 and IPv6. */
#include "config.h"

#include "runtime/peer/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/settings.h"

enum { CARRIERS_MOST = 64 };

static bool is_six(const char *host)
{
	char address[INET6_ADDRSTRLEN];
	struct in6_addr six;
	size_t length = strcspn(host, "%");

	if (length >= sizeof address || (host[length] && !host[length + 1]))
		return false;
	memcpy(address, host, length);
	address[length] = '\0';
	return inet_pton(AF_INET6, address, &six) == 1;
}

static bool read_port(const char *text, uint16_t *port)
{
	unsigned value = 0;
	size_t i;

	for (i = 0; text[i] >= '0' && text[i] <= '9' && value <= UINT16_MAX; i++)
		value = 10 * value + (unsigned)(text[i] - '0');
	if (!i || text[i] || !value || value > UINT16_MAX)
		return false;
	*port = (uint16_t)value;
	return true;
}

int tpck_address_split(const char *text, uint16_t standard, char host[TPCK_HOST_NAME], uint16_t *port,
		       struct tpck_error *err)
{
	const char *colon = strchr(text, ':'), *begin = text, *end = text + strlen(text), *said = NULL;
	char name[TPCK_HOST_NAME];
	uint16_t number = standard;
	bool six = false;

	if (text[0] == '[') {
		six = true;
		begin = text + 1;
		end = strchr(text, ']');
		if (!end)
			return tpck_error_set(err, 0, "'%.100s' has no ] behind its address", text);
		if (end[1] && end[1] != ':')
			return tpck_error_set(err, 0, "'%.100s' has something else than :PORT behind its ]", text);
		said = end[1] ? end + 2 : NULL;
	} else if (colon && strchr(colon + 1, ':')) {
		six = true;
	} else if (colon) {
		end = colon;
		said = colon + 1;
	}
	if (end == begin || (size_t)(end - begin) >= sizeof name)
		return tpck_error_set(err, 0, "'%.100s' names no host", text);
	snprintf(name, sizeof name, "%.*s", (int)(end - begin), begin);
	if (strpbrk(name, "[]") || (six && !is_six(name)))
		return tpck_error_set(err, 0, "'%.100s' has no IPv6 address where one is to be (HOST:PORT, ADDRESS or [ADDRESS]:PORT)",
				      text);
	if (said && !read_port(said, &number))
		return tpck_error_set(err, 0, "'%.100s' has no port from 1 to 65535 behind its colon", text);
	snprintf(host, TPCK_HOST_NAME, "%s", name);
	*port = number;
	return 0;
}

bool tpck_address_print(const struct sockaddr *address, uint16_t port, char *text, size_t size)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
	char host[INET6_ADDRSTRLEN];
	const void *bytes = &four->sin_addr;
	int family = address->sa_family, length;

	if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
		bytes = &six->sin6_addr.s6_addr[12];
		family = AF_INET;
	} else if (family == AF_INET6) {
		bytes = &six->sin6_addr;
	}
	if ((family != AF_INET && family != AF_INET6) || !inet_ntop(family, bytes, host, sizeof host))
		return false;
	length = snprintf(text, size, family == AF_INET ? "%s:%u" : "[%s]:%u", host, port);
	return length > 0 && (size_t)length < size;
}

int tpck_address_read(const char *text, struct sockaddr_storage *address, socklen_t *bytes)
{
	struct sockaddr_storage found = {0};
	struct sockaddr_in *four = (struct sockaddr_in *)&found;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&found;
	char host[TPCK_HOST_NAME];
	uint16_t port;

	if (tpck_address_split(text, 0, host, &port, NULL) || !port)
		return -EINVAL;
	if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons(port);
		*bytes = sizeof *four;
	} else if (inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(port);
		*bytes = sizeof *six;
	} else {
		return -EINVAL;
	}
	*address = found;
	return 0;
}

bool tpck_address_is_link_local(const struct sockaddr *address)
{
	return address->sa_family == AF_INET6 &&
	       IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

int tpck_address_route(const struct sockaddr *address, socklen_t bytes)
{
	/* Of a socket of datagrams the kernel only looks for the way. */
	int fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc;

	if (fd < 0)
		return -errno;
	rc = connect(fd, address, bytes) ? -errno : 0;
	close(fd);
	return rc;
}

static bool is_outward(const struct ifaddrs *i)
{
	return i->ifa_addr && (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6) &&
	       (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK);
}

bool tpck_address_all_link_local(void)
{
	struct ifaddrs *all = NULL;
	unsigned local = 0, others = 0;

	if (getifaddrs(&all))
		return false;
	for (struct ifaddrs *i = all; i; i = i->ifa_next) {
		bool is_local = is_outward(i) && tpck_address_is_link_local(i->ifa_addr);

		local += is_local;
		others += is_outward(i) && !is_local;
	}
	freeifaddrs(all);
	return local && !others;
}

size_t tpck_address_carriers(char names[][IF_NAMESIZE], size_t most)
{
	struct ifaddrs *all = NULL;
	size_t count = 0;

	if (getifaddrs(&all))
		return 0;
	/* The kernel's links come first, one each, and then addresses. */
	for (struct ifaddrs *i = all; i && count < most; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_PACKET && (i->ifa_flags & IFF_UP) && (i->ifa_flags & IFF_RUNNING) &&
		    !(i->ifa_flags & IFF_LOOPBACK))
			snprintf(names[count++], IF_NAMESIZE, "%s", i->ifa_name);
	freeifaddrs(all);
	return count;
}

bool tpck_address_has_more_carriers(char names[][IF_NAMESIZE], size_t count)
{
	char now[CARRIERS_MOST][IF_NAMESIZE];
	size_t found = tpck_address_carriers(now, CARRIERS_MOST);

	for (size_t i = 0; i < found; i++) {
		size_t k = 0;

		while (k < count && strcmp(now[i], names[k]) != 0)
			k++;
		if (k == count)
			return true;
	}
	return false;
}

size_t tpck_address_local(struct tpck_local *list, size_t most)
{
	static const int families[] = {AF_INET, AF_INET6};
	struct ifaddrs *all = NULL;
	size_t count = 0;

	if (getifaddrs(&all))
		return 0;
	for (size_t f = 0; f < 2; f++)
		for (struct ifaddrs *i = all; i && count < most; i = i->ifa_next) {
			struct tpck_local *one = &list[count];

			if (!is_outward(i) || i->ifa_addr->sa_family != families[f] || tpck_address_is_link_local(i->ifa_addr))
				continue;
			memset(one, 0, sizeof *one);
			snprintf(one->interface, sizeof one->interface, "%s", i->ifa_name);
			one->bytes = f ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
			memcpy(&one->address, i->ifa_addr, one->bytes);
			count++;
		}
	freeifaddrs(all);
	return count;
}

/* ---- those that agents use ------------------------------------------------------------------- */

static char chosen[TPCK_SETTING_TEXT_MAX];

struct network {
	int family;
	uint8_t bytes[sizeof(struct in6_addr)];
	unsigned bits;
};

/* "10.1.0.0/16", or an address, which is a network of one. */
static bool read_network(const char *text, struct network *network)
{
	size_t length = strcspn(text, "/");
	char host[INET6_ADDRSTRLEN];
	unsigned bits = 0, most;

	if (length >= sizeof host)
		return false;
	memcpy(host, text, length);
	host[length] = '\0';
	network->family = strchr(host, ':') ? AF_INET6 : AF_INET;
	most = network->family == AF_INET6 ? 128 : 32;
	if (inet_pton(network->family, host, network->bytes) != 1)
		return false;
	for (const char *p = text + length + 1; text[length] && *p; p++) {
		if (*p < '0' || *p > '9' || bits > most)
			return false;
		bits = 10 * bits + (unsigned)(*p - '0');
	}
	if (text[length] && (!text[length + 1] || bits > most))
		return false;
	network->bits = text[length] ? bits : most;
	return true;
}

static bool is_in(const struct network *network, const struct sockaddr *address)
{
	const uint8_t *bytes = address->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr
							      : (const uint8_t *)&((const struct sockaddr_in *)address)->sin_addr;
	unsigned whole = network->bits / 8, rest = network->bits % 8;

	return address->sa_family == network->family && memcmp(bytes, network->bytes, whole) == 0 &&
	       (!rest || (bytes[whole] ^ network->bytes[whole]) >> (8 - rest) == 0);
}

static bool is_interface(const char *text)
{
	return strlen(text) < IF_NAMESIZE && !strpbrk(text, "/:");
}

int tpck_address_choose(const char *list, struct tpck_error *err)
{
	char copy[TPCK_SETTING_TEXT_MAX], *rest = copy, *entry;
	struct network network;
	int rc = 0;

	snprintf(chosen, sizeof chosen, "%s", list);
	snprintf(copy, sizeof copy, "%s", list);
	while ((entry = strtok_r(rest, ", ", &rest)))
		if (!rc && !read_network(entry, &network) && !is_interface(entry))
			rc = tpck_error_set(err, EINVAL, "'%.100s' is no interface, address or network", entry);
	return rc;
}

static bool is_chosen(const struct tpck_local *one)
{
	char copy[TPCK_SETTING_TEXT_MAX], *rest = copy, *entry;
	struct network network;

	snprintf(copy, sizeof copy, "%s", chosen);
	while ((entry = strtok_r(rest, ", ", &rest)))
		if (strcmp(entry, one->interface) == 0 || (read_network(entry, &network) && is_in(&network, (const struct sockaddr *)&one->address)))
			return true;
	return !chosen[0];
}

size_t tpck_address_chosen(struct tpck_local *list, size_t most)
{
	size_t all = tpck_address_local(list, most), count = 0;

	for (size_t i = 0; i < all; i++)
		if (is_chosen(&list[i]))
			list[count++] = list[i];
	return count;
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
	if (a->sa_family != b->sa_family)
		return false;
	if (a->sa_family == AF_INET6)
		return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
					  &((const struct sockaddr_in6 *)b)->sin6_addr);
	return ((const struct sockaddr_in *)a)->sin_addr.s_addr == ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

const struct tpck_local *tpck_address_first(const struct tpck_local *list, size_t count, const struct sockaddr *address)
{
	const struct tpck_local *end = list + count, *one = list, *first = list;

	while (one < end && !same_host((const struct sockaddr *)&one->address, address))
		one++;
	if (one == end)
		return NULL;
	while (first->address.ss_family != one->address.ss_family || strcmp(first->interface, one->interface) != 0)
		first++;
	return first;
}
