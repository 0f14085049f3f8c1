/* SPDX-License-Identifier: Apache-2.0 */
/* PTX on simgpu: each instruction on awkward values against the same in C, then what threads do together, and faults. */
#define _GNU_SOURCE
#include <fenv.h>
#include <math.h>
#include <sys/wait.h>

#include "check.h"

#define HEAD ".version 8.3\n.target sm_90\n.address_size 64\n"
#define N 256

static CUmodule load(const char *text)
{
	CUmodule m;

	OK(cuModuleLoadData(&m, text));
	return m;
}

static CUdeviceptr room(size_t bytes)
{
	CUdeviceptr p;

	OK(cuMemAlloc(&p, bytes));
	OK(cuMemsetD8(p, 0, bytes));
	return p;
}

static CUdeviceptr copied(const void *from, size_t bytes)
{
	CUdeviceptr p = room(bytes);

	OK(cuMemcpyHtoD(p, from, bytes));
	return p;
}

static void run(CUfunction f, unsigned grid, unsigned block, unsigned shared, void **args)
{
	OK(cuLaunchKernel(f, grid, 1, 1, block, 1, 1, shared, NULL, args, NULL));
	OK(cuCtxSynchronize());
}

/* ---- one instruction at a time ---- */
static float fl(uint32_t v)
{
	float f;

	memcpy(&f, &v, 4);
	return f;
}
static uint32_t bits(float f)
{
	uint32_t v;

	memcpy(&v, &f, 4);
	return v;
}
static double db(uint64_t v)
{
	double d;

	memcpy(&d, &v, 8);
	return d;
}
static uint64_t dbits(double d)
{
	uint64_t v;

	memcpy(&v, &d, 8);
	return v;
}
static float half(uint32_t v)
{
	int e = v >> 10 & 31, m = v & 1023;
	double a = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

	return (float)(v & 0x8000 ? -a : a);
}
/* The nearer one of two neighbours, the even one of two as near. */
static uint32_t half_of_double(double d)
{
	uint32_t low = 0, high = 0x7c00;
	double a = fabs(d);

	if (isnan(d))
		return 0x7fff;
	while (high - low > 1) {
		uint32_t middle = (low + high) / 2;

		*((double)half(middle) <= a ? &low : &high) = middle;
	}
	double up = high == 0x7c00 ? 65536 : (double)half(high), down = (double)half(low);
	if (a - down > up - a || (a - down == up - a && low & 1))
		low = high;
	return (d < 0 || (d == 0 && signbit(d)) ? 0x8000 : 0) | low;
}
static uint32_t to_half(float f)
{
	return half_of_double((double)f);
}
static float brain(uint32_t v)
{
	return fl(v << 16);
}
static uint32_t to_brain(float f)
{
	uint32_t low = bits(f) >> 16, high = low + 1;
	double down = fabs((double)f - (double)brain(low)), up = fabs((double)brain(high) - (double)f);

	if (isnan(f) || isinf(f))
		return isnan(f) ? 0x7fff : low;
	if (isinf(brain(high)))
		up = fabs((brain(low) < 0 ? -1 : 1) * 0x1p128 - (double)f);
	return down < up || (down == up && !(low & 1)) ? low : high;
}
static float rounded(int mode, char op, float a, float b, float c)
{
	volatile float x = a, y = b, z = c, r = 0;

	fesetround(mode);
	r = op == '+' ? x + y : op == '*' ? x * y : op == '/' ? x / y : op == 'r' ? sqrtf(x) : fmaf(x, y, z);
	fesetround(FE_TONEAREST);
	return r;
}
static float zero_small(float f)
{
	return fabsf(f) < 0x1p-126f ? copysignf(0, f) : f;
}
static uint64_t whole(double v, double low, double high, uint64_t nan)
{
	return isnan(v) ? nan : v <= low ? (uint64_t)(int64_t)low : v >= high ? (high > 0x1p63 ? ~0ull : (uint64_t)high) : high > 0x1p63 ? (uint64_t)v : (uint64_t)(int64_t)v;
}
static uint32_t prmt(uint32_t a, uint32_t b, uint32_t how)
{
	uint8_t from[8], to[4];
	uint32_t r;

	memcpy(from, &a, 4);
	memcpy(from + 4, &b, 4);
	for (int k = 0; k < 4; k++) {
		to[k] = from[how >> 4 * k & 7];
		if (how >> 4 * k & 8)
			to[k] = (uint8_t)((int8_t)to[k] >> 7);
	}
	memcpy(&r, to, 4);
	return r;
}
static uint32_t mirrored(uint32_t v)
{
	uint32_t r = 0;

	for (int k = 0; k < 32; k++)
		r = r << 1 | (v >> k & 1);
	return r;
}

#define AF fl(a)
#define BF fl(b)
#define CF fl(c)
#define AD db(x)
#define BD db(y)
#define CD db(z)
#define PAIR(of, to, expr) (to(of(a) expr of(b)) | to(of(a >> 16) expr of(b >> 16)) << 16)

/*
 * What it leaves, the instructions, the same in C. a, b, c are in %r1 to %r3, their lower halves in %h1 to %h3; x, y, z in
 * %d1 to %d3 are each two of them; %p1 and %p2 say that a and b are odd. The result is in %r0 (u, f, or ~ with a last digit
 * that may differ), %h0 (h; b: a NaN is any) or %d0 (l, d).
 */
