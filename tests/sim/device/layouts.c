/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel families whose pointers lie in structures: PyTorch's elementwise, reducing and multi-tensor ones, the stand-ins' products. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/pseudo.h"
#include "device/rules.h"
#include "standin/matrix.h"
#include "standin/tensors.h"

#define ARGUMENTS 16

/* ---- what a functor takes and gives ---- */
struct functor {
	enum sim_type in[ARGUMENTS], out;
	int n;
	enum { NAMED, UNARY, LAMBDA } kind;
	bool compares, empty;
};

static enum sim_type type_argument(const char *text, const char *part, int i)
{
	size_t n;
	const char *a = sim_template_argument(text, part, i, &n);

	return a ? sim_type_named(a, n) : SIM_TYPE_NONE;
}

static bool lambda_types(const char *text, struct functor *f)
{
	static const char mark[] = "{lambda(";
	const char *at = NULL;

	for (const char *s = text; (s = strstr(s, mark)); s++)
		at = s + sizeof mark - 1;
	if (!at)
		return false;
	while (*at && *at != ')' && f->n < ARGUMENTS) {
		size_t n = strcspn(at, ",)");

		f->in[f->n++] = sim_type_named(at, n);
		at += n;
		if (*at == ',')
			at += at[1] == ' ' ? 2 : 1;
	}
	f->out = f->n ? f->in[0] : SIM_TYPE_NONE;
	f->kind = LAMBDA;
	return true;
}

static bool functor_types(const char *text, size_t n, struct functor *f)
{
	char t[8192];

	*f = (struct functor){ 0 };
	if (n >= sizeof t)
		return false;
	memcpy(t, text, n);
	t[n] = 0;
	if (n && t[n - 1] == '}')
		return lambda_types(t, f);
	if (!strncmp(t, "at::native::BinaryFunctor<", 26)) {
		f->in[0] = type_argument(t, "BinaryFunctor<", 0);
		f->in[1] = type_argument(t, "BinaryFunctor<", 1);
		f->out = type_argument(t, "BinaryFunctor<", 2);
		f->n = 2;
		f->compares = strstr(t, "Compare");
		f->empty = !f->compares && !strstr(t, "{lambda(");
		return true;
	}
	if (!strncmp(t, "at::native::AUnaryFunctor<", 26) || !strncmp(t, "at::native::BUnaryFunctor<", 26)) {
		f->in[0] = type_argument(t, "UnaryFunctor<", t[12] == 'A' ? 1 : 0);
		f->out = type_argument(t, "UnaryFunctor<", 2);
		f->n = 1;
		f->kind = UNARY;
		f->compares = strstr(t, "Compare");
		return true;
	}
	char *open = strchr(t, '<');
	if (!open)
		return false;
	f->out = type_argument(t, "<", 0);
	for (f->n = 0; f->n < ARGUMENTS; f->n++)
		f->in[f->n] = f->out;
	return f->out != SIM_TYPE_NONE;
}

/*
 * What a functor of `size` bytes holds, without the padding, in which lies what was on the stack. A closure ends with eight
 * bytes of the compiler's; of its last eight before them half may be padding, and the table knows better. A unary functor
 * made of a binary one has the operand in its second half.
 */
static void functor_scalars(struct sim_plan *p, const struct sim_rule *r, const struct functor *f, const char *at, uint32_t size)
{
	uint64_t bytes = f->n ? sim_type_bytes(f->in[0]) : 4;
	bool known = false;

	p->functor = at;
	p->functor_bytes = size;
	for (int i = 0; i < SIM_ITEMS && r->scalar[i]; i++) {
		unsigned offset, n;

		if (sscanf(r->scalar[i], "f.%u+%u", &offset, &n) == 2 && offset + n <= size)
			sim_plan_scalar(p, at + offset, n);
		else if (sscanf(r->scalar[i], "f.%u*%u", &offset, &n) == 2 && offset + n * bytes <= size)
			sim_plan_scalar(p, at + offset, n * bytes);
		known = true;
	}
	if (known || size == 1)
		return;
	if (f->kind == LAMBDA)
		sim_plan_scalar(p, at, size > 16 ? size - 12 : size <= 8 ? 0 : bytes < 4 ? bytes : 4);
	else if (f->kind == UNARY)
		sim_plan_scalar(p, at + size / 2, f->compares && bytes < size / 2 ? bytes : size / 2);
	else
		sim_plan_scalar(p, at, size);
}

