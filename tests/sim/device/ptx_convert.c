/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between PTX's types, those of 16 bits among them. */
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "device/ptx.h"

/* ---- 16-bit floating point ---- */
float ptx_half_to_float(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 1023, bits;
	float f;

	if (e == 31) {
		bits = sign | 0x7f800000u | m << 13;
	} else if (e) {
		bits = sign | (e + 112) << 23 | m << 13;
	} else {
		f = (float)m * 0x1p-24f;
		memcpy(&bits, &f, 4);
		bits |= sign;
	}
	memcpy(&f, &bits, 4);
	return f;
}

float ptx_bfloat_to_float(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;

	memcpy(&f, &bits, 4);
	return f;
}

/* Rounds to a format of `digits` bits of fraction whose least exponent is `least` and whose exponent field is all ones at `top`. */
static uint16_t to_small(double x, int digits, int least, int top, enum ptx_round round)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	double a = fabs(x), scaled, whole;
	int e;

	if (isnan(x))
		return 0x7fff;
	uint16_t infinite = (uint16_t)((top - least + 1) << digits);
	if (isinf(x))
		return sign | infinite;
	if (a == 0)
		return sign;
	frexp(a, &e);
	e = e - 1 < least ? least : e - 1;
	scaled = ldexp(a, digits - e); /* exact */
	whole = floor(scaled);
	double rest = scaled - whole;
	bool up = round == PTX_RZ ? false : round == PTX_RM ? sign && rest > 0 : round == PTX_RP ? !sign && rest > 0 :
		  round == PTX_RNA ? rest >= 0.5 : rest > 0.5 || (rest == 0.5 && fmod(whole, 2) == 1);
	whole += up;
	/* A carry into the next power of two falls into the exponent by itself. */
	uint32_t bits = (uint32_t)((int64_t)whole + ((int64_t)(e - least) << digits));
	if (bits >= infinite) {
		bool clip = round == PTX_RZ || (round == PTX_RM && !sign) || (round == PTX_RP && sign);

		bits = clip ? infinite - 1u : infinite;
	}
	return (uint16_t)(sign | bits);
}

uint16_t ptx_to_half(double x, enum ptx_round round)
{
	return to_small(x, 10, -14, 16, round);
}

uint16_t ptx_to_bfloat(double x, enum ptx_round round)
{
	return to_small(x, 7, -126, 128, round);
}

uint16_t ptx_float_to_half(float f)
{
	uint32_t bits, sign;

	memcpy(&bits, &f, 4);
	sign = bits >> 16 & 0x8000;
	bits &= 0x7fffffff;
	if (bits > 0x7f800000)
		return 0x7fff;
	if (bits >= 0x477ff000)
		return (uint16_t)(sign | 0x7c00);
	if (bits < 0x38800000)
		return ptx_to_half((double)f, PTX_RN);
	bits += 0xfff + (bits >> 13 & 1);
	return (uint16_t)(sign | (bits - 0x38000000) >> 13);
}