#define OPERATIONS(X) \
	X(u, "add.s32 %r0, %r1, %r2;", a + b) \
	X(u, "sub.u32 %r0, %r1, %r2;", a - b) \
	X(u, "mul.lo.s32 %r0, %r1, %r2;", a * b) \
	X(u, "mul.hi.u32 %r0, %r1, %r2;", (uint64_t)a * b >> 32) \
	X(u, "mul.hi.s32 %r0, %r1, %r2;", (uint64_t)((int64_t)(int32_t)a * (int32_t)b) >> 32) \
	X(l, "mul.wide.u32 %d0, %r1, %r2;", (uint64_t)a * b) \
	X(l, "mul.wide.s32 %d0, %r1, %r2;", (uint64_t)((int64_t)(int32_t)a * (int32_t)b)) \
	X(u, "mul.wide.u16 %r0, %h1, %h2;", (a & 0xffff) * (b & 0xffff)) \
	X(u, "mul.wide.s16 %r0, %h1, %h2;", (uint32_t)((int16_t)a * (int16_t)b)) \
	X(u, "mad.lo.s32 %r0, %r1, %r2, %r3;", a * b + c) \
	X(u, "mad.hi.u32 %r0, %r1, %r2, %r3;", (uint32_t)((uint64_t)a * b >> 32) + c) \
	X(l, "mad.wide.s32 %d0, %r1, %r2, %d3;", (uint64_t)((int64_t)(int32_t)a * (int32_t)b) + z) \
	X(l, "mad.wide.u32 %d0, %r1, %r2, %d3;", (uint64_t)a * b + z) \
	X(u, "div.u32 %r0, %r1, %r2;", b ? a / b : ~0u) \
	X(u, "div.s32 %r0, %r1, %r2;", !b ? ~0u : b == ~0u ? -a : (uint32_t)((int32_t)a / (int32_t)b)) \
	X(u, "rem.s32 %r0, %r1, %r2;", !b ? a : b == ~0u ? 0 : (uint32_t)((int32_t)a % (int32_t)b)) \
	X(u, "min.s32 %r0, %r1, %r2;", (int32_t)a < (int32_t)b ? a : b) \
	X(u, "max.u32 %r0, %r1, %r2;", a > b ? a : b) \
	X(u, "abs.s32 %r0, %r1;", (int32_t)a < 0 ? -a : a) \
	X(u, "neg.s32 %r0, %r1;", -a) \
	X(u, "add.sat.s32 %r0, %r1, %r2;", (int64_t)(int32_t)a + (int32_t)b > INT32_MAX ? INT32_MAX : (int64_t)(int32_t)a + (int32_t)b < INT32_MIN ? 0x80000000u : a + b) \
	X(u, "and.b32 %r0, %r1, %r2;", a & b) \
	X(u, "or.b32 %r0, %r1, %r2;", a | b) \
	X(u, "xor.b32 %r0, %r1, %r2;", a ^ b) \
	X(u, "not.b32 %r0, %r1;", ~a) \
	X(u, "cnot.b32 %r0, %r1;", !a) \
	X(u, "lop3.b32 %r0, %r1, %r2, %r3, 0x96;", a ^ b ^ c) \
	X(u, "lop3.b32 %r0, %r1, %r2, %r3, 0xea;", (a & b) | c) \
	X(u, "shl.b32 %r0, %r1, %r2;", b > 31 ? 0 : a << b) \
	X(u, "shr.u32 %r0, %r1, %r2;", b > 31 ? 0 : a >> b) \
	X(u, "shr.s32 %r0, %r1, %r2;", (uint32_t)((int32_t)a >> (b > 31 ? 31 : b))) \
	X(u, "shf.l.wrap.b32 %r0, %r1, %r2, %r3;", (uint32_t)(((uint64_t)b << 32 | a) << (c & 31) >> 32)) \
	X(u, "shf.r.clamp.b32 %r0, %r1, %r2, %r3;", (uint32_t)(((uint64_t)b << 32 | a) >> (c > 32 ? 32 : c))) \
	X(u, "bfe.u32 %r0, %r1, 5, 9;", a >> 5 & 511) \
	X(u, "bfe.s32 %r0, %r1, 5, 9;", (uint32_t)((int32_t)(a << 18) >> 23)) \
	X(u, "bfe.s32 %r0, %r1, 28, 9;", (uint32_t)((int32_t)a >> 28)) \
	X(u, "bfe.u32 %r0, %r1, 40, 9;", 0) \
	X(u, "bfi.b32 %r0, %r1, %r2, 7, 12;", (b & ~0x7ff80u) | (a << 7 & 0x7ff80u)) \
	X(u, "brev.b32 %r0, %r1;", mirrored(a)) \
	X(u, "popc.b32 %r0, %r1;", (uint32_t)__builtin_popcount(a)) \
	X(u, "popc.b64 %r0, %d1;", (uint32_t)__builtin_popcountll(x)) \
	X(u, "clz.b32 %r0, %r1;", a ? (uint32_t)__builtin_clz(a) : 32) \
	X(u, "clz.b64 %r0, %d1;", x ? (uint32_t)__builtin_clzll(x) : 64) \
	X(u, "bfind.u32 %r0, %r1;", a ? 31 - (uint32_t)__builtin_clz(a) : ~0u) \
	X(u, "prmt.b32 %r0, %r1, %r2, 0x7054;", prmt(a, b, 0x7054)) \
	X(u, "prmt.b32 %r0, %r1, %r2, 0x83b1;", prmt(a, b, 0x83b1)) \
	X(u, "dp4a.s32.s32 %r0, %r1, %r2, %r3;", c + (uint32_t)((int8_t)a * (int8_t)b + (int8_t)(a >> 8) * (int8_t)(b >> 8) + (int8_t)(a >> 16) * (int8_t)(b >> 16) + (int8_t)(a >> 24) * (int8_t)(b >> 24))) \
	X(l, "add.s64 %d0, %d1, %d2;", x + y) \
	X(l, "mul.lo.s64 %d0, %d1, %d2;", x * y) \
	X(l, "mul.hi.u64 %d0, %d1, %d2;", (uint64_t)((unsigned __int128)x * y >> 64)) \
	X(l, "mul.hi.s64 %d0, %d1, %d2;", (uint64_t)((__int128)(int64_t)x * (int64_t)y >> 64)) \
	X(l, "mad.lo.s64 %d0, %d1, %d2, %d3;", x * y + z) \
	X(l, "div.u64 %d0, %d1, %d2;", y ? x / y : ~0ull) \
	X(l, "rem.u64 %d0, %d1, %d2;", y ? x % y : x) \
	X(l, "min.s64 %d0, %d1, %d2;", (int64_t)x < (int64_t)y ? x : y) \
	X(l, "shl.b64 %d0, %d1, %r3;", c > 63 ? 0 : x << c) \
	X(l, "shr.s64 %d0, %d1, %r3;", (uint64_t)((int64_t)x >> (c > 63 ? 63 : c))) \
	X(l, "add.cc.u32 %r4, %r1, %r3; addc.u32 %r5, %r2, %r1; mov.b64 %d0, {%r4, %r5};", x + z) \
	X(l, "sub.cc.u32 %r4, %r1, %r3; subc.u32 %r5, %r2, %r1; mov.b64 %d0, {%r4, %r5};", x - z) \
	X(u, "mad.lo.cc.u32 %r4, %r1, %r2, %r3; madc.hi.u32 %r0, %r1, %r2, %r3;", (uint32_t)(((uint64_t)a * b + ((uint64_t)c << 32 | c)) >> 32)) \
	X(h, "add.s16 %h0, %h1, %h2;", a + b) \
	X(h, "mul.lo.s16 %h0, %h1, %h2;", a * b) \
	X(h, "shr.s16 %h0, %h1, 3;", (uint32_t)((int16_t)a >> 3)) \
	X(h, "shr.u16 %h0, %h1, 3;", (a & 0xffff) >> 3) \
	X(h, "max.s16 %h0, %h1, %h2;", (int16_t)a > (int16_t)b ? a : b) \
	X(u, "add.s16x2 %r0, %r1, %r2;", ((a + b) & 0xffff) | ((a >> 16) + (b >> 16)) << 16) \
	X(u, "selp.b32 %r0, %r1, %r2, %p1;", a & 1 ? a : b) \
	X(l, "selp.b64 %d0, %d1, %d2, %p2;", b & 1 ? x : y) \
	X(u, "slct.u32.s32 %r0, %r1, %r2, %r3;", (int32_t)c >= 0 ? a : b) \
	X(u, "and.pred %q, %p1, %p2; selp.u32 %r0, 1, 0, %q;", a & b & 1) \
	X(u, "xor.pred %q, %p1, %p2; not.pred %q, %q; selp.u32 %r0, 1, 0, %q;", ~(a ^ b) & 1) \
	X(u, "setp.lt.s32 %q, %r1, %r2; selp.u32 %r0, 1, 0, %q;", (int32_t)a < (int32_t)b) \
	X(u, "setp.lo.u32 %q, %r1, %r2; selp.u32 %r0, 1, 0, %q;", a < b) \
	X(u, "setp.ge.and.u32 %q|%p1, %r1, %r2, !%p2; selp.u32 %r0, 1, 0, %q; selp.u32 %r4, 2, 0, %p1; or.b32 %r0, %r0, %r4;", b & 1 ? 0u : a >= b ? 1u : 2u) \
	X(u, "setp.gt.s64 %q, %d1, %d2; selp.u32 %r0, 1, 0, %q;", (int64_t)x > (int64_t)y) \
	X(u, "setp.eq.b16 %q, %h1, %h2; selp.u32 %r0, 1, 0, %q;", (uint16_t)a == (uint16_t)b) \
	X(u, "setp.lt.f32 %q, %r1, %r2; selp.u32 %r0, 1, 0, %q;", AF < BF) \
	X(u, "setp.ne.f32 %q, %r1, %r2; selp.u32 %r0, 1, 0, %q;", AF < BF || AF > BF) \
	X(u, "setp.neu.f32 %q, %r1, %r2; selp.u32 %r0, 1, 0, %q;", AF != BF) \
	X(u, "setp.geu.f32 %q, %r1, %r2; selp.u32 %r0, 1, 0, %q;", !(AF < BF)) \
	X(u, "setp.nan.f32 %q, %r1, %r2; selp.u32 %r0, 1, 0, %q;", isnan(AF) || isnan(BF)) \
	X(u, "setp.num.f64 %q, %d1, %d2; selp.u32 %r0, 1, 0, %q;", !isnan(AD) && !isnan(BD)) \
	X(u, "setp.eq.ftz.f32 %q, %r1, %r2; selp.u32 %r0, 1, 0, %q;", zero_small(AF) == zero_small(BF)) \
	X(u, "set.gt.u32.f32 %r0, %r1, %r2;", AF > BF ? ~0u : 0) \
	X(f, "add.f32 %r0, %r1, %r2;", bits(AF + BF)) \
	X(f, "sub.f32 %r0, %r1, %r2;", bits(AF - BF)) \
	X(f, "mul.f32 %r0, %r1, %r2;", bits(AF * BF)) \
	X(f, "fma.rn.f32 %r0, %r1, %r2, %r3;", bits(fmaf(AF, BF, CF))) \
	X(f, "fma.rn.ftz.f32 %r0, %r1, %r2, %r3;", bits(zero_small(fmaf(zero_small(AF), zero_small(BF), zero_small(CF))))) \
	X(f, "fma.rm.ftz.f32 %r0, %r1, %r2, %r3;", bits(zero_small(rounded(FE_DOWNWARD, 'f', zero_small(AF), zero_small(BF), zero_small(CF))))) \
	X(f, "add.rz.f32 %r0, %r1, %r2;", bits(rounded(FE_TOWARDZERO, '+', AF, BF, 0))) \
	X(f, "mul.rp.f32 %r0, %r1, %r2;", bits(rounded(FE_UPWARD, '*', AF, BF, 0))) \
	X(f, "div.rn.f32 %r0, %r1, %r2;", bits(AF / BF)) \
	X(f, "div.rz.f32 %r0, %r1, %r2;", bits(rounded(FE_TOWARDZERO, '/', AF, BF, 0))) \
	X(f, "sqrt.rn.f32 %r0, %r1;", bits(sqrtf(AF))) \
	X(f, "sqrt.rm.f32 %r0, %r1;", bits(rounded(FE_DOWNWARD, 'r', AF, 0, 0))) \
	X(f, "rcp.rn.f32 %r0, %r1;", bits(1 / AF)) \
	X(f, "add.sat.f32 %r0, %r1, %r2;", bits(AF + BF > 0 ? AF + BF < 1 ? AF + BF : 1 : 0)) \
	X(f, "min.f32 %r0, %r1, %r2;", bits(isnan(AF) ? BF : isnan(BF) ? AF : AF == BF ? (signbit(AF) ? AF : BF) : AF < BF ? AF : BF)) \
	X(f, "max.f32 %r0, %r1, %r2;", bits(isnan(AF) ? BF : isnan(BF) ? AF : AF == BF ? (signbit(AF) ? BF : AF) : AF > BF ? AF : BF)) \
	X(f, "max.NaN.f32 %r0, %r1, %r2;", bits(isnan(AF) || isnan(BF) ? NAN : AF == BF ? (signbit(AF) ? BF : AF) : AF > BF ? AF : BF)) \
	X(f, "abs.f32 %r0, %r1;", bits(fabsf(AF))) \
	X(f, "neg.f32 %r0, %r1;", bits(-AF)) \
	X(f, "copysign.f32 %r0, %r1, %r2;", bits(copysignf(BF, AF))) \
	X(~, "ex2.approx.ftz.f32 %r0, %r1;", bits(zero_small(exp2f(AF)))) \
	X(~, "lg2.approx.f32 %r0, %r1;", bits(log2f(AF))) \
	X(~, "rsqrt.approx.f32 %r0, %r1;", bits(1 / sqrtf(AF))) \
	X(~, "rcp.approx.f32 %r0, %r1;", bits(1 / AF)) \
	X(~, "tanh.approx.f32 %r0, %r1;", bits(tanhf(AF))) \
	X(d, "add.f64 %d0, %d1, %d2;", dbits(AD + BD)) \
	X(d, "mul.f64 %d0, %d1, %d2;", dbits(AD * BD)) \
	X(d, "fma.rn.f64 %d0, %d1, %d2, %d3;", dbits(fma(AD, BD, CD))) \
	X(d, "div.rn.f64 %d0, %d1, %d2;", dbits(AD / BD)) \
	X(d, "sqrt.rn.f64 %d0, %d1;", dbits(sqrt(AD))) \
	X(b, "add.f16 %h0, %h1, %h2;", to_half(half(a) + half(b))) \
	X(b, "mul.f16 %h0, %h1, %h2;", to_half(half(a) * half(b))) \
	X(b, "fma.rn.f16 %h0, %h1, %h2, %h3;", half_of_double((double)half(a) * (double)half(b) + (double)half(c))) \
	X(b, "add.bf16 %h0, %h1, %h2;", to_brain(brain(a & 0xffff) + brain(b & 0xffff))) \
	X(b, "cvt.rn.f16.f32 %h0, %r1;", to_half(AF)) \
	X(b, "cvt.rn.bf16.f32 %h0, %r1;", to_brain(AF)) \
	X(f, "cvt.f32.f16 %r0, %h1;", bits(half(a))) \
	X(f, "cvt.f32.bf16 %r0, %h1;", bits(brain(a & 0xffff))) \
	X(b, "cvt.rn.bf16x2.f32 %r4, %r2, %r1; mov.b32 {%h0, %h1}, %r4;", to_brain(AF)) \
	X(b, "cvt.rn.f16x2.f32 %r4, %r2, %r1; mov.b32 {%h1, %h0}, %r4;", to_half(BF)) \
	X(f, "cvt.rn.f32.f64 %r0, %d1;", bits((float)AD)) \
	X(d, "cvt.f64.f32 %d0, %r1;", dbits((double)AF)) \
	X(f, "cvt.rn.f32.s32 %r0, %r1;", bits((float)(int32_t)a)) \
	X(f, "cvt.rn.f32.u64 %r0, %d1;", bits((float)x)) \
	X(d, "cvt.rn.f64.s64 %d0, %d1;", dbits((double)(int64_t)x)) \
	X(u, "cvt.rzi.s32.f32 %r0, %r1;", whole(trunc((double)AF), INT32_MIN, INT32_MAX, 0)) \
	X(u, "cvt.rzi.s32.f64 %r0, %d1;", whole(trunc(AD), INT32_MIN, INT32_MAX, 0x80000000)) \
	X(u, "cvt.rni.s32.f32 %r0, %r1;", whole(rint((double)AF), INT32_MIN, INT32_MAX, 0)) \
	X(u, "cvt.rmi.u32.f32 %r0, %r1;", whole(floor((double)AF), 0, UINT32_MAX, 0)) \
	X(l, "cvt.rpi.s64.f64 %d0, %d1;", whole(ceil(AD), -0x1p63, 0x1p63, 1ull << 63) - (!isnan(AD) && ceil(AD) >= 0x1p63)) \
	X(f, "cvt.rni.f32.f32 %r0, %r1;", bits(rintf(AF))) \
	X(f, "cvt.rpi.f32.f32 %r0, %r1;", bits(ceilf(AF))) \
	X(f, "cvt.ftz.sat.f32.f32 %r0, %r1;", bits(AF > 0 ? zero_small(AF < 1 ? AF : 1) : 0)) \
	X(f, "cvt.rna.tf32.f32 %r0, %r1;", isnan(AF) ? 0x7fffffffu : (a + 0x1000) & ~0x1fffu) \
	X(u, "cvt.s32.s8 %r0, %r1;", (uint32_t)(int8_t)a) \
	X(u, "cvt.u32.u16 %r0, %h1;", a & 0xffff) \
	X(l, "cvt.s64.s16 %d0, %h1;", (uint64_t)(int16_t)a) \
	X(l, "cvt.s64.s32 %d0, %r1;", (uint64_t)(int32_t)a) \
	X(l, "cvt.u64.u32 %d0, %r1;", a) \
	X(u, "cvt.sat.u8.s32 %r0, %r1;", (int32_t)a < 0 ? 0 : a > 255 ? 255 : a) \
	X(u, "mov.b32 {%h1, %h2}, %r1; mov.b32 %r0, {%h2, %h1};", a >> 16 | a << 16) \
	X(u, "mov.b64 {%r4, %r5}, %d2; xor.b32 %r0, %r4, %r5;", b ^ c) \
	X(u, "mov.b32 %r0, 0f3FC00000;", bits(1.5f)) \
	X(d, "mov.b64 %d0, 0dBFF8000000000000;", dbits(-1.5)) \
	X(u, "mov.u32 %r0, 7; @%p1 mov.u32 %r0, 8; @!%p2 add.u32 %r0, %r0, 16;", (a & 1 ? 8u : 7u) + (b & 1 ? 0 : 16))

