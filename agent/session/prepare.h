/* SPDX-License-Identifier: Apache-2.0 */
/* Room for images, made and prefaulted in the background. Event loop. */
#ifndef TPCK_AGENT_SESSION_PREPARE_H
#define TPCK_AGENT_SESSION_PREPARE_H

#include "agent/loop/loop.h"
#include "runtime/wire/message.h"

struct live;

extern const struct loop_part prepare_loop;

/* Takes a folder's memory back, in the background. */
void prepare_remove(const char *session_path);
void prepare_begin(struct agent *agent, struct live *live, const struct tpck_prepare *prepare);
/* Memory came free: those that got less than they asked for may get more. */
void prepare_again(struct agent *agent);

#endif
