/* SPDX-License-Identifier: Apache-2.0 */
/* libcudnn: the graph API as a store of attributes, and its execution as one launch that knows inputs and outputs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin/standin.h"
#include "standin/tensors.h"

enum { OK = 0, BAD_PARAM = 2000, NOT_SUPPORTED = 3000, ALLOC_FAILED = 4002, EXECUTION_FAILED = 5000 };

/* Before this version there is no attention in it, which is not here either. */
STANDIN_API size_t cudnnGetVersion(void) { return 8800; }
STANDIN_API size_t cudnnGetCudartVersion(void) { return CUDA_VERSION; }

/* Major, minor and patch level, for XLA, which has no attention of its own to ask for and wants those that it was built with. */
STANDIN_API int cudnnGetProperty(int which, int *value)
{
	static const int parts[] = { 9, 20, 0 };

	if (which < 0 || which > 2)
		return BAD_PARAM;
	*value = parts[which];
	return OK;
}

struct handle {
	CUstream stream;
	void *errors; /* host memory, where kernels of cuDNN's that run into an error write (cudnnQueryRuntimeError); none of these does */
};

STANDIN_API int cudnnCreate(struct handle **out)
{
	CUresult (*alloc)(void **, size_t, unsigned) = standin_driver("cuMemHostAlloc", 2020);
	CUresult (*pointer)(CUdeviceptr *, void *, unsigned) = standin_driver("cuMemHostGetDevicePointer", 3020);
	CUdeviceptr at;

	*out = calloc(1, sizeof **out);
	if (!*out)
		return ALLOC_FAILED;
	if (alloc && pointer && alloc(&(*out)->errors, 512, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS) {
		pointer(&at, (*out)->errors, 0);
		memset((*out)->errors, 0, 512);
	}
	return OK;
}

STANDIN_API int cudnnDestroy(struct handle *h)
{
	CUresult (*release)(void *) = standin_driver("cuMemFreeHost", 2000);

	if (release && h->errors)
		release(h->errors);
	free(h);
	return OK;
}

STANDIN_API int cudnnSetStream(struct handle *h, CUstream s)
{
	h->stream = s;
	return OK;
}

STANDIN_API int cudnnGetStream(struct handle *h, CUstream *s)
{
	*s = h->stream;
	return OK;
}

STANDIN_API const char *cudnnGetErrorString(int e)
{
	return e == OK ? "CUDNN_STATUS_SUCCESS" : e == NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_EXECUTION_FAILED";
}

STANDIN_API void cudnnGetLastErrorString(char *text, size_t room) { snprintf(text, room, "simgpu"); }

/* ---- descriptors of the graph API; numbers are cudnnBackendDescriptorType_t, ...AttributeName_t, ...AttributeType_t ---- */
enum { POINTWISE = 0, ENGINE = 2, ENGINECFG = 3, ENGINEHEUR = 4, PLAN = 5, CONV_FORWARD = 10, CONV_FILTER = 11, CONV_DATA = 12, OP_POINTWISE = 13,
	   GRAPH = 15, VARIANT_PACK = 16, TENSOR = 17, OP_MATMUL = 19, OP_REDUCTION = 21 };
enum { HEUR_GRAPH = 201, HEUR_RESULTS = 202, CFG_ENGINE = 300, PLAN_CFG = 401, PLAN_WORKSPACE = 402, GRAPH_OPS = 801, GRAPH_COUNT = 802, TENSOR_TYPE = 901,
	   TENSOR_DIMENSIONS = 902, TENSOR_STRIDES = 903, TENSOR_ID = 906, TENSOR_VIRTUAL = 907, PACK_IDS = 1000, PACK_POINTERS = 1001, ENGINE_GRAPH = 1300,
       ENGINE_INDEX = 1301 };
enum { TYPE_INT64 = 3, TYPE_DESCRIPTOR = 15, ENGINES = 2 };

struct attribute {
	int name, type;
	int64_t count;
	char *value;
	struct attribute *next;
};

struct descriptor {
	int type, refs;
	struct attribute *first;
};

/* Descriptors name each other; a plan may outlive what it was made of. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t type_bytes(int type)
{
	static const unsigned char bytes[] = { 8, 4, 1, 8, 4, 8, 8, 4, 4, 4, 4, 4, 4, 4, 4, 8, 4, 4, 4, 4, 4, 4, 4, 4, 1, 4, 16, 4, 4, 4, 4, 4, 4 };

	return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

static void drop(struct descriptor *d)
{
	if (!d || --d->refs)
		return;
	for (struct attribute *a = d->first, *next; a; a = next) {
		next = a->next;
		for (int64_t i = 0; a->type == TYPE_DESCRIPTOR && i < a->count; i++)
			drop(((struct descriptor **)(void *)a->value)[i]);
		free(a->value);
		free(a);
	}
	free(d);
}

static struct attribute *find(const struct descriptor *d, int name)
{
	struct attribute *a = d ? d->first : NULL;

	while (a && a->name != name)
		a = a->next;
	return a;
}

static int set(struct descriptor *d, int name, int type, int64_t n, const void *value)
{
	struct attribute *a = find(d, name);
	size_t bytes = type_bytes(type) * (size_t)n;

	if (!type_bytes(type) || n < 0)
		return BAD_PARAM;
	if (!a) {
		a = calloc(1, sizeof *a);
		if (!a)
			return ALLOC_FAILED;
		a->name = name;
		a->next = d->first;
		d->first = a;
	}
	char *copy = malloc(bytes + 1);
	if (!copy)
		return ALLOC_FAILED;
	memcpy(copy, value, bytes);
	for (int64_t i = 0; type == TYPE_DESCRIPTOR && i < n; i++)
		if (((struct descriptor *const *)value)[i])
			((struct descriptor *const *)value)[i]->refs++;
	for (int64_t i = 0; a->type == TYPE_DESCRIPTOR && i < a->count; i++)
		drop(((struct descriptor **)(void *)a->value)[i]);
	free(a->value);
	a->value = copy;
	a->type = type;
	a->count = n;
	return OK;
}

STANDIN_API int cudnnBackendCreateDescriptor(int type, struct descriptor **out)
{
	struct descriptor *d = calloc(1, sizeof *d);

	if (!d)
		return ALLOC_FAILED;
	d->type = type;
	d->refs = 1;
	*out = d;
	return OK;
}

STANDIN_API int cudnnBackendDestroyDescriptor(struct descriptor *d)
{
	pthread_mutex_lock(&lock);
	drop(d);
	pthread_mutex_unlock(&lock);
	return OK;
}

STANDIN_API int cudnnBackendSetAttribute(struct descriptor *d, int name, int type, int64_t n, const void *value)
{
	pthread_mutex_lock(&lock);
	int e = d ? set(d, name, type, n, value) : BAD_PARAM;
	pthread_mutex_unlock(&lock);
	return e;
}

static struct descriptor *one(const struct descriptor *d, int name)
{
	struct attribute *a = find(d, name);

	return a && a->type == TYPE_DESCRIPTOR && a->count > 0 ? *(struct descriptor **)(void *)a->value : NULL;
}

STANDIN_API int cudnnBackendFinalize(struct descriptor *d) { return d ? OK : BAD_PARAM; }

static int engine_set(struct descriptor *engine, struct descriptor *graph, int64_t index)
{
	int e = set(engine, ENGINE_GRAPH, TYPE_DESCRIPTOR, 1, &graph);

	return e ? e : set(engine, ENGINE_INDEX, TYPE_INT64, 1, &index);
}

static int64_t engine_index(const struct descriptor *engine)
{
	struct attribute *a = find(engine, ENGINE_INDEX);

	return a ? *(int64_t *)(void *)a->value : 0;
}

/* The engines of a graph, in the descriptors that the caller made for the answer: which of them is faster is for those to
 * find out who measure it. */
static int answer(const struct descriptor *d, int64_t room, int64_t *n, struct descriptor **out)
{
	struct descriptor *engine, *graph = one(d, HEUR_GRAPH);
	int e = OK;

	*n = ENGINES;
	if (room < 1 || !out)
		return OK;
	*n = room < ENGINES ? room : ENGINES;
	for (int64_t i = 0; i < *n && !e; i++) {
		if (!out[i])
			return BAD_PARAM;
		if (cudnnBackendCreateDescriptor(ENGINE, &engine))
			return ALLOC_FAILED;
		e = engine_set(engine, graph, i);
		if (!e)
			e = set(out[i], CFG_ENGINE, TYPE_DESCRIPTOR, 1, &engine);
		drop(engine);
	}
	return e;
}

static int get(struct descriptor *d, int name, int type, int64_t room, int64_t *n, void *out)
{
	int64_t none = 0;
	struct attribute *a = find(d, name);

	if (!n)
		n = &none;
	if (d->type == ENGINEHEUR && name == HEUR_RESULTS)
		return answer(d, room, n, out);
	if (d->type == PLAN && name == PLAN_WORKSPACE) {
		*n = 1;
		if (out && room)
			memset(out, 0, 8);
		return OK;
	}
	if (d->type == GRAPH && name == GRAPH_COUNT) {
		*n = 1;
		if (out && room)
			*(int64_t *)out = 1;
		return OK;
	}
	if (d->type == ENGINECFG && name == CFG_ENGINE && a && out && room) { /* into the caller's descriptor */
		struct descriptor *to = *(struct descriptor **)out, *from = one(d, name), *graph = one(from, ENGINE_GRAPH);

		*n = 1;
		return to && graph ? engine_set(to, graph, engine_index(from)) : BAD_PARAM;
	}
	/* Notes, knobs, intermediates: there are none. */
	*n = a ? a->count : 0;
	if (a && out && room)
		memcpy(out, a->value, type_bytes(type) * (size_t)(room < a->count ? room : a->count));
	else if (out && room && type_bytes(type) <= 8)
		memset(out, 0, type_bytes(type));
	return OK;
}

STANDIN_API int cudnnBackendGetAttribute(struct descriptor *d, int name, int type, int64_t room, int64_t *n, void *out)
{
	pthread_mutex_lock(&lock);
	int e = d ? get(d, name, type, room, n, out) : BAD_PARAM;
	pthread_mutex_unlock(&lock);
	return e;
}

/* What an operation writes; every other tensor that it names is read. */
static int is_output(const struct descriptor *op, int name)
{
	switch (name) {
	case 705: case 710: case 715: /* convolution: y, dx, dw */
	case 756: /* pointwise: dx */
	case 773: case 774: /* sums */
	case 788: case 789: case 790: case 791: case 792: case 793: /* batch norm's statistics */
	case 1522: case 1611: /* product, reduction */
	case 1626: case 1627:
	case 1711: case 1712: case 1720: /* resampling */
	case 2003: case 2004: case 2011: case 2012: case 2013: /* norm forward: statistics and y */
	case 2107: case 2108: case 2109:
	case 2201:
		return 1;
	case 753: /* pointwise y; an input where there is a dy */
		return !find(op, 757);
	default:
		return 0;
	}
}

static void *pointer_of(const struct descriptor *pack, int64_t id)
{
	struct attribute *ids = find(pack, PACK_IDS), *pointers = find(pack, PACK_POINTERS);

	for (int64_t i = 0; ids && pointers && i < ids->count && i < pointers->count; i++)
		if (((int64_t *)(void *)ids->value)[i] == id)
			return ((void **)(void *)pointers->value)[i];
	return NULL;
}

static int add_tensor(struct standin_tensors *to, const struct descriptor *t, const struct descriptor *pack, int output)
{
	struct attribute *type = find(t, TENSOR_TYPE), *size = find(t, TENSOR_DIMENSIONS), *stride = find(t, TENSOR_STRIDES);
	struct attribute *id = find(t, TENSOR_ID), *is_virtual = find(t, TENSOR_VIRTUAL);
	void *at = id ? pointer_of(pack, *(int64_t *)(void *)id->value) : NULL;

	if ((is_virtual && *is_virtual->value) || !at)
		return OK;
	if (!type || !size || !stride || size->count > STANDIN_DIMS || to->n == STANDIN_TENSORS)
		return NOT_SUPPORTED;
	struct standin_tensor *x = &to->tensor[to->n++];
	x->at = (uint64_t)(uintptr_t)at;
	x->dims = (int16_t)size->count;
	x->type = (int8_t)*(int32_t *)(void *)type->value;
	x->output = (int8_t)output;
	for (int64_t i = 0; i < size->count; i++) {
		x->size[i] = (int32_t)((int64_t *)(void *)size->value)[i];
		x->stride[i] = (int32_t)((int64_t *)(void *)stride->value)[i];
	}
	return OK;
}

static double number(const struct attribute *a)
{
	double d = 0;
	float f = 0;

	if (!a)
		return 0;
	if (a->type == 4) {
		memcpy(&f, a->value, sizeof f);
		return (double)f;
	}
	memcpy(&d, a->value, sizeof d);
	return d;
}

/* Paddings, strides, modes: what describes an operation and is no tensor. */
static void describe(struct standin_tensors *to, const struct descriptor *d, int depth)
{
	for (const struct attribute *a = d->first; a; a = a->next) {
		if (a->type == TYPE_DESCRIPTOR) {
			struct descriptor *x = *(struct descriptor **)(void *)a->value;

			if (x && x->type != TENSOR && depth < 3)
				describe(to, x, depth + 1);
			continue;
		}
		uint64_t h = (uint64_t)a->name;
		for (size_t i = 0; a->type != 0 && a->type != 6 && i < type_bytes(a->type) * (size_t)a->count; i++)
			h = (h ^ (unsigned char)a->value[i]) * 0x100000001b3ull;
		to->salt += h; /* in whatever order they were set */
	}
}

static int add_operation(struct standin_tensors *to, const struct descriptor *op, const struct descriptor *pack, const char **name)
{
	static const struct {
		int type, alpha, beta, output;
		const char *name;
	} known[] = {
		{ CONV_FORWARD, 700, 701, 705, "cudnn_convolution_fprop" },
		{ CONV_DATA, 706, 707, 710, "cudnn_convolution_dgrad" },
		{ CONV_FILTER, 712, 713, 715, "cudnn_convolution_wgrad" },
		{ OP_POINTWISE, 754, 0, 0, "cudnn_pointwise" },
		{ OP_MATMUL, 0, 0, 0, "cudnn_matmul" },
		{ OP_REDUCTION, 0, 0, 0, "cudnn_reduction" },
	};
	int e = OK;

	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (known[i].type != op->type)
			continue;
		if (!*name || i < 3)
			*name = known[i].name;
		to->scalar[0] += number(find(op, known[i].alpha));
		to->scalar[1] += number(find(op, known[i].beta));
		if (known[i].beta && number(find(op, known[i].beta)) != 0)
			e = add_tensor(to, one(op, known[i].output), pack, 0);
	}
	for (const struct attribute *a = op->first; a && !e; a = a->next)
		for (int64_t i = 0; a->type == TYPE_DESCRIPTOR && i < a->count && !e; i++) {
			struct descriptor *x = ((struct descriptor **)(void *)a->value)[i];

			if (x && x->type == TENSOR)
				e = add_tensor(to, x, pack, is_output(op, a->name));
		}
	describe(to, op, 0);
	return e;
}

