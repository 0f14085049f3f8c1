/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that only move values where indices say: carried out as they are, since what they touch depends on the indices. */
#include <stdlib.h>
#include <string.h>

#include "device/gathers.h"
#include "device/rules.h"

#define CALCULATOR3 608 /* OffsetCalculator<3>, aligned */

static int word(const char *at)
{
	int v;

	memcpy(&v, at, sizeof v);
	return v;
}

/* Offsets in bytes of the three tensors for linear index i. */
static void offsets(const char *calculator, uint64_t i, uint64_t out[3])
{
	int dims = word(calculator);

	out[0] = out[1] = out[2] = 0;
	for (int d = 0; d < dims && d < SIM_DIMS; d++) {
		uint64_t size = (uint32_t)word(calculator + 4 + 12 * d), at = i % size;

		i /= size;
		for (int k = 0; k < 3; k++)
			out[k] += at * (uint32_t)word(calculator + 304 + 12 * d + 4 * k);
	}
}

static uint64_t element_bytes(const struct sim_plan *p, const char *part, int i)
{
	size_t n;
	const char *a = sim_template_argument(p->kernel->name, part, i, &n);
	enum sim_type t = a ? sim_type_named(a, n) : SIM_TYPE_NONE;

	return t == SIM_TYPE_NONE ? 0 : sim_type_bytes(t);
}

/* _scatter_gather_elementwise_kernel(int n, closure): calculator, indices, their bound, f, self, stride, numel, source. */
static bool scatter_gather(const struct sim_plan *p, uint64_t seed)
{
	static const char part[] = "_cuda_scatter_gather_internal_kernel<";
	size_t n;
	const char *scatters = sim_template_argument(p->kernel->name, part, 0, &n);
	uint64_t bytes = element_bytes(p, part, 1), index_bytes = element_bytes(p, part, 2);
	bool scatter = scatters && *scatters == 't', assigns = strstr(p->kernel->name, "TensorAssign");

	if (sim_param_size(p, 1) < CALCULATOR3 + 56 || !bytes || !index_bytes)
		return false;
	const char *index = (const char *)(uintptr_t)sim_param_word(p, 1, CALCULATOR3);
	char *self = (char *)(uintptr_t)sim_param_word(p, 1, CALCULATOR3 + 24);
	const char *source = (const char *)(uintptr_t)sim_param_word(p, 1, CALCULATOR3 + 48);
	uint64_t stride = sim_param_word(p, 1, CALCULATOR3 + 32);
	for (uint64_t i = 0; i < (uint64_t)sim_param_int(p, 0, 0); i++) {
		uint64_t o[3];
		int64_t at = 0;

		offsets(sim_param(p, 1, 0), i, o);
		memcpy(&at, index + o[2], index_bytes);
		if (index_bytes == 4)
			at = (int32_t)at;
		char *to = self + o[0] + (scatter ? (uint64_t)at * stride * bytes : 0);
		const char *from = source + o[1] + (scatter ? 0 : (uint64_t)at * stride * bytes);
		if (assigns) {
			memcpy(to, from, bytes);
		} else {
			size_t length;
			const char *a = sim_template_argument(p->kernel->name, part, 1, &length);
			struct sim_range r = { .at = to, .n = 1, .type = sim_type_named(a, length) };

			sim_mix_write(&r, sim_mix_bytes(sim_mix_bytes(seed, from, bytes), to, bytes));
		}
	}
	return true;
}