static const struct {
	char leaves;
	const char *text;
} operations[] = {
#define ROW(leaves, text, expr) { #leaves[0], text },
	OPERATIONS(ROW)
#undef ROW
};
#define COUNT (sizeof operations / sizeof *operations)

static uint64_t wanted(size_t k, uint32_t a, uint32_t b, uint32_t c)
{
	uint64_t x = a | (uint64_t)b << 32, y = b | (uint64_t)c << 32, z = c | (uint64_t)a << 32, r = 0;
	enum { BASE = __COUNTER__ + 1 };

	(void)x, (void)y, (void)z;
	switch (k) {
#define ROW(leaves, text, expr) case __COUNTER__ - BASE: r = (uint64_t)(expr); break;
		OPERATIONS(ROW)
#undef ROW
	}
	char leaves = operations[k].leaves;
	return leaves == 'h' || leaves == 'b' ? r & 0xffff : leaves == 'l' || leaves == 'd' ? r : (uint32_t)r;
}

static bool alike(size_t k, uint64_t got, uint64_t want)
{
	switch (operations[k].leaves) {
	case 'f':
		return got == want || (isnan(fl((uint32_t)got)) && isnan(fl((uint32_t)want)));
	case '~':
		return got == want || (isnan(fl((uint32_t)got)) && isnan(fl((uint32_t)want))) ||
		       fabsf(fl((uint32_t)got) - fl((uint32_t)want)) <= 4e-7f * fabsf(fl((uint32_t)want));
	case 'd':
		return got == want || (isnan(db(got)) && isnan(db(want)));
	case 'b':
		return got == want || ((got & 0x7fff) > 0x7c00 && (want & 0x7fff) > 0x7c00);
	default:
		return got == want;
	}
}