STANDIN_API int cudnnBackendExecute(struct handle *h, struct descriptor *plan, struct descriptor *pack)
{
	struct standin_tensors args = { .n = 0 };
	const char *name = NULL;
	int e = OK;

	pthread_mutex_lock(&lock);
	struct descriptor *engine = one(one(plan, PLAN_CFG), CFG_ENGINE), *graph = one(engine, ENGINE_GRAPH);
	struct attribute *ops = find(graph, GRAPH_OPS);
	int64_t index = engine ? engine_index(engine) : 0;
	for (int64_t i = 0; ops && i < ops->count && !e; i++)
		e = add_operation(&args, ((struct descriptor **)(void *)ops->value)[i], pack, &name);
	pthread_mutex_unlock(&lock);
	if (!ops)
		return BAD_PARAM;
	if (e)
		return (int)simgpu_standin_called("libcudnn", "a graph of this size", e);
	/* Of all engines the numbers are the same, and the grids are not. */
	return standin_launch(name ? name : "cudnn_operation", &args, sizeof args, (uint64_t)index + 1, h->stream) == CUDA_SUCCESS ? OK : EXECUTION_FAILED;
}

/* ---- the older API: descriptors of tensors, batch norm ---- */
struct shape {
	int type, dims;
	int size[STANDIN_DIMS], stride[STANDIN_DIMS];
};

