/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic of collectives: each step is rounded to the type, as the sums that wander from rank to rank are on hardware. */
#include <math.h>
#include <string.h>

#include "driver/sim.h"
#include "exchange.h"

static float from_f16(uint16_t u)
{
	_Float16 x;

	memcpy(&x, &u, 2);
	return (float)x;
}

static uint16_t to_f16(float f)
{
	_Float16 x = (_Float16)f;
	uint16_t u;

	memcpy(&u, &x, 2);
	return u;
}

static float from_bf16(uint16_t b)
{
	uint32_t u = (uint32_t)b << 16;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

static uint16_t to_bf16(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	if ((u & 0x7fffffff) > 0x7f800000)
		return 0x7fff;
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* Eight bits of floating point: E4M3 has no infinity and one NaN of each sign, E5M2 is the upper half of an F16. */
static float from_e4m3(uint8_t b)
{
	int e = b >> 3 & 15, m = b & 7;
	float f = e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);

	if ((b & 0x7f) == 0x7f)
		f = NAN;
	return b & 0x80 ? -f : f;
}

static uint8_t to_e4m3(float f)
{
	uint8_t sign = signbit(f) ? 0x80 : 0;
	float a = fabsf(f);
	int e;

	if (isnan(f))
		return sign | 0x7f;
	if (a >= 448)
		return sign | 0x7e;
	if (a < 0x1p-6f)
		return sign | (uint8_t)lrintf(a * 0x1p9f);
	frexpf(a, &e);
	return (uint8_t)(sign | (((e + 6) << 3) + ((int)lrintf(ldexpf(a, 4 - e)) - 8)));
}

static float from_e5m2(uint8_t b)
{
	return from_f16((uint16_t)(b << 8));
}

static uint8_t to_e5m2(float f)
{
	uint16_t h = to_f16(f);
	uint16_t r = (uint16_t)((h + 0x7f + (h >> 8 & 1)) >> 8);

	if (isnan(f))
		return 0x7f;
	/* Numbers saturate. */
	return isinf(f) ? (uint8_t)(h >> 8) : (uint8_t)((r & 0x80) | ((r & 0x7f) > 0x7b ? 0x7b : r & 0x7f));
}

#define COMBINE(a, b, op) ((op) == SIM_EXCHANGE_PROD ? (a) * (b) : (op) == SIM_EXCHANGE_MAX ? ((b) > (a) ? (b) : (a)) : \
			   (op) == SIM_EXCHANGE_MIN ? ((b) < (a) ? (b) : (a)) : (a) + (b))

/* `first`: there is nothing to combine with yet. Integers wrap around, so they are summed without a sign. */
#define INTEGER(name, type, wide) \
	static void name(type *acc, const type *from, uint64_t n, uint32_t op, uint64_t scalar, bool first) \
	{ \
		type s; \
		memcpy(&s, &scalar, sizeof s); \
		for (uint64_t i = 0; i < n / sizeof s; i++) { \
			type v = op == SIM_EXCHANGE_PREMUL ? (type)((wide)from[i] * (wide)s) : from[i]; \
			if (first) \
				acc[i] = v; \
			else if (op == SIM_EXCHANGE_MAX) \
				acc[i] = v > acc[i] ? v : acc[i]; \
			else if (op == SIM_EXCHANGE_MIN) \
				acc[i] = v < acc[i] ? v : acc[i]; \
			else \
				acc[i] = (type)(op == SIM_EXCHANGE_PROD ? (wide)acc[i] * (wide)v : (wide)acc[i] + (wide)v); \
		} \
	}
INTEGER(reduce_i8, int8_t, uint32_t)
INTEGER(reduce_u8, uint8_t, uint32_t)
INTEGER(reduce_i32, int32_t, uint32_t)
INTEGER(reduce_u32, uint32_t, uint32_t)
INTEGER(reduce_i64, int64_t, uint64_t)
INTEGER(reduce_u64, uint64_t, uint64_t)