static CUmodule operation_kernels(void)
{
	size_t bytes = 1 << 20, n = 0;
	char *text = malloc(bytes);
	CUmodule m;

	CHECK(text);
	n += (size_t)snprintf(text + n, bytes - n, HEAD);
	for (size_t k = 0; k < COUNT; k++) {
		char leaves = operations[k].leaves;

		n += (size_t)snprintf(text + n, bytes - n,
				      ".visible .entry op%zu(.param .u64 in, .param .u64 out)\n{\n"
				      ".reg .pred %%p<3>, %%q;\n.reg .b16 %%h<4>;\n.reg .b32 %%r<8>;\n.reg .b64 %%d<8>;\n"
				      "ld.param.u64 %%d4, [in];\nld.param.u64 %%d5, [out];\nmov.u32 %%r6, %%tid.x;\n"
				      "mad.wide.u32 %%d4, %%r6, 16, %%d4;\nmad.wide.u32 %%d5, %%r6, 8, %%d5;\n"
				      "ld.global.v2.u32 {%%r1, %%r2}, [%%d4];\nld.global.u32 %%r3, [%%d4+8];\n"
				      "cvt.u16.u32 %%h1, %%r1;\ncvt.u16.u32 %%h2, %%r2;\ncvt.u16.u32 %%h3, %%r3;\n"
				      "mov.b64 %%d1, {%%r1, %%r2};\nmov.b64 %%d2, {%%r2, %%r3};\nmov.b64 %%d3, {%%r3, %%r1};\n"
				      "and.b32 %%r4, %%r1, 1;\nsetp.eq.u32 %%p1, %%r4, 1;\nand.b32 %%r4, %%r2, 1;\nsetp.eq.u32 %%p2, %%r4, 1;\n"
				      "%s\n%s\nst.global.u64 [%%d5], %%d0;\nret;\n}\n",
				      k, operations[k].text,
				      leaves == 'l' || leaves == 'd' ? "" : leaves == 'h' || leaves == 'b' ? "cvt.u64.u16 %d0, %h0;" : "cvt.u64.u32 %d0, %r0;");
		CHECK(n < bytes);
	}
	m = load(text);
	free(text);
	return m;
}

static void each_operation(void)
{
	static const uint32_t whole_numbers[16] = { 0, 1, 2, 3, 31, 32, 33, 0x7fffffff, 0x80000000, 0x80000001, ~0u, ~1u, 0x12345678, 0xdeadbeef, 0x00ff8001, 0x55aa33cc };
	static const uint32_t reals[16] = { 0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x3f801000, 0xc2c83333, 0x7f800000, 0xff800000,
					    0x7fc00000, 0x00000001, 0x80234567, 0x477fefff, 0x3effffff, 0x4f000000, 0x33800001, 0x3f808000 };
	CUmodule m = operation_kernels();
	uint32_t in[2][N][4];
	CUdeviceptr from[2], to = room(8 * N);
	size_t bad = 0;

	for (unsigned i = 0; i < N; i++)
		for (int set = 0; set < 2; set++) {
			const uint32_t *v = set ? reals : whole_numbers;

			in[set][i][0] = v[i % 16];
			in[set][i][1] = v[i / 16];
			in[set][i][2] = v[(7 * i + i / 16 + 3) % 16];
			in[set][i][3] = 0;
		}
	for (int set = 0; set < 2; set++)
		from[set] = copied(in[set], sizeof in[set]);
	for (size_t k = 0; k < COUNT; k++)
		for (int set = 0; set < 2; set++) {
			void *args[] = { &from[set], &to };
			uint64_t got[N];
			char name[32];

			snprintf(name, sizeof name, "op%zu", k);
			run(kernel(m, name), 1, N, 0, args);
			OK(cuMemcpyDtoH(got, to, sizeof got));
			for (int i = 0; i < N; i++) {
				const uint32_t *v = in[set][i];
				uint64_t want = wanted(k, v[0], v[1], v[2]);

				if (alike(k, got[i], want))
					continue;
				fprintf(stderr, "%s of %08x %08x %08x: %llx, not %llx\n", operations[k].text, v[0], v[1], v[2], (unsigned long long)got[i],
					(unsigned long long)want);
				bad++;
				break;
			}
		}
	CHECK(!bad);
}