uint16_t ptx_float_to_bfloat(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	if ((bits & 0x7fffffff) > 0x7f800000)
		return 0x7fff;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

int ptx_rounding_mode(enum ptx_round round)
{
	return round == PTX_RZ || round == PTX_RZI ? FE_TOWARDZERO : round == PTX_RM || round == PTX_RMI ? FE_DOWNWARD :
	       round == PTX_RP || round == PTX_RPI ? FE_UPWARD : FE_TONEAREST;
}

#define RUN(name) static void name(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask)

/* ---- from one type to another ---- */
struct number {
	bool real;
	bool is_signed;
	int64_t whole; /* of an integer type; unsigned ones as they lie */
	double value;  /* of a floating type, which it holds exactly */
};

static struct number taken(enum ptx_type t, const void *place, int l, bool wide)
{
	uint64_t bits = wide ? ((const uint64_t *)place)[l] : ((const uint32_t *)place)[l];
	float f;

	switch (t) {
	case PTX_U8: case PTX_B8: return (struct number){ .whole = (uint8_t)bits };
	case PTX_S8: return (struct number){ .is_signed = true, .whole = (int8_t)bits };
	case PTX_U16: case PTX_B16: return (struct number){ .whole = (uint16_t)bits };
	case PTX_S16: return (struct number){ .is_signed = true, .whole = (int16_t)bits };
	case PTX_U32: case PTX_B32: return (struct number){ .whole = (uint32_t)bits };
	case PTX_S32: return (struct number){ .is_signed = true, .whole = (int32_t)bits };
	case PTX_S64: return (struct number){ .is_signed = true, .whole = (int64_t)bits };
	case PTX_F16: return (struct number){ .real = true, .value = (double)ptx_half_to_float((uint16_t)bits) };
	case PTX_BF16: return (struct number){ .real = true, .value = (double)ptx_bfloat_to_float((uint16_t)bits) };
	case PTX_F32: case PTX_TF32: memcpy(&f, &bits, 4); return (struct number){ .real = true, .value = (double)f };
	case PTX_F64: {
		struct number n = { .real = true };

		memcpy(&n.value, &bits, 8);
		return n;
	}
	default: return (struct number){ .whole = (int64_t)bits };
	}
}

static int width(enum ptx_type t)
{
	return t <= PTX_S8 ? 8 : t <= PTX_BF16 ? 16 : t <= PTX_S16X2 ? 32 : 64;
}

static bool is_signed(enum ptx_type t)
{
	return t == PTX_S8 || t == PTX_S16 || t == PTX_S32 || t == PTX_S64;
}

static bool is_real(enum ptx_type t)
{
	return t == PTX_F16 || t == PTX_BF16 || t == PTX_F32 || t == PTX_TF32 || t == PTX_F64;
}

static double whole_of(double x, enum ptx_round round)
{
	return round == PTX_RZI ? trunc(x) : round == PTX_RMI ? floor(x) : round == PTX_RPI ? ceil(x) : rint(x);
}

static uint64_t real_to_integer(double x, const struct ptx_insn *i)
{
	int bits = width(i->type);
	double low = is_signed(i->type) ? -ldexp(1, bits - 1) : 0, high = ldexp(1, is_signed(i->type) ? bits - 1 : bits);

	if (isnan(x))
		return i->from == PTX_F64 || bits == 64 ? (uint64_t)1 << (bits - 1) : 0;
	x = whole_of(x, i->round);
	if (x < low)
		return (uint64_t)(int64_t)low;
	if (x >= high)
		return is_signed(i->type) ? ((uint64_t)1 << (bits - 1)) - 1 : bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
	return is_signed(i->type) ? (uint64_t)(int64_t)x : (uint64_t)x;
}

static uint64_t integer_to_integer(struct number n, const struct ptx_insn *i)
{
	int bits = width(i->type);

	if (i->sat) {
		__int128 v = n.is_signed ? (__int128)n.whole : (__int128)(uint64_t)n.whole;
		__int128 low = is_signed(i->type) ? -((__int128)1 << (bits - 1)) : 0, high = ((__int128)1 << (is_signed(i->type) ? bits - 1 : bits)) - 1;

		return (uint64_t)(v < low ? low : v > high ? high : v);
	}
	/* What is narrower than its place is extended by the sign of the type it was converted to. */
	uint64_t v = (uint64_t)n.whole;
	if (bits < 64)
		v = is_signed(i->type) ? (uint64_t)((int64_t)(v << (64 - bits)) >> (64 - bits)) : v & (((uint64_t)1 << bits) - 1);
	return v;
}

static uint32_t bits_of(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, 4);
	return bits;
}

