/* SPDX-License-Identifier: Apache-2.0 */
/* libcublasLt: descriptors, one algorithm, and the product with what follows it as work on a stream. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"

enum { OK = 0, ALLOC_FAILED = 3, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };

/* cublasLtMatrixLayoutAttribute_t, cublasLtMatmulDescAttributes_t and cublasLtEpilogue_t of the vendor's header. */
enum { LAYOUT_TYPE, LAYOUT_ORDER, LAYOUT_ROWS, LAYOUT_COLS, LAYOUT_LD, LAYOUT_BATCH, LAYOUT_STRIDE };
enum { POINTER_MODE = 2, TRANSA = 3, TRANSB = 4, EPILOGUE = 7, BIAS_POINTER = 8, AUX_POINTER = 11, AUX_LD = 12, A_SCALE = 17, BIAS_TYPE = 26 };
enum { EPILOGUE_BIAS = 4, EPILOGUE_DRELU = 8, EPILOGUE_BGRAD = 16, EPILOGUE_DGELU = 64, EPILOGUE_AUX = 128, EPILOGUE_BGRADA = 256, EPILOGUE_BGRADB = 512 };

struct layout {
	int type, order, batch;
	uint64_t rows, cols;
	int64_t ld, stride;
};

struct desc {
	int compute, scale_type, pointer_mode, transa, transb;
	uint32_t epilogue;
	uint64_t bias, aux, scale[4];
	int64_t aux_ld;
	int bias_type;
};

struct result {
	uint64_t algo[8];
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
};

STANDIN_API size_t cublasLtGetVersion(void) { return 130400; }

STANDIN_API int cublasLtCreate(void **out)
{
	*out = calloc(1, 8);
	return *out ? OK : ALLOC_FAILED;
}

STANDIN_API int cublasLtDestroy(void *h)
{
	free(h);
	return OK;
}

STANDIN_API int cublasLtMatrixLayoutCreate(struct layout **out, int type, uint64_t rows, uint64_t cols, int64_t ld)
{
	struct layout *l = calloc(1, sizeof *l);

	if (!l)
		return ALLOC_FAILED;
	*l = (struct layout){ .type = type, .batch = 1, .rows = rows, .cols = cols, .ld = ld };
	*out = l;
	return OK;
}

STANDIN_API int cublasLtMatrixLayoutDestroy(struct layout *l)
{
	free(l);
	return OK;
}

static int take(void *to, size_t room, const void *from, size_t n)
{
	if (n > room)
		return INVALID_VALUE;
	memset(to, 0, room);
	memcpy(to, from, n);
	return OK;
}

/* As documented: without room, how much is needed. */
static int give(void *to, size_t room, size_t *written, const void *from, size_t n)
{
	if (written)
		*written = n;
	if (!room && written)
		return OK;
	if (!to || room < n)
		return INVALID_VALUE;
	memcpy(to, from, n);
	return OK;
}

#define FIELD(x) (*n = sizeof(x), (void *)&(x))

static void *layout_field(struct layout *l, int a, size_t *n)
{
	switch (a) {
	case LAYOUT_TYPE: return FIELD(l->type);
	case LAYOUT_ORDER: return FIELD(l->order);
	case LAYOUT_ROWS: return FIELD(l->rows);
	case LAYOUT_COLS: return FIELD(l->cols);
	case LAYOUT_LD: return FIELD(l->ld);
	case LAYOUT_BATCH: return FIELD(l->batch);
	case LAYOUT_STRIDE: return FIELD(l->stride);
	default: simgpu_standin_called("libcublasLt", "a layout's attribute", NOT_SUPPORTED); return NULL;
	}
}

STANDIN_API int cublasLtMatrixLayoutSetAttribute(struct layout *l, int a, const void *v, size_t bytes)
{
	size_t n;
	void *field = layout_field(l, a, &n);

	return field ? take(field, n, v, bytes) : NOT_SUPPORTED;
}

STANDIN_API int cublasLtMatrixLayoutGetAttribute(struct layout *l, int a, void *v, size_t room, size_t *written)
{
	size_t n;
	void *field = layout_field(l, a, &n);

	return field ? give(v, room, written, field, n) : NOT_SUPPORTED;
}

STANDIN_API int cublasLtMatmulDescCreate(struct desc **out, int compute, int scale_type)
{
	struct desc *d = calloc(1, sizeof *d);

	if (!d)
		return ALLOC_FAILED;
	*d = (struct desc){ .compute = compute, .scale_type = scale_type, .epilogue = 1, .bias_type = -1 };
	*out = d;
	return OK;
}

STANDIN_API int cublasLtMatmulDescDestroy(struct desc *d)
{
	free(d);
	return OK;
}

static void *desc_field(struct desc *d, int a, size_t *n)
{
	switch (a) {
	case POINTER_MODE: return FIELD(d->pointer_mode);
	case TRANSA: return FIELD(d->transa);
	case TRANSB: return FIELD(d->transb);
	case EPILOGUE: return FIELD(d->epilogue);
	case BIAS_POINTER: return FIELD(d->bias);
	case AUX_POINTER: return FIELD(d->aux);
	case AUX_LD: return FIELD(d->aux_ld);
	case A_SCALE: case A_SCALE + 1: case A_SCALE + 2: case A_SCALE + 3: return FIELD(d->scale[a - A_SCALE]);
	case BIAS_TYPE: return FIELD(d->bias_type);
	default: return NULL;
	}
}

