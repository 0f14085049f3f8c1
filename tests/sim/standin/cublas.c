/* SPDX-License-Identifier: Apache-2.0 */
/* libcublas: handles, and products as work on a stream. Declarations as documented; statuses are the vendor's numbers. */
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"

enum { OK = 0, NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };

struct handle {
	CUstream stream;
	int math, pointer_mode, atomics;
};

STANDIN_API int cublasCreate_v2(struct handle **out)
{
	*out = calloc(1, sizeof **out);
	return *out ? OK : ALLOC_FAILED;
}

STANDIN_API int cublasDestroy_v2(struct handle *h)
{
	free(h);
	return OK;
}

STANDIN_API int cublasSetStream_v2(struct handle *h, CUstream s)
{
	h->stream = s;
	return OK;
}

STANDIN_API int cublasGetStream_v2(struct handle *h, CUstream *s)
{
	*s = h->stream;
	return OK;
}

STANDIN_API int cublasSetWorkspace_v2(struct handle *h, void *at, size_t n)
{
	(void)at, (void)n;
	return h ? OK : NOT_INITIALIZED;
}

STANDIN_API int cublasSetMathMode(struct handle *h, int m)
{
	h->math = m;
	return OK;
}

STANDIN_API int cublasGetMathMode(struct handle *h, int *m)
{
	*m = h->math;
	return OK;
}

STANDIN_API int cublasSetPointerMode_v2(struct handle *h, int m)
{
	h->pointer_mode = m;
	return OK;
}

STANDIN_API int cublasGetPointerMode_v2(struct handle *h, int *m)
{
	*m = h->pointer_mode;
	return OK;
}

STANDIN_API int cublasSetAtomicsMode(struct handle *h, int m)
{
	h->atomics = m;
	return OK;
}

STANDIN_API int cublasSetSmCountTarget(struct handle *h, int n)
{
	(void)n;
	return h ? OK : NOT_INITIALIZED;
}

STANDIN_API int cublasGetVersion_v2(struct handle *h, int *v)
{
	(void)h;
	*v = 130400;
	return OK;
}

static struct standin_matrix matrix(const void *at, int trans, int64_t rows, int64_t cols, int64_t ld, int64_t stride, int type)
{
	struct standin_matrix m = { .at = (uint64_t)(uintptr_t)at, .ld = ld, .stride = stride, .type = type };

	m.rows = trans ? cols : rows;
	m.cols = trans ? rows : cols;
	return m;
}

static int known(int type)
{
	return type == STANDIN_F32 || type == STANDIN_F64 || type == STANDIN_F16 || type == STANDIN_BF16 || type == STANDIN_I8 || type == STANDIN_I32;
}

struct gemm {
	int ta, tb;
	int64_t m, n, k;
	const void *a, *b;
	void *c;
	int at, bt, ct;
	int64_t lda, ldb, ldc, sa, sb, sc, batch;
};

static int gemm(struct handle *h, const struct gemm *g, double alpha, double beta)
{
	struct standin_matmul m = { .batch = g->batch, .alpha = alpha, .beta = beta, .trans = (g->ta ? 1 : 0) | (g->tb ? 2 : 0) };

	if (!h)
		return NOT_INITIALIZED;
	if (h->pointer_mode || !known(g->at) || !known(g->bt) || !known(g->ct))
		return (int)simgpu_standin_called("libcublas", "a product of these types or with scalars on the device", NOT_SUPPORTED);
	m.a = matrix(g->a, g->ta, g->m, g->k, g->lda, g->sa, g->at);
	m.b = matrix(g->b, g->tb, g->k, g->n, g->ldb, g->sb, g->bt);
	m.d = matrix(g->c, 0, g->m, g->n, g->ldc, g->sc, g->ct);
	if (beta != 0)
		m.c = m.d;
	return standin_matmul(&m, "", h->stream) == CUDA_SUCCESS ? OK : EXECUTION_FAILED;
}

#define GEMM(letter, type, code) \
	STANDIN_API int cublas##letter##gemm_v2(struct handle *h, int ta, int tb, int m, int n, int k, const type *alpha, \
						const type *a, int lda, const type *b, int ldb, const type *beta, type *c, int ldc) \
	{ \
		struct gemm g = { ta, tb, m, n, k, a, b, c, code, code, code, lda, ldb, ldc, 0, 0, 0, 1 }; \
		return gemm(h, &g, (double)*alpha, (double)*beta); \
	} \
	STANDIN_API int cublas##letter##gemmStridedBatched(struct handle *h, int ta, int tb, int m, int n, int k, const type *alpha, \
							   const type *a, int lda, long long sa, const type *b, int ldb, long long sb, \
							   const type *beta, type *c, int ldc, long long sc, int batch) \
	{ \
		struct gemm g = { ta, tb, m, n, k, a, b, c, code, code, code, lda, ldb, ldc, sa, sb, sc, batch }; \
		return gemm(h, &g, (double)*alpha, (double)*beta); \
	} \
	STANDIN_API int cublas##letter##gemv_v2(struct handle *h, int t, int m, int n, const type *alpha, const type *a, int lda, \
						const type *x, int incx, const type *beta, type *y, int incy) \
	{ \
		struct gemm g = { t, 0, t ? n : m, 1, t ? m : n, a, x, y, code, code, code, lda, 0, 0, 0, 0, 0, 1 }; \
		if (incx != 1 || incy != 1) { /* a row of a matrix: one column of `inc` apart each */ \
			g = (struct gemm){ t, 1, t ? n : m, 1, t ? m : n, a, x, y, code, code, code, lda, incx, incy, 0, 0, 0, 1 }; \
			g.ta = t; \
			return gemv_strided(h, &g, (double)*alpha, (double)*beta); \
		} \
		g.ldb = g.k; \
		g.ldc = g.m; \
		return gemm(h, &g, (double)*alpha, (double)*beta); \
	} \
	STANDIN_API int cublas##letter##dot_v2(struct handle *h, int n, const type *x, int incx, const type *y, int incy, type *r) \
	{ \
		return dot(h, n, x, code, incx, y, code, incy, r, code); \
	}

