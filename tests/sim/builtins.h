/* SPDX-License-Identifier: Apache-2.0 */
/* What nvcc predefines in a CUDA source, for both halves of simnvcc's output: markers, built-in variables, atomics, intrinsics. */
#ifndef TESTS_SIM_BUILTINS_H
#define TESTS_SIM_BUILTINS_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef __global__
#undef __device__
#undef __shared__
#undef __constant__
#undef __host__
#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__
#undef __managed__
#undef __grid_constant__
#undef __maxnreg__
#define __global__ __simgpu_global__
#define __device__ __simgpu_device__
#define __shared__ __simgpu_shared__
#define __constant__ __simgpu_constant__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __forceinline__ inline

extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, struct CUstream_st *stream = 0);
extern "C" cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
extern "C" cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *entry);
extern "C" cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);
extern "C" cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);

template <class T> static inline void *simgpu_address(T &v)
{
	return (void *)__builtin_addressof(v);
}

static inline __attribute__((unused)) void simgpu_launch_stub(cudaKernel_t kernel, void **args)
{
	dim3 grid, block;
	size_t shared;
	cudaStream_t stream;
	if (__cudaPopCallConfiguration(&grid, &block, &shared, &stream) != cudaSuccess)
		return;
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
	(void)__cudaLaunchKernel_ptsz(kernel, grid, block, args, shared, stream);
#else
	(void)__cudaLaunchKernel(kernel, grid, block, args, shared, stream);
#endif
}

/* The symbol templates that cuda_runtime.h offers under nvcc only. */
template <class T> static inline cudaError_t cudaMemcpyToSymbol(const T &symbol, const void *src, size_t count, size_t offset = 0, enum cudaMemcpyKind kind = cudaMemcpyHostToDevice)
{
	return ::cudaMemcpyToSymbol((const void *)&symbol, src, count, offset, kind);
}
template <class T> static inline cudaError_t cudaMemcpyToSymbolAsync(const T &symbol, const void *src, size_t count, size_t offset = 0, enum cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t stream = 0)
{
	return ::cudaMemcpyToSymbolAsync((const void *)&symbol, src, count, offset, kind, stream);
}
template <class T> static inline cudaError_t cudaMemcpyFromSymbol(void *dst, const T &symbol, size_t count, size_t offset = 0, enum cudaMemcpyKind kind = cudaMemcpyDeviceToHost)
{
	return ::cudaMemcpyFromSymbol(dst, (const void *)&symbol, count, offset, kind);
}
template <class T> static inline cudaError_t cudaMemcpyFromSymbolAsync(void *dst, const T &symbol, size_t count, size_t offset = 0, enum cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t stream = 0)
{
	return ::cudaMemcpyFromSymbolAsync(dst, (const void *)&symbol, count, offset, kind, stream);
}
template <class T> static inline cudaError_t cudaGetSymbolAddress(void **address, const T &symbol)
{
	return ::cudaGetSymbolAddress(address, (const void *)&symbol);
}
template <class T> static inline cudaError_t cudaGetSymbolSize(size_t *size, const T &symbol)
{
	return ::cudaGetSymbolSize(size, (const void *)&symbol);
}

/* The device process defines this, one for each of its threads; fibers of a block share it. */
struct simgpu_thread_state {
	uint3 thread;
	uint3 block;
	dim3 block_dim;
	dim3 grid_dim;
	const char *parameters;
	void *dynamic_shared;
	unsigned lane;
};
#ifdef __SIMGPU_DEVICE__
extern "C" __thread struct simgpu_thread_state simgpu_state;
extern "C" void simgpu_block_barrier(void);
extern "C" int simgpu_block_reduce(int value, int kind);
extern "C" void simgpu_warp_barrier(unsigned mask);
extern "C" uint64_t simgpu_warp_exchange(unsigned mask, uint64_t value, int source);
extern "C" unsigned simgpu_warp_ballot(unsigned mask, int value);
extern "C" void simgpu_trap(const char *what);
#else
static __attribute__((unused)) struct simgpu_thread_state simgpu_state;
static inline void simgpu_block_barrier(void) {}
static inline int simgpu_block_reduce(int value, int) { return value; }
static inline void simgpu_warp_barrier(unsigned) {}
static inline uint64_t simgpu_warp_exchange(unsigned, uint64_t value, int) { return value; }
static inline unsigned simgpu_warp_ballot(unsigned, int) { return 0; }
static inline void simgpu_trap(const char *) {}
#endif

