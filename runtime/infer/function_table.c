/* SPDX-License-Identifier: Apache-2.0 */
/** The table of functions: open addressing, never full, nothing is ever removed. */
#include "config.h"

#include "runtime/infer/function_table.h"

#include <errno.h>
#include <stdlib.h>

#include "runtime/infer/infer.h"

int tpck_functions_init(struct tpck_functions *functions)
{
	*functions = (struct tpck_functions){.slots = calloc(TPCK_INFER_FUNCTIONS, sizeof *functions->slots)};
	functions->overflow.named.role = TPCK_ROLE_OTHER;
	functions->overflow.launches = 1; /* never all of them in runs */
	return functions->slots ? 0 : -ENOMEM;
}

void tpck_functions_free(struct tpck_functions *functions)
{
	free(functions->slots);
}

struct tpck_function *tpck_functions_get(struct tpck_functions *functions, uint64_t func, const char *name,
					 uint32_t param_bytes)
{
	uint32_t at = (uint32_t)((func * 0x9e3779b97f4a7c15ull) >> 40);
	for (;; at++) {
		struct tpck_function *slot = &functions->slots[at % TPCK_INFER_FUNCTIONS];
		if (slot->used && slot->func == func)
			return slot;
		if (slot->used)
			continue;
		if (functions->used >= TPCK_INFER_FUNCTIONS * 3 / 4)
			return &functions->overflow;
		functions->used++;
		slot->used = true;
		slot->func = func;
		slot->named = tpck_name_kernel(name, param_bytes);
		if (slot->named.role == TPCK_ROLE_OPTIMIZER && !slot->named.layout_known)
			functions->unknown_layouts++;
		return slot;
	}
}