static void override(const struct sim_plan *p, const struct sim_rule *r, struct functor *f)
{
	if (r->out_type && !strncmp(r->out_type, ":in", 3) && atoi(r->out_type + 3) < f->n)
		f->out = f->in[atoi(r->out_type + 3)];
	else if (r->out_type)
		f->out = sim_rule_type(p, r, r->out_type);
	if (r->in_type)
		f->in[0] = sim_rule_type(p, r, r->in_type);
}

/* data[0] is the output, the functor's arguments follow. */
static bool pointers(struct sim_plan *p, const struct sim_rule *r, const struct functor *f, const char *data, int n_data, uint64_t n)
{
	for (int i = 0; i < n_data; i++) {
		enum sim_type t = i ? f->in[i - 1] : f->out;
		const void *at;

		memcpy(&at, data + 8 * i, 8);
		if (t == SIM_TYPE_NONE || !at || i > ARGUMENTS)
			return false;
		if (i)
			sim_plan_in(p, at, n, t);
		else
			sim_plan_out(p, at, n, t)->positive = r->positive;
	}
	return n_data > 0;
}

/* vectorized_elementwise_kernel<vec, F, array, bool>(int n, F, array) */
static bool vectorized(struct sim_plan *p, const struct sim_rule *r)
{
	struct functor f;
	size_t n;
	const char *text = sim_template_argument(p->kernel->name, "elementwise_kernel<", 1, &n);

	if (p->kernel->n_params < 3 || !text || !functor_types(text, n, &f))
		return false;
	override(p, r, &f);
	functor_scalars(p, r, &f, sim_param(p, 1, 0), sim_param_size(p, 1));
	return pointers(p, r, &f, sim_param(p, 2, 0), (int)(sim_param_size(p, 2) / 8), (uint64_t)sim_param_int(p, 0, 0));
}

/* c10::ScalarType */
static enum sim_type scalar_type(int8_t code)
{
	static const enum sim_type types[] = { SIM_TYPE_U8, SIM_TYPE_I8, SIM_TYPE_I16, SIM_TYPE_I32, SIM_TYPE_I64, SIM_TYPE_F16,
					      SIM_TYPE_F32, SIM_TYPE_F64, SIM_TYPE_NONE, SIM_TYPE_NONE, SIM_TYPE_NONE, SIM_TYPE_BOOL,
					       SIM_TYPE_NONE, SIM_TYPE_NONE, SIM_TYPE_NONE, SIM_TYPE_BF16 };

	return code >= 0 && (size_t)code < sizeof types / sizeof *types ? types[code] : SIM_TYPE_NONE;
}

/* unrolled_elementwise_kernel<F, array, n, ...>(int n, F, array, in calculator, out calculator, loader, storer) */
static bool unrolled(struct sim_plan *p, const struct sim_rule *r)
{
	struct functor f;
	size_t n;
	const char *text = sim_template_argument(p->kernel->name, "elementwise_kernel<", 0, &n);

	if (p->kernel->n_params < 7 || !text || !functor_types(text, n, &f) || !strstr(p->kernel->type[3], "TrivialOffsetCalculator"))
		return false;
	override(p, r, &f);
	/* LoadWithCast<n> begins with the types that lie in memory, StoreWithCast<1> with the one that is written. */
	if (strstr(p->kernel->type[5], "LoadWithCast"))
		for (int i = 0; i < f.n && i < (int)sim_param_size(p, 2) / 8 - 1; i++)
			f.in[i] = scalar_type((int8_t)*sim_param(p, 5, (uint32_t)i));
	if (strstr(p->kernel->type[6], "StoreWithCast"))
		f.out = scalar_type((int8_t)*sim_param(p, 6, 0));
	functor_scalars(p, r, &f, sim_param(p, 1, 0), sim_param_size(p, 1));
	return pointers(p, r, &f, sim_param(p, 2, 0), (int)(sim_param_size(p, 2) / 8), (uint64_t)sim_param_int(p, 0, 0));
}