/* vectorized_gather_kernel<align, index>(out, in, indices, n, slice bytes, rows, in stride, out stride, negative) */
static bool gather_rows(const struct sim_plan *p, uint64_t seed)
{
	uint64_t index_bytes = element_bytes(p, "vectorized_gather_kernel<", 1);

	(void)seed;
	if (p->kernel->n_params < 8 || !index_bytes)
		return false;
	char *out = (char *)(uintptr_t)sim_param_word(p, 0, 0);
	const char *in = (const char *)(uintptr_t)sim_param_word(p, 1, 0), *index = (const char *)(uintptr_t)sim_param_word(p, 2, 0);
	int64_t rows = (int64_t)sim_param_word(p, 5, 0);
	for (int i = 0; i < sim_param_int(p, 3, 0); i++) {
		int64_t at = 0;

		memcpy(&at, index + (uint64_t)i * index_bytes, index_bytes);
		if (index_bytes == 4)
			at = (int32_t)at;
		at += at < 0 ? rows : 0;
		memcpy(out + (uint64_t)i * sim_param_word(p, 7, 0), in + (uint64_t)at * sim_param_word(p, 6, 0), sim_param_word(p, 4, 0));
	}
	return true;
}

/* index_elementwise_kernel(n, closure of gpu_index_kernel): calculator, out, in, how many indices, their pointers, sizes, strides. */
static bool index_elements(const struct sim_plan *p, uint64_t seed)
{
	bool puts = strstr(p->kernel->name, "index_put_kernel");
	const char *part = puts ? "index_put_kernel_impl<" : "index_kernel_impl<";
	uint64_t bytes = element_bytes(p, part, 0);
	uint32_t base = CALCULATOR3, pointers = base + 24, sizes = pointers + 8 * SIM_DIMS, strides = sizes + 8 * SIM_DIMS;

	(void)seed;
	if (p->kernel->n_params < 2 || sim_param_size(p, 1) < strides + 8 * SIM_DIMS || !bytes)
		return false;
	char *out = (char *)(uintptr_t)sim_param_word(p, 1, base), *in = (char *)(uintptr_t)sim_param_word(p, 1, base + 8);
	int n_indices = sim_param_int(p, 1, base + 16);
	if (n_indices < 1 || n_indices > SIM_DIMS)
		return false;
	for (uint64_t i = 0; i < (uint64_t)sim_param_int(p, 0, 0); i++) {
		uint64_t o[3];
		int64_t offset = 0;

		offsets(sim_param(p, 1, 0), i, o);
		for (uint32_t k = 0; k < (uint32_t)n_indices; k++) {
			int64_t at;

			memcpy(&at, (const char *)(uintptr_t)sim_param_word(p, 1, pointers + 8 * k) + o[2], sizeof at);
			at += at < 0 ? (int64_t)sim_param_word(p, 1, sizes + 8 * k) : 0;
			offset += at * (int64_t)sim_param_word(p, 1, strides + 8 * k);
		}
		if (puts)
			memcpy(out + o[0] + offset, in + o[1], bytes);
		else
			memcpy(out + o[0], in + o[1] + offset, bytes);
	}
	return true;
}

/* embedding_backward_feature_kernel(indices, grad, grad of the table, n, row, padding): rows that occur are changed. */
static bool add_rows(const struct sim_plan *p, uint64_t seed)
{
	static const char part[] = "embedding_backward_feature_kernel<";
	size_t length;
	const char *a = sim_template_argument(p->kernel->name, part, 0, &length);
	enum sim_type t = a ? sim_type_named(a, length) : SIM_TYPE_NONE;
	uint64_t index_bytes = element_bytes(p, part, 2), bytes = sim_type_bytes(t);

	if (p->kernel->n_params < 6 || t == SIM_TYPE_NONE || !index_bytes)
		return false;
	const char *index = (const char *)(uintptr_t)sim_param_word(p, 0, 0), *grad = (const char *)(uintptr_t)sim_param_word(p, 1, 0);
	char *table = (char *)(uintptr_t)sim_param_word(p, 2, 0);
	uint64_t row = sim_param_word(p, 4, 0);
	for (int i = 0; i < sim_param_int(p, 3, 0); i++) {
		int64_t at = 0;

		memcpy(&at, index + (uint64_t)i * index_bytes, index_bytes);
		if (index_bytes == 4)
			at = (int32_t)at;
		if (at == sim_param_int(p, 5, 0))
			continue;
		struct sim_range r = { .at = table + (uint64_t)at * row * bytes, .n = row, .type = t };
		uint64_t h = sim_mix_bytes(seed, grad + (uint64_t)i * row * bytes, row * bytes);
		sim_mix_write(&r, sim_mix_range(h, &r));
	}
	return true;
}

