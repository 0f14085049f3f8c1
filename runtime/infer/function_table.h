/* SPDX-License-Identifier: Apache-2.0 */
/** The table of functions: what is known of each, by the identity that the tokens carry. */
#ifndef TPCK_RUNTIME_INFER_FUNCTION_TABLE_H
#define TPCK_RUNTIME_INFER_FUNCTION_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/infer/kernel_names.h"

struct tpck_function {
	uint64_t func;       /* identity; the slot is empty if !used */
	uint32_t launches;   /* while the pattern is being learnt */
	uint32_t run_starts; /* launches that followed one of another function */
	uint32_t in_runs;    /* launches within runs of one function */
	bool used;
	bool inner;          /* arithmetic seen between two launches of an optimizer */
	bool optimizer_node; /* a graph that holds an optimizer's launch */
	struct tpck_named_kernel named;
};

struct tpck_functions {
	struct tpck_function *slots; /* TPCK_INFER_FUNCTIONS of them */
	struct tpck_function overflow; /* stands for all that found no room */
	uint32_t used;
	uint32_t unknown_layouts;
};

/** 0 or -ENOMEM. */
int tpck_functions_init(struct tpck_functions *functions);
void tpck_functions_free(struct tpck_functions *functions);

/** Never NULL; enters the function if it is new. A known name is looked at once. */
struct tpck_function *tpck_functions_get(struct tpck_functions *functions, uint64_t func, const char *name,
					 uint32_t param_bytes);

#endif
