/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport over another one, whose messages are sealed (seal.h) from when on its user says so. Below it is TCP, UCX or MPI; above it are the
 * peers' messages.
 *
 * Messages of a sealed link come in the order in which they were sent, each once, whatever the transport below it makes of them: one that comes
 * too early waits for those before it. The first that is not what the other side has sealed, comes a second time, comes far too early, or, over
 * a transport that keeps the order, out of turn, ends the link: `gone` says why, and nothing of it is given to the user.
 *
 * Bytes are sealed into memory of this file's, and come into such memory, which who sends bounds: it has so much under way and no more. Of one
 * link that is TPCK_SEALED_HELD at most. What is larger than a small message is sealed by one thread and opened by another, which put the bytes
 * right where they belong. The user's thread never waits for them.
 *
 * A link that is not sealed passes messages on as they are, to and from the user's own memory.
 */
#ifndef TPCK_RUNTIME_PEER_SEALED_H
#define TPCK_RUNTIME_PEER_SEALED_H

#include "runtime/peer/seal.h"
#include "runtime/peer/transport.h"

#define TPCK_SEALED_HELD (512ull << 20)
/* So many numbers ahead of the next one a message may come. */
enum { TPCK_SEALED_AHEAD = 4096 };
/* Of large messages these sizes cost least: their memory is used again. */
enum { TPCK_SEALED_PIECE = 1 << 20 };

/* The operations; of one transport at a time. */
const struct tpck_transport_operations *tpck_sealed_over(const struct tpck_transport_operations *under);
/* What is sent over this link from now on is sealed. With `strict` what comes has to be, too; else from the first such message on. */
void tpck_sealed_use(struct tpck_link *link, const struct tpck_seal *seal, bool strict);
/* Whether a sealed message has come. */
bool tpck_sealed_has_come(const struct tpck_link *link);
/* In `gone`: whether the link has ended because of what came. */
bool tpck_sealed_is_broken(const struct tpck_link *link);

#endif