/* CatArrayBatchedCopy*(out, inputs by value, sizes and strides of out, dimension, its stride): one input per grid.y.
 * The inputs' structure has room for 128, or for 64 with strides of their own. */
static bool cat(const struct sim_plan *p, uint64_t seed)
{
	static const char part[] = "CatArrayBatchedCopy";
	const char *name = strstr(p->kernel->name, part), *open = name ? strchr(name, '<') : NULL;
	char head[128];
	size_t n;

	(void)seed;
	if (!open || (size_t)(open - name) + 2 > sizeof head || p->kernel->n_params < 5)
		return false;
	memcpy(head, name, (size_t)(open - name) + 1);
	head[open - name + 1] = 0;
	const char *index = sim_template_argument(name, head, 1, &n), *dims_text = sim_template_argument(name, head, 2, &n);
	const char *batch = sim_template_argument(name, head, 3, &n);
	uint64_t bytes = element_bytes(p, head, 0), vector = 1;
	uint32_t room = batch ? (uint32_t)atoi(batch) : 0;
	if (!bytes || !index || strncmp(index, "unsigned int", 12) || !dims_text || (room != 128 && room != 64) || sim_param_size(p, 2) != 32)
		return false;
	const uint32_t offsets = 8 * room, sizes = offsets + 4 * room, elements = sizes + 4 * room, contiguous_at = elements + 4 * room,
		       strides_at = contiguous_at + room;
	int dims = atoi(dims_text), along = sim_param_int(p, 3, 0);
	if (dims < 1 || dims > 4 || along < 0 || along >= dims)
		return false;
	if (strstr(head, "_vectorized")) {
		const char *per = sim_template_argument(name, head, 6, &n);

		vector = per ? strtoull(per, NULL, 10) : 0;
		if (!vector)
			return false;
	}
	for (uint32_t i = 0; i < p->launch->grid[1] && i < room; i++) {
		uint64_t narrow = along == dims - 1 ? vector : 1;
		uint64_t offset = (uint32_t)sim_param_int(p, 1, offsets + 4 * i) / narrow, size = (uint32_t)sim_param_int(p, 1, sizes + 4 * i) / narrow;
		struct sim_range to = { .n = (uint32_t)sim_param_int(p, 1, elements + 4 * i), .type = SIM_TYPE_RAW }, from = to;
		bool contiguous = *sim_param(p, 1, contiguous_at + i);
		uint32_t strides = strides_at + (sim_param_size(p, 1) >= strides_at + 32 * room ? 32 * i : 0) + 16;

		/* Bytes of an element, then dimensions from the last: all strides of the output are in vectors. */
		to.at = (char *)(uintptr_t)sim_param_word(p, 0, 0) + offset * (uint32_t)sim_param_int(p, 4, 0) * vector * bytes;
		from.at = (char *)(uintptr_t)sim_param_word(p, 1, 8 * i);
		to.n = from.n = to.n * bytes;
		to.size[0] = from.size[0] = (uint32_t)(bytes * vector);
		to.stride[0] = from.stride[0] = 1;
		to.dims = 1;
		for (int d = dims - 1; d >= 0; d--, to.dims++) {
			to.size[to.dims] = d == along ? (uint32_t)size : (uint32_t)sim_param_int(p, 2, 4 * (uint32_t)d);
			to.stride[to.dims] = (uint32_t)((uint32_t)sim_param_int(p, 2, 16 + 4 * (uint32_t)d) * vector * bytes);
			from.size[to.dims] = to.size[to.dims];
			from.stride[to.dims] = (uint32_t)((uint32_t)sim_param_int(p, 1, strides + 4 * (uint32_t)d) * bytes);
		}
		from.dims = contiguous || vector > 1 ? 0 : to.dims;
		if (to.n)
			sim_mix_copy(&to, &from);
	}
	return true;
}

