/* SPDX-License-Identifier: Apache-2.0 */
/* PTX's loads, stores and atomic operations, and what moves between the lanes of a warp. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>

#include "device/ptx.h"

/* Where `bytes` at `address` of a space are; shared memory has addresses of its own, from 0. */
static inline char *place(const struct ptx_warp *w, uint8_t space, uint64_t address, uint64_t bytes)
{
	if (address & (bytes - 1))
		ptx_fault();
	if (space == SIM_PTX_SHARED) {
		address = (uint32_t)address;
		if (address + bytes > w->shared_bytes)
			ptx_fault();
		return w->shared + address;
	}
	return (char *)(uintptr_t)address;
}

static inline uint64_t address(const struct ptx_warp *w, const struct ptx_insn *i, int k, int l)
{
	const char *at = w->frame + i->at[k];

	return (i->wide >> k & 1 ? ((const uint64_t *)(const void *)at)[l] : ((const uint32_t *)(const void *)at)[l]) + (uint64_t)i->imm;
}

static int size_of(enum ptx_type t)
{
	return t <= PTX_S8 ? 1 : t <= PTX_BF16 ? 2 : t <= PTX_S16X2 ? 4 : t <= PTX_F64 ? 8 : 16;
}

/* What is narrower than its place is extended by its sign. */
static inline void put(char *d, bool wide, int l, const char *from, enum ptx_type t)
{
	uint64_t v = 0;

	switch (t) {
	case PTX_S8: v = (uint64_t)(int64_t)*(const int8_t *)from; break;
	case PTX_S16: v = (uint64_t)(int64_t)*(const int16_t *)(const void *)from; break;
	case PTX_S32: v = (uint64_t)(int64_t)*(const int32_t *)(const void *)from; break;
	default: memcpy(&v, from, (size_t)size_of(t)); break;
	}
	if (wide)
		((uint64_t *)(void *)d)[l] = v;
	else
		((uint32_t *)(void *)d)[l] = (uint32_t)v;
}

/* Operands: the address, then the elements. */
void ptx_load(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	enum ptx_type t = i->type;
	uint32_t size = (uint32_t)size_of(t);

	if (size == 4 && i->n == 1 && !(i->wide & 2)) {
		uint32_t *d = PTX_AT(1, uint32_t);

		PTX_EACH(mask, d[l] = *(const uint32_t *)(const void *)place(w, i->space, address(w, i, 0, l), 4));
		return;
	}
	PTX_EACH(mask, const char *from = place(w, i->space, address(w, i, 0, l), (uint64_t)size * i->n);
		 for (int k = 0; k < i->n; k++) put(w->frame + i->at[k + 1], i->wide >> (k + 1) & 1, l, from + (uint32_t)k * size, t));
}

void ptx_store(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint32_t size = (uint32_t)size_of(i->type);

	PTX_EACH(mask, char *to = place(w, i->space, address(w, i, 0, l), (uint64_t)size * i->n);
		 for (int k = 0; k < i->n; k++) memcpy(to + (uint32_t)k * size, w->frame + i->at[k + 1] + (i->wide >> (k + 1) & 1 ? 8 : 4) * l, size));
}

/* Operands: where to, where from; `n` bytes, of which operand 2 says how many are read and the rest is zero. */
void ptx_copy_async(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	PTX_EACH(mask, uint32_t n = i->at[2] ? PTX_AT(2, uint32_t)[l] : i->n;
		 char *to = place(w, SIM_PTX_SHARED, (i->wide & 1 ? PTX_AT(0, uint64_t)[l] : PTX_AT(0, uint32_t)[l]) + (uint64_t)i->imm, i->n);
		 uint64_t from = PTX_AT(1, uint64_t)[l] + (uint64_t)(int64_t)(int32_t)i->target;
		 n = n < i->n ? n : i->n; memset(to + n, 0, i->n - n); if (n) memcpy(to, place(w, SIM_PTX_GLOBAL, from, i->n), n));
}

/* ---- atomic operations: blocks take turns, so plain ones will do ---- */
static uint64_t integer_operation(enum ptx_atomic how, uint64_t old, uint64_t b, uint64_t c, bool is_signed)
{
	switch (how) {
	case PTX_ADD: return old + b;
	case PTX_MIN: return (is_signed ? (int64_t)old < (int64_t)b : old < b) ? old : b;
	case PTX_MAX: return (is_signed ? (int64_t)old > (int64_t)b : old > b) ? old : b;
	case PTX_AND: return old & b;
	case PTX_OR: return old | b;
	case PTX_XOR: return old ^ b;
	case PTX_EXCH: return b;
	case PTX_CAS: return old == b ? c : old;
	case PTX_INC: return old >= b ? 0 : old + 1;
	default: return !old || old > b ? b : old - 1;
	}
}

