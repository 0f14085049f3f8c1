/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter of the stand-ins' kernels, which the device's table knows as the layout "matmul". */
#ifndef TESTS_SIM_STANDIN_MATRIX_H
#define TESTS_SIM_STANDIN_MATRIX_H

#include <stdint.h>

/* cudaDataType_t, as far as it is known here. */
enum standin_type { STANDIN_F32 = 0, STANDIN_F64 = 1, STANDIN_F16 = 2, STANDIN_I8 = 3, STANDIN_I32 = 10, STANDIN_BF16 = 14 };

/* Column-major: rows lie together, columns `ld` elements apart, matrices of a batch `stride` elements. */
struct standin_matrix {
	uint64_t at;
	int64_t rows, cols, ld, stride;
	int32_t type;
	int32_t reserved;
};

/* d = alpha a b + beta c, whatever follows it. */
struct standin_matmul {
	struct standin_matrix a, b, c, d; /* as they lie in memory */
	uint64_t bias, aux, scale[4]; /* 0: none; aux is read with reads_aux, else written */
	int64_t batch;
	int64_t n_bias, n_aux;
	double alpha, beta;
	int32_t bias_type, aux_type;
	int32_t trans, epilogue; /* bit 0 a, bit 1 b */
	int32_t writes_bias, reads_aux;
};

#endif
