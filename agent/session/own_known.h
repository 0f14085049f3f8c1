/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes known of a program's own checkpoints and of how long its starts take (runtime/store/own.h). Event loop, unless a line says else. */
#ifndef TPCK_AGENT_SESSION_OWN_KNOWN_H
#define TPCK_AGENT_SESSION_OWN_KNOWN_H

#include <stdint.h>
#include <sys/stat.h>

#include "agent/loop/loop.h"
#include "agent/session/live.h"

/* Writes down what has changed, a second behind the change. */
extern const struct loop_part own_loop;

/* A file is at this path, and is this one; the process that made it was of `generation`, and had opened it behind `step` of that timeline. All 0: nobody
 * knows. Any thread. */
void own_saved(const char *path, const struct stat *put, uint64_t generation, uint64_t timeline, uint64_t step);
/* The process is of its generation, whose saves are this program's from here on, when it is gone too. */
void own_belongs(const struct live *live);
/* A start of this program begins with its own checkpoint, as that is the cheaper way. */
void own_tried(struct tpck_program *program);
/* A process that has not gone on from a snapshot has come to its first boundary. */
void own_began(const struct live *live, const struct tpck_begun *begun);
/* One is live again. */
void own_resumed(const struct live *live);
/* How fast it was. */
void own_died(const struct live *live);

#endif