/* As a number of floating type `t`, as bits. */
static uint64_t rounded(struct number n, enum ptx_type t, const struct ptx_insn *i)
{
	volatile double value = n.value;
	volatile float f = 0;
	uint64_t bits;

	if (i->sat && n.real)
		value = value > 0 ? (value < 1 ? value : 1) : 0;
	if (t == PTX_F16 || t == PTX_BF16) {
		if (!n.real)
			value = n.is_signed ? (double)n.whole : (double)(uint64_t)n.whole;
		if (i->extra) /* .relu */
			value = value > 0 || isnan(value) ? value : 0;
		return t == PTX_F16 ? ptx_to_half(value, i->round) : ptx_to_bfloat(value, i->round);
	}
	if (t == PTX_TF32) {
		bits = bits_of((float)value);
		return isnan(value) ? 0x7fffffff : i->round == PTX_RZ ? bits & ~0x1fffu : i->round == PTX_RNA ? (bits + 0x1000) & ~0x1fffu :
		       (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffull;
	}
	if (n.real && i->round >= PTX_RNI)
		value = whole_of(value, i->round);
	fesetround(ptx_rounding_mode(i->round >= PTX_RNI ? PTX_RN : i->round));
	if (t == PTX_F32) {
		f = n.real ? (float)value : n.is_signed ? (float)n.whole : (float)(uint64_t)n.whole;
		bits = bits_of(f);
	} else {
		if (!n.real)
			value = n.is_signed ? (double)n.whole : (double)(uint64_t)n.whole;
		memcpy(&bits, (const void *)&value, 8);
	}
	fesetround(FE_TONEAREST);
	if (i->ftz && t == PTX_F32)
		bits = bits_of(ptx_flushed(f));
	return bits;
}

static void put(void *place, int l, bool wide, uint64_t bits)
{
	if (wide)
		((uint64_t *)place)[l] = bits;
	else
		((uint32_t *)place)[l] = (uint32_t)bits;
}

RUN(cvt)
{
	void *d = PTX_AT(0, void);
	const void *a = PTX_AT(1, void);

	PTX_EACH(mask, struct number n = taken(i->from, a, l, i->wide & 2); uint64_t bits;
		 if (i->ftz && i->from == PTX_F32) n.value = (double)ptx_flushed((float)n.value);
		 if (is_real(i->type)) bits = rounded(n, i->type, i);
		 else bits = n.real ? real_to_integer(n.value, i) : integer_to_integer(n, i); put(d, l, i->wide & 1, bits));
}

/* Two numbers into the halves of a word, the first into the upper one. */
RUN(cvt_pair)
{
	uint32_t *d = PTX_AT(0, uint32_t);
	const void *a = PTX_AT(1, void), *b = PTX_AT(2, void);
	enum ptx_type t = i->type == PTX_F16X2 ? PTX_F16 : PTX_BF16;

	PTX_EACH(mask, uint64_t high = rounded(taken(PTX_F32, a, l, false), t, i); uint64_t low = rounded(taken(PTX_F32, b, l, false), t, i);
		 d[l] = (uint32_t)(high << 16 | low));
}

RUN(cvt_bf16_f32)
{
	uint32_t *d = PTX_AT(0, uint32_t);
	const float *a = PTX_AT(1, float);

	PTX_EACH(mask, d[l] = ptx_float_to_bfloat(a[l]));
}
RUN(cvt_bf16x2_f32)
{
	uint32_t *d = PTX_AT(0, uint32_t);
	const float *a = PTX_AT(1, float), *b = PTX_AT(2, float);

	PTX_EACH(mask, d[l] = (uint32_t)ptx_float_to_bfloat(a[l]) << 16 | ptx_float_to_bfloat(b[l]));
}
RUN(cvt_f16_f32)
{
	uint32_t *d = PTX_AT(0, uint32_t);
	const float *a = PTX_AT(1, float);

	PTX_EACH(mask, d[l] = ptx_float_to_half(a[l]));
}
RUN(cvt_f32_bf16)
{
	float *d = PTX_AT(0, float);
	const uint32_t *a = PTX_AT(1, uint32_t);

	PTX_EACH(mask, d[l] = ptx_bfloat_to_float((uint16_t)a[l]));
}
RUN(cvt_f32_f16)
{
	float *d = PTX_AT(0, float);
	const uint32_t *a = PTX_AT(1, uint32_t);

	PTX_EACH(mask, d[l] = ptx_half_to_float((uint16_t)a[l]));
}
RUN(cvt_f32_s32)
{
	float *d = PTX_AT(0, float);
	const int32_t *a = PTX_AT(1, int32_t);

	PTX_EACH(mask, d[l] = (float)a[l]);
}
RUN(cvt_s64_s32)
{
	int64_t *d = PTX_AT(0, int64_t);
	const int32_t *a = PTX_AT(1, int32_t);

	PTX_EACH(mask, d[l] = a[l]);
}
RUN(cvt_u64_u32)
{
	uint64_t *d = PTX_AT(0, uint64_t);
	const uint32_t *a = PTX_AT(1, uint32_t);

	PTX_EACH(mask, d[l] = a[l]);
}
RUN(cvt_u32_u64)
{
	uint32_t *d = PTX_AT(0, uint32_t);
	const uint64_t *a = PTX_AT(1, uint64_t);

	PTX_EACH(mask, d[l] = (uint32_t)a[l]);
}

ptx_run ptx_convert(struct ptx_insn *i)
{
	static const struct {
		enum ptx_type to, from;
		ptx_run run;
		uint32_t wide;
	} plain[] = {
		{ PTX_BF16, PTX_F32, cvt_bf16_f32, 0 }, { PTX_F16, PTX_F32, cvt_f16_f32, 0 },   { PTX_F32, PTX_BF16, cvt_f32_bf16, 0 },
		{ PTX_F32, PTX_F16, cvt_f32_f16, 0 },   { PTX_F32, PTX_S32, cvt_f32_s32, 0 },   { PTX_S64, PTX_S32, cvt_s64_s32, 1 },
		{ PTX_U64, PTX_U32, cvt_u64_u32, 1 },   { PTX_U32, PTX_U64, cvt_u32_u64, 2 },   { PTX_BF16X2, PTX_F32, cvt_bf16x2_f32, 0 },
	};

	for (size_t k = 0; k < sizeof plain / sizeof *plain; k++)
		if (plain[k].to == i->type && plain[k].from == i->from && plain[k].wide == i->wide && i->round == PTX_RN && !i->ftz && !i->sat &&
		    !i->extra)
			return plain[k].run;
	if (i->type == PTX_F16X2 || i->type == PTX_BF16X2)
		return i->from == PTX_F32 ? cvt_pair : NULL;
	if (i->type == PTX_PRED || i->from == PTX_PRED || i->type == PTX_B128 || i->from == PTX_B128 || i->from == PTX_F16X2)
		return NULL;
	return cvt;
}
