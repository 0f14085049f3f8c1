/* SPDX-License-Identifier: Apache-2.0 */
/* The container of device code: names and parameter layouts for the driver, a shared object or PTX for the device. */
#ifndef TESTS_SIM_IMAGE_H
#define TESTS_SIM_IMAGE_H

#include <stdint.h>

#define SIMGPU_IMAGE_MAGIC "SIMGPUIM"
/* Raise with every change of a struct below; simnvcc writes it, the driver refuses another. */
#define SIMGPU_IMAGE_VERSION 1
/* Flags: the kernels are exchanges between ranks (exchange.h), which have no code either. */
#define SIMGPU_IMAGE_EXCHANGE 1
#define SIMGPU_FATBIN_MAGIC 0x466243b1

struct sim_image_kernel {
	uint32_t name;        /* offset into the strings */
	uint32_t first_param; /* index into the parameters */
	uint32_t n_params;
	uint32_t param_bytes;
};

struct sim_image_param {
	uint32_t offset;
	uint32_t size;
};

struct sim_image_variable {
	uint32_t name;
	uint32_t constant;
	uint64_t size;
};

/*
 * Offsets count from the start of the header. Kernel i is entry i of the object's `simgpu_table`, or the i-th of
 * the PTX text that is there instead. An image without an
 * object names kernels that the device has no code for: they are pseudo-executed.
 */
struct sim_image_header {
	char magic[8];
	uint32_t version;
	uint32_t n_kernels;
	uint32_t n_variables;
	uint32_t n_params;
	uint64_t total_bytes;
	uint64_t kernels;
	uint64_t params;
	uint64_t variables;
	uint64_t strings;
	uint64_t object;
	uint64_t object_bytes;
	uint64_t flags; /* simnvcc writes 0 */
	uint64_t reserved;
};

/* The section of a cubin in which the stand-in for ptxas puts the text that it was given. */
#define SIMGPU_PTX_SECTION ".simgpu.ptx"

/* What nvcc's host code hands to __cudaRegisterFatBinary. */
struct sim_fatbin_wrapper {
	int32_t magic;
	int32_t version;
	const void *data;
	void *filename;
};

#endif
