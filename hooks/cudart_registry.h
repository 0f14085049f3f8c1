/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variables on the device that programs register with a shared CUDA runtime as they are mapped: a fat binary,
 * then each variable in it. A program may map tens of thousands and use few of the binaries.
 */
#ifndef TPCK_HOOKS_CUDART_REGISTRY_H
#define TPCK_HOOKS_CUDART_REGISTRY_H

#include <stdbool.h>
#include <stdint.h>

/* A binary's number; TPCK_BINARY_ANY where the code that the driver was given is none that was registered. */
typedef uint32_t tpck_binary;
#define TPCK_BINARY_ANY UINT32_MAX

/* The binary that was registered with `code`, the wrapper or the data that it points to. */
tpck_binary tpck_registry_find(const void *code);
/* How many names there are, of all binaries. It only grows. */
uint32_t tpck_registry_names(void);
/* Copies the name `index` if it is one of `binary` and still mapped; false if not. */
bool tpck_registry_name(uint32_t index, tpck_binary binary, char *text, uint32_t room);
/* Which of those of its text the name `index` is, in the order in which they were registered, from 1. */
uint32_t tpck_registry_rank(uint32_t index);
/* The rank of the first name of that text and binary; 0: there is none. */
uint32_t tpck_registry_rank_of(tpck_binary binary, const char *text);

#endif
