/* SPDX-License-Identifier: Apache-2.0 */
/* How agents find each other without a launcher: each has a file in a folder of the shared store, with its addresses. */
#ifndef TPCK_RUNTIME_PEER_RENDEZVOUS_H
#define TPCK_RUNTIME_PEER_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* The port where TRANSPCKPT_NODES names none. */
enum { TPCK_PEERS_PORT = 47117 };

/* This machine's addresses that agents use (tpck_address_chosen()) with a port, "ADDRESS:PORT" or, of IPv6, "[ADDRESS]:PORT" a line, those of IPv4 first;
 * loopback is the last. */
void tpck_rendezvous_addresses(uint16_t port, char *text, size_t size);
/* Whether one of such a line is one of this machine's, whatever the port. */
bool tpck_rendezvous_is_local(const char *address);
/* Of a node's own lines: false where all of them that are this machine's are such as UCX does not answer at, which over
 * TCP has one address of an interface and family, the first. Then `first` is that of the last of them, without a port. */
bool tpck_rendezvous_answers(const char *lines, char *first, size_t size);
/* Whether it is one of these lines. */
bool tpck_rendezvous_has(const char *lines, const char *address);
/* The addresses of what tpck_address_split() takes, a line each in the resolver's order, and the port; asks the
 * resolver. */
int tpck_rendezvous_resolve(const char *host, uint16_t standard, char *text, size_t size, uint16_t *port,
			    struct tpck_error *err);

/* `folder` is STORE/JOB/agents: STORE/JOB is looked at, and no link is followed from there (runtime/base/door.h). */
int tpck_rendezvous_write(const char *folder, const char *node, const char *addresses, struct tpck_error *err);
/* Says that it is still there. */
void tpck_rendezvous_touch(const char *folder, const char *node);
/* Removes what others left long ago; it looks at every file. */
void tpck_rendezvous_clear(const char *folder, const char *node);
void tpck_rendezvous_remove(const char *folder, const char *node);
/* Calls visit for every other node's file. What is in one never changes, so it is read only where `known` says no: else a job's agents
 * would read as many files in a second as there are pairs of them. */
void tpck_rendezvous_each(const char *folder, const char *node, bool (*known)(void *context, const char *node),
			  void (*visit)(void *context, const char *node, const char *addresses), void *context);

#endif