/* OffsetCalculator<n>: dims, 25 times (size, and what divides by it), 25 times n strides in bytes. */
#define CALCULATOR_STRIDES 304
#define CALCULATOR_BYTES(n) (CALCULATOR_STRIDES + 100 * (n))

static int word(const char *at)
{
	int v;

	memcpy(&v, at, sizeof v);
	return v;
}

static void add_dims(struct sim_range *x, const char *calculator, int n, int which)
{
	int dims = word(calculator);

	for (int d = 0; d < dims && d < SIM_DIMS && x->dims < SIM_DIMS; d++) {
		uint32_t size = (uint32_t)word(calculator + 4 + 12 * d);

		if (size == 1)
			continue;
		x->size[x->dims] = size;
		x->stride[x->dims++] = (uint32_t)word(calculator + CALCULATOR_STRIDES + 4 * (d * n + which));
	}
}

/* A range whose elements lie side by side after all needs no dimensions. */
static void flatten(struct sim_range *x)
{
	uint64_t dense = sim_type_bytes(x->type);

	for (int d = 0; d < x->dims; d++) {
		if (x->stride[d] != dense)
			return;
		dense *= x->size[d];
	}
	x->dims = 0;
}

/* elementwise_kernel<threads, n, closure>(int n, closure); the closure begins with calculator and data. */
static bool strided(struct sim_plan *p, const struct sim_rule *r)
{
	struct functor f;
	size_t n;
	const char *name = p->kernel->name;
	bool casts = !strstr(name, "gpu_kernel_impl_nocast<");
	const char *text = sim_template_argument(name, casts ? "gpu_kernel_impl<" : "gpu_kernel_impl_nocast<", 0, &n);
	uint32_t size = sim_param_size(p, 1);

	if (p->kernel->n_params != 2 || !text || !functor_types(text, n, &f))
		return false;
	override(p, r, &f);
	int n_data = f.n + 1;
	/* One-typed functors do not say how many arguments they have; the size does. */
	if (f.n == ARGUMENTS)
		for (n_data = 1; n_data < 8 && (CALCULATOR_BYTES(n_data) + 7) / 8 * 8 + 8 * n_data + 24 < (int)size; n_data++)
			;
	uint32_t data = (uint32_t)(CALCULATOR_BYTES(n_data) + 7) / 8 * 8, rest = data + 8 * (uint32_t)n_data;
	if (rest + 8 > size)
		return false;
	uint32_t room = size - rest - 8; /* the functor, and in one that converts the types after it */
	if (f.kind == NAMED) {
		uint32_t number = !f.compares && sim_type_bytes(f.in[0]) == 8 ? 8 : 4;

		room = f.empty ? 1 : room < 4 ? room : strstr(text, "FunctorOn") == text + 16 ? 2 * number : number;
		if (room + rest > size)
			return false;
	}
	if (casts) {
		const char *types = sim_param(p, 1, rest + (room ? room : 1));

		f.out = scalar_type((int8_t)types[0]);
		for (int i = 1; i < n_data; i++)
			f.in[i - 1] = scalar_type((int8_t)types[i]);
	}
	functor_scalars(p, r, &f, sim_param(p, 1, rest), room);
	if (!pointers(p, r, &f, sim_param(p, 1, data), n_data, (uint64_t)sim_param_int(p, 0, 0)))
		return false;
	for (int i = 0; i < n_data; i++) {
		struct sim_range *x = i ? &p->in[i - 1] : &p->out[0];

		add_dims(x, sim_param(p, 1, 0), n_data, i);
		flatten(x);
	}
	return true;
}

/* Any of the three. */
static bool elementwise(struct sim_plan *p, const struct sim_rule *r)
{
	if (strstr(p->kernel->name, "unrolled_elementwise_kernel<"))
		return unrolled(p, r);
	return strstr(p->kernel->name, "vectorized_elementwise_kernel<") ? vectorized(p, r) : strided(p, r);
}

