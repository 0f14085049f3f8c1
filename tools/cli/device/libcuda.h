/* SPDX-License-Identifier: Apache-2.0 */
/* The driver as probes see it: its own library, past the project's, found as a program finds it. */
#ifndef TPCK_TOOLS_CLI_DEVICE_LIBCUDA_H
#define TPCK_TOOLS_CLI_DEVICE_LIBCUDA_H

/* Symbols by the names that the driver exports. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL where the driver has none. */
struct probe_driver {
#define TPCK_NEEDED(symbol) __typeof__(symbol) *symbol;
#define TPCK_MISSED(symbol, since, lost) __typeof__(symbol) *symbol;
#define TPCK_TRIED(symbol) __typeof__(symbol) *symbol;
#include "tools/cli/device/driver.def"
#undef TPCK_NEEDED
#undef TPCK_MISSED
#undef TPCK_TRIED
};
extern struct probe_driver cuda;

/* A call whose name is said before. */
#define CALL(symbol, ...) (probe_at(#symbol), cuda.symbol ? cuda.symbol(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND)

/* Loads the driver's library; `path` is then where it lies, and the handle one for dlsym(). False: a row said why not. */
bool probe_driver_open(void);
extern void *probe_driver_handle;
extern char probe_driver_path[];
/* Loads it, and makes the device's own context current. False: a row about `what` said why not. */
bool probe_device_open(const char *what);
extern int probe_ordinal; /* which device it is; -1: a row is about none */
extern CUdevice probe_device;
/* "CUDA_ERROR_NOT_SUPPORTED" */
const char *probe_error(CUresult result);

/* ---- memory, as the library has it (virtual_memory.c) ---- */

/* Maps memory as the arena is mapped: a multiple of the granule of at least `bytes`. *at is set on success. */
CUresult probe_map(size_t bytes, CUdeviceptr *at);
/* What is asked of memory that is mapped, in the order in which the library does without. */
CUmemAllocationProp probe_properties(void);

/* ---- an image (host_register.c): memory of a file on the memory tier, registered in pieces ---- */

struct probe_image {
	char *at;
	size_t bytes, piece;
	CUresult registered; /* of the first piece that was refused */
	uint64_t ns;         /* that registering took */
};
/* A file without a name of at most `wanted` bytes, and registered where the driver does so. False: a row about `what` said why not. */
bool probe_image_open(struct probe_image *image, size_t wanted, const char *what);

/* ---- the digest kernel (digest_kernel.c) ---- */

/* The code of the kernel's file, or NULL; `path` is where it was looked for. The module is the caller's to load. */
void *probe_kernel_code(char *path, size_t size);

#endif