/* Every number of 16 bits there and back, in all roundings. */
static void halves(void)
{
	CUmodule m = load(HEAD
			  ".visible .entry there(.param .u64 out)\n{\n.reg .b16 %h<8>;\n.reg .b32 %r<8>;\n.reg .b64 %d<3>;\n"
			  "ld.param.u64 %d1, [out];\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\nmad.lo.u32 %r1, %r1, %r2, %r3;\n"
			  "cvt.u16.u32 %h1, %r1;\ncvt.f32.f16 %r4, %h1;\nmul.rn.f32 %r4, %r4, 0f3F802000;\n" /* 1 + 1/1024 */
			  "cvt.rn.f16.f32 %h2, %r4;\ncvt.rz.f16.f32 %h3, %r4;\nmul.wide.u32 %d2, %r1, 8;\nadd.u64 %d1, %d1, %d2;\n"
			  "cvt.f32.bf16 %r5, %h1;\nmul.rn.f32 %r5, %r5, 0f3F804000;\ncvt.rn.bf16.f32 %h4, %r5;\ncvt.rz.bf16.f32 %h5, %r5;\n"
			  "st.global.v4.b16 [%d1], {%h2, %h3, %h4, %h5};\nret;\n}\n");
	static uint16_t got[65536][4];
	CUdeviceptr out = room(sizeof got);
	void *args[] = { &out };

	run(kernel(m, "there"), 256, 256, 0, args);
	OK(cuMemcpyDtoH(got, out, sizeof got));
	for (uint32_t v = 0; v < 65536; v++) {
		float h = half(v) * (1 + 1 / 1024.f), b = brain(v) * (1 + 1 / 512.f);
		uint16_t nearest = (uint16_t)to_half(h), down;

		CHECK(got[v][0] == nearest || isnan(h));
		down = fabsf(half(nearest)) > fabsf(h) ? nearest - 1 : nearest;
		CHECK(got[v][1] == down || isnan(h));
		CHECK(got[v][2] == to_brain(b) || isnan(b));
		CHECK(got[v][3] == bits(b) >> 16 || isnan(b));
	}
}

/* ---- control ---- */
/* Steps of the 3n+1 sequence: lanes leave the loop one by one; then all add up what the others found. */
static void divergence(void)
{
	CUmodule m = load(HEAD
			  ".visible .entry collatz(.param .u64 out, .param .u32 n)\n{\n.reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %d<4>;\n"
			  "ld.param.u64 %d1, [out];\nld.param.u32 %r9, [n];\nmov.u32 %r1, %tid.x;\nsetp.ge.u32 %p3, %r1, %r9;\n@%p3 exit;\n"
			  "add.u32 %r2, %r1, 1;\nmov.u32 %r3, 0;\n"
			  "LOOP:\nsetp.eq.u32 %p1, %r2, 1;\n@%p1 bra DONE;\nadd.u32 %r3, %r3, 1;\nand.b32 %r4, %r2, 1;\nsetp.ne.u32 %p2, %r4, 0;\n@%p2 bra ODD;\n"
			  "shr.u32 %r2, %r2, 1;\nbra.uni LOOP;\nODD:\nmad.lo.u32 %r2, %r2, 3, 1;\nbra LOOP;\n"
			  "DONE:\nactivemask.b32 %r10;\nmov.u32 %r5, %r3;\nmov.u32 %r6, 16;\n"
			  "SUM:\nshfl.sync.bfly.b32 %r7, %r5, %r6, 31, %r10;\nadd.u32 %r5, %r5, %r7;\nshr.u32 %r6, %r6, 1;\nsetp.ne.u32 %p1, %r6, 0;\n@%p1 bra SUM;\n"
			  "mul.wide.u32 %d2, %r1, 12;\nadd.u64 %d1, %d1, %d2;\nst.global.u32 [%d1], %r3;\nst.global.u32 [%d1+4], %r5;\nst.global.u32 [%d1+8], %r10;\nret;\n}\n");
	uint32_t got[96][3], steps[96], n = 64;
	CUdeviceptr out = room(sizeof got);
	void *args[] = { &out, &n };

	run(kernel(m, "collatz"), 1, 96, 0, args);
	OK(cuMemcpyDtoH(got, out, sizeof got));
	for (uint32_t i = 0; i < 96; i++) {
		steps[i] = 0;
		for (uint32_t v = i + 1; v != 1; v = v & 1 ? 3 * v + 1 : v / 2)
			steps[i]++;
		CHECK(got[i][0] == (i < n ? steps[i] : 0));
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t sum = 0;

		for (uint32_t j = i / 32 * 32; j < i / 32 * 32 + 32; j++)
			sum += steps[j];
		CHECK(got[i][1] == sum && got[i][2] == ~0u);
	}
}

/* Sums of blocks: shuffles in a warp, shared memory and a barrier between warps; some threads have left before. */
static void reductions(void)
{
	CUmodule m = load(HEAD
			  ".extern .shared .align 16 .b8 dynamic[];\n"
			  ".visible .entry sums(.param .u64 in, .param .u64 out)\n{\n.reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %d<4>;\n.shared .align 4 .b32 total[32];\n"
			  "ld.param.u64 %d1, [in];\nld.param.u64 %d2, [out];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\n"
			  "mad.lo.u32 %r4, %r2, %r3, %r1;\nmul.wide.u32 %d3, %r4, 4;\nadd.u64 %d1, %d1, %d3;\nld.global.nc.f32 %r5, [%d1];\n"
			  "shfl.sync.down.b32 %r6, %r5, 16, 31, -1;\nadd.f32 %r5, %r5, %r6;\nshfl.sync.down.b32 %r6|%p1, %r5, 8, 31, -1;\nadd.f32 %r5, %r5, %r6;\n"
			  "shfl.sync.down.b32 %r6, %r5, 4, 31, -1;\nadd.f32 %r5, %r5, %r6;\nshfl.sync.down.b32 %r6, %r5, 2, 31, -1;\nadd.f32 %r5, %r5, %r6;\n"
			  "shfl.sync.down.b32 %r6, %r5, 1, 31, -1;\nadd.f32 %r5, %r5, %r6;\n"
			  "shr.u32 %r7, %r1, 5;\nand.b32 %r8, %r1, 31;\nsetp.eq.u32 %p2, %r8, 0;\nmov.u32 %r9, total;\nshl.b32 %r10, %r7, 2;\nadd.u32 %r11, %r9, %r10;\n"
			  "@%p2 st.shared.f32 [%r11], %r5;\nmov.u32 %r12, dynamic;\nadd.u32 %r12, %r12, %r10;\n@%p2 st.shared.u32 [%r12], %r7;\n"
			  "setp.ge.u32 %p3, %r7, 7;\n@%p3 exit;\nbar.sync 0;\nsetp.ne.u32 %p3, %r1, 0;\n@%p3 ret;\n"
			  "mov.u32 %r13, 0;\nmov.f32 %r5, 0f00000000;\nmov.u32 %r12, dynamic;\nmov.u32 %r15, 0;\n"
			  "ADD:\nld.shared.f32 %r6, [%r9];\nadd.f32 %r5, %r5, %r6;\nld.shared.u32 %r14, [%r12];\nadd.u32 %r15, %r15, %r14;\n"
			  "add.u32 %r9, %r9, 4;\nadd.u32 %r12, %r12, 4;\nadd.u32 %r13, %r13, 1;\nsetp.lt.u32 %p3, %r13, 8;\n@%p3 bra ADD;\n"
			  "mul.wide.u32 %d3, %r2, 8;\nadd.u64 %d2, %d2, %d3;\nst.global.v2.f32 [%d2], {%r5, %r15};\nret;\n}\n");
	float in[5][256];
	struct {
		float sum;
		uint32_t warps;
	} got[5];

	for (int i = 0; i < 5 * 256; i++)
		in[i / 256][i % 256] = (float)(i * 37 % 101);
	CUdeviceptr from = copied(in, sizeof in), out = room(sizeof got);
	void *args[] = { &from, &out };
	run(kernel(m, "sums"), 5, 256, 64, args);
	OK(cuMemcpyDtoH(got, out, sizeof got));
	for (int b = 0; b < 5; b++) {
		float sum = 0; /* whole numbers: in any order */

		for (int i = 0; i < 256; i++)
			sum += in[b][i];
		CHECK(got[b].sum == sum && got[b].warps == 28);
	}
}