/* ReduceOp: config, input and output calculator before the source, two destinations and 64 bytes in all after it. */
#define REDUCE_CONFIG_BYTES 64

static bool reduce(struct sim_plan *p, const struct sim_rule *r)
{
	uint32_t size = sim_param_size(p, 0), source = size - 64;
	enum sim_type in = type_argument(p->kernel->name, "ReduceOp<", 0), out = type_argument(p->kernel->name, "ReduceOp<", 3);
	uint32_t config = (source - (CALCULATOR_BYTES(1) + CALCULATOR_BYTES(2) + REDUCE_CONFIG_BYTES)) / 8 * 8;

	if (sim_type_bytes(in) == 1)
		config = 4; /* behind an operation and a start of a byte each */
	/* Behind an operation, and two numbers to start with. */
	bool both = strstr(p->kernel->name, "MinMaxOps<");
	if (both)
		config = 3 * (uint32_t)sim_type_bytes(type_argument(p->kernel->name, "MinMaxOps<", 1));
	if (size < 1040 || in == SIM_TYPE_NONE || out == SIM_TYPE_NONE)
		return false;
	if (r->out_type)
		out = sim_rule_type(p, r, r->out_type);
	uint64_t inputs = (uint64_t)sim_param_int(p, 0, config + 4), outputs = (uint64_t)sim_param_int(p, 0, config + 8);
	const char *ic = sim_param(p, 0, config + REDUCE_CONFIG_BYTES), *oc = ic + CALCULATOR_BYTES(1);
	if (word(ic) < 0 || word(ic) > SIM_DIMS || word(oc) < 0 || word(oc) > SIM_DIMS)
		return false;
	struct sim_range *x = sim_plan_in(p, (const void *)(uintptr_t)sim_param_word(p, 0, source), inputs * outputs, in);
	add_dims(x, ic, 1, 0);
	add_dims(x, oc, 2, 1);
	flatten(x);
	x = sim_plan_out(p, (const void *)(uintptr_t)sim_param_word(p, 0, source + 8), outputs, out);
	add_dims(x, oc, 2, 0);
	flatten(x);
	x->positive = r->positive;
	const void *second = (const void *)(uintptr_t)sim_param_word(p, 0, source + 16);
	if (second) {
		struct sim_range y = p->out[0];

		x = sim_plan_out(p, second, outputs, both ? out : SIM_TYPE_I64);
		if (y.dims) {
			uint64_t ratio = sim_type_bytes(x->type), own = sim_type_bytes(y.type);

			x->dims = y.dims;
			for (int d = 0; d < y.dims; d++) {
				x->size[d] = y.size[d];
				x->stride[d] = (uint32_t)(y.stride[d] * ratio / own);
			}
		}
	}
	if (*sim_param(p, 0, source + 56)) /* accumulate */
		sim_plan_in(p, p->out[0].at, outputs, out);
	return true;
}

/* ---- multi-tensor lists, by value; doc: the structures of MultiTensorApply.cuh for CUDA 13 ---- */
struct list {
	const char *kind;
	int depth, n;
	uint32_t scalar_bytes, tail; /* of one scalar per tensor; after the numels */
	uint32_t size;
};

#define BLOCKS 2240
#define CHUNK 65536

