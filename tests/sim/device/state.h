/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in variables of a kernel thread, laid out as builtins.h sees them. */
#ifndef TESTS_SIM_DEVICE_STATE_H
#define TESTS_SIM_DEVICE_STATE_H

#include <stdint.h>

struct sim_uint3 {
	uint32_t x, y, z;
};

struct simgpu_thread_state {
	struct sim_uint3 thread;
	struct sim_uint3 block;
	struct sim_uint3 block_dim;
	struct sim_uint3 grid_dim;
	const char *parameters;
	void *dynamic_shared;
	uint32_t lane;
};

extern __thread struct simgpu_thread_state simgpu_state;

#endif