STANDIN_API int cudnnCreateTensorDescriptor(struct shape **out)
{
	*out = calloc(1, sizeof **out);
	return *out ? OK : ALLOC_FAILED;
}

STANDIN_API int cudnnDestroyTensorDescriptor(struct shape *s)
{
	free(s);
	return OK;
}

STANDIN_API int cudnnSetTensorNdDescriptor(struct shape *s, int type, int n, const int *size, const int *stride)
{
	if (n > STANDIN_DIMS)
		return NOT_SUPPORTED;
	s->type = type;
	s->dims = n;
	memcpy(s->size, size, (size_t)n * sizeof *size);
	memcpy(s->stride, stride, (size_t)n * sizeof *stride);
	return OK;
}

STANDIN_API int cudnnGetTensorNdDescriptor(const struct shape *s, int want, int *type, int *n, int *size, int *stride)
{
	*type = s->type;
	*n = s->dims;
	for (int i = 0; i < want && i < s->dims; i++) {
		size[i] = s->size[i];
		stride[i] = s->stride[i];
	}
	return OK;
}

static void put(struct standin_tensors *to, const struct shape *s, const void *at, int output)
{
	if (!at || !s || to->n == STANDIN_TENSORS)
		return;
	struct standin_tensor *x = &to->tensor[to->n++];
	*x = (struct standin_tensor){ .at = (uint64_t)(uintptr_t)at, .dims = (int16_t)s->dims, .type = (int8_t)s->type, .output = (int8_t)output };
	for (int i = 0; i < s->dims; i++) {
		x->size[i] = s->size[i];
		x->stride[i] = s->stride[i];
	}
}

