/* SPDX-License-Identifier: Apache-2.0 */
/* How agents find each other without a launcher: each has a file in a folder of the shared store, with its addresses. */
#ifndef TPCK_RUNTIME_PEER_RENDEZVOUS_H
#define TPCK_RUNTIME_PEER_RENDEZVOUS_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* This machine's addresses with a port, "ADDRESS:PORT" a line; loopback is the last. */
void tpck_rendezvous_addresses(uint16_t port, char *text, size_t size);
/* Whether a numerical address is one of this machine's. */
int tpck_rendezvous_is_local(const char *address);
/* The addresses of "HOST[:PORT]", a line each, and the port; asks the resolver. */
int tpck_rendezvous_resolve(const char *host, uint16_t standard, char *text, size_t size, uint16_t *port);

int tpck_rendezvous_write(const char *folder, const char *node, const char *addresses, struct tpck_error *err);
/* Says that it is still there; what others left long ago is removed. */
void tpck_rendezvous_touch(const char *folder, const char *node);
void tpck_rendezvous_remove(const char *folder, const char *node);
/* Calls visit for every other node's file. */
void tpck_rendezvous_each(const char *folder, const char *node,
			  void (*visit)(void *context, const char *node, const char *addresses), void *context);

#endif
