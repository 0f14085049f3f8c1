/* SPDX-License-Identifier: Apache-2.0 */
/* What an image holds, by class of blocks and role of tensors: its index, read from memory or from disk. */
#ifndef TPCK_TOOLS_CLI_STATE_H
#define TPCK_TOOLS_CLI_STATE_H

#include <json-c/json.h>

#include "tools/cli/inventory.h"

struct state {
	uint64_t step;
	uint32_t rows, tensors, optimizers, communicators, peers;
	void *index; /* as in an image */
};

/* The index of the newest image that the session holds. False: there is none. */
bool state_of_session(struct state *state, const struct tpck_session *session);
/* The index of a checkpoint's first member. Complains itself. */
bool state_of_manifest(struct state *state, struct tpck_tier *tier, const struct tpck_manifest *manifest);
void state_free(struct state *state);

void state_print(const struct state *state);
json_object *state_json(const struct state *state);

/* Of a class of blocks, by its number; "" where there is none. */
const char *state_class_name(uint32_t class_);

#endif