static bool list_of(const struct sim_plan *p, struct list *l)
{
	static const int plain[] = { 0, 770, 448, 336, 252, 210 }, fused[] = { 0, 770, 448, 336, 252, 210 }, scalars[] = { 0, 672, 448, 336, 252 };
	const char *name = p->kernel->name;
	size_t n;
	const char *a;

	*l = (struct list){ .size = sim_param_size(p, 0) };
	if ((a = sim_template_argument(name, "FusedOptimizerTensorListMetadata<", 0, &n))) {
		l->depth = atoi(a);
		l->n = l->depth > 0 && l->depth <= 5 ? fused[l->depth] : 0;
		if (l->depth == 3)
			l->n = 336;
		l->tail = 8u * (uint32_t)l->n; /* state_steps */
	} else if ((a = sim_template_argument(name, "TensorListScalarListMetadata<", 1, &n))) {
		l->depth = atoi(a);
		l->n = l->depth > 0 && l->depth <= 4 ? scalars[l->depth] : 0;
		l->scalar_bytes = (uint32_t)sim_type_bytes(type_argument(name, "TensorListScalarListMetadata<", 0));
		l->tail = l->scalar_bytes * (uint32_t)l->n;
		if (l->depth == 4 && l->scalar_bytes == 8)
			return false;
	} else if ((a = sim_template_argument(name, "TensorListMetadata<", 0, &n))) {
		l->depth = atoi(a);
		l->n = l->depth > 0 && l->depth <= 5 ? plain[l->depth] : 0;
	}
	/* Another layout than this one has another size: better no rule than a wrong one. */
	uint32_t want = (uint32_t)l->n * 8 * ((uint32_t)l->depth + 1) + l->tail + 2 * BLOCKS + 4 * BLOCKS;
	return l->n && (l->size == want || l->size == want + 8);
}

/* F<T, depth, r_args, res>: the lists it reads and the one it writes. */
static bool functor_lists(const struct sim_plan *p, enum sim_type *t, int *reads, int *writes)
{
	const char *name = p->kernel->name, *at = strstr(name, "Metadata<");
	char piece[128];
	size_t n = 0;

	while (at && (at = strstr(at, "Functor"))) {
		const char *start = at;

		while (start > name && (isalnum((unsigned char)start[-1]) || start[-1] == '_'))
			start--;
		n = strcspn(start, "<,>");
		if (start[n] == '<' && n + 2 < sizeof piece)
			break;
		at++;
	}
	if (!at)
		return false;
	while (at > name && (isalnum((unsigned char)at[-1]) || at[-1] == '_'))
		at--;
	snprintf(piece, sizeof piece, "%.*s<", (int)n, at);
	*t = type_argument(name, piece, 0);
	const char *r = sim_template_argument(name, piece, 2, &n), *w = sim_template_argument(name, piece, 3, &n);
	*reads = r ? atoi(r) : 0;
	*writes = w ? atoi(w) : 0;
	return *t != SIM_TYPE_NONE && r && w;
}

struct part {
	uint64_t tensor, first, n; /* of a tensor, from which element how many */
};

/* Chunks of this launch, those that follow each other as one. */
static int parts(const struct sim_plan *p, const struct list *l, struct part *out)
{
	const char *m = sim_param(p, 0, 0), *numel = m + (uint32_t)l->n * 8 * (uint32_t)l->depth;
	const char *tensors = numel + (uint32_t)l->n * 8 + l->tail, *chunks = tensors + 2 * BLOCKS;
	int n = 0;

	for (uint32_t b = 0; b < p->launch->grid[0] && b < BLOCKS; b++) {
		uint16_t tensor;
		int64_t elements;
		uint64_t first = (uint64_t)word(chunks + 4 * b) * CHUNK;

		memcpy(&tensor, tensors + 2 * b, 2);
		if (tensor >= l->n)
			return -1;
		memcpy(&elements, numel + 8 * tensor, 8);
		if (elements < 0 || first >= (uint64_t)elements)
			return -1;
		uint64_t count = (uint64_t)elements - first < CHUNK ? (uint64_t)elements - first : CHUNK;
		if (n && out[n - 1].tensor == tensor && out[n - 1].first + out[n - 1].n == first)
			out[n - 1].n += count;
		else
			out[n++] = (struct part){ tensor, first, count };
	}
	return n;
}

static const char *address(const struct sim_plan *p, const struct list *l, int depth, const struct part *x, enum sim_type t)
{
	return (const char *)(uintptr_t)sim_param_word(p, 0, 8 * (uint32_t)(depth * l->n + (int)x->tensor)) + x->first * sim_type_bytes(t);
}