/* Warps hand a token on through named barriers; every one waits for its neighbour's half. */
static void barriers(void)
{
	CUmodule m = load(HEAD
			  ".visible .entry chain(.param .u64 out)\n{\n.reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %d<4>;\n.shared .align 4 .b32 token;\n"
			  "ld.param.u64 %d1, [out];\nmov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 32;\n@%p1 bra FIRST;\nsetp.ge.u32 %p2, %r1, 64;\n@%p2 bra END;\n"
			  "bar.sync 2, 64;\nbar.sync 1, 64;\nld.shared.u32 %r2, [token];\nmul.wide.u32 %d2, %r1, 4;\nadd.u64 %d1, %d1, %d2;\nst.global.u32 [%d1], %r2;\nbra.uni END;\n"
			  "FIRST:\nsetp.eq.u32 %p2, %r1, 5;\n@%p2 st.shared.u32 [token], 77;\nbar.arrive 1, 64;\nbar.sync 2, 64;\n"
			  "END:\nbar.sync 0;\nld.shared.u32 %r3, [token];\nsetp.eq.u32 %p3, %r1, 63;\n@%p3 st.global.u32 [%d1+4], %r3;\nret;\n}\n");
	uint32_t got[65];
	CUdeviceptr out = room(sizeof got);
	void *args[] = { &out };

	run(kernel(m, "chain"), 1, 96, 0, args); /* the last warp has no part in the one with a number */
	OK(cuMemcpyDtoH(got, out, sizeof got));
	for (int i = 0; i < 65; i++)
		CHECK(got[i] == (i < 32 ? 0 : 77));
}

/* ---- memory ---- */
static void vectors(void)
{
	CUmodule m = load(HEAD
			  ".visible .entry move(.param .u64 in, .param .u64 out)\n{\n.reg .pred %p<2>;\n.reg .b16 %h<5>;\n.reg .b32 %r<8>;\n.reg .b64 %d<8>;\n.local .align 16 .b8 own[32];\n"
			  "ld.param.u64 %d1, [in];\nld.param.u64 %d2, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %d3, %r1, 16;\nadd.u64 %d1, %d1, %d3;\n"
			  "mul.wide.u32 %d3, %r1, 64;\nadd.u64 %d2, %d2, %d3;\ncvta.to.global.u64 %d1, %d1;\n"
			  "createpolicy.fractional.L2::evict_first.b64 %d4, 1.0;\n"
			  "ld.global.L1::evict_last.L2::cache_hint.v4.b32 {%r2, %r3, %r4, %r5}, [%d1], %d4;\nst.global.v4.b32 [%d2], {%r5, %r4, %r3, %r2};\n"
			  "ld.global.v2.b16 {%h1, %h2}, [%d1+4];\nst.global.v2.b16 [%d2+16], {%h2, %h1};\n"
			  "ld.global.s8 %r2, [%d1+3];\nst.global.s32 [%d2+20], %r2;\nld.global.u8 %r2, [%d1+3];\nst.global.u32 [%d2+24], %r2;\n"
			  "ld.global.s16 %r2, [%d1+6];\nst.global.u32 [%d2+28], %r2;\nld.global.s32 %d4, [%d1+4];\nst.global.u64 [%d2+32], %d4;\n"
			  "ld.v2.b8 {%h1, %h2}, [%d1+14];\nst.v2.b8 [%d2+40], {%h2, %h1};\nst.global.b8 [%d2+42], %r4;\n"
			  "mov.b32 %r3, {%h1, %h2};\nst.global.b8 [%d2+43], 0x5a;\n"
			  "mov.u64 %d5, own;\nadd.u64 %d6, %d5, 16;\nst.local.u64 [%d6], %d4;\nst.local.u32 [own+8], %r1;\ncvta.local.u64 %d7, %d5;\nld.u64 %d4, [%d7+16];\nld.local.u32 %r2, [%d5+8];\n"
			  "st.global.u64 [%d2+48], %d4;\nst.global.u32 [%d2+56], %r2;\nret;\n}\n");
	uint8_t in[40][16], got[40][64];

	for (int i = 0; i < 640; i++)
		in[i / 16][i % 16] = (uint8_t)(i * 71 + 5);
	CUdeviceptr from = copied(in, sizeof in), out = room(sizeof got);
	void *args[] = { &from, &out };
	run(kernel(m, "move"), 1, 40, 0, args);
	OK(cuMemcpyDtoH(got, out, sizeof got));
	for (int i = 0; i < 40; i++) {
		uint8_t want[64] = { 0 };
		int32_t v;
		int64_t w;

		for (int k = 0; k < 4; k++)
			memcpy(want + 4 * k, in[i] + 12 - 4 * k, 4);
		memcpy(want + 16, in[i] + 6, 2);
		memcpy(want + 18, in[i] + 4, 2);
		v = (int8_t)in[i][3];
		memcpy(want + 20, &v, 4);
		want[24] = in[i][3];
		v = (int16_t)(in[i][6] | in[i][7] << 8);
		memcpy(want + 28, &v, 4);
		memcpy(&v, in[i] + 4, 4);
		w = v;
		memcpy(want + 32, &w, 8);
		want[40] = in[i][15];
		want[41] = in[i][14];
		want[42] = in[i][8];
		want[43] = 0x5a;
		memcpy(want + 48, &w, 8);
		want[56] = (uint8_t)i;
		CHECK(!memcmp(got[i], want, 64));
	}
}

static void atomics(void)
{
	CUmodule m = load(HEAD
			  ".visible .entry count(.param .u64 out)\n{\n.reg .pred %p<3>;\n.reg .b16 %h<3>;\n.reg .b32 %r<12>;\n.reg .b64 %d<4>;\n.shared .align 8 .b32 here[2];\n"
			  "ld.param.u64 %d1, [out];\nmov.u32 %r1, %tid.x;\nsetp.eq.u32 %p1, %r1, 0;\nmov.u32 %r2, here;\n@%p1 st.shared.v2.u32 [%r2], {%r1, %r1};\nbar.sync 0;\n"
			  "atom.shared.add.u32 %r3, [%r2], 1;\nred.shared.max.u32 [%r2+4], %r1;\nbar.sync 0;\nld.shared.u32 %r4, [%r2];\nld.shared.u32 %r5, [%r2+4];\n"
			  "@%p1 st.global.v2.u32 [%d1], {%r4, %r5};\nmov.f32 %r6, 0f3F000000;\nred.global.gpu.relaxed.add.f32 [%d1+8], %r6;\n"
			  "atom.global.inc.u32 %r7, [%d1+12], 9;\nred.global.add.u64 [%d1+16], %d1;\nmov.u16 %h1, 0x3C00;\natom.global.add.noftz.f16 %h2, [%d1+24], %h1;\n"
			  "red.global.min.s32 [%d1+28], -5;\natom.global.xor.b32 %r8, [%d1+32], %r1;\natom.global.gpu.relaxed.add.v2.f32 {%r9, %r10}, [%d1+40], {%r6, %r6};\n"
			  "AGAIN:\nld.global.u32 %r8, [%d1+48];\nadd.u32 %r9, %r8, 3;\natom.global.cas.b32 %r10, [%d1+48], %r8, %r9;\nsetp.ne.u32 %p2, %r8, %r10;\n@%p2 bra AGAIN;\nret;\n}\n");
	struct {
		uint32_t n, last;
		float sum;
		uint32_t turn;
		uint64_t sum64;
		uint16_t half, pad;
		int32_t least;
		uint32_t parity, pad2;
		float pair[2];
		uint32_t thrice, pad3;
	} got;
	CUdeviceptr out = room(sizeof got);
	void *args[] = { &out };

	run(kernel(m, "count"), 1, 70, 0, args);
	OK(cuMemcpyDtoH(&got, out, sizeof got));
	CHECK(got.n == 70 && got.last == 69 && got.sum == 35 && got.turn == 0 && got.sum64 == 70 * (uint64_t)out);
	CHECK(half(got.half) == 70 && got.least == -5 && got.parity == 1 && got.pair[0] == 35 && got.pair[1] == 35 && got.thrice == 210);
}

