/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts and ports as people write them, numerical addresses of either family as agents tell them to each other, and
 * this machine's own. */
#ifndef TPCK_RUNTIME_PEER_ADDRESS_H
#define TPCK_RUNTIME_PEER_ADDRESS_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "runtime/base/error.h"

enum { TPCK_HOST_NAME = 256 };

/* "HOST", "HOST:PORT", "10.0.0.1", "10.0.0.1:PORT", "fd00::1", "[fd00::1]" or "[fd00::1]:PORT": the host without brackets,
 * and the port, or `standard` where there is none. An IPv6 address may have a scope ("fe80::1%eth0"). A text that is
 * none of these is an error that says why. */
int tpck_address_split(const char *text, uint16_t standard, char host[TPCK_HOST_NAME], uint16_t *port,
		       struct tpck_error *err);

/* "10.0.0.1:PORT" or "[fd00::1]:PORT", which fits into TPCK_TRANSPORT_ADDRESS; an IPv4 address that is written as one of
 * IPv6's is one of IPv4's. False: it is of another family, or does not fit. The scope is left out. */
bool tpck_address_print(const struct sockaddr *address, uint16_t port, char *text, size_t size);
/* The reverse. 0 or -EINVAL. */
int tpck_address_read(const char *text, struct sockaddr_storage *address, socklen_t *bytes);

/* fe80::/10: it means nothing without an interface of the very machine that it is looked at on. */
bool tpck_address_is_link_local(const struct sockaddr *address);
/* Whether this machine has a way there; nothing is sent. 0 or -errno. */
int tpck_address_route(const struct sockaddr *address, socklen_t bytes);

struct tpck_local {
	char interface[IF_NAMESIZE];
	struct sockaddr_storage address; /* port 0 */
	socklen_t bytes;
};
/* Addresses of interfaces that are up, without loopback and link-local ones, those of IPv4 first; how many, `most` at most. */
size_t tpck_address_local(struct tpck_local *list, size_t most);
/* Of those addresses the ones that agents of this process listen at and tell others. `list` (TRANSPCKPT_INTERFACES) has names of interfaces,
 * addresses, and networks as 10.1.0.0/16 and fd00::/8, with commas between; "": all. It is called before there are threads. What is
 * neither chooses nothing, and is an error, with the first such entry. */
int tpck_address_choose(const char *list, struct tpck_error *err);
size_t tpck_address_chosen(struct tpck_local *list, size_t most);
/* Names of interfaces that have a carrier, without loopback; how many, `most` at most. */
size_t tpck_address_carriers(char names[][IF_NAMESIZE], size_t most);
/* Whether there is one by now that is not among these. */
bool tpck_address_has_more_carriers(char names[][IF_NAMESIZE], size_t count);
/* Whether there are no such, but link-local ones. */
bool tpck_address_all_link_local(void);
/* The first of the same interface and family as this address has, or NULL: it is none of these. */
const struct tpck_local *tpck_address_first(const struct tpck_local *list, size_t count,
					    const struct sockaddr *address);

#endif
