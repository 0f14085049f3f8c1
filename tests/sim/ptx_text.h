/* SPDX-License-Identifier: Apache-2.0 */
/* The declarations of a PTX text: what the driver must know of a module, and where the device finds its kernels. */
#ifndef TESTS_SIM_PTX_TEXT_H
#define TESTS_SIM_PTX_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_ptx_space {
	SIM_PTX_GENERIC,
	SIM_PTX_GLOBAL,
	SIM_PTX_CONST,
	SIM_PTX_SHARED,
	SIM_PTX_LOCAL,
	SIM_PTX_PARAM,
};

/* A variable or a parameter. An array without a size has `bytes` 0. */
struct sim_ptx_symbol {
	char *name;
	enum sim_ptx_space space;
	bool external;
	uint32_t align, element; /* bytes; `element` of one number of it */
	uint64_t bytes;
	uint64_t offset;  /* of a parameter in the buffer */
	const char *init; /* behind the '=', or NULL */
};

struct sim_ptx_list {
	struct sim_ptx_symbol *symbol;
	uint32_t n, bytes;
};

/* A kernel, or a function that kernels call. */
struct sim_ptx_kernel {
	char *name;
	struct sim_ptx_list param, result;
	const char *body, *end; /* between its braces */
};

struct sim_ptx_text {
	char *text; /* a copy without comments */
	struct sim_ptx_kernel *kernel, *function;
	uint32_t n_kernels, n_functions;
	struct sim_ptx_symbol *variable; /* of the module, shared memory included */
	uint32_t n_variables;
	char error[256];
};

/* Whether these bytes begin as PTX does. */
bool sim_ptx_looks(const char *text, size_t bytes);
/* 0, or -EINVAL with `error` set; freed by sim_ptx_text_free() either way. */
int sim_ptx_read(struct sim_ptx_text *t, const char *text, size_t bytes);
void sim_ptx_text_free(struct sim_ptx_text *t);

/* A step of reading: behind white space; the length of the name, directive or opcode there. */
const char *sim_ptx_skip(const char *at);
size_t sim_ptx_word(const char *at);
/* Bytes of a type as it is written (".b32"), 0 if it is none. */
uint32_t sim_ptx_type_bytes(const char *type, size_t n);
/* Reads ".align 8 .b8 name[4] = {...}" from `*at`, which stands behind the space, up to what follows it. */
bool sim_ptx_symbol(const char **at, struct sim_ptx_symbol *s);

#endif