/* Votes, matches and sums of a warp, and 8 by 8 matrices of 16 bits. */
static void warps(void)
{
	CUmodule m = load(HEAD
			  ".visible .entry agree(.param .u64 out)\n{\n.reg .pred %p<8>;\n.reg .b32 %r<16>;\n.reg .b64 %d<4>;\n"
			  "ld.param.u64 %d1, [out];\nmov.u32 %r1, %laneid;\nmul.wide.u32 %d2, %r1, 32;\nadd.u64 %d1, %d1, %d2;\nsetp.lt.u32 %p1, %r1, 11;\n"
			  "vote.sync.ballot.b32 %r2, %p1, -1;\nvote.sync.all.pred %p2, %p1, 0x7ff;\nvote.sync.any.pred %p3, !%p1, 0x7ff;\n"
			  "@%p1 bra LOW;\nvote.sync.all.pred %p3, %p1, 0xfffff800;\nLOW:\nselp.u32 %r3, 1, 0, %p2;\nselp.u32 %r4, 2, 0, %p3;\nor.b32 %r3, %r3, %r4;\n"
			  "and.b32 %r5, %r1, 3;\nmatch.any.sync.b32 %r6, %r5, -1;\nredux.sync.add.s32 %r7, %r2, -1;\n"
			  "shfl.sync.up.b32 %r9|%p4, %r1, 3, 0, -1;\nshfl.sync.idx.b32 %r10, %r1, 5, 0x181f, -1;\nselp.u32 %r11, 1, 0, %p4;\n"
			  "mov.u32 %r12, %lanemask_lt;\nst.global.v4.u32 [%d1], {%r2, %r3, %r6, %r7};\nst.global.v4.u32 [%d1+16], {%r9, %r10, %r11, %r12};\nret;\n}\n"
			  ".visible .entry matrix(.param .u64 out)\n{\n.reg .b32 %r<12>;\n.reg .b64 %d<4>;\n.shared .align 16 .b16 square[256];\n"
			  "ld.param.u64 %d1, [out];\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, square;\nshl.b32 %r3, %r1, 4;\nadd.u32 %r3, %r3, %r2;\n"
			  "shl.b32 %r4, %r1, 1;\nshl.b32 %r5, %r4, 16;\nor.b32 %r4, %r4, %r5;\nadd.u32 %r4, %r4, 0x10000;\nadd.u32 %r5, %r4, 0x00400040;\n"
			  "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r3], {%r4, %r5};\nbar.sync 0;\nldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r6, %r7}, [%r3];\n"
			  "ld.shared.u32 %r8, [%r3];\nmul.wide.u32 %d2, %r1, 16;\nadd.u64 %d1, %d1, %d2;\nst.global.v4.u32 [%d1], {%r6, %r7, %r8, %r1};\nret;\n}\n");
	uint32_t got[32][8];
	CUdeviceptr out = room(sizeof got);
	void *args[] = { &out };

	run(kernel(m, "agree"), 1, 32, 0, args);
	OK(cuMemcpyDtoH(got, out, sizeof got));
	for (uint32_t l = 0; l < 32; l++) {
		CHECK(got[l][0] == 0x7ff && got[l][1] == 1 && got[l][2] == 0x11111111u << l % 4 && got[l][3] == 32 * 0x7ff);
		CHECK(got[l][4] == (l < 3 ? l : l - 3) && got[l][5] == (l / 8 * 8 | 5) && got[l][6] == (l >= 3) && got[l][7] == (1u << l) - 1);
	}
	run(kernel(m, "matrix"), 1, 32, 0, args);
	OK(cuMemcpyDtoH(got, out, 512));
	const uint32_t (*quad)[4] = (const void *)got;
	/* Element (r, c) of matrix k is 64k + 8r + c. */
	for (uint32_t l = 0; l < 32; l++)
		for (uint32_t k = 0; k < 2; k++) {
			uint32_t low = 64 * k + 8 * (2 * (l % 4)) + l / 4;

			CHECK(quad[l][k] == (low | (low + 8) << 16) && (l > 15 || quad[l][2] == (8 * l | (8 * l + 1) << 16)));
		}
}

/* ---- modules ---- */
static const char with_variables[] = HEAD
	".visible .global .align 4 .u32 counter = 5;\n.global .align 8 .u64 where = counter;\n.const .align 4 .b8 table[8] = {1, 0, 0, 0, 0xff, 2};\n"
	".func (.param .b32 result) square(.param .b32 value)\n{\n.reg .pred %p<2>;\n.reg .b32 %r<4>;\nld.param.u32 %r1, [value];\nsetp.gt.u32 %p1, %r1, 100;\n@%p1 bra BIG;\n"
	"mul.lo.u32 %r1, %r1, %r1;\nst.param.u32 [result], %r1;\nret;\nBIG:\nst.param.u32 [result], 1;\nret;\n}\n"
	".func bump(.param .b64 where)\n{\n.reg .b64 %d<2>;\nld.param.u64 %d1, [where];\nred.global.add.u32 [%d1], 1;\nret;\n}\n"
	".visible .entry use(.param .u64 .ptr .global .align 1 out, .param .align 8 .b8 both[16], .param .u8 small)\n{\n"
	".reg .pred %p<2>;\n.reg .b16 %h<2>;\n.reg .b32 %r<12>;\n.reg .b64 %d<6>;\n"
	"ld.param.u64 %d1, [out];\nld.param.u32 %r1, [both+4];\nld.param.u64 %d2, [both+8];\nld.param.u8 %h1, [small];\n"
	"ld.global.u32 %r2, [counter];\nld.global.u64 %d3, [where];\nld.global.u32 %r3, [%d3];\nld.const.u32 %r4, [table+4];\nmov.u32 %r5, %tid.x;\n"
	"{ .reg .b32 temp;\n.param .b32 argument;\nst.param.b32 [argument], %r5;\n.param .b32 answer;\ncall.uni (answer), square, (argument);\nld.param.b32 temp, [answer];\nmov.u32 %r6, temp; }\n"
	"setp.lt.u32 %p1, %r5, 2;\n{ .param .b32 argument;\n.param .b32 answer;\nst.param.b32 [argument], 200;\n@%p1 call (answer), square, (argument);\nld.param.b32 %r10, [answer];\nselp.u32 %r7, %r10, 9, %p1; }\n"
	"{ .param .b64 where;\nst.param.b64 [where], %d3;\n@%p1 call bump, (where); }\n"
	"mul.wide.u32 %d4, %r5, 32;\nadd.u64 %d1, %d1, %d4;\ncvt.u32.u16 %r8, %h1;\ncvt.u32.u64 %r9, %d2;\n"
	"st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4};\nst.global.v4.u32 [%d1+16], {%r6, %r7, %r8, %r9};\nret;\n}\n";

static void modules(void)
{
	CUmodule m = load(with_variables);
	struct {
		uint32_t a, b;
		uint64_t c;
	} both = { 1, 22, 33 };
	uint32_t got[3][8], v = 6;
	uint8_t small = 44;
	CUdeviceptr out = room(sizeof got), counter;
	void *args[] = { &out, &both, &small };
	size_t offset, bytes;

	OK(cuModuleGetGlobal(&counter, &bytes, m, "counter"));
	CHECK(bytes == 4);
	OK(cuMemcpyHtoD(counter, &v, 4));
	CUfunction f = kernel(m, "use");
	static const size_t layout[3][2] = { { 0, 8 }, { 8, 16 }, { 24, 1 } };
	for (size_t i = 0; i < 3; i++) {
		OK(cuFuncGetParamInfo(f, i, &offset, &bytes));
		CHECK(offset == layout[i][0] && bytes == layout[i][1]);
	}
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo(f, 3, &offset, &bytes));
	EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&f, m, "square"));
	run(kernel(m, "use"), 1, 3, 0, args);
	OK(cuMemcpyDtoH(got, out, sizeof got));
	for (uint32_t i = 0; i < 3; i++) {
		const uint32_t want[8] = { 22, 6, 6, 0x2ff, i * i, i < 2 ? 1 : 9, 44, 33 };

		CHECK(!memcmp(got[i], want, sizeof want));
	}
	OK(cuMemcpyDtoH(&v, counter, 4));
	CHECK(v == 8);
	OK(cuModuleUnload(m));
	EXPECT(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&m, HEAD "something else"));
}

