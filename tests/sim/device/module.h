/* SPDX-License-Identifier: Apache-2.0 */
/* Device code as the device process holds it: a shared object whose variables live in device memory. */
#ifndef TESTS_SIM_DEVICE_MODULE_H
#define TESTS_SIM_DEVICE_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Loads the object or the PTX behind `fd`; 0 and its id, or a negative errno. */
int sim_module_load(int fd, uint64_t bytes, uint64_t *id);
/* Reads the image without code behind `fd`; with `ruled` refuses one of which no kernel has a rule. */
int sim_module_describe(int fd, uint64_t bytes, bool ruled, uint64_t *id);
int sim_module_unload(uint64_t id);
/* Lets every reference to variable `name` go to `address`. */
int sim_module_bind(uint64_t id, const char *name, uint64_t address);
/* Writes the variable's initial value there; values may name other variables, so all are bound before. */
int sim_module_fill(uint64_t id, const char *name, uint64_t address, size_t bytes);
struct sim_described;
struct ptx_module;
/* What there is of a kernel, one of them. */
struct sim_code {
	void (*entry)(void);
	struct sim_described *described;
	struct ptx_module *ptx;
};
bool sim_module_kernel(uint64_t id, uint32_t index, struct sim_code *code);

#endif
