/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of PTX: one function an operation and type, each for the lanes of a warp; and the table of them. */
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "device/ptx.h"

typedef unsigned __int128 u128;

/* ---- types: how a value lies in its place (S), what is calculated with (T), and the ways between ---- */
#define S_u16 uint32_t
#define T_u16 uint16_t
#define LD_u16(v) ((uint16_t)(v))
#define ST_u16(v) ((uint16_t)(v))
#define S_s16 uint32_t
#define T_s16 int16_t
#define LD_s16(v) ((int16_t)(v))
#define ST_s16(v) ((uint16_t)(v))
#define S_u32 uint32_t
#define T_u32 uint32_t
#define LD_u32(v) (v)
#define ST_u32(v) (v)
#define S_s32 int32_t
#define T_s32 int32_t
#define LD_s32(v) (v)
#define ST_s32(v) ((int32_t)(v))
#define S_u64 uint64_t
#define T_u64 uint64_t
#define LD_u64(v) (v)
#define ST_u64(v) (v)
#define S_s64 int64_t
#define T_s64 int64_t
#define LD_s64(v) (v)
#define ST_s64(v) ((int64_t)(v))
#define S_f32 float
#define T_f32 float
#define LD_f32(v) (v)
#define ST_f32(v) (v)
#define S_z32 float
#define T_z32 float
#define LD_z32(v) ptx_flushed(v)
#define ST_z32(v) ptx_flushed(v)
#define S_f64 double
#define T_f64 double
#define LD_f64(v) (v)
#define ST_f64(v) (v)
#define S_f16 uint32_t
#define T_f16 double
#define LD_f16(v) ((double)ptx_half_to_float((uint16_t)(v)))
#define ST_f16(v) ptx_to_half(v, PTX_RN)
#define S_bf16 uint32_t
#define T_bf16 double
#define LD_bf16(v) ((double)ptx_bfloat_to_float((uint16_t)(v)))
#define ST_bf16(v) ptx_to_bfloat(v, PTX_RN)

#define RUN(name) static void name(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)

