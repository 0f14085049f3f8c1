/* SPDX-License-Identifier: Apache-2.0 */
/* Between played.c (connecting) and player.c (the thread at the other end). */
#ifndef TPCK_RUNTIME_NETWORK_PLAYED_PRIVATE_H
#define TPCK_RUNTIME_NETWORK_PLAYED_PRIVATE_H

#include "runtime/base/layout.h"
#include "runtime/network/spoken.h"

/* ---- played.c ---- */
/* Held where a connection's `taken` or the player's table is changed. */
extern tpck_spin tpck_played_lock __attribute__((visibility("hidden")));
/* A connection cannot be played; `what` has one %s for the peer. at_once: nothing that is still to come may change that. */
void tpck_played_differs(const char *what, const struct tpck_record_peer *peer, bool at_once);
/* Something else was sent there than in the first run. */
void tpck_played_sent_other(const struct tpck_record_peer *peer);
/* The process goes live: nothing differs any more. */
bool tpck_played_is_settled(void);

/* ---- player.c ---- */
/* When a byte came or went last. */
extern _Atomic uint64_t tpck_player_moved_ns __attribute__((visibility("hidden")));
/* False: there is none. */
bool tpck_player_begin(void);
/* In a forked child there is none, as yet. */
void tpck_player_forked(void);
/* From here on says on `end`, which is its own then, what the connection's other end said; `programs` is the program's descriptor. False: no room. */
bool tpck_player_plays(int end, int programs, struct tpck_spoken *of);
/* The program is live: what has been said to its end ends. */
void tpck_player_ends(void);

#endif