static double real_operation(enum ptx_atomic how, double old, double b)
{
	return how == PTX_ADD ? old + b : how == PTX_MIN ? fmin(old, b) : how == PTX_MAX ? fmax(old, b) : b;
}

static uint16_t half_operation(enum ptx_atomic how, enum ptx_type t, uint16_t old, uint16_t b)
{
	bool half = t == PTX_F16 || t == PTX_F16X2;
	float x = half ? ptx_half_to_float(old) : ptx_bfloat_to_float(old), y = half ? ptx_half_to_float(b) : ptx_bfloat_to_float(b);
	float r = (float)real_operation(how, (double)x, (double)y);

	return half ? ptx_float_to_half(r) : ptx_float_to_bfloat(r);
}

static uint64_t operation(const struct ptx_insn *i, uint64_t old, uint64_t b, uint64_t c)
{
	enum ptx_atomic how = i->how;
	double x, y;
	float f, g;

	if (how == PTX_EXCH || how == PTX_CAS)
		return integer_operation(how, old, b, c, false);
	switch ((enum ptx_type)i->type) {
	case PTX_F32:
		memcpy(&f, &old, 4);
		memcpy(&g, &b, 4);
		f = how == PTX_ADD ? f + g : (float)real_operation(how, (double)f, (double)g);
		memcpy(&old, &f, 4);
		return old;
	case PTX_F64:
		memcpy(&x, &old, 8);
		memcpy(&y, &b, 8);
		x = real_operation(how, x, y);
		memcpy(&old, &x, 8);
		return old;
	case PTX_F16: case PTX_BF16:
		return half_operation(how, i->type, (uint16_t)old, (uint16_t)b);
	case PTX_F16X2: case PTX_BF16X2:
		return half_operation(how, i->type, (uint16_t)old, (uint16_t)b) |
		       (uint64_t)half_operation(how, i->type, (uint16_t)(old >> 16), (uint16_t)(b >> 16)) << 16;
	case PTX_S32:
		return integer_operation(how, (uint64_t)(int64_t)(int32_t)old, (uint64_t)(int64_t)(int32_t)b, c, true);
	case PTX_S64:
		return integer_operation(how, old, b, c, true);
	default:
		return integer_operation(how, old, b, c, false);
	}
}

static uint64_t operand(const struct ptx_warp *w, const struct ptx_insn *i, int k, int l, int size)
{
	uint64_t v = 0;

	memcpy(&v, w->frame + i->at[k] + (i->wide >> k & 1 ? 8 : 4) * l, (size_t)size);
	return v;
}

/* Operands: the address, `n` results, `n` operands, what to compare with (it comes first in PTX). */
void ptx_atomic(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	int size = size_of(i->type), n = i->n;

	PTX_EACH(mask, char *at = place(w, i->space, address(w, i, 0, l), (uint64_t)(size * n));
		for (int k = 0; k < n; k++) {
			uint64_t old = 0, b = operand(w, i, 1 + n + k, l, size), c = i->how == PTX_CAS ? operand(w, i, 2 + n, l, size) : 0;

			memcpy(&old, at + k * size, (size_t)size);
			uint64_t r = operation(i, old, b, c);
			memcpy(at + k * size, &r, (size_t)size);
			 put(w->frame + i->at[1 + k], i->wide >> (1 + k) & 1, l, (const char *)&old, size == 2 ? PTX_U16 : size == 4 ? PTX_U32 : PTX_U64);
		});
}

/* ---- between lanes ---- */
/* Operands: d, p, a, b, c. */
void ptx_shuffle(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint32_t *d = PTX_AT(0, uint32_t), *p = PTX_AT(1, uint32_t), from[PTX_LANES], good = 0;
	const uint32_t *b = PTX_AT(3, uint32_t), *c = PTX_AT(4, uint32_t);

	memcpy(from, w->frame + i->at[2], sizeof from);
	PTX_EACH(mask, uint32_t lane = (uint32_t)l; uint32_t by = b[l] & 31; uint32_t segment = c[l] >> 8 & 31; uint32_t clamp = c[l] & 31;
		uint32_t last = (lane & segment) | (clamp & ~segment); uint32_t first = lane & segment; uint32_t j; bool in;
		switch (i->how) {
		 case PTX_UP: j = lane - by; in = (int32_t)j >= (int32_t)last; break;
		 case PTX_DOWN: j = lane + by; in = j <= last; break;
		 case PTX_BFLY: j = lane ^ by; in = j <= last; break;
		 default: j = first | (by & ~segment); in = j <= last; break;
		 }
		 j = in ? j : lane; d[l] = from[j & 31]; good |= (uint32_t)in << l);
	*p = (*p & ~mask) | good;
}

static uint32_t members(const struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	return i->mask ? PTX_AT(i->mask, uint32_t)[__builtin_ctz(mask)] & mask : mask;
}