#define UNARY(op, t, expr) \
	RUN(op##_##t) \
	{ \
		S_##t *d = PTX_AT(0, S_##t); \
		const S_##t *a = PTX_AT(1, S_##t); \
		PTX_EACH(mask, T_##t x = LD_##t(a[l]); d[l] = (S_##t)ST_##t(expr)); \
	}
#define BINARY(op, t, expr) \
	RUN(op##_##t) \
	{ \
		S_##t *d = PTX_AT(0, S_##t); \
		const S_##t *a = PTX_AT(1, S_##t), *b = PTX_AT(2, S_##t); \
		PTX_EACH(mask, T_##t x = LD_##t(a[l]); T_##t y = LD_##t(b[l]); d[l] = (S_##t)ST_##t(expr)); \
	}
#define TERNARY(op, t, expr) \
	RUN(op##_##t) \
	{ \
		S_##t *d = PTX_AT(0, S_##t); \
		const S_##t *a = PTX_AT(1, S_##t), *b = PTX_AT(2, S_##t), *c = PTX_AT(3, S_##t); \
		PTX_EACH(mask, T_##t x = LD_##t(a[l]); T_##t y = LD_##t(b[l]); T_##t z = LD_##t(c[l]); d[l] = (S_##t)ST_##t(expr)); \
	}
/* Two halves in a word. */
#define PAIRED(op, t, of, operands, expr) \
	RUN(op##_##t) \
	{ \
		uint32_t *d = PTX_AT(0, uint32_t); \
		const uint32_t *a = PTX_AT(1, uint32_t), *b = PTX_AT(operands > 1 ? 2 : 1, uint32_t), *c = PTX_AT(operands > 2 ? 3 : 1, uint32_t); \
		PTX_EACH(mask, uint32_t r = 0; for (int s = 0; s < 32; s += 16) { \
				T_##of x = LD_##of((uint16_t)(a[l] >> s)); \
				T_##of y = LD_##of((uint16_t)(b[l] >> s)); \
				T_##of z = LD_##of((uint16_t)(c[l] >> s)); \
				(void)y, (void)z; \
				r |= (uint32_t)(uint16_t)ST_##of(expr) << s; \
			} d[l] = r); \
	}
/* With the flushing and the two narrow types, alone and in pairs. */
#define FLOATS(kind, n, op, expr) \
	kind(op, f32, expr) kind(op, z32, expr) kind(op, f64, expr) kind(op, f16, expr) kind(op, bf16, expr) \
		PAIRED(op, f16x2, f16, n, expr) PAIRED(op, bf16x2, bf16, n, expr)

/* The least and greatest: zero is signed, and a NaN is chosen last, or first by ".NaN". */
#define LEAST(name, type, sign_first) \
	static inline type name(type x, type y) \
	{ \
		if (isnan(x) || isnan(y)) \
			return isnan(x) ? y : x; \
		return x == y ? ((signbit(x) != 0) == (sign_first) ? x : y) : (x < y) == (sign_first) ? x : y; \
	}
LEAST(least_f, float, true)
LEAST(most_f, float, false)
LEAST(least_d, double, true)
LEAST(most_d, double, false)
#define MIN(x, y) _Generic((x), float: least_f, default: least_d)(x, y)
#define MAX(x, y) _Generic((x), float: most_f, default: most_d)(x, y)
#define EITHER_NAN(x, y, other) (isnan(x) || isnan(y) ? (__typeof__(x))NAN : other)
#define FMA(x, y, z) _Generic((x), float: fmaf, default: fma)(x, y, z)
#define ABS(x) _Generic((x), float: fabsf, default: fabs)(x)

FLOATS(BINARY, 2, add, x + y)
FLOATS(BINARY, 2, sub, x - y)
FLOATS(BINARY, 2, mul, x * y)
FLOATS(TERNARY, 3, fma, FMA(x, y, z))
FLOATS(BINARY, 2, min, MIN(x, y))
FLOATS(BINARY, 2, max, MAX(x, y))
FLOATS(BINARY, 2, min_nan, EITHER_NAN(x, y, MIN(x, y)))
FLOATS(BINARY, 2, max_nan, EITHER_NAN(x, y, MAX(x, y)))
FLOATS(UNARY, 1, abs, ABS(x))
FLOATS(UNARY, 1, neg, -x)
FLOATS(TERNARY, 3, fma_relu, MAX(FMA(x, y, z), (__typeof__(x))0))
UNARY(ex2, f32, exp2f(x))
UNARY(ex2, z32, exp2f(x))
UNARY(ex2, f16, exp2(x))
UNARY(ex2, bf16, exp2(x))
PAIRED(ex2, f16x2, f16, 1, exp2(x))
PAIRED(ex2, bf16x2, bf16, 1, exp2(x))
UNARY(tanh, f32, tanhf(x))
UNARY(tanh, f16, tanh(x))
UNARY(tanh, bf16, tanh(x))
PAIRED(tanh, f16x2, f16, 1, tanh(x))
PAIRED(tanh, bf16x2, bf16, 1, tanh(x))
UNARY(lg2, f32, log2f(x))
UNARY(lg2, z32, log2f(x))
UNARY(sin, f32, sinf(x))
UNARY(sin, z32, sinf(x))
UNARY(cos, f32, cosf(x))
UNARY(cos, z32, cosf(x))
UNARY(sqrt, f32, sqrtf(x))
UNARY(sqrt, z32, sqrtf(x))
UNARY(sqrt, f64, sqrt(x))
UNARY(rsqrt, f32, (float)(1 / sqrt((double)x)))
UNARY(rsqrt, z32, (float)(1 / sqrt((double)x)))
UNARY(rsqrt, f64, 1 / sqrt(x))
UNARY(rcp, f32, 1 / x)
UNARY(rcp, z32, 1 / x)
UNARY(rcp, f64, 1 / x)
BINARY(div, f32, x / y)
BINARY(div, z32, x / y)
BINARY(div, f64, x / y)
BINARY(copysign, f32, copysignf(y, x))
BINARY(copysign, f64, copysign(y, x))

/* Divided by zero an integer is all ones. */
#define INTEGERS(t) \
	BINARY(add, t, x + y) \
	BINARY(sub, t, x - y) \
	BINARY(mul, t, 1u * x * y) \
	TERNARY(mad, t, 1u * x * y + z) \
	BINARY(and, t, x & y) \
	BINARY(or, t, x | y) \
	BINARY(xor, t, x ^ y) \
	UNARY(not, t, ~x) \
	UNARY(cnot, t, !x) \
	BINARY(div, t, y ? x / y : (T_##t)-1) \
	BINARY(rem, t, y ? x % y : x) \
	BINARY(min, t, x < y ? x : y) \
	BINARY(max, t, x > y ? x : y)
#define SIGNED(t, least) \
	BINARY(div, t, !y ? (T_##t)-1 : y == -1 ? (x == least ? x : -x) : x / y) \
	BINARY(rem, t, !y ? x : y == -1 ? 0 : x % y) \
	BINARY(min, t, x < y ? x : y) \
	BINARY(max, t, x > y ? x : y) \
	UNARY(abs, t, x == least ? x : x < 0 ? -x : x) \
	UNARY(neg, t, x == least ? x : -x)
INTEGERS(u16)
INTEGERS(u32)
INTEGERS(u64)
SIGNED(s16, INT16_MIN)
SIGNED(s32, INT32_MIN)
SIGNED(s64, INT64_MIN)
PAIRED(add, u16x2, u16, 2, x + y)
PAIRED(sub, u16x2, u16, 2, x - y)
PAIRED(min, u16x2, u16, 2, x < y ? x : y)
PAIRED(max, u16x2, u16, 2, x > y ? x : y)
PAIRED(min, s16x2, s16, 2, x < y ? x : y)
PAIRED(max, s16x2, s16, 2, x > y ? x : y)
BINARY(hi, u16, (uint32_t)x * y >> 16)
BINARY(hi, s16, (int32_t)x * y >> 16)
BINARY(hi, u32, (uint32_t)((uint64_t)x * y >> 32))
BINARY(hi, s32, (int64_t)x * y >> 32)
BINARY(hi, u64, (uint64_t)((u128)x * y >> 64))
BINARY(hi, s64, (__int128)x * y >> 64)
TERNARY(mad_hi, u32, (uint32_t)((uint64_t)x * y >> 32) + z)
TERNARY(mad_hi, s32, (uint32_t)((int64_t)x * y >> 32) + (uint32_t)z)
TERNARY(mad_hi, u64, (uint64_t)((u128)x * y >> 64) + z)
TERNARY(mad_hi, s64, (uint64_t)((__int128)x * y >> 64) + (uint64_t)z)
BINARY(mul24, u32, (x & 0xffffff) * (y & 0xffffff))
BINARY(mul24, s32, (uint32_t)(((int32_t)((uint32_t)x << 8) >> 8)) * (uint32_t)((int32_t)((uint32_t)y << 8) >> 8))
TERNARY(sad, u32, (x > y ? x - y : y - x) + z)
TERNARY(sad, s32, (uint32_t)(x > y ? (uint32_t)x - (uint32_t)y : (uint32_t)y - (uint32_t)x) + (uint32_t)z)

#define WIDE(t, d_type) \
	RUN(wide_##t) \
	{ \
		d_type *d = PTX_AT(0, d_type); \
		const S_##t *a = PTX_AT(1, S_##t), *b = PTX_AT(2, S_##t); \
		PTX_EACH(mask, d[l] = (d_type)LD_##t(a[l]) * (d_type)LD_##t(b[l])); \
	} \
	RUN(mad_wide_##t) \
	{ \
		d_type *d = PTX_AT(0, d_type); \
		const S_##t *a = PTX_AT(1, S_##t), *b = PTX_AT(2, S_##t); \
		const d_type *c = PTX_AT(3, d_type); \
		PTX_EACH(mask, d[l] = (d_type)LD_##t(a[l]) * (d_type)LD_##t(b[l]) + c[l]); \
	}
WIDE(u16, uint32_t)
WIDE(s16, uint32_t)
WIDE(u32, uint64_t)
WIDE(s32, uint64_t)

#define SHIFTS(t, bits, beyond) \
	RUN(shr_##t) \
	{ \
		S_##t *d = PTX_AT(0, S_##t); \
		const S_##t *a = PTX_AT(1, S_##t); \
		const uint32_t *b = PTX_AT(2, uint32_t); \
		PTX_EACH(mask, uint32_t n = b[l]; T_##t x = LD_##t(a[l]); \
			 d[l] = (S_##t)ST_##t(n < bits ? x >> n : beyond)); \
	}
#define SHIFTS_LEFT(t, bits) \
	RUN(shl_##t) \
	{ \
		S_##t *d = PTX_AT(0, S_##t); \
		const S_##t *a = PTX_AT(1, S_##t); \
		const uint32_t *b = PTX_AT(2, uint32_t); \
		PTX_EACH(mask, d[l] = b[l] < bits ? ST_##t(a[l] << b[l]) : 0); \
	}
SHIFTS(u16, 16, 0)
SHIFTS(u32, 32, 0)
SHIFTS(u64, 64, 0)
SHIFTS(s16, 16, x < 0 ? -1 : 0)
SHIFTS(s32, 32, x < 0 ? -1 : 0)
SHIFTS(s64, 64, x < 0 ? -1 : 0)
SHIFTS_LEFT(u16, 16)
SHIFTS_LEFT(u32, 32)
SHIFTS_LEFT(u64, 64)

static uint32_t funnel(uint32_t low, uint32_t high, uint32_t n, bool left)
{
	uint64_t both = (uint64_t)high << 32 | low;

	return left ? (uint32_t)(both << n >> 32) : (uint32_t)(both >> n);
}
TERNARY(shf_l_wrap, u32, funnel(x, y, z & 31, true))
TERNARY(shf_r_wrap, u32, funnel(x, y, z & 31, false))
TERNARY(shf_l_clamp, u32, funnel(x, y, z < 32 ? z : 32, true))
TERNARY(shf_r_clamp, u32, funnel(x, y, z < 32 ? z : 32, false))

/* `n` bits of x from bit `at`; of a signed type the last of them, or the type's last, is the sign. */
static uint64_t field(uint64_t x, uint32_t at, uint32_t n, uint32_t bits, bool is_signed)
{
	at &= 255;
	n &= 255;
	uint32_t last = at + n - 1 < bits - 1 ? at + n - 1 : bits - 1;
	bool sign = is_signed && n && x >> last & 1;
	uint64_t r = 0;

	for (uint32_t b = 0; b < bits; b++)
		r |= (uint64_t)(b < n && at + b < bits ? x >> (at + b) & 1 : sign) << b;
	return r;
}
#define FIELDS(t, u, bits, is_signed) \
	RUN(bfe_##t) \
	{ \
		u *d = PTX_AT(0, u); \
		const u *a = PTX_AT(1, u); \
		const uint32_t *b = PTX_AT(2, uint32_t), *c = PTX_AT(3, uint32_t); \
		PTX_EACH(mask, d[l] = !is_signed && c[l] < bits && b[l] < bits ? a[l] >> b[l] & (((u)1 << c[l]) - 1) : \
										 (u)field(a[l], b[l], c[l], bits, is_signed)); \
	}
FIELDS(u32, uint32_t, 32, false)
FIELDS(s32, uint32_t, 32, true)
FIELDS(u64, uint64_t, 64, false)
FIELDS(s64, uint64_t, 64, true)

#define INSERT(t, bits) \
	RUN(bfi_##t) \
	{ \
		S_##t *d = PTX_AT(0, S_##t); \
		const S_##t *a = PTX_AT(1, S_##t), *b = PTX_AT(2, S_##t); \
		const uint32_t *c = PTX_AT(3, uint32_t), *n = PTX_AT(4, uint32_t); \
		PTX_EACH(mask, uint32_t at = c[l] & 255; uint32_t len = n[l] & 255; \
			 S_##t m = at >= bits ? 0 : (len >= bits ? ~(S_##t)0 : ((S_##t)1 << len) - 1) << at; \
			 d[l] = (b[l] & ~m) | (at >= bits ? 0 : a[l] << at & m)); \
	}
INSERT(u32, 32)
INSERT(u64, 64)

static uint64_t reversed(uint64_t x, int bits)
{
	uint64_t r = 0;

	for (int b = 0; b < bits; b++)
		r |= (x >> b & 1) << (bits - 1 - b);
	return r;
}
UNARY(brev, u32, (uint32_t)reversed(x, 32))
UNARY(brev, u64, reversed(x, 64))

#define COUNTS(op, t, expr) \
	RUN(op##_##t) \
	{ \
		uint32_t *d = PTX_AT(0, uint32_t); \
		const S_##t *a = PTX_AT(1, S_##t); \
		PTX_EACH(mask, T_##t x = LD_##t(a[l]); d[l] = (uint32_t)(expr)); \
	}
COUNTS(popc, u32, __builtin_popcount(x))
COUNTS(popc, u64, __builtin_popcountll(x))
COUNTS(clz, u32, x ? __builtin_clz(x) : 32)
COUNTS(clz, u64, x ? __builtin_clzll(x) : 64)
COUNTS(bfind, u32, x ? 31 - __builtin_clz(x) : -1)
COUNTS(bfind, u64, x ? 63 - __builtin_clzll(x) : -1)
COUNTS(bfind, s32, (x < 0 ? ~x : x) ? 31 - __builtin_clz((uint32_t)(x < 0 ? ~x : x)) : -1)
COUNTS(bfind, s64, (x < 0 ? ~x : x) ? 63 - __builtin_clzll((uint64_t)(x < 0 ? ~x : x)) : -1)

static uint32_t permuted(uint32_t a, uint32_t b, uint32_t how)
{
	uint64_t both = (uint64_t)b << 32 | a;
	uint32_t r = 0;

	for (int k = 0; k < 4; k++) {
		uint32_t s = how >> 4 * k & 15, byte = (uint32_t)(both >> 8 * (s & 7)) & 255;

		r |= (s & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * k;
	}
	return r;
}
TERNARY(prmt, u32, permuted(x, y, z))

static uint32_t looked_up(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
	uint32_t r = 0;

	for (uint32_t k = 0; k < 8; k++)
		if (table >> k & 1)
			r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
	return r;
}
RUN(lop3_u32)
{
	uint32_t *d = PTX_AT(0, uint32_t);
	const uint32_t *a = PTX_AT(1, uint32_t), *b = PTX_AT(2, uint32_t), *c = PTX_AT(3, uint32_t), *table = PTX_AT(4, uint32_t);

	PTX_EACH(mask, d[l] = looked_up(a[l], b[l], c[l], table[l]));
}

static uint32_t dotted(uint32_t a, uint32_t b, uint32_t c, bool sa, bool sb)
{
	for (int k = 0; k < 32; k += 8) {
		int32_t x = sa ? (int8_t)(a >> k) : (int32_t)(a >> k & 255), y = sb ? (int8_t)(b >> k) : (int32_t)(b >> k & 255);

		c += (uint32_t)(x * y);
	}
	return c;
}
TERNARY(dp4a_uu, u32, dotted(x, y, z, false, false))
TERNARY(dp4a_ss, u32, dotted(x, y, z, true, true))
TERNARY(dp4a_us, u32, dotted(x, y, z, false, true))
TERNARY(dp4a_su, u32, dotted(x, y, z, true, false))

#define CHOOSE(t) \
	RUN(selp_##t) \
	{ \
		S_##t *d = PTX_AT(0, S_##t); \
		const S_##t *a = PTX_AT(1, S_##t), *b = PTX_AT(2, S_##t); \
		uint32_t p = *PTX_AT(3, uint32_t); \
		PTX_EACH(mask, d[l] = p >> l & 1 ? a[l] : b[l]); \
	} \
	RUN(slct_s32_##t) \
	{ \
		S_##t *d = PTX_AT(0, S_##t); \
		const S_##t *a = PTX_AT(1, S_##t), *b = PTX_AT(2, S_##t); \
		const int32_t *c = PTX_AT(3, int32_t); \
		PTX_EACH(mask, d[l] = c[l] >= 0 ? a[l] : b[l]); \
	}
CHOOSE(u32)
CHOOSE(u64)

#define PREDICATE(op, expr) \
	RUN(op##_pred) \
	{ \
		uint32_t *d = PTX_AT(0, uint32_t), x = *PTX_AT(1, uint32_t), y = *PTX_AT(2, uint32_t); \
		(void)y; \
		*d = (*d & ~mask) | ((expr) & mask); \
	}
PREDICATE(and, x &y)
PREDICATE(or, x | y)
PREDICATE(xor, x ^ y)
PREDICATE(not, ~x)
PREDICATE(mov, x)

/* The carry is a lane's, and so is what these leave in it. */
#define WITH_CARRY(op, t, wider, plus, in, negative) \
	RUN(op##_##t) \
	{ \
		T_##t *d = PTX_AT(0, T_##t); \
		const T_##t *a = PTX_AT(1, T_##t), *b = PTX_AT(2, T_##t), *c = PTX_AT(3, T_##t); \
		uint32_t *carry = (uint32_t *)(void *)(w->frame + PTX_CARRY); \
		PTX_EACH(mask, wider x = a[l]; wider y = b[l]; wider z = c[l]; (void)y, (void)z; \
			 wider r = (plus) + ((in) ? (negative ? -(wider)carry[l] : (wider)carry[l]) : 0); d[l] = (T_##t)r; \
			 if (i->extra) carry[l] = (uint32_t)(r >> 8 * sizeof(T_##t) & 1)); \
	}
#define CARRIES(t, wider) \
	WITH_CARRY(addx, t, wider, x + y, false, false) \
	WITH_CARRY(addc, t, wider, x + y, true, false) \
	WITH_CARRY(subx, t, wider, x - y, false, true) \
	WITH_CARRY(subc, t, wider, x - y, true, true) \
	WITH_CARRY(madx_lo, t, wider, (wider)(T_##t)(x * y) + z, false, false) \
	WITH_CARRY(madc_lo, t, wider, (wider)(T_##t)(x * y) + z, true, false) \
	WITH_CARRY(madx_hi, t, wider, (x * y >> 8 * sizeof(T_##t)) + z, false, false) \
	WITH_CARRY(madc_hi, t, wider, (x * y >> 8 * sizeof(T_##t)) + z, true, false)
CARRIES(u32, uint64_t)
CARRIES(u64, u128)

/* ---- with a rounding mode, or saturating ---- */
enum { CARE_ADD, CARE_SUB, CARE_MUL, CARE_FMA, CARE_DIV, CARE_RCP, CARE_SQRT };

#define CARE(t, root) \
	static T_##t care_one_##t(int how, volatile T_##t x, volatile T_##t y, volatile T_##t z) \
	{ \
		volatile T_##t r = 0; \
		switch (how) { \
		case CARE_ADD: r = x + y; break; \
		case CARE_SUB: r = x - y; break; \
		case CARE_MUL: r = x * y; break; \
		case CARE_FMA: r = FMA((T_##t)x, (T_##t)y, (T_##t)z); break; \
		case CARE_DIV: r = x / y; break; \
		case CARE_RCP: r = 1 / x; break; \
		case CARE_SQRT: r = root((T_##t)x); break; \
		default: break; \
		} \
		return r; \
	} \
	RUN(care_##t) \
	{ \
		T_##t *d = PTX_AT(0, T_##t); \
		const T_##t *a = PTX_AT(1, T_##t), *b = PTX_AT(2, T_##t), *c = PTX_AT(3, T_##t); \
		fesetround(ptx_rounding_mode(i->round)); \
		PTX_EACH(mask, T_##t x = a[l]; T_##t y = b[l]; T_##t z = c[l]; \
			 if (i->ftz) { x = (T_##t)ptx_flushed((float)x); y = (T_##t)ptx_flushed((float)y); z = (T_##t)ptx_flushed((float)z); } \
			 x = care_one_##t(i->how, x, y, z); if (i->ftz) x = (T_##t)ptx_flushed((float)x); \
			if (i->sat) x = x > 0 ? (x < 1 ? x : 1) : 0; d[l] = x); \
		fesetround(FE_TONEAREST); \
	}
CARE(f32, sqrtf)
CARE(f64, sqrt)

static int32_t saturated(int64_t x)
{
	return (int32_t)(x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : x);
}
RUN(care_s32)
{
	int32_t *d = PTX_AT(0, int32_t);
	const int32_t *a = PTX_AT(1, int32_t), *b = PTX_AT(2, int32_t);

	PTX_EACH(mask, d[l] = saturated(i->how == CARE_ADD ? (int64_t)a[l] + b[l] : (int64_t)a[l] - b[l]));
}

/* ---- moves ---- */
RUN(mov_u32)
{
	uint32_t *d = PTX_AT(0, uint32_t);
	const uint32_t *a = PTX_AT(1, uint32_t);

	PTX_EACH(mask, d[l] = a[l]);
}
RUN(mov_u64)
{
	uint64_t *d = PTX_AT(0, uint64_t);
	const uint64_t *a = PTX_AT(1, uint64_t);

	PTX_EACH(mask, d[l] = a[l]);
}

/* ---- the table ---- */
#define R(name, operands, run, type) { name, operands, run, NULL, type, 0 }
#define FLOAT_ROWS(name, op, operands) \
	R(name ".f32", operands, op##_f32, PTX_F32), R(name ".ftz.f32", operands, op##_z32, PTX_F32), R(name ".f64", operands, op##_f64, PTX_F64), \
		R(name ".f16", operands, op##_f16, PTX_F16), R(name ".bf16", operands, op##_bf16, PTX_BF16), \
		R(name ".f16x2", operands, op##_f16x2, PTX_F16X2), R(name ".bf16x2", operands, op##_bf16x2, PTX_BF16X2)
#define CARE_ROWS(name, op, operands, care) \
	{ name ".f32", operands, op##_f32, care_f32, PTX_F32, care }, { name ".ftz.f32", operands, op##_z32, care_f32, PTX_F32, care }, \
		{ name ".f64", operands, op##_f64, care_f64, PTX_F64, care }
#define HALF_ROWS(name, op, operands) \
	R(name ".f16", operands, op##_f16, PTX_F16), R(name ".bf16", operands, op##_bf16, PTX_BF16), \
		R(name ".f16x2", operands, op##_f16x2, PTX_F16X2), R(name ".bf16x2", operands, op##_bf16x2, PTX_BF16X2)
#define WRAPPING(name, op, operands) \
	R(name ".u16", operands, op##_u16, PTX_U16), R(name ".s16", operands, op##_u16, PTX_S16), R(name ".u32", operands, op##_u32, PTX_U32), \
		R(name ".s32", operands, op##_u32, PTX_S32), R(name ".u64", operands, op##_u64, PTX_U64), R(name ".s64", operands, op##_u64, PTX_S64)
#define BITS(name, op, operands) \
	R(name ".b16", operands, op##_u16, PTX_B16), R(name ".b32", operands, op##_u32, PTX_B32), R(name ".b64", operands, op##_u64, PTX_B64)
#define BOTH(name, op, operands) \
	R(name ".u16", operands, op##_u16, PTX_U16), R(name ".s16", operands, op##_s16, PTX_S16), R(name ".u32", operands, op##_u32, PTX_U32), \
		R(name ".s32", operands, op##_s32, PTX_S32), R(name ".u64", operands, op##_u64, PTX_U64), R(name ".s64", operands, op##_s64, PTX_S64)
#define WIDER(name, op, operands) \
	R(name ".u32", operands, op##_u32, PTX_U32), R(name ".s32", operands, op##_s32, PTX_S32), R(name ".u64", operands, op##_u64, PTX_U64), \
		R(name ".s64", operands, op##_s64, PTX_S64)
#define ONE_FLOAT(name, op) R(name ".f32", "tt", op##_f32, PTX_F32), R(name ".ftz.f32", "tt", op##_z32, PTX_F32)
#define CARRY_ROWS(name, op, operands) \
	R(name ".u32", operands, op##_u32, PTX_U32), R(name ".s32", operands, op##_u32, PTX_S32), R(name ".b32", operands, op##_u32, PTX_B32), \
		R(name ".u64", operands, op##_u64, PTX_U64), R(name ".s64", operands, op##_u64, PTX_S64)
#define CHOICES(name, op, operands) \
	R(name ".b16", operands, op##_u32, PTX_B16), R(name ".u16", operands, op##_u32, PTX_U16), R(name ".s16", operands, op##_u32, PTX_S16), \
		R(name ".b32", operands, op##_u32, PTX_B32), R(name ".u32", operands, op##_u32, PTX_U32), R(name ".s32", operands, op##_u32, PTX_S32), \
		R(name ".f32", operands, op##_u32, PTX_F32), R(name ".b64", operands, op##_u64, PTX_B64), R(name ".u64", operands, op##_u64, PTX_U64), \
		R(name ".s64", operands, op##_u64, PTX_S64), R(name ".f64", operands, op##_u64, PTX_F64), R(name ".f16", operands, op##_u32, PTX_F16), \
		R(name ".bf16", operands, op##_u32, PTX_BF16), R(name ".f16x2", operands, op##_u32, PTX_F16X2)

static const struct ptx_row rows[] = {
	CARE_ROWS("add", add, "ttt", CARE_ADD), CARE_ROWS("sub", sub, "ttt", CARE_SUB), CARE_ROWS("mul", mul, "ttt", CARE_MUL),
	CARE_ROWS("fma", fma, "tttt", CARE_FMA), CARE_ROWS("mad", fma, "tttt", CARE_FMA), CARE_ROWS("div", div, "ttt", CARE_DIV),
	CARE_ROWS("rcp", rcp, "tt", CARE_RCP), CARE_ROWS("sqrt", sqrt, "tt", CARE_SQRT),
	HALF_ROWS("add", add, "ttt"), HALF_ROWS("sub", sub, "ttt"), HALF_ROWS("mul", mul, "ttt"), HALF_ROWS("fma", fma, "tttt"),
	FLOAT_ROWS("fma.relu", fma_relu, "tttt"), FLOAT_ROWS("min", min, "ttt"), FLOAT_ROWS("max", max, "ttt"),
	FLOAT_ROWS("min.NaN", min_nan, "ttt"), FLOAT_ROWS("max.NaN", max_nan, "ttt"), FLOAT_ROWS("abs", abs, "tt"), FLOAT_ROWS("neg", neg, "tt"),
	ONE_FLOAT("ex2", ex2), ONE_FLOAT("lg2", lg2), ONE_FLOAT("sin", sin), ONE_FLOAT("cos", cos), ONE_FLOAT("rsqrt", rsqrt),
	R("rsqrt.f64", "tt", rsqrt_f64, PTX_F64), R("rsqrt.ftz.f64", "tt", rsqrt_f64, PTX_F64), R("rcp.ftz.f64", "tt", rcp_f64, PTX_F64),
	R("tanh.f32", "tt", tanh_f32, PTX_F32), HALF_ROWS("tanh", tanh, "tt"), HALF_ROWS("ex2", ex2, "tt"),
	R("ex2.ftz.bf16", "tt", ex2_bf16, PTX_BF16), R("ex2.ftz.bf16x2", "tt", ex2_bf16x2, PTX_BF16X2),
	R("copysign.f32", "ttt", copysign_f32, PTX_F32), R("copysign.f64", "ttt", copysign_f64, PTX_F64),

	{ "add.s32", "ttt", add_u32, care_s32, PTX_S32, CARE_ADD }, { "sub.s32", "ttt", sub_u32, care_s32, PTX_S32, CARE_SUB },
	WRAPPING("add", add, "ttt"), WRAPPING("sub", sub, "ttt"), WRAPPING("mul.lo", mul, "ttt"), WRAPPING("mad.lo", mad, "tttt"),
	BOTH("mul.hi", hi, "ttt"), WIDER("mad.hi", mad_hi, "tttt"), BOTH("div", div, "ttt"), BOTH("rem", rem, "ttt"),
	BOTH("min", min, "ttt"), BOTH("max", max, "ttt"),
	R("add.u16x2", "ttt", add_u16x2, PTX_U16X2), R("add.s16x2", "ttt", add_u16x2, PTX_S16X2),
	R("sub.u16x2", "ttt", sub_u16x2, PTX_U16X2), R("sub.s16x2", "ttt", sub_u16x2, PTX_S16X2),
	R("min.u16x2", "ttt", min_u16x2, PTX_U16X2), R("min.s16x2", "ttt", min_s16x2, PTX_S16X2),
	R("max.u16x2", "ttt", max_u16x2, PTX_U16X2), R("max.s16x2", "ttt", max_s16x2, PTX_S16X2),
	R("mul.wide.u16", "wtt", wide_u16, PTX_U16), R("mul.wide.s16", "wtt", wide_s16, PTX_S16),
	R("mul.wide.u32", "dtt", wide_u32, PTX_U32), R("mul.wide.s32", "dtt", wide_s32, PTX_S32),
	R("mad.wide.u16", "wttw", mad_wide_u16, PTX_U16), R("mad.wide.s16", "wttw", mad_wide_s16, PTX_S16),
	R("mad.wide.u32", "dttd", mad_wide_u32, PTX_U32), R("mad.wide.s32", "dttd", mad_wide_s32, PTX_S32),
	R("mul24.lo.u32", "ttt", mul24_u32, PTX_U32), R("mul24.lo.s32", "ttt", mul24_s32, PTX_S32),
	R("sad.u32", "tttt", sad_u32, PTX_U32), R("sad.s32", "tttt", sad_s32, PTX_S32),
	R("abs.s16", "tt", abs_s16, PTX_S16), R("abs.s32", "tt", abs_s32, PTX_S32), R("abs.s64", "tt", abs_s64, PTX_S64),
	R("neg.s16", "tt", neg_s16, PTX_S16), R("neg.s32", "tt", neg_s32, PTX_S32), R("neg.s64", "tt", neg_s64, PTX_S64),
	CARRY_ROWS("add.cc", addx, "ttt"), CARRY_ROWS("addc", addc, "ttt"), CARRY_ROWS("addc.cc", addc, "ttt"),
	CARRY_ROWS("sub.cc", subx, "ttt"), CARRY_ROWS("subc", subc, "ttt"), CARRY_ROWS("subc.cc", subc, "ttt"),
	CARRY_ROWS("mad.lo.cc", madx_lo, "tttt"), CARRY_ROWS("madc.lo", madc_lo, "tttt"), CARRY_ROWS("madc.lo.cc", madc_lo, "tttt"),
	R("mad.hi.cc.u32", "tttt", madx_hi_u32, PTX_U32), R("mad.hi.cc.u64", "tttt", madx_hi_u64, PTX_U64),
	R("madc.hi.u32", "tttt", madc_hi_u32, PTX_U32), R("madc.hi.u64", "tttt", madc_hi_u64, PTX_U64),
	R("madc.hi.cc.u32", "tttt", madc_hi_u32, PTX_U32), R("madc.hi.cc.u64", "tttt", madc_hi_u64, PTX_U64),

	BITS("and", and, "ttt"), BITS("or", or, "ttt"), BITS("xor", xor, "ttt"), BITS("not", not, "tt"), BITS("cnot", cnot, "tt"),
	R("and.pred", "ppp", and_pred, PTX_PRED), R("or.pred", "ppp", or_pred, PTX_PRED), R("xor.pred", "ppp", xor_pred, PTX_PRED),
	R("not.pred", "pp", not_pred, PTX_PRED), R("mov.pred", "pp", mov_pred, PTX_PRED),
	BITS("shl", shl, "ttw"), BOTH("shr", shr, "ttw"), BITS("shr", shr, "ttw"),
	R("shf.l.wrap.b32", "tttt", shf_l_wrap_u32, PTX_B32), R("shf.r.wrap.b32", "tttt", shf_r_wrap_u32, PTX_B32),
	R("shf.l.clamp.b32", "tttt", shf_l_clamp_u32, PTX_B32), R("shf.r.clamp.b32", "tttt", shf_r_clamp_u32, PTX_B32),
	R("bfe.u32", "ttww", bfe_u32, PTX_U32), R("bfe.s32", "ttww", bfe_s32, PTX_S32),
	R("bfe.u64", "ttww", bfe_u64, PTX_U64), R("bfe.s64", "ttww", bfe_s64, PTX_S64),
	R("bfi.b32", "tttww", bfi_u32, PTX_B32), R("bfi.b64", "tttww", bfi_u64, PTX_B64),
	R("brev.b32", "tt", brev_u32, PTX_B32), R("brev.b64", "tt", brev_u64, PTX_B64),
	R("popc.b32", "wt", popc_u32, PTX_B32), R("popc.b64", "wt", popc_u64, PTX_B64),
	R("clz.b32", "wt", clz_u32, PTX_B32), R("clz.b64", "wt", clz_u64, PTX_B64),
	WIDER("bfind", bfind, "wt"), R("prmt.b32", "tttt", prmt_u32, PTX_B32), R("lop3.b32", "ttttw", lop3_u32, PTX_B32),
	R("dp4a.u32.u32", "tttt", dp4a_uu_u32, PTX_U32), R("dp4a.s32.s32", "tttt", dp4a_ss_u32, PTX_S32),
	R("dp4a.u32.s32", "tttt", dp4a_us_u32, PTX_S32), R("dp4a.s32.u32", "tttt", dp4a_su_u32, PTX_S32),
	CHOICES("selp", selp, "tttp"), R("slct.b32.s32", "tttw", slct_s32_u32, PTX_B32), R("slct.u32.s32", "tttw", slct_s32_u32, PTX_U32),
	R("slct.s32.s32", "tttw", slct_s32_u32, PTX_S32), R("slct.f32.s32", "tttw", slct_s32_u32, PTX_F32), R("slct.b64.s32", "tttw", slct_s32_u64, PTX_B64),
	R("slct.u64.s32", "tttw", slct_s32_u64, PTX_U64), R("slct.f64.s32", "tttw", slct_s32_u64, PTX_F64), CHOICES("mov", mov, "tt"),
};

const struct ptx_row *ptx_row_find(const char *name)
{
	for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
		if (!strcmp(rows[k].name, name))
			return &rows[k];
	return NULL;
}

/* ---- comparisons ---- */
/* The order is that of the names in ptx_decode.c; from `equ` on a NaN makes them true. */
#define COMPARED(t) \
	static uint32_t compared_##t(const struct ptx_warp *w, const struct ptx_insn *i, int first) \
	{ \
		const S_##t *a = PTX_AT(first, S_##t), *b = PTX_AT(first + 1, S_##t); \
		uint32_t r = 0; \
		T_##t x, y; \
		switch (i->how) { \
			COMPARISON(0, t, x == y) \
			COMPARISON(1, t, x != y && !NANS(x, y)) \
			COMPARISON(2, t, x < y) \
			COMPARISON(3, t, x <= y) \
			COMPARISON(4, t, x > y) \
			COMPARISON(5, t, x >= y) \
			COMPARISON(6, t, x == y || NANS(x, y)) \
			COMPARISON(7, t, x != y || NANS(x, y)) \
			COMPARISON(8, t, x < y || NANS(x, y)) \
			COMPARISON(9, t, x <= y || NANS(x, y)) \
			COMPARISON(10, t, x > y || NANS(x, y)) \
			COMPARISON(11, t, x >= y || NANS(x, y)) \
			COMPARISON(12, t, !NANS(x, y)) \
			COMPARISON(13, t, NANS(x, y)) \
		default: break; \
		} \
		return r; \
	}
#define COMPARISON(k, t, expr) \
	case k: \
		for (int l = 0; l < PTX_LANES; l++) { \
			x = LD_##t(a[l]); \
			y = LD_##t(b[l]); \
			r |= (uint32_t)(expr) << l; \
		} \
		break;
#define NANS(x, y) false
COMPARED(u16)
COMPARED(s16)
COMPARED(u32)
COMPARED(s32)
COMPARED(u64)
COMPARED(s64)
#undef NANS
#define NANS(x, y) (isnan(x) || isnan(y))
COMPARED(f32)
COMPARED(z32)
COMPARED(f64)
COMPARED(f16)
COMPARED(bf16)

static uint32_t compared(const struct ptx_warp *w, const struct ptx_insn *i, int first)
{
	switch (i->type) {
	case PTX_B16: case PTX_U16: return compared_u16(w, i, first);
	case PTX_S16: return compared_s16(w, i, first);
	case PTX_B32: case PTX_U32: return compared_u32(w, i, first);
	case PTX_S32: return compared_s32(w, i, first);
	case PTX_B64: case PTX_U64: return compared_u64(w, i, first);
	case PTX_S64: return compared_s64(w, i, first);
	case PTX_F32: return i->ftz ? compared_z32(w, i, first) : compared_f32(w, i, first);
	case PTX_F64: return compared_f64(w, i, first);
	case PTX_F16: return compared_f16(w, i, first);
	default: return compared_bf16(w, i, first);
	}
}

/* Operands: p, q, a, b, c. */
RUN(setp)
{
	uint32_t *p = PTX_AT(0, uint32_t), *q = PTX_AT(1, uint32_t), r = compared(w, i, 2), c = *PTX_AT(4, uint32_t), other = ~r;

	if (i->invert & 16)
		c = ~c;
	if (i->and_or) {
		r = i->and_or == 1 ? r & c : i->and_or == 2 ? r | c : r ^ c;
		other = i->and_or == 1 ? other & c : i->and_or == 2 ? other | c : other ^ c;
	}
	*q = (*q & ~mask) | (other & mask);
	*p = (*p & ~mask) | (r & mask);
}

/* Operands: d, a, b; `from` is the type of the result. */
RUN(set)
{
	uint32_t *d = PTX_AT(0, uint32_t), r = compared(w, i, 1), yes = i->from == PTX_F32 ? 0x3f800000u : ~0u;

	PTX_EACH(mask, d[l] = r >> l & 1 ? yes : 0);
}

ptx_run ptx_compare(const struct ptx_insn *i, bool numbers)
{
	bool known = (i->type >= PTX_B16 && i->type <= PTX_F32 && i->type != PTX_B8) || (i->type >= PTX_B64 && i->type <= PTX_F64);

	return !known ? NULL : numbers ? set : setp;
}