#define SCALES(op) ((op) == SIM_EXCHANGE_PREMUL || (op) == SIM_EXCHANGE_AVG)
#define ITSELF(x) (x)
#define REAL(name, type, wide, LOAD, STORE) \
	static void name(type *acc, const type *from, uint64_t n, uint32_t op, uint64_t scalar, bool first) \
	{ \
		type s; \
		memcpy(&s, &scalar, sizeof s); \
		for (uint64_t i = 0; i < n / sizeof s; i++) { \
			type v = SCALES(op) ? STORE(LOAD(from[i]) * LOAD(s)) : from[i]; \
			wide a = LOAD(acc[i]), b = LOAD(v); \
			acc[i] = first ? v : STORE(COMBINE(a, b, op)); \
		} \
	}
REAL(reduce_f16, uint16_t, float, from_f16, to_f16)
REAL(reduce_bf16, uint16_t, float, from_bf16, to_bf16)
REAL(reduce_f32, float, float, ITSELF, ITSELF)
REAL(reduce_f64, double, double, ITSELF, ITSELF)
REAL(reduce_e4m3, uint8_t, float, from_e4m3, to_e4m3)
REAL(reduce_e5m2, uint8_t, float, from_e5m2, to_e5m2)

static void reduce(void *acc, const void *from, uint64_t n, uint32_t type, uint32_t op, uint64_t scalar, bool first)
{
	switch (type) {
	case SIM_EXCHANGE_I8: reduce_i8(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_U8: reduce_u8(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_I32: reduce_i32(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_U32: reduce_u32(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_I64: reduce_i64(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_U64: reduce_u64(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_F16: reduce_f16(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_BF16: reduce_bf16(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_F32: reduce_f32(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_F64: reduce_f64(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_E4M3: reduce_e4m3(acc, from, n, op, scalar, first); break;
	case SIM_EXCHANGE_E5M2: reduce_e5m2(acc, from, n, op, scalar, first); break;
	}
}

void sim_reduce_first(void *acc, const void *from, uint64_t n, uint32_t type, uint32_t op, uint64_t scalar)
{
	reduce(acc, from, n, type, op, scalar, true);
}

void sim_reduce_next(void *acc, const void *from, uint64_t n, uint32_t type, uint32_t op, uint64_t scalar)
{
	reduce(acc, from, n, type, op, scalar, false);
}

#define DIVIDE(type) \
	for (uint64_t i = 0; i < n / sizeof(type); i++) \
		((type *)acc)[i] = (type)(((type *)acc)[i] / (type)ranks);

/* The average of integers is their sum, divided; that of other types was scaled before. */
void sim_reduce_last(void *acc, uint64_t n, uint32_t type, uint32_t op, uint32_t ranks)
{
	if (op != SIM_EXCHANGE_AVG)
		return;
	switch (type) {
	case SIM_EXCHANGE_I8: DIVIDE(int8_t); break;
	case SIM_EXCHANGE_U8: DIVIDE(uint8_t); break;
	case SIM_EXCHANGE_I32: DIVIDE(int32_t); break;
	case SIM_EXCHANGE_U32: DIVIDE(uint32_t); break;
	case SIM_EXCHANGE_I64: DIVIDE(int64_t); break;
	case SIM_EXCHANGE_U64: DIVIDE(uint64_t); break;
	default: break;
	}
}

uint64_t sim_reduce_share(uint32_t type, uint32_t ranks)
{
	float f = 1.0f / (float)ranks;
	double d = 1.0 / ranks;
	uint64_t u = 0;

	switch (type) {
	case SIM_EXCHANGE_F16: u = to_f16(f); break;
	case SIM_EXCHANGE_BF16: u = to_bf16(f); break;
	case SIM_EXCHANGE_F32: memcpy(&u, &f, 4); break;
	case SIM_EXCHANGE_F64: memcpy(&u, &d, 8); break;
	case SIM_EXCHANGE_E4M3: u = to_e4m3(f); break;
	case SIM_EXCHANGE_E5M2: u = to_e5m2(f); break;
	default: break;
	}
	return u;
}