/* Operands: d, a predicate, the lanes. */
void ptx_vote(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint32_t a = *PTX_AT(1, uint32_t), in = members(w, i, mask), *d = PTX_AT(0, uint32_t);

	if (i->invert & 2)
		a = ~a;
	a &= in;
	if (i->how == PTX_BALLOT) {
		PTX_EACH(mask, d[l] = a);
		return;
	}
	bool r = i->how == PTX_ALL ? a == in : i->how == PTX_ANY ? a != 0 : !a || a == in;
	*d = (*d & ~mask) | (r ? mask : 0);
}

/* Operands: d, a, the lanes. */
void ptx_reduce(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint32_t in = members(w, i, mask), *d = PTX_AT(0, uint32_t);
	uint64_t r = 0;
	bool first = true;

	PTX_EACH(in, uint64_t x = PTX_AT(1, uint32_t)[l]; r = first ? x : operation(i, r, x, 0); first = false);
	PTX_EACH(mask, d[l] = (uint32_t)r);
}

/* Operands: d, p, a, the lanes; `extra`: all the same. */
void ptx_match(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint32_t in = i->mask ? PTX_AT(i->mask, uint32_t)[__builtin_ctz(mask)] & mask : mask, *d = PTX_AT(0, uint32_t), *p = PTX_AT(1, uint32_t);
	uint32_t same[PTX_LANES];
	int size = size_of(i->type);

	for (int l = 0; l < PTX_LANES; l++) {
		same[l] = 0;
		for (uint32_t rest = in; rest; rest &= rest - 1)
			if (operand(w, i, 2, __builtin_ctz(rest), size) == operand(w, i, 2, l, size))
				same[l] |= rest & -rest;
	}
	bool all = same[__builtin_ctz(mask)] == in;
	PTX_EACH(mask, d[l] = !i->extra ? same[l] : all ? in : 0);
	*p = (*p & ~mask) | (all ? mask : 0);
}

/* Operands: d, p, the lanes. */
void ptx_elect(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint32_t in = members(w, i, mask), leader = in ? (uint32_t)__builtin_ctz(in) : 0, *d = PTX_AT(0, uint32_t), *p = PTX_AT(1, uint32_t);

	PTX_EACH(mask, d[l] = leader);
	*p = (*p & ~mask) | (1u << leader & mask);
}

void ptx_active_mask(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint32_t *d = PTX_AT(0, uint32_t);

	PTX_EACH(mask, d[l] = mask);
}

/*
 * Matrices of 8 rows of 16 bytes: lane 8k + r has the address of row r of matrix k, and a lane has two elements of 16 bits
 * of each, those of row l/4 from column 2(l%4), or with `extra`, transposed, of column l/4 from row 2(l%4).
 */
static uint16_t *element(struct ptx_warp *w, const struct ptx_insn *i, int k, int l, int half)
{
	int row = i->extra ? 2 * (l % 4) + half : l / 4, column = i->extra ? l / 4 : 2 * (l % 4) + half;
	char *at = place(w, SIM_PTX_SHARED, address(w, i, 0, 8 * k + row), 16);

	return (uint16_t *)(void *)at + column;
}

void ptx_load_matrix(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint32_t r[4][PTX_LANES];

	(void)mask;
	for (int k = 0; k < i->n; k++)
		for (int l = 0; l < PTX_LANES; l++)
			r[k][l] = *element(w, i, k, l, 0) | (uint32_t)*element(w, i, k, l, 1) << 16;
	for (int k = 0; k < i->n; k++)
		memcpy(w->frame + i->at[k + 1], r[k], sizeof r[k]);
}

void ptx_store_matrix(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	(void)mask;
	for (int k = 0; k < i->n; k++)
		for (int l = 0; l < PTX_LANES; l++) {
			*element(w, i, k, l, 0) = (uint16_t)PTX_AT(k + 1, uint32_t)[l];
			*element(w, i, k, l, 1) = (uint16_t)(PTX_AT(k + 1, uint32_t)[l] >> 16);
		}
}

/* ---- cvta ---- */
void ptx_to_shared(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint64_t base = (uint64_t)(uintptr_t)w->shared;

	PTX_EACH(mask, uint64_t v = PTX_AT(1, uint64_t)[l] - base; if (i->wide & 1) PTX_AT(0, uint64_t)[l] = v; else PTX_AT(0, uint32_t)[l] = (uint32_t)v);
}

void ptx_from_shared(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)
{
	uint64_t base = (uint64_t)(uintptr_t)w->shared;

	PTX_EACH(mask, PTX_AT(0, uint64_t)[l] = base + (uint32_t)(i->wide & 2 ? PTX_AT(1, uint64_t)[l] : PTX_AT(1, uint32_t)[l]));
}
