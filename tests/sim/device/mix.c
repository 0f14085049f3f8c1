/* SPDX-License-Identifier: Apache-2.0 */
/* Digests of what a kernel reads, and values for what it writes. */
#define _GNU_SOURCE
#include "device/mix.h"

#include <stdlib.h>
#include <string.h>

#define K1 0x9e3779b97f4a7c15ull
#define K2 0xbf58476d1ce4e5b9ull
#define K3 0x94d049bb133111ebull

static const struct {
	const char *name;
	enum sim_type type;
} names[] = {
	{ "bool", SIM_TYPE_BOOL },
	{ "char", SIM_TYPE_I8 },
	{ "signed char", SIM_TYPE_I8 },
	{ "unsigned char", SIM_TYPE_U8 },
	{ "short", SIM_TYPE_I16 },
	{ "unsigned short", SIM_TYPE_I16 },
	{ "int", SIM_TYPE_I32 },
	{ "unsigned int", SIM_TYPE_I32 },
	{ "long", SIM_TYPE_I64 },
	{ "unsigned long", SIM_TYPE_I64 },
	{ "long long", SIM_TYPE_I64 },
	{ "unsigned long long", SIM_TYPE_I64 },
	{ "float", SIM_TYPE_F32 },
	{ "double", SIM_TYPE_F64 },
	{ "c10::Half", SIM_TYPE_F16 },
	{ "__half", SIM_TYPE_F16 },
	{ "cutlass::half_t", SIM_TYPE_F16 },
	{ "c10::BFloat16", SIM_TYPE_BF16 },
	{ "__nv_bfloat16", SIM_TYPE_BF16 },
	{ "cutlass::bfloat16_t", SIM_TYPE_BF16 },
	{ "i8", SIM_TYPE_I8 },
	{ "i16", SIM_TYPE_I16 },
	{ "i32", SIM_TYPE_I32 },
	{ "i64", SIM_TYPE_I64 },
	{ "f16", SIM_TYPE_F16 },
	{ "bf16", SIM_TYPE_BF16 },
	{ "f32", SIM_TYPE_F32 },
	{ "f64", SIM_TYPE_F64 },
	{ "raw", SIM_TYPE_RAW },
};

enum sim_type sim_type_named(const char *name, size_t n)
{
	const char *opaque = memmem(name, n, "OpaqueType<", 11);

	if (opaque) { /* bytes of that many: at::native::OpaqueType<4>, (anonymous namespace)::OpaqueType<4u> */
		static const enum sim_type by_size[] = { SIM_TYPE_NONE, SIM_TYPE_I8, SIM_TYPE_I16, SIM_TYPE_NONE, SIM_TYPE_I32,
							 SIM_TYPE_NONE, SIM_TYPE_NONE, SIM_TYPE_NONE, SIM_TYPE_I64 };
		int size = atoi(opaque + 11);

		return size >= 0 && size <= 8 ? by_size[size] : SIM_TYPE_NONE;
	}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (strlen(names[i].name) == n && !memcmp(names[i].name, name, n))
			return names[i].type;
	return SIM_TYPE_NONE;
}

uint64_t sim_type_bytes(enum sim_type t)
{
	switch (t) {
	case SIM_TYPE_I16: case SIM_TYPE_F16: case SIM_TYPE_BF16: return 2;
	case SIM_TYPE_I32: case SIM_TYPE_F32: return 4;
	case SIM_TYPE_I64: case SIM_TYPE_F64: return 8;
	default: return 1;
	}
}

uint64_t sim_mix_word(uint64_t h, uint64_t x)
{
	h = (h ^ x) * K2;
	h ^= h >> 29;
	h = (h + K1) * K3;
	return h ^ h >> 32;
}

/* Four lanes, so that a digest is as fast as memory. */
uint64_t sim_mix_bytes(uint64_t h, const void *p, size_t n)
{
	const char *at = p;
	uint64_t lane[4] = { h, h + K1, h + K2, h + K3 }, w[4];
	size_t left = n;

	for (; left >= 32; left -= 32, at += 32) {
		memcpy(w, at, 32);
		for (int i = 0; i < 4; i++) {
			lane[i] = (lane[i] ^ w[i]) * K1;
			lane[i] ^= lane[i] >> 31;
		}
	}
	memset(w, 0, sizeof w);
	memcpy(w, at, left);
	for (int i = 0; i < 4; i++)
		h = sim_mix_word(sim_mix_word(h, lane[i]), w[i]);
	return sim_mix_word(h, n);
}

static char *element(const struct sim_range *r, uint64_t i, uint64_t bytes)
{
	uint64_t offset = 0;

	if (!r->dims)
		return r->at + i * bytes;
	for (int d = 0; d < r->dims; d++) {
		offset += i % r->size[d] * r->stride[d];
		i /= r->size[d];
	}
	return r->at + offset;
}