/* Number `i` of the list in device memory that parameter `k` points to. */
static int64_t listed(const struct sim_plan *p, uint32_t k, int64_t i)
{
	return ((const int64_t *)(uintptr_t)sim_param_word(p, k, 0))[i];
}

/* split_with_sizes_copy_out_contiguous_no_cast_kernel(outs, ins, bytes, block to split, first block, stride of in, chunks) */
static bool split_chunks(const struct sim_plan *p, uint64_t seed)
{
	int64_t stride = (int64_t)sim_param_word(p, 5, 0), chunks = (int64_t)sim_param_word(p, 6, 0);

	(void)seed;
	if (p->kernel->n_params != 7)
		return false;
	for (uint32_t x = 0; x < p->launch->grid[0]; x++) {
		int64_t split = listed(p, 3, x), bytes = listed(p, 2, split);

		for (int64_t i = 0; i < chunks && listed(p, 4, split) == x; i++)
			memcpy((char *)listed(p, 0, split) + i * bytes, (const char *)listed(p, 1, split) + i * stride, (size_t)bytes);
	}
	return true;
}

/*
 * chunk_cat_cuda_kernel<to, from>(ins, out, block to tensor, place in a chunk, first block, bytes, bytes of a chunk with
 * padding, blocks, bytes of a slice of out, of a chunk, how much larger the elements of out are); a chunk a grid.y.
 */
static bool chunk_cat(const struct sim_plan *p, uint64_t seed)
{
	static const char part[] = "chunk_cat_cuda_kernel<";
	int64_t slice = (int64_t)sim_param_word(p, 8, 0), chunk = (int64_t)sim_param_word(p, 9, 0), ratio = (int64_t)sim_param_word(p, 10, 0);
	size_t nt = 0, nf = 0;
	const char *to = sim_template_argument(p->kernel->name, part, 0, &nt), *from = sim_template_argument(p->kernel->name, part, 1, &nf);

	(void)seed;
	if (p->kernel->n_params != 11 || !to || !from || ratio < 1)
		return false;
	/* As bytes where the types are the same. */
	enum sim_type t = ratio == 1 ? SIM_TYPE_RAW : sim_type_named(to, nt), f = ratio == 1 ? SIM_TYPE_RAW : sim_type_named(from, nf);
	uint64_t width = ratio == 1 ? 1 : sim_type_bytes(f);
	if (t == SIM_TYPE_NONE || f == SIM_TYPE_NONE || (ratio > 1 && sim_type_bytes(t) != width * (uint64_t)ratio))
		return false;
	for (uint32_t x = 0; x < p->launch->grid[0]; x++) {
		int64_t tensor = listed(p, 2, x), all = listed(p, 5, tensor), part_bytes = listed(p, 6, tensor) / ratio;

		for (uint32_t y = 0; y < p->launch->grid[1] * p->launch->grid[2] && listed(p, 4, tensor) == x; y++) {
			int64_t z = y / p->launch->grid[1], i = y % p->launch->grid[1], left = all - i * part_bytes;
			int64_t n = left < 0 ? 0 : left < part_bytes ? left : part_bytes;
			char *at = (char *)(uintptr_t)sim_param_word(p, 1, 0) + z * slice + i * chunk + listed(p, 3, tensor);
			struct sim_range out = { .at = at, .n = (uint64_t)n / width, .type = t };
			struct sim_range in = { .at = (char *)listed(p, 0, tensor) + z * all + i * part_bytes, .n = out.n, .type = f };

			if (n)
				sim_mix_copy(&out, &in);
			memset(at + n * ratio, 0, (size_t)((part_bytes - n) * ratio));
		}
	}
	return true;
}