/* The vectors lie in rows of matrices whose columns are `inc` apart. */
static int gemv_strided(struct handle *h, const struct gemm *g, double alpha, double beta)
{
	struct standin_matmul m = { .batch = 1, .alpha = alpha, .beta = beta, .trans = !!g->ta };

	if (h->pointer_mode)
		return (int)simgpu_standin_called("libcublas", "gemv with scalars on the device", NOT_SUPPORTED);
	m.a = matrix(g->a, g->ta, g->m, g->k, g->lda, 0, g->at);
	m.b = matrix(g->b, 0, 1, g->k, g->ldb, 0, g->bt);
	m.d = matrix(g->c, 0, 1, g->m, g->ldc, 0, g->ct);
	if (beta != 0)
		m.c = m.d;
	return standin_matmul(&m, "_gemv", h->stream) == CUDA_SUCCESS ? OK : EXECUTION_FAILED;
}

static int dot(struct handle *h, int n, const void *x, int xt, int incx, const void *y, int yt, int incy, void *r, int rt)
{
	struct standin_matmul m = { .batch = 1, .alpha = 1 };

	if (!h->pointer_mode) /* the result would have to be on the host when the call returns */
		return (int)simgpu_standin_called("libcublas", "dot with its result on the host", NOT_SUPPORTED);
	m.a = matrix(x, 0, 1, n, incx, 0, xt);
	m.b = matrix(y, 0, 1, n, incy, 0, yt);
	m.d = matrix(r, 0, 1, 1, 1, 0, rt);
	return standin_matmul(&m, "_dot", h->stream) == CUDA_SUCCESS ? OK : EXECUTION_FAILED;
}

GEMM(S, float, STANDIN_F32)
GEMM(D, double, STANDIN_F64)

STANDIN_API int cublasDotEx(struct handle *h, int n, const void *x, int xt, int incx, const void *y, int yt, int incy, void *r,
			    int rt, int compute)
{
	(void)compute;
	return dot(h, n, x, xt, incx, y, yt, incy, r, rt);
}

/* Scalars have the compute type: 64F (70), 16F (64), 32I (72), else float. */
static double scalar(const void *p, int compute)
{
	double d;
	float f;
	int32_t i;
	_Float16 x;

	switch (compute) {
	case 70: case 71: memcpy(&d, p, sizeof d); return d;
	case 64: case 65: memcpy(&x, p, sizeof x); return (double)x;
	case 72: case 73: memcpy(&i, p, sizeof i); return i;
	default: memcpy(&f, p, sizeof f); return (double)f;
	}
}

STANDIN_API int cublasGemmEx(struct handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda,
			     const void *b, int bt, int ldb, const void *beta, void *c, int ct, int ldc, int compute, int algo)
{
	struct gemm g = { ta, tb, m, n, k, a, b, c, at, bt, ct, lda, ldb, ldc, 0, 0, 0, 1 };

	(void)algo;
	return gemm(h, &g, scalar(alpha, compute), scalar(beta, compute));
}

STANDIN_API int cublasSgemmEx(struct handle *h, int ta, int tb, int m, int n, int k, const float *alpha, const void *a, int at, int lda,
			      const void *b, int bt, int ldb, const float *beta, void *c, int ct, int ldc)
{
	struct gemm g = { ta, tb, m, n, k, a, b, c, at, bt, ct, lda, ldb, ldc, 0, 0, 0, 1 };

	return gemm(h, &g, (double)*alpha, (double)*beta);
}

STANDIN_API int cublasGemmStridedBatchedEx(struct handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
					   int at, int lda, long long sa, const void *b, int bt, int ldb, long long sb, const void *beta,
					   void *c, int ct, int ldc, long long sc, int batch, int compute, int algo)
{
	struct gemm g = { ta, tb, m, n, k, a, b, c, at, bt, ct, lda, ldb, ldc, sa, sb, sc, batch };

	(void)algo;
	return gemm(h, &g, scalar(alpha, compute), scalar(beta, compute));
}

STANDIN_API const char *cublasGetStatusString(int s)
{
	static const char *const names[] = { "CUBLAS_STATUS_SUCCESS", "CUBLAS_STATUS_NOT_INITIALIZED", "", "CUBLAS_STATUS_ALLOC_FAILED" };

	return s == NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : s >= 0 && s < 4 && *names[s] ? names[s] : "CUBLAS_STATUS_EXECUTION_FAILED";
}