/* The stand-in for the vendor's assembler, and a file of a page's size exactly: nothing ends the text there. */
static void assembled(void)
{
	char path[4096], command[9000], *text = malloc(8192);
	CUmodule m;
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 32);

	CHECK(n > 0 && text);
	path[n] = 0;
	*strrchr(path, '/') = 0;
	char folder[] = "/tmp/simgpu-ptx-XXXXXX";
	CHECK(mkdtemp(folder));
	snprintf(command, sizeof command, "cd %s && cat >k.ptx && %s/lib/ptxas -lineinfo -v --gpu-name=sm_90a k.ptx -o k.cubin", folder, path);
	FILE *p = popen(command, "we");
	CHECK(p && fputs(with_variables, p) >= 0 && pclose(p) == 0);
	snprintf(command, sizeof command, "%s/k.cubin", folder);
	OK(cuModuleLoad(&m, command));
	kernel(m, "use");
	memset(text, ' ', 8192);
	memcpy(text, with_variables, sizeof with_variables - 1);
	snprintf(command, sizeof command, "%s/page.ptx", folder);
	p = fopen(command, "we");
	CHECK(p && fwrite(text, 1, 4096, p) && sizeof with_variables < 4096 && !fclose(p));
	OK(cuModuleLoad(&m, command));
	kernel(m, "use");
	snprintf(command, sizeof command, "rm -r %s", folder);
	CHECK(!system(command));
	free(text);
}

/* The driver's linker: a kernel and the function and variable that it has from another text. */
static const char caller[] = HEAD
	".extern .global .align 4 .u32 more;\n.extern .func (.param .b32 result) twice(.param .b32 value);\n"
	".visible .entry both(.param .u64 out)\n{\n.reg .b32 %r<4>;\n.reg .b64 %d<2>;\nld.param.u64 %d1, [out];\nld.global.u32 %r1, [more];\n"
	"{ .param .b32 value;\n.param .b32 result;\nst.param.b32 [value], %r1;\ncall.uni (result), twice, (value);\nld.param.b32 %r2, [result]; }\n"
	"st.global.u32 [%d1], %r2;\nret;\n}\n";
static const char called[] = HEAD
	".visible .global .align 4 .u32 more = 21;\n.visible .func (.param .b32 result) twice(.param .b32 value)\n{\n.reg .b32 %r<2>;\n"
	"ld.param.u32 %r1, [value];\nadd.u32 %r1, %r1, %r1;\nst.param.b32 [result], %r1;\nret;\n}\n";

static void linked(void)
{
	char said[64] = "x";
	CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
	void *values[] = { said, (void *)sizeof said }, *cubin;
	CUdeviceptr out = room(4);
	CUlinkState link;
	CUmodule m;
	uint32_t got;
	size_t bytes;
	void *args[] = { &out };

	OK(cuLinkCreate(2, options, values, &link));
	EXPECT(CUDA_ERROR_NO_BINARY_FOR_GPU, cuLinkComplete(link, &cubin, &bytes));
	EXPECT(CUDA_ERROR_INVALID_PTX, cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)"nonsense", 9, "bad", 0, NULL, NULL));
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)caller, sizeof caller, "caller", 0, NULL, NULL));
	OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)called, sizeof called, "called", 0, NULL, NULL));
	OK(cuLinkComplete(link, &cubin, &bytes));
	CHECK(!*said && !values[1]);
	char *copy = malloc(bytes);
	CHECK(copy);
	memcpy(copy, cubin, bytes);
	OK(cuLinkDestroy(link));
	OK(cuModuleLoadData(&m, copy));
	free(copy);
	run(kernel(m, "both"), 1, 1, 0, args);
	OK(cuMemcpyDtoH(&got, out, sizeof got));
	CHECK(got == 42);
	OK(cuModuleUnload(m));
}

/* ---- faults, each in a process of its own ---- */
static const struct {
	const char *text;
	CUresult result;
	const char *says;
} faults[] = {
	{ "st.global.u32 [%d1+1], %r1;", CUDA_ERROR_ILLEGAL_ADDRESS, NULL },
	{ "mov.u64 %d1, 64;\nst.global.u32 [%d1], %r1;", CUDA_ERROR_ILLEGAL_ADDRESS, NULL },
	{ ".shared .align 4 .b32 s[8];\nmov.u32 %r2, s;\nld.shared.u32 %r1, [%r2+128];", CUDA_ERROR_ILLEGAL_ADDRESS, NULL },
	{ "trap;", CUDA_ERROR_ILLEGAL_INSTRUCTION, NULL },
	{ "setp.eq.u32 %p1, %r1, 0;\n@%p1 bra MISS;\nbar.sync 0;\nbra.uni END;\nMISS:\nbar.sync 1;\nEND:\n", CUDA_ERROR_LAUNCH_TIMEOUT, NULL },
	{ "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra MISS;\nshfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\nbra.uni END;\nMISS:\nbar.sync 0;\nEND:\n", CUDA_ERROR_LAUNCH_TIMEOUT, NULL },
	{ "wgmma.fence.sync.aligned;", CUDA_ERROR_ILLEGAL_INSTRUCTION, "simgpu: kernel f has an instruction that is not known here: wgmma.fence.sync.aligned;\n" },
	{ "add.rn.oddly.f32 %r1, %r1, %r1;", CUDA_ERROR_ILLEGAL_INSTRUCTION, "simgpu: kernel f has an instruction that is not known here: add.rn.oddly.f32 %r1, %r1, %r1;\n" },
	{ "{ .param .b64 m;\n.param .b64 f;\n.param .b32 l;\n.param .b64 n;\n.param .b64 c;\nmov.u64 %d2, text;\nst.param.b64 [m], %d2;\nst.param.b64 [f], %d2;\n"
	  "st.param.b32 [l], 12;\nst.param.b64 [n], %d2;\nst.param.b64 [c], 1;\ncall.uni __assertfail, (m, f, l, n, c); }", CUDA_ERROR_ASSERT, "no:12: no: Assertion `no` failed.\n" },
};

static void fault(size_t k)
{
	char text[4096];
	CUdeviceptr out;

	device_start();
	out = room(64);
	void *args[] = { &out };
	snprintf(text, sizeof text, HEAD ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n.global .b8 text[3] = {110, 111};\n"
		 ".visible .entry f(.param .u64 out)\n{\n.reg .pred %%p<2>;\n.reg .b32 %%r<4>;\n.reg .b64 %%d<4>;\nld.param.u64 %%d1, [out];\nmov.u32 %%r1, %%tid.x;\n%s\nret;\n}\n", faults[k].text);
	OK(cuLaunchKernel(kernel(load(text), "f"), 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
	EXPECT(faults[k].result, cuCtxSynchronize());
}

static void each_fault(void)
{
	for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
		char said[1024] = "";
		int pipes[2], status;
		ssize_t n;

		CHECK(!pipe(pipes));
		pid_t child = fork();
		if (child == 0) {
			dup2(pipes[1], 2);
			close(pipes[0]);
			close(pipes[1]);
			fault(k);
			exit(0);
		}
		close(pipes[1]);
		for (size_t used = 0; used + 1 < sizeof said && (n = read(pipes[0], said + used, sizeof said - 1 - used)) > 0;)
			used += (size_t)n;
		close(pipes[0]);
		CHECK(waitpid(child, &status, 0) == child);
		if (status || strcmp(said, faults[k].says ? faults[k].says : "")) {
			fprintf(stderr, "%s: %s\n", faults[k].text, said);
			exit(1);
		}
	}
}

int main(void)
{
	each_fault();
	device_start();
	each_operation();
	halves();
	divergence();
	reductions();
	barriers();
	vectors();
	atomics();
	warps();
	modules();
	assembled();
	linked();
	return 0;
}
