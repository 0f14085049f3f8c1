/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter of stand-in kernels that are described by their tensors; the device's table knows it as the layout "tensors". */
#ifndef TESTS_SIM_STANDIN_TENSORS_H
#define TESTS_SIM_STANDIN_TENSORS_H

#include <stdint.h>

#define STANDIN_TENSORS 20
#define STANDIN_DIMS 8

struct standin_tensor {
	uint64_t at;
	int32_t size[STANDIN_DIMS], stride[STANDIN_DIMS]; /* in elements; the last is the fastest */
	int16_t dims;
	int8_t type; /* cudnnDataType_t */
	int8_t output;
};

struct standin_tensors {
	struct standin_tensor tensor[STANDIN_TENSORS];
	double scalar[4];
	uint64_t salt; /* a digest of how: paddings, modes */
	int32_t n;
	int32_t reserved;
};

#endif