static int launch(struct handle *h, const char *name, const struct standin_tensors *args)
{
	return standin_launch(name, args, sizeof *args, 1, h->stream) == CUDA_SUCCESS ? OK : EXECUTION_FAILED;
}

#define SIZE_QUERY(name, ...) \
	STANDIN_API int name(__VA_ARGS__) \
	{ \
		(void)h, (void)mode, (void)ops; \
		*out = 0; \
		return OK; \
	}
SIZE_QUERY(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, struct handle *h, int mode, int ops, void *x __attribute__((unused)),
	   void *z __attribute__((unused)), void *y __attribute__((unused)), void *s __attribute__((unused)), void *a __attribute__((unused)), size_t *out)
SIZE_QUERY(cudnnGetBatchNormalizationBackwardExWorkspaceSize, struct handle *h, int mode, int ops, void *x __attribute__((unused)),
	   void *y __attribute__((unused)), void *dy __attribute__((unused)), void *dz __attribute__((unused)), void *dx __attribute__((unused)),
	   void *s __attribute__((unused)), void *a __attribute__((unused)), size_t *out)
SIZE_QUERY(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, struct handle *h, int mode, int ops, void *a __attribute__((unused)),
	   void *x __attribute__((unused)), size_t *out)

STANDIN_API int cudnnBatchNormalizationForwardTrainingEx(struct handle *h, int mode, int ops, const void *alpha, const void *beta,
							 const struct shape *xs, const void *x, const struct shape *zs, const void *z, const struct shape *ys, void *y, const struct shape *ss,
							 const void *scale, const void *bias, double factor, void *mean, void *variance, double epsilon, void *saved_mean, void *saved_variance,
							 void *activation, void *workspace, size_t workspace_bytes, void *reserve, size_t reserve_bytes)
{
	struct standin_tensors t = { .scalar = { factor, epsilon, mode, ops } };

	(void)alpha, (void)beta, (void)activation, (void)workspace, (void)workspace_bytes, (void)reserve, (void)reserve_bytes;
	put(&t, xs, x, 0);
	put(&t, zs, z, 0);
	put(&t, ss, scale, 0);
	put(&t, ss, bias, 0);
	put(&t, ss, mean, 0);
	put(&t, ss, variance, 0);
	put(&t, ys, y, 1);
	put(&t, ss, mean, 1);
	put(&t, ss, variance, 2);
	put(&t, ss, saved_mean, 1);
	put(&t, ss, saved_variance, 2);
	return launch(h, "cudnn_batch_norm_training", &t);
}