/* tensor_kernel_scan_innermost_dim<long, std::plus<long>>(out, in, rows, elements of a row, threads' logarithm, start). */
static bool running_sums(const struct sim_plan *p, uint64_t seed)
{
	int64_t *out = (int64_t *)(uintptr_t)sim_param_word(p, 0, 0);
	const int64_t *in = (const int64_t *)(uintptr_t)sim_param_word(p, 1, 0);
	uint64_t row = (uint32_t)sim_param_int(p, 3, 0), n = (uint32_t)sim_param_int(p, 2, 0) * row;
	int64_t start = (int64_t)sim_param_word(p, 5, 0), sum = 0;

	(void)seed;
	for (uint64_t i = 0; i < n; i++) {
		sum = (int64_t)((uint64_t)(i % row ? sum : start) + (uint64_t)in[i]);
		out[i] = sum;
	}
	return true;
}

/* index_elementwise_kernel(n, closure of flip_kernel_impl<OpaqueType<bytes>>): a calculator of two tensors with strides that may be negative, out, in. */
static bool flips(const struct sim_plan *p, uint64_t seed)
{
	enum { STRIDES = 304, POINTERS = 504 };
	const char *opaque = strstr(p->kernel->name, "flip_kernel_impl<at::native::OpaqueType<"), *calculator = sim_param(p, 1, 0);
	uint64_t bytes = opaque ? strtoul(strchr(strchr(opaque, '<') + 1, '<') + 1, NULL, 10) : 0;

	(void)seed;
	if (p->kernel->n_params < 2 || sim_param_size(p, 1) < POINTERS + 16 || !bytes || bytes > 16)
		return false;
	char *out = (char *)(uintptr_t)sim_param_word(p, 1, POINTERS);
	const char *in = (const char *)(uintptr_t)sim_param_word(p, 1, POINTERS + 8);
	for (int i = 0; i < sim_param_int(p, 0, 0); i++) {
		uint64_t left = (uint64_t)i;
		int64_t to = 0, from = 0;

		for (int d = 0; d < word(calculator) && d < SIM_DIMS; d++) {
			int64_t at = (int64_t)(left % (uint32_t)word(calculator + 4 + 12 * d));

			left /= (uint32_t)word(calculator + 4 + 12 * d);
			to += at * word(calculator + STRIDES + 8 * d);
			from += at * word(calculator + STRIDES + 8 * d + 4);
		}
		memcpy(out + to, in + from, bytes);
	}
	return true;
}

/* elementwise_kernel_with_index(n, closure of arange: where it starts, and a step, out): in double, eight bytes of whole numbers, or float for all others. */
static bool arange(const struct sim_plan *p, uint64_t seed)
{
	enum sim_type type = sim_rule_type(p, NULL, ":dispatch");
	bool real = type == SIM_TYPE_F32 || type == SIM_TYPE_F16 || type == SIM_TYPE_BF16;
	int64_t count = sim_param_int(p, 0, 0), whole[2];
	struct sim_range out = { .at = (char *)(uintptr_t)sim_param_word(p, 2, 0), .n = (uint64_t)count, .type = type };
	struct sim_range in = { .n = (uint64_t)count, .type = type == SIM_TYPE_F64 ? SIM_TYPE_F64 : real ? SIM_TYPE_F32 : SIM_TYPE_I64 };
	double wide[2];
	float single[2];

	(void)seed;
	if (type == SIM_TYPE_NONE || p->kernel->n_params < 3 || count < 0 || sim_param_size(p, 1) < (real ? sizeof single : sizeof wide))
		return false;
	memcpy(single, sim_param(p, 1, 0), sizeof single);
	if (!real) {
		memcpy(wide, sim_param(p, 1, 0), sizeof wide);
		memcpy(whole, wide, sizeof whole);
	}
	in.at = malloc((uint64_t)count * 8 + 1);
	for (int64_t i = 0; in.at && i < count; i++)
		if (real)
			((float *)in.at)[i] = single[0] + single[1] * (float)i;
		else if (type == SIM_TYPE_F64)
			((double *)in.at)[i] = wide[0] + wide[1] * (double)i;
		else
			((int64_t *)in.at)[i] = whole[0] + whole[1] * i;
	if (in.at && (real || type == SIM_TYPE_F64))
		sim_mix_copy(&out, &in);
	for (int64_t i = 0; in.at && !real && type != SIM_TYPE_F64 && i < count; i++)
		memcpy(out.at + (uint64_t)i * sim_type_bytes(type), in.at + 8 * i, sim_type_bytes(type));
	free(in.at);
	return true;
}

