/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How agents of several nodes reach each other: messages of a small head and any number of bytes behind it, which
 * arrive where the receiver says. One implementation is chosen when the agent starts (TRANSPCKPT_TRANSPORT).
 *
 * All calls and all events are of one thread, but for start. Events come out of progress() only. A link is the
 * transport's; between `came` or connect() and `gone` or close() its owner may use it.
 */
#ifndef TPCK_RUNTIME_PEER_TRANSPORT_H
#define TPCK_RUNTIME_PEER_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct tpck_transport;

enum { TPCK_TRANSPORT_HEAD_MAX = 512, TPCK_TRANSPORT_ADDRESS = 64 };

/* One connection; what is behind it is the implementation's. */
struct tpck_link {
	void *owner; /* the user's */
};

struct tpck_transport_events {
	/* Somebody connected. */
	void (*came)(void *context, struct tpck_link *link);
	/* The other side is dead, has closed, or was never there. The link must not be used any more. */
	void (*gone)(void *context, struct tpck_link *link, const char *why);
	/* Room for what follows a head; NULL: it is dropped, and there is no `arrived`. */
	void *(*place)(void *context, struct tpck_link *link, const void *head, size_t head_bytes, size_t bytes);
	/* A message is here, its bytes at the place; not `whole`: they did not come, and nobody writes to the place any
	 * more. That may be after `gone`: link is NULL then. */
	void (*arrived)(void *context, struct tpck_link *link, const void *head, size_t head_bytes, void *bytes, size_t count,
			bool whole);
	/* The bytes of a send() are not read any more. link is NULL after `gone`. */
	void (*sent)(void *context, struct tpck_link *link, void *token);
};

struct tpck_transport_operations {
	const char *name;
	/* The messages of a link come in the order in which they were sent, and each is whole before the next begins. */
	bool ordered;
	/* Listens on a port; 0: any. What it needs may not be here: one clear error. */
	int (*start)(struct tpck_transport **transport, const struct tpck_transport_events *events, void *context,
		     uint16_t port, struct tpck_error *err);
	/* The port that it listens on. */
	uint16_t (*port)(struct tpck_transport *transport);
	/* To "ADDRESS:PORT", numerical. Whether somebody is there shows later. */
	int (*connect)(struct tpck_transport *transport, const char *address, struct tpck_link **link, struct tpck_error *err);
	/* NULL, or: the other side has proved that it has the job's secret. Of others there are only so many, each for a short time. */
	void (*proven)(struct tpck_transport *transport, struct tpck_link *link);
	/* The head is copied, the bytes must stay until `sent` with a token that is not NULL. 0 or -errno: then there is
	 * no `sent`. */
	int (*send)(struct tpck_transport *transport, struct tpck_link *link, const void *head, size_t head_bytes,
		    const void *bytes, size_t count, void *token);
	/* There is no `gone`. */
	void (*close)(struct tpck_transport *transport, struct tpck_link *link);
	/* Does what there is to do; false: there was nothing. */
	bool (*progress)(struct tpck_transport *transport);
	/* Waits until there is something to do, `wake` is readable, or the time is over. */
	void (*wait)(struct tpck_transport *transport, int wake, int timeout_ms);
	void (*stop)(struct tpck_transport *transport);
	/* NULL, or whether it does not see an interface that can be used by now: who starts it anew may reach more. */
	bool (*outdated)(struct tpck_transport *transport);
	/* NULL, or who there is: a launcher has said so, and nobody else is looked for. A host's name, and its addresses. */
	void (*each)(struct tpck_transport *transport, void (*visit)(void *context, const char *name, const char *addresses),
		     void *context);
	/* NULL, or the last call of the process, by the thread that started it: tells the launcher that it ends well. It may wait for
	 * all others to do the same. */
	void (*finish)(void);
};

extern const struct tpck_transport_operations tpck_transport_tcp, tpck_transport_ucx, tpck_transport_mpi;

#endif
