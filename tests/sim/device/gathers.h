/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels whose reads or writes depend on indices in device memory. */
#ifndef TESTS_SIM_DEVICE_GATHERS_H
#define TESTS_SIM_DEVICE_GATHERS_H

#include "device/pseudo.h"

/* As a layout in kernels.rules: it is carried out at once; `seed` is a digest of name and numbers. */
struct sim_gather {
	const char *name;
	bool (*run)(const struct sim_plan *p, uint64_t seed);
};
extern const struct sim_gather sim_gathers[];

#endif
