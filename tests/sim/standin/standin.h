/* SPDX-License-Identifier: Apache-2.0 */
/* What the libraries that stand for the vendor's share: the line for what is missing, and launches through the driver. */
#ifndef TESTS_SIM_STANDIN_STANDIN_H
#define TESTS_SIM_STANDIN_STANDIN_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include "standin/matrix.h"

#define STANDIN_API __attribute__((visibility("default")))

/* Names a function without a body on standard error, once, and returns `status`. */
long simgpu_standin_called(const char *library, const char *symbol, long status);

/*
 * Launches a kernel of this name with one parameter, `args` by value. The device has no code for it; its name's row in
 * kernels.rules says what it reads and writes.
 */
CUresult standin_launch(const char *name, const void *args, size_t bytes, uint64_t blocks, CUstream stream);
/* A function of the driver as of that version of CUDA, or NULL. */
void *standin_driver(const char *name, int version);
/* The kernel of this name with one parameter, which the driver's exchange engine carries out (exchange.h). */
CUresult standin_exchange_kernel(const char *name, size_t bytes, CUfunction *out);
CUresult standin_copy(void *to, const void *from, size_t bytes, CUstream stream);

/* Enqueues a product; with alpha and beta on the host. */
CUresult standin_matmul(struct standin_matmul *m, const char *suffix, CUstream stream);

#endif