STANDIN_API int cudnnBatchNormalizationForwardInference(struct handle *h, int mode, const void *alpha, const void *beta, const struct shape *xs,
							const void *x, const struct shape *ys, void *y, const struct shape *ss, const void *scale, const void *bias, const void *mean,
							const void *variance, double epsilon)
{
	struct standin_tensors t = { .scalar = { epsilon, mode } };

	(void)alpha, (void)beta;
	put(&t, xs, x, 0);
	put(&t, ss, scale, 0);
	put(&t, ss, bias, 0);
	put(&t, ss, mean, 0);
	put(&t, ss, variance, 0);
	put(&t, ys, y, 1);
	return launch(h, "cudnn_batch_norm_inference", &t);
}

STANDIN_API int cudnnBatchNormalizationBackwardEx(struct handle *h, int mode, int ops, const void *alpha, const void *beta, const void *palpha,
						  const void *pbeta, const struct shape *xs, const void *x, const struct shape *ys, const void *y, const struct shape *dys, const void *dy,
						  const struct shape *dzs, void *dz, const struct shape *dxs, void *dx, const struct shape *ss, const void *scale, const void *bias, void *dscale,
						  void *dbias, double epsilon, const void *saved_mean, const void *saved_variance, void *activation, void *workspace, size_t workspace_bytes,
						  void *reserve, size_t reserve_bytes)
{
	struct standin_tensors t = { .scalar = { epsilon, mode, ops } };

	(void)alpha, (void)beta, (void)palpha, (void)pbeta, (void)activation, (void)workspace, (void)workspace_bytes, (void)reserve, (void)reserve_bytes;
	put(&t, xs, x, 0);
	put(&t, ys, y, 0);
	put(&t, dys, dy, 0);
	put(&t, ss, scale, 0);
	put(&t, ss, bias, 0);
	put(&t, ss, saved_mean, 0);
	put(&t, ss, saved_variance, 0);
	put(&t, dzs, dz, 1);
	put(&t, dxs, dx, 1);
	put(&t, ss, dscale, 1);
	put(&t, ss, dbias, 1);
	return launch(h, "cudnn_batch_norm_backward", &t);
}