struct sorted {
	uint64_t key, from;
};

static int compare(const void *a, const void *b)
{
	const struct sorted *one = a, *other = b;

	return one->key != other->key ? (one->key > other->key) - (one->key < other->key) : (one->from > other->from) - (one->from < other->from);
}

/*
 * Pairs of a whole number of four or eight bytes and a value, by these bits of the number, equal ones as they came, the least first:
 * DeviceRadixSortSingleTileKernel<policy, order, key, OpaqueType<bytes>, ...>(keys, sorted keys, values, sorted values, n, first bit, last bit), and a pass of
 * DeviceRadixSortOnesweepKernel<the same>(.., .., .., .., sorted keys, keys, sorted values, values, n, first bit, bits).
 */
static bool sort_pairs(const struct sim_plan *p, uint64_t seed)
{
	bool pass = strstr(p->kernel->name, "DeviceRadixSortOnesweepKernel<");
	const char *part = pass ? "DeviceRadixSortOnesweepKernel<" : "DeviceRadixSortSingleTileKernel<";
	uint32_t to = pass ? 4 : 1, from = pass ? 5 : 0, values_to = pass ? 6 : 3, values_from = pass ? 7 : 2, count = pass ? 8 : 4;
	uint64_t key_bytes = element_bytes(p, part, 2), bytes = 0, n;
	size_t length;
	const char *value = sim_template_argument(p->kernel->name, part, 3, &length);

	(void)seed;
	if (value && (value = strstr(value, "OpaqueType<")))
		bytes = strtoul(value + strlen("OpaqueType<"), NULL, 10);
	if (p->kernel->n_params < count + 3 || !strstr(p->kernel->name, "(at_cuda_detail::cub::SortOrder)0") || (key_bytes != 4 && key_bytes != 8) || !bytes || bytes > 16)
		return false;
	n = sim_param_size(p, count) == 8 ? sim_param_word(p, count, 0) : (uint32_t)sim_param_int(p, count, 0);
	int first = sim_param_int(p, count + 1, 0), last = sim_param_int(p, count + 2, 0) + (pass ? first : 0);
	const char *keys = (const char *)(uintptr_t)sim_param_word(p, from, 0), *values = (const char *)(uintptr_t)sim_param_word(p, values_from, 0);
	char *keys_to = (char *)(uintptr_t)sim_param_word(p, to, 0), *moved = (char *)(uintptr_t)sim_param_word(p, values_to, 0);
	struct sorted *by = first < 0 || last <= first || last > 64 ? NULL : calloc(n + 1, sizeof *by);
	for (uint64_t i = 0; by && i < n; i++) {
		memcpy(&by[i].key, keys + i * key_bytes, key_bytes);
		/* Numbers with a sign: the negative ones are the least. */
		by[i].key = ((by[i].key ^ 1ull << (8 * key_bytes - 1)) >> first) & (last - first == 64 ? ~0ull : (1ull << (last - first)) - 1);
		by[i].from = i;
	}
	if (by)
		qsort(by, n, sizeof *by, compare);
	for (uint64_t i = 0; by && i < n; i++) {
		memcpy(keys_to + i * key_bytes, keys + by[i].from * key_bytes, key_bytes);
		memcpy(moved + i * bytes, values + by[i].from * bytes, bytes);
	}
	bool done = by != NULL;
	free(by);
	return done;
}

const struct sim_gather sim_gathers[] = {
	{ "arange", arange },
	{ "flips", flips },
	{ "sort_pairs", sort_pairs },
	{ "scatter_gather", scatter_gather },
	{ "gather_rows", gather_rows },
	{ "index_elements", index_elements },
	{ "add_rows", add_rows },
	{ "cat", cat },
	{ "chunk_cat", chunk_cat },
	{ "split_chunks", split_chunks },
	{ "running_sums", running_sums },
	{ NULL, NULL },
};