/* What comes after list and functor: numbers, and pointers to numbers on the device. */
static void rest(struct sim_plan *p, uint32_t from)
{
	for (uint32_t i = from; i < p->kernel->n_params; i++) {
		const char *t = p->kernel->type[i];
		size_t n = strlen(t);
		const char *constant = strstr(t, " const*");

		if (!constant && n && t[n - 1] == '*') /* FusedSgd's are not constant, and read only */
			constant = t + n - 1;
		if (constant && sim_param_word(p, i, 0))
			sim_plan_in(p, (const void *)(uintptr_t)sim_param_word(p, i, 0), 1, sim_type_named(t, (size_t)(constant - t)));
		else if (sim_type_named(t, n) != SIM_TYPE_NONE)
			sim_plan_scalar(p, sim_param(p, i, 0), sim_param_size(p, i));
	}
}

static bool foreach(struct sim_plan *p, const struct sim_rule *r)
{
	static struct part x[BLOCKS];
	enum sim_type t, out;
	struct list l;
	int reads, writes, n;

	if (!list_of(p, &l) || !functor_lists(p, &t, &reads, &writes) || (n = parts(p, &l, x)) < 0)
		return false;
	out = r->out_type ? sim_rule_type(p, r, r->out_type) : t;
	if (r->in_type)
		t = sim_rule_type(p, r, r->in_type);
	if (writes >= l.depth || reads > l.depth || out == SIM_TYPE_NONE || t == SIM_TYPE_NONE)
		return false;
	/* PointwiseOpScalar0dTensorFunctor: the second list is of numbers, the third of tensors. */
	bool numbers = strstr(p->kernel->name, "0dTensorFunctor") && l.depth > 2;
	for (int i = 0; i < n; i++) {
		struct part first = { x[i].tensor, 0, 1 };

		for (int d = 0; d < (numbers ? l.depth : reads); d++)
			sim_plan_in(p, address(p, &l, d, numbers && d == 1 ? &first : &x[i], t), numbers && d == 1 ? 1 : x[i].n, t);
		sim_plan_out(p, address(p, &l, writes, &x[i], out), x[i].n, out)->positive = r->positive;
		if (l.scalar_bytes)
			sim_plan_scalar(p, sim_param(p, 0, (uint32_t)l.n * 8 * ((uint32_t)l.depth + 1) + l.scalar_bytes * (uint32_t)x[i].tensor), l.scalar_bytes);
	}
	if (r->how == SIM_HOW_UNSCALE && p->kernel->n_params > 2) {
		p->found_inf = (float *)(uintptr_t)sim_param_word(p, 2, 0);
		sim_plan_in(p, (const void *)(uintptr_t)sim_param_word(p, 2, 8), 1, SIM_TYPE_F32);
	}
	rest(p, 2);
	return true;
}

/* LpNormFunctor: one element per chunk, in the row that a table gives each tensor. */
static bool norm(struct sim_plan *p, const struct sim_rule *r)
{
	static struct part x[BLOCKS];
	enum sim_type t, out = r->out_type ? sim_rule_type(p, r, r->out_type) : SIM_TYPE_F32;
	struct list l;
	int reads, writes, n;

	if (!list_of(p, &l) || !functor_lists(p, &t, &reads, &writes) || (n = parts(p, &l, x)) < 0 || p->kernel->n_params < 4)
		return false;
	const int64_t *rows = (const int64_t *)(uintptr_t)sim_param_word(p, 3, 0);
	int start = sim_param_int(p, 0, l.size - 8);
	for (int i = 0; i < n; i++) {
		uint64_t chunks = (x[i].n + CHUNK - 1) / CHUNK, first = (uint64_t)rows[start + (int)x[i].tensor] + x[i].first / CHUNK;

		sim_plan_in(p, address(p, &l, 0, &x[i], t), x[i].n, t);
		sim_plan_out(p, (const char *)(uintptr_t)sim_param_word(p, 2, 0) + first * sim_type_bytes(out), chunks, out)->positive = true;
	}
	return true;
}