uint64_t sim_mix_range(uint64_t h, const struct sim_range *r)
{
	uint64_t bytes = sim_type_bytes(r->type);

	if (!r->dims)
		return sim_mix_bytes(h, r->at, r->n * bytes);
	for (uint64_t i = 0; i < r->n; i++) {
		uint64_t w = 0;

		memcpy(&w, element(r, i, bytes), bytes);
		h = sim_mix_word(h, w);
	}
	return h;
}

static uint16_t half_of(float f)
{
	_Float16 x = (_Float16)f;
	uint16_t u;

	memcpy(&u, &x, 2);
	return u;
}

static float float_of_half(uint16_t u)
{
	_Float16 x;

	memcpy(&x, &u, 2);
	return (float)x;
}

static uint16_t bfloat_of(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	if ((u & 0x7fffffff) > 0x7f800000)
		return 0x7fc0;
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float float_of_bfloat(uint16_t b)
{
	uint32_t u = (uint32_t)b << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static void store(char *at, enum sim_type t, double real, int64_t whole)
{
	float f = (float)real;
	uint16_t u;
	int32_t i = (int32_t)whole;
	int16_t s = (int16_t)whole;

	switch (t) {
	case SIM_TYPE_F64: memcpy(at, &real, 8); break;
	case SIM_TYPE_F32: memcpy(at, &f, 4); break;
	case SIM_TYPE_F16: u = half_of(f); memcpy(at, &u, 2); break;
	case SIM_TYPE_BF16: u = bfloat_of(f); memcpy(at, &u, 2); break;
	case SIM_TYPE_I64: memcpy(at, &whole, 8); break;
	case SIM_TYPE_I32: memcpy(at, &i, 4); break;
	case SIM_TYPE_I16: memcpy(at, &s, 2); break;
	case SIM_TYPE_BOOL: *at = whole != 0; break;
	default: *at = (char)whole; break;
	}
}

static void load(const char *at, enum sim_type t, double *real, int64_t *whole)
{
	float f;
	uint16_t u;
	int32_t i;
	int16_t s;
	bool floating = true;

	switch (t) {
	case SIM_TYPE_F64: memcpy(real, at, 8); break;
	case SIM_TYPE_F32: memcpy(&f, at, 4); *real = (double)f; break;
	case SIM_TYPE_F16: memcpy(&u, at, 2); *real = (double)float_of_half(u); break;
	case SIM_TYPE_BF16: memcpy(&u, at, 2); *real = (double)float_of_bfloat(u); break;
	case SIM_TYPE_I64: memcpy(whole, at, 8); floating = false; break;
	case SIM_TYPE_I32: memcpy(&i, at, 4); *whole = i; floating = false; break;
	case SIM_TYPE_I16: memcpy(&s, at, 2); *whole = s; floating = false; break;
	case SIM_TYPE_BOOL: *whole = *at != 0; floating = false; break;
	case SIM_TYPE_I8: *whole = (signed char)*at; floating = false; break;
	default: *whole = (unsigned char)*at; floating = false; break;
	}
	if (!floating)
		*real = (double)*whole;
	else /* out of range is undefined in C; hardware saturates */
		*whole = *real >= 9e18 ? INT64_MAX : *real <= -9e18 ? INT64_MIN : *real == *real ? (int64_t)*real : 0;
}

/* 24 bits of mantissa and one of sign: never zero, infinite or not a number. */
static float value_of(uint64_t x, bool positive)
{
	float f = (float)((x >> 40) + 1) * (1.0f / 16777217.0f);

	return positive || !(x & 1) ? f : -f;
}

/* Small numbers: indices, counts and classes that a program may use as such. */
#define WHOLE_BELOW 8

void sim_mix_write(const struct sim_range *r, uint64_t h)
{
	uint64_t bytes = sim_type_bytes(r->type);

	for (uint64_t i = 0; i < r->n; i++) {
		uint64_t x = sim_mix_word(h, i * K1);
		char *at = element(r, i, bytes);

		if (r->type == SIM_TYPE_F32) {
			float f = value_of(x, r->positive);

			memcpy(at, &f, 4);
		} else {
			int64_t below = r->type == SIM_TYPE_BOOL ? 2 : r->type == SIM_TYPE_RAW ? 256 : WHOLE_BELOW;

			store(at, r->type, (double)value_of(x, r->positive), (int64_t)(x >> 33) % below);
		}
	}
}

void sim_mix_copy(const struct sim_range *to, const struct sim_range *from)
{
	uint64_t d = sim_type_bytes(to->type), s = sim_type_bytes(from->type), n = to->n < from->n ? to->n : from->n;

	if (to->type == from->type && !to->dims && !from->dims) {
		memmove(to->at, from->at, n * d);
		return;
	}
	for (uint64_t i = 0; i < n; i++) {
		double real = 0;
		int64_t whole = 0;

		if (to->type == from->type) {
			memmove(element(to, i, d), element(from, i, s), d);
			continue;
		}
		load(element(from, i, s), from->type, &real, &whole);
		store(element(to, i, d), to->type, real, to->type == SIM_TYPE_BOOL ? real != 0 : whole);
	}
}

void sim_mix_where(const struct sim_range *to, const struct sim_range *choice, const struct sim_range *a, const struct sim_range *b)
{
	uint64_t bytes = sim_type_bytes(to->type);

	for (uint64_t i = 0; i < to->n; i++)
		memcpy(element(to, i, bytes), element(*element(choice, i, 1) ? a : b, i, bytes), bytes);
}

static bool related(const char *a, enum sim_type ta, const char *b, enum sim_type tb, enum sim_relation relation)
{
	double x = 0, y = 0;
	int64_t i = 0, j = 0;
	bool floating = ta == SIM_TYPE_F16 || ta == SIM_TYPE_BF16 || ta == SIM_TYPE_F32 || ta == SIM_TYPE_F64;

	load(a, ta, &x, &i);
	load(b, tb, &y, &j);
	switch (relation) {
	case SIM_EQ: return floating ? x == y : i == j;
	case SIM_NE: return floating ? x != y : i != j;
	case SIM_GE: return floating ? x >= y : i >= j;
	case SIM_GT: return floating ? x > y : i > j;
	case SIM_LE: return floating ? x <= y : i <= j;
	default: return floating ? x < y : i < j;
	}
}

void sim_mix_compare(const struct sim_range *to, const struct sim_range *a, const struct sim_range *b, enum sim_relation relation)
{
	for (uint64_t i = 0; i < to->n; i++)
		*element(to, i, 1) = related(element(a, i, sim_type_bytes(a->type)), a->type, element(b, i, sim_type_bytes(b->type)), b->type, relation);
}

void sim_mix_logic(const struct sim_range *to, const struct sim_range *a, const struct sim_range *b, bool both)
{
	for (uint64_t i = 0; i < to->n; i++) {
		bool x = *element(a, i, 1), y = b && *element(b, i, 1);

		*element(to, i, 1) = !b ? !x : both ? x && y : x || y;
	}
}

void sim_mix_abs(const struct sim_range *to, const struct sim_range *from)
{
	uint64_t d = sim_type_bytes(to->type), s = sim_type_bytes(from->type);

	for (uint64_t i = 0; i < to->n && i < from->n; i++) {
		double real = 0;
		int64_t whole = 0;

		load(element(from, i, s), from->type, &real, &whole);
		store(element(to, i, d), to->type, real < 0 ? -real : real, whole < 0 ? (int64_t)-(uint64_t)whole : whole);
	}
}

void sim_mix_sum(const struct sim_range *to, const struct sim_range *from, const struct sim_range *more)
{
	uint64_t d = sim_type_bytes(to->type), s = sim_type_bytes(from->type), each = to->n ? from->n / to->n : 0;
	double real;
	int64_t whole = 0;

	for (uint64_t i = 0; i < to->n; i++) {
		uint64_t sum = 0;

		if (more) {
			load(element(more, i, d), more->type, &real, &whole);
			sum = (uint64_t)whole;
		}
		for (uint64_t j = 0; j < each; j++) {
			load(element(from, i * each + j, s), from->type, &real, &whole);
			sum += (uint64_t)whole;
		}
		store(element(to, i, d), to->type, (double)(int64_t)sum, (int64_t)sum);
	}
}

void sim_mix_add(const struct sim_range *to, const struct sim_range *a, const struct sim_range *b, int64_t times)
{
	uint64_t bytes = sim_type_bytes(to->type);

	for (uint64_t i = 0; i < to->n; i++) {
		double real;
		int64_t x = 0, y = 0;

		load(element(a, i, sim_type_bytes(a->type)), a->type, &real, &x);
		load(element(b, i, sim_type_bytes(b->type)), b->type, &real, &y);
		x = (int64_t)((uint64_t)x + (uint64_t)times * (uint64_t)y);
		store(element(to, i, bytes), to->type, (double)x, x);
	}
}

void sim_mix_scale(const struct sim_range *to, const struct sim_range *from, double by)
{
	uint64_t d = sim_type_bytes(to->type), s = sim_type_bytes(from->type);

	for (uint64_t i = 0; i < to->n && i < from->n; i++) {
		double real = 0;
		int64_t whole = 0;

		load(element(from, i, s), from->type, &real, &whole);
		store(element(to, i, d), to->type, real * by, (int64_t)((double)whole * by));
	}
}

void sim_mix_fill(const struct sim_range *r, const void *value)
{
	uint64_t bytes = sim_type_bytes(r->type);

	for (uint64_t i = 0; i < r->n; i++)
		memcpy(element(r, i, bytes), value, bytes);
}