STANDIN_API int cublasLtMatmulDescSetAttribute(struct desc *d, int a, const void *v, size_t bytes)
{
	size_t n;
	void *field = desc_field(d, a, &n);

	return field ? take(field, n, v, bytes) : OK; /* how, not what */
}

STANDIN_API int cublasLtMatmulDescGetAttribute(struct desc *d, int a, void *v, size_t room, size_t *written)
{
	size_t n;
	void *field = desc_field(d, a, &n);

	return field ? give(v, room, written, field, n) : NOT_SUPPORTED;
}

STANDIN_API int cublasLtMatmulPreferenceCreate(void **out) { return cublasLtCreate(out); }
STANDIN_API int cublasLtMatmulPreferenceDestroy(void *p) { return cublasLtDestroy(p); }

STANDIN_API int cublasLtMatmulPreferenceSetAttribute(void *p, int a, const void *v, size_t n)
{
	(void)p, (void)a, (void)v, (void)n;
	return OK;
}

STANDIN_API int cublasLtMatmulAlgoGetHeuristic(void *h, struct desc *d, struct layout *a, struct layout *b, struct layout *c,
					       struct layout *e, void *pref, int want, struct result *r, int *have)
{
	(void)h, (void)d, (void)a, (void)b, (void)c, (void)e, (void)pref;
	*have = 0;
	if (want < 1)
		return INVALID_VALUE;
	memset(r, 0, sizeof *r);
	r->algo[0] = 1;
	r->waves = 1;
	*have = 1;
	return OK;
}

STANDIN_API int cublasLtMatmulAlgoCheck(void *h, struct desc *d, struct layout *a, struct layout *b, struct layout *c, struct layout *e,
					const void *algo, struct result *r)
{
	int have;
	(void)algo;
	return cublasLtMatmulAlgoGetHeuristic(h, d, a, b, c, e, NULL, 1, r, &have);
}

static struct standin_matrix matrix(const void *at, const struct layout *l)
{
	bool row_major = l->order == 1;

	return (struct standin_matrix){ .at = (uint64_t)(uintptr_t)at, .rows = (int64_t)(row_major ? l->cols : l->rows),
					.cols = (int64_t)(row_major ? l->rows : l->cols), .ld = l->ld, .stride = l->stride, .type = l->type };
}

static double scalar(const void *p, int type)
{
	double d;
	float f;
	int32_t i;
	_Float16 x;

	switch (type) {
	case STANDIN_F64: memcpy(&d, p, sizeof d); return d;
	case STANDIN_F16: memcpy(&x, p, sizeof x); return (double)x;
	case STANDIN_I32: memcpy(&i, p, sizeof i); return i;
	default: memcpy(&f, p, sizeof f); return (double)f;
	}
}

static const char *suffix(uint32_t epilogue)
{
	if (epilogue & (EPILOGUE_BGRAD | EPILOGUE_BGRADA | EPILOGUE_BGRADB))
		return "_bgrad";
	if (epilogue & EPILOGUE_BIAS)
		return "_bias";
	return epilogue & 2 ? "_relu" : epilogue & 32 ? "_gelu" : "_lt";
}

STANDIN_API int cublasLtMatmul(void *h, struct desc *d, const void *alpha, const void *a, struct layout *al, const void *b,
			       struct layout *bl, const void *beta, const void *c, struct layout *cl, void *e, struct layout *el,
			       const void *algo, void *workspace, size_t bytes, CUstream stream)
{
	struct standin_matmul m = { .batch = el->batch, .trans = (d->transa ? 1 : 0) | (d->transb ? 2 : 0), .epilogue = (int32_t)d->epilogue };

	(void)h, (void)algo, (void)workspace, (void)bytes;
	if (d->pointer_mode)
		return (int)simgpu_standin_called("libcublasLt", "cublasLtMatmul with scalars on the device", NOT_SUPPORTED);
	if (el->type == 28 || el->type == 29 || al->type == 28 || al->type == 29)
		return (int)simgpu_standin_called("libcublasLt", "a product of 8-bit floating point", NOT_SUPPORTED);
	m.alpha = scalar(alpha, d->scale_type);
	m.beta = scalar(beta, d->scale_type);
	m.a = matrix(a, al);
	m.b = matrix(b, bl);
	m.d = matrix(e, el);
	if (m.beta != 0)
		m.c = matrix(c, cl);
	memcpy(m.scale, d->scale, sizeof m.scale);
	if (d->epilogue & (EPILOGUE_BIAS | EPILOGUE_BGRAD | EPILOGUE_BGRADA | EPILOGUE_BGRADB)) {
		m.bias = d->bias;
		m.bias_type = d->bias_type < 0 ? el->type : d->bias_type;
		m.writes_bias = !(d->epilogue & EPILOGUE_BIAS);
		m.n_bias = (int64_t)(d->epilogue & EPILOGUE_BGRADB ? el->cols : el->rows);
	}
	if (d->epilogue & EPILOGUE_AUX && d->aux) {
		m.aux = d->aux;
		m.reads_aux = !!(d->epilogue & (EPILOGUE_DRELU | EPILOGUE_DGELU));
		/* RELU's is a bit mask, GELU's the input before it. */
		bool mask = d->epilogue & (2 | EPILOGUE_DRELU);
		m.aux_type = mask ? STANDIN_I8 : el->type;
		m.n_aux = mask ? d->aux_ld * (int64_t)el->cols / 8 : d->aux_ld * (int64_t)el->cols;
	}
	return standin_matmul(&m, suffix(d->epilogue), stream) == CUDA_SUCCESS ? OK : EXECUTION_FAILED;
}