static bool fused(struct sim_plan *p, const struct sim_rule *r)
{
	static struct part x[BLOCKS];
	enum sim_type t;
	struct list l;
	int n;
	uint32_t last = p->kernel->n_params - 1;
	const char *name = p->kernel->name, *f = strstr(name, "MathFunctor");

	while (f && f > name && isalnum((unsigned char)f[-1]))
		f--;
	t = f ? type_argument(f, "<", 0) : SIM_TYPE_NONE;
	if (!list_of(p, &l) || t == SIM_TYPE_NONE || (n = parts(p, &l, x)) < 0 || last < 3)
		return false;
	bool rewrites = sim_param_word(p, last - 1, 0) != 0; /* grad_scale: gradients are written back */
	p->found_inf = (float *)(uintptr_t)sim_param_word(p, last, 0);
	/* SGD's first step makes the momentum, whose memory is not read. */
	bool fresh = strstr(name, "FusedSgdMathFunctor") && *sim_param(p, last - 2, 0);
	for (int i = 0; i < n; i++)
		for (int d = 0; d < l.depth; d++) {
			/* FusedAdamMathFunctorMP: moments in bfloat16. */
			enum sim_type own = strstr(name, "FunctorMP") && d > 1 ? SIM_TYPE_BF16 : t;

			if (!fresh || d < 2)
				sim_plan_in(p, address(p, &l, d, &x[i], own), x[i].n, own);
			if (d != 1 || rewrites)
				sim_plan_out(p, address(p, &l, d, &x[i], own), x[i].n, own)->positive = d > 2;
		}
	if (strstr(name, "FusedOptimizerTensorListMetadata"))
		for (int i = 0; i < n; i++)
			sim_plan_in(p, (const void *)(uintptr_t)sim_param_word(p, 0, (uint32_t)l.n * 8 * ((uint32_t)l.depth + 1) + 8 * (uint32_t)x[i].tensor), 1, SIM_TYPE_F32);
	rest(p, 2);
	(void)r;
	return true;
}

/* lpnorm_cleanup(partial results, addresses of the norms by value, the table, first tensor) */
static bool norm_cleanup(struct sim_plan *p, const struct sim_rule *r)
{
	enum sim_type in = type_argument(p->kernel->name, "lpnorm_cleanup<", 4), out = type_argument(p->kernel->name, "lpnorm_cleanup<", 2);

	(void)r;
	if (p->kernel->n_params < 4 || in == SIM_TYPE_NONE || out == SIM_TYPE_NONE)
		return false;
	const int64_t *rows = (const int64_t *)(uintptr_t)sim_param_word(p, 2, 0) + sim_param_int(p, 3, 0);
	for (uint32_t b = 0; b < p->launch->grid[0]; b++) {
		sim_plan_in(p, (const char *)(uintptr_t)sim_param_word(p, 0, 0) + (uint64_t)rows[b] * sim_type_bytes(in), (uint64_t)(rows[b + 1] - rows[b]), in);
		sim_plan_out(p, (const void *)(uintptr_t)sim_param_word(p, 1, 8 * b), 1, out)->positive = true;
	}
	return true;
}

static enum sim_type data_type(int32_t t)
{
	switch (t) {
	case STANDIN_F32: return SIM_TYPE_F32;
	case STANDIN_F64: return SIM_TYPE_F64;
	case STANDIN_F16: return SIM_TYPE_F16;
	case STANDIN_BF16: return SIM_TYPE_BF16;
	case STANDIN_I8: return SIM_TYPE_I8;
	case STANDIN_I32: return SIM_TYPE_I32;
	default: return SIM_TYPE_NONE;
	}
}

static bool matrix(struct sim_plan *p, const struct standin_matrix *m, int64_t batch, bool output)
{
	enum sim_type t = data_type(m->type);
	uint64_t n = (uint64_t)(m->rows * m->cols * (m->stride ? batch : 1));

	if (!m->at || !n)
		return true;
	if (t == SIM_TYPE_NONE || m->ld < 0)
		return false;
	struct sim_range *x = output ? sim_plan_out(p, (void *)(uintptr_t)m->at, n, t) : sim_plan_in(p, (void *)(uintptr_t)m->at, n, t);
	uint64_t bytes = sim_type_bytes(t);
	int64_t size[3] = { m->rows, m->cols, m->stride ? batch : 1 }, stride[3] = { 1, m->ld, m->stride };
	for (int d = 0; d < 3; d++)
		if (size[d] > 1) {
			x->size[x->dims] = (uint32_t)size[d];
			x->stride[x->dims++] = (uint32_t)((uint64_t)stride[d] * bytes);
		}
	flatten(x);
	return true;
}

