/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of the log that no snapshot ends in any more are packed (runtime/store/packing.h) while their process runs, and what they were before goes from
 * memory. From there on checkpoints and copies on other nodes have them packed.
 */
#ifndef TPCK_AGENT_DURABLE_PACKER_H
#define TPCK_AGENT_DURABLE_PACKER_H

#include "agent/session/sessions.h"

extern const struct loop_part pack_loop;

#endif
