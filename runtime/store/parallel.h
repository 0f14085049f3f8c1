/* SPDX-License-Identifier: Apache-2.0 */
/* A loop over chunks by a few threads, each with a buffer, so that reading and hashing overlap. */
#ifndef TPCK_RUNTIME_STORE_PARALLEL_H
#define TPCK_RUNTIME_STORE_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

/* Calls each(context, i, buffer, err) once for every i below count, in no order, from several threads;
 * buffer is aligned and has room for one chunk. After a call that returns non-zero no further ones
 * begin; that value and its err are what is returned. */
int tpck_parallel(size_t count, int (*each)(void *context, size_t i, uint8_t *buffer, struct tpck_error *err),
		  void *context, struct tpck_error *err);
/* The same with more threads, for what is small and mostly waits for the store's answer. */
int tpck_parallel_small(size_t count, int (*each)(void *context, size_t i, uint8_t *buffer, struct tpck_error *err),
			void *context, struct tpck_error *err);

#endif