static bool matmul(struct sim_plan *p, const struct sim_rule *r)
{
	struct standin_matmul m;

	(void)r;
	if (sim_param_size(p, 0) != sizeof m)
		return false;
	memcpy(&m, sim_param(p, 0, 0), sizeof m);
	if (!matrix(p, &m.a, m.batch, false) || !matrix(p, &m.b, m.batch, false) || !matrix(p, &m.c, m.batch, false) || !matrix(p, &m.d, m.batch, true))
		return false;
	for (int i = 0; i < 4; i++)
		if (m.scale[i])
			sim_plan_in(p, (void *)(uintptr_t)m.scale[i], 1, SIM_TYPE_F32);
	if (m.bias && m.writes_bias)
		sim_plan_out(p, (void *)(uintptr_t)m.bias, (uint64_t)m.n_bias, data_type(m.bias_type));
	else if (m.bias)
		sim_plan_in(p, (void *)(uintptr_t)m.bias, (uint64_t)m.n_bias, data_type(m.bias_type));
	if (m.aux && m.reads_aux)
		sim_plan_in(p, (void *)(uintptr_t)m.aux, (uint64_t)m.n_aux, data_type(m.aux_type));
	else if (m.aux)
		sim_plan_out(p, (void *)(uintptr_t)m.aux, (uint64_t)m.n_aux, data_type(m.aux_type));
	sim_plan_scalar(p, &m.alpha, sizeof m.alpha);
	sim_plan_scalar(p, &m.beta, sizeof m.beta);
	sim_plan_scalar(p, &m.epilogue, sizeof m.epilogue);
	return true;
}

/* cudnnDataType_t */
static enum sim_type cudnn_type(int8_t t)
{
	static const enum sim_type types[] = { SIM_TYPE_F32, SIM_TYPE_F64, SIM_TYPE_F16, SIM_TYPE_I8, SIM_TYPE_I32, SIM_TYPE_NONE,
					       SIM_TYPE_I8, SIM_TYPE_NONE, SIM_TYPE_NONE, SIM_TYPE_BF16, SIM_TYPE_I64, SIM_TYPE_BOOL };

	return t >= 0 && (size_t)t < sizeof types / sizeof *types ? types[t] : SIM_TYPE_NONE;
}

static bool tensors(struct sim_plan *p, const struct sim_rule *r)
{
	struct standin_tensors t;

	(void)r;
	if (sim_param_size(p, 0) != sizeof t)
		return false;
	memcpy(&t, sim_param(p, 0, 0), sizeof t);
	for (int i = 0; i < t.n; i++) {
		const struct standin_tensor *x = &t.tensor[i];
		enum sim_type type = cudnn_type(x->type);
		uint64_t n = 1;

		for (int d = 0; d < x->dims; d++)
			n *= (uint64_t)x->size[d];
		if (type == SIM_TYPE_NONE)
			return false;
		struct sim_range *y = x->output ? sim_plan_out(p, (void *)(uintptr_t)x->at, n, type) : sim_plan_in(p, (void *)(uintptr_t)x->at, n, type);
		y->positive = x->output > 1;
		for (int d = x->dims - 1; d >= 0; d--)
			if (x->size[d] != 1) {
				y->size[y->dims] = (uint32_t)x->size[d];
				y->stride[y->dims++] = (uint32_t)((uint64_t)x->stride[d] * sim_type_bytes(type));
			}
		flatten(y);
	}
	sim_plan_scalar(p, t.scalar, sizeof t.scalar);
	sim_plan_scalar(p, &t.salt, sizeof t.salt);
	return true;
}

const struct sim_layout sim_layouts[] = {
	{ "elementwise", elementwise },
	{ "reduce", reduce },
	{ "foreach", foreach },
	{ "norm", norm },
	{ "norm_cleanup", norm_cleanup },
	{ "fused", fused },
	{ "matmul", matmul },
	{ "tensors", tensors },
	{ NULL, NULL },
};