namespace simgpu {
constexpr unsigned long align_up(unsigned long n, unsigned long a) { return (n + a - 1) / a * a; }
static inline const char *parameters() { return simgpu_state.parameters; }
}
static inline void *simgpu_dynamic_shared() { return simgpu_state.dynamic_shared; }

#define threadIdx (simgpu_state.thread)
#define blockIdx (simgpu_state.block)
#define blockDim (simgpu_state.block_dim)
#define gridDim (simgpu_state.grid_dim)
static const int warpSize = 32;

static inline void __syncthreads() { simgpu_block_barrier(); }
static inline int __syncthreads_count(int p) { return simgpu_block_reduce(p != 0, 0); }
static inline int __syncthreads_or(int p) { return simgpu_block_reduce(p != 0, 0) != 0; }
static inline int __syncthreads_and(int p) { return simgpu_block_reduce(p == 0, 0) == 0; }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { simgpu_warp_barrier(mask); }
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() {}
static inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline unsigned __activemask() { return 0xffffffffu; }
static inline void __trap() { simgpu_trap("trap"); }
static inline void __nanosleep(unsigned) {}

namespace simgpu {
static inline int laneid() { return (int)simgpu_state.lane; }
template <class T> static inline T exchange(unsigned mask, T value, int source)
{
	uint64_t bits = 0;
	static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
	memcpy(&bits, &value, sizeof value);
	bits = simgpu_warp_exchange(mask, bits, source);
	memcpy(&value, &bits, sizeof value);
	return value;
}
}
template <class T> static inline T __shfl_sync(unsigned mask, T v, int source, int width = 32)
{
	int lane = simgpu::laneid();
	return simgpu::exchange(mask, v, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32)
{
	int lane = simgpu::laneid(), s = lane ^ bits;
	return simgpu::exchange(mask, v, s / width > lane / width ? lane : s);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32)
{
	int lane = simgpu::laneid(), s = lane + (int)delta;
	return simgpu::exchange(mask, v, s / width != lane / width ? lane : s);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32)
{
	int lane = simgpu::laneid(), s = lane - (int)delta;
	return simgpu::exchange(mask, v, s < lane / width * width ? lane : s);
}
static inline unsigned __ballot_sync(unsigned mask, int p) { return simgpu_warp_ballot(mask, p != 0); }
static inline int __any_sync(unsigned mask, int p) { return simgpu_warp_ballot(mask, p != 0) != 0; }
static inline int __all_sync(unsigned mask, int p) { return simgpu_warp_ballot(mask, p == 0) == 0; }
template <class T> static inline T simgpu_warp_reduce_add(unsigned mask, T v)
{
	for (int s = 16; s; s >>= 1)
		v += __shfl_xor_sync(mask, v, s);
	return v;
}
static inline int __reduce_add_sync(unsigned mask, int v) { return simgpu_warp_reduce_add(mask, v); }
static inline unsigned __reduce_add_sync(unsigned mask, unsigned v) { return simgpu_warp_reduce_add(mask, v); }

/* Kernels may run beside the host's accesses to mapped memory, so these are real atomics. */
#define SIMGPU_ATOMIC_INT(T) \
	static inline T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); } \
	static inline T atomicSub(T *p, T v) { return __atomic_fetch_sub(p, v, __ATOMIC_RELAXED); } \
	static inline T atomicAnd(T *p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_RELAXED); } \
	static inline T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_RELAXED); } \
	static inline T atomicXor(T *p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED); } \
	static inline T atomicExch(T *p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_RELAXED); } \
	static inline T atomicCAS(T *p, T c, T v) \
	{ \
		__atomic_compare_exchange_n(p, &c, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
		return c; \
	} \
	static inline T atomicMax(T *p, T v) \
	{ \
		T o = __atomic_load_n(p, __ATOMIC_RELAXED); \
		while (o < v && !__atomic_compare_exchange_n(p, &o, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
		} \
		return o; \
	} \
	static inline T atomicMin(T *p, T v) \
	{ \
		T o = __atomic_load_n(p, __ATOMIC_RELAXED); \
		while (v < o && !__atomic_compare_exchange_n(p, &o, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) { \
		} \
		return o; \
	}
SIMGPU_ATOMIC_INT(int)
SIMGPU_ATOMIC_INT(unsigned)
SIMGPU_ATOMIC_INT(long)
SIMGPU_ATOMIC_INT(unsigned long)
SIMGPU_ATOMIC_INT(long long)
SIMGPU_ATOMIC_INT(unsigned long long)
template <class F, class U> static inline F simgpu_atomic_add_float(F *p, F v)
{
	U o = __atomic_load_n((U *)p, __ATOMIC_RELAXED), n;
	F f;
	do {
		memcpy(&f, &o, sizeof f);
		F sum = f + v;
		memcpy(&n, &sum, sizeof n);
	} while (!__atomic_compare_exchange_n((U *)p, &o, n, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return f;
}
static inline float atomicAdd(float *p, float v) { return simgpu_atomic_add_float<float, uint32_t>(p, v); }
static inline double atomicAdd(double *p, double v) { return simgpu_atomic_add_float<double, uint64_t>(p, v); }
static inline float atomicExch(float *p, float v)
{
	uint32_t b;
	memcpy(&b, &v, 4);
	b = __atomic_exchange_n((uint32_t *)p, b, __ATOMIC_RELAXED);
	memcpy(&v, &b, 4);
	return v;
}
static inline unsigned atomicInc(unsigned *p, unsigned limit)
{
	unsigned o = __atomic_load_n(p, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(p, &o, o >= limit ? 0 : o + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
	}
	return o;
}

/* Integer and floating point intrinsics. */
#define SIMGPU_MINMAX(T) \
	static inline T min(T a, T b) { return b < a ? b : a; } \
	static inline T max(T a, T b) { return a < b ? b : a; }
SIMGPU_MINMAX(int)
SIMGPU_MINMAX(unsigned)
SIMGPU_MINMAX(long)
SIMGPU_MINMAX(unsigned long)
SIMGPU_MINMAX(long long)
SIMGPU_MINMAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
/* glibc declares some of these names for itself, so macros. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __exp10f(x) exp10f(x)
static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __saturatef(float a) { return a < 0 ? 0 : a > 1 ? 1 : a; }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline unsigned __float2uint_rn(float x) { return (unsigned)rintf(x); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline int __float_as_int(float x) { int v; memcpy(&v, &x, 4); return v; }
static inline unsigned __float_as_uint(float x) { unsigned v; memcpy(&v, &x, 4); return v; }
static inline float __int_as_float(int x) { float v; memcpy(&v, &x, 4); return v; }
static inline float __uint_as_float(unsigned x) { float v; memcpy(&v, &x, 4); return v; }
static inline long long __double_as_longlong(double x) { long long v; memcpy(&v, &x, 8); return v; }
static inline double __longlong_as_double(long long x) { double v; memcpy(&v, &x, 8); return v; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((uint64_t)a * b) >> 32); }
static inline int __mulhi(int a, int b) { return (int)(((int64_t)a * b) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)(((unsigned __int128)a * b) >> 64); }
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned s) { s &= 31; return s ? (hi << s) | (lo >> (32 - s)) : hi; }
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned s) { s &= 31; return s ? (lo >> s) | (hi << (32 - s)) : lo; }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s)
{
	uint64_t v = ((uint64_t)b << 32) | a;
	unsigned r = 0;
	for (int i = 0; i < 4; i++)
		r |= (unsigned)((v >> (((s >> (4 * i)) & 7) * 8)) & 0xff) << (8 * i);
	return r;
}
static inline unsigned __brev(unsigned x)
{
	unsigned r = 0;
	for (int i = 0; i < 32; i++)
		r |= ((x >> i) & 1) << (31 - i);
	return r;
}
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }
template <class T> static inline void __stcg(T *p, T v) { *p = v; }
static inline long long clock64() { return 0; }

#ifdef __SIMGPU_DEVICE__
#undef assert
#define assert(x) ((x) ? (void)0 : simgpu_trap("assert"))
#endif

#endif
