/* SPDX-License-Identifier: Apache-2.0 */
/* needs: cores=0.8 about=3s */
/*
 * Collectives and transfers against arithmetic done here: ranks as processes, in one process and on nodes of their own, groups,
 * graphs, and a rank that dies.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "check.h"
#include "standin/nccl.h"

#define NCCL(call) \
	do { \
		ncclResult_t got_ = (call); \
		if (got_ != ncclSuccess) { \
			fprintf(stderr, "%s:%d: %s gave %s: %s\n", __FILE__, __LINE__, #call, ncclGetErrorString(got_), ncclGetLastError(NULL)); \
			exit(1); \
		} \
	} while (0)

#define MOST 50000 /* elements: more than the ranks have on the way at a time */
#define BYTES (8ull * MOST * 3)

static int ranks;
static ncclUniqueId id;

/* ---- numbers ---- */
static const size_t size_of[ncclNumTypes] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 };

static double e4m3(int b)
{
	double m = (b >> 3 & 15) ? 8 + (b & 7) : b & 7;

	return (b & 0x7f) == 0x7f ? NAN : (b & 0x80 ? -1 : 1) * ldexp(m, ((b >> 3 & 15) ? (b >> 3 & 15) : 1) - 10);
}

static double e5m2(int b)
{
	double m = (b >> 2 & 31) ? 4 + (b & 3) : b & 3;

	return (b & 0x7c) == 0x7c ? NAN : (b & 0x80 ? -1 : 1) * ldexp(m, ((b >> 2 & 31) ? (b >> 2 & 31) : 1) - 17);
}

/* The nearest of all 256, the even one of two. */
static int nearest(double x, double (*value)(int))
{
	int best = -1;

	for (int b = 0; b < 256; b++) {
		if (isnan(value(b)) || (signbit(x) != 0) != (b >= 128))
			continue;
		double d = fabs(value(b) - x), was = best < 0 ? INFINITY : fabs(value(best) - x);
		if (d < was || (d == was && !(b & 1)))
			best = b;
	}
	return best;
}

static uint16_t bf16(double x)
{
	float f = (float)x, low, high;
	uint32_t u, a, b;

	memcpy(&u, &f, 4);
	a = u & 0xffff0000;
	b = a + 0x10000;
	memcpy(&low, &a, 4);
	memcpy(&high, &b, 4);
	double dl = fabs((double)f - low), dh = fabs((double)high - f);
	return (uint16_t)((dl < dh || (dl == dh && !(a >> 16 & 1)) ? a : b) >> 16);
}

static double get(const void *p, size_t i, ncclDataType_t t)
{
	switch (t) {
	case ncclInt8: return ((const int8_t *)p)[i];
	case ncclUint8: return ((const uint8_t *)p)[i];
	case ncclInt32: return ((const int32_t *)p)[i];
	case ncclUint32: return ((const uint32_t *)p)[i];
	case ncclInt64: return (double)((const int64_t *)p)[i];
	case ncclUint64: return (double)((const uint64_t *)p)[i];
	case ncclFloat16: return (double)((const _Float16 *)p)[i];
	case ncclFloat32: return ((const float *)p)[i];
	case ncclFloat64: return ((const double *)p)[i];
	case ncclFloat8e4m3: return e4m3(((const uint8_t *)p)[i]);
	case ncclFloat8e5m2: return e5m2(((const uint8_t *)p)[i]);
	default: {
		uint32_t u = (uint32_t)((const uint16_t *)p)[i] << 16;
		float f;

		memcpy(&f, &u, 4);
		return f;
	}
	}
}

static void set(void *p, size_t i, ncclDataType_t t, double x)
{
	switch (t) {
	case ncclInt8: ((int8_t *)p)[i] = (int8_t)x; break;
	case ncclUint8: ((uint8_t *)p)[i] = (uint8_t)x; break;
	case ncclInt32: ((int32_t *)p)[i] = (int32_t)x; break;
	case ncclUint32: ((uint32_t *)p)[i] = (uint32_t)x; break;
	case ncclInt64: ((int64_t *)p)[i] = (int64_t)x; break;
	case ncclUint64: ((uint64_t *)p)[i] = (uint64_t)x; break;
	case ncclFloat16: ((_Float16 *)p)[i] = (_Float16)(float)x; break;
	case ncclFloat32: ((float *)p)[i] = (float)x; break;
	case ncclFloat64: ((double *)p)[i] = x; break;
	case ncclFloat8e4m3: ((uint8_t *)p)[i] = (uint8_t)nearest(x, e4m3); break;
	case ncclFloat8e5m2: ((uint8_t *)p)[i] = (uint8_t)nearest(x, e5m2); break;
	default: ((uint16_t *)p)[i] = bf16(x); break;
	}
}

/* Integers are small enough for any sum, product and average of three ranks; the rest has to be rounded on its way. */
static void input(void *p, size_t n, ncclDataType_t t, int rank, int salt)
{
	for (size_t i = 0; i < n; i++) {
		int k = (int)((i * 7 + (size_t)rank * 5 + (size_t)salt) % 5);

		set(p, i, t, t >= ncclFloat16 && t <= ncclBfloat16 ? (k - 1.7) * (1 + rank / 3.0) + (double)(i % 97) / 7 :
			     t == ncclInt8 || t == ncclInt32 || t == ncclInt64 ? k - 2 : k);
	}
}

/* Adds up in order of rank; with a scale each is multiplied first. The type's own rounding at each step. */
static void reference(void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, double scale, int salt, size_t from)
{
	char *in = malloc((from + n) * 8), *acc = calloc(n, 8);
	bool whole = t <= ncclUint64, average = op == ncclAvg;

	if (average && !whole) {
		char share[8];
		set(share, 0, t, 1.0 / ranks);
		scale = get(share, 0, t);
	}
	for (int r = 0; r < ranks; r++) {
		input(in, from + n, t, r, salt);
		for (size_t i = 0; i < n; i++) {
			double v = get(in, from + i, t), a = get(acc, i, t);

			if (op >= ncclNumOps || (average && !whole)) {
				set(in, 0, t, t == ncclFloat64 ? v * scale : (double)((float)v * (float)scale));
				v = get(in, 0, t);
				input(in, 1, t, r, salt);
			}
			set(acc, i, t, !r ? v : op == ncclProd ? a * v : op == ncclMax ? fmax(a, v) : op == ncclMin ? fmin(a, v) :
				       t == ncclFloat64 ? a + v : whole ? a + v : (double)((float)a + (float)v));
		}
	}
	for (size_t i = 0; i < n && average && whole; i++)
		set(acc, i, t, (double)((int64_t)get(acc, i, t) / ranks));
	memcpy(out, acc, n * size_of[t]);
	free(in);
	free(acc);
}

/* ---- one rank ---- */
struct rank {
	int rank;
	ncclComm_t comm;
	CUstream stream;
	CUdeviceptr a, b;
	char *host, *want;
};

static void begin(struct rank *r)
{
	OK(cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING));
	OK(cuMemAlloc(&r->a, BYTES));
	OK(cuMemAlloc(&r->b, BYTES));
	r->host = malloc(BYTES);
	r->want = malloc(BYTES);
}

static void *at(CUdeviceptr p, size_t offset)
{
	return (void *)(uintptr_t)(p + offset);
}

static void upload(struct rank *r, size_t n, ncclDataType_t t, int salt)
{
	input(r->host, n, t, r->rank, salt);
	OK(cuMemcpyHtoDAsync(r->a, r->host, n * size_of[t], r->stream));
	OK(cuMemsetD8Async(r->b, 0xee, n * size_of[t] + 64, r->stream));
}

static void expect(struct rank *r, CUdeviceptr p, size_t bytes, const char *what, int type, int op)
{
	OK(cuMemcpyDtoHAsync(r->host, p, bytes, r->stream));
	OK(cuStreamSynchronize(r->stream));
	if (!memcmp(r->host, r->want, bytes))
		return;
	for (size_t i = 0; i < bytes; i++)
		if (r->host[i] != r->want[i]) {
			fprintf(stderr, "rank %d of %d: %s, type %d, operation %d: byte %zu is %02x, not %02x\n", r->rank, ranks, what, type, op, i,
				(unsigned char)r->host[i], (unsigned char)r->want[i]);
			exit(1);
		}
}

static void reductions(struct rank *r, size_t n, ncclDataType_t t, ncclRedOp_t op)
{
	size_t b = size_of[t];
	int root = ranks - 1, salt = (int)op + (int)t;

	upload(r, n, t, salt);
	NCCL(ncclAllReduce(at(r->a, 0), at(r->b, 0), n, t, op, r->comm, r->stream));
	reference(r->want, n, t, op, 0, salt, 0);
	memset(r->want + n * b, 0xee, 64);
	expect(r, r->b, n * b + 64, "AllReduce", t, op);
	NCCL(ncclAllReduce(at(r->a, 0), at(r->a, 0), n, t, op, r->comm, r->stream));
	expect(r, r->a, n * b, "AllReduce in place", t, op);
	upload(r, n, t, salt);
	NCCL(ncclReduce(at(r->a, 0), at(r->b, 0), n, t, op, root, r->comm, r->stream));
	if (r->rank != root)
		memset(r->want, 0xee, n * b);
	expect(r, r->b, n * b, "Reduce", t, op);

	upload(r, n * (size_t)ranks, t, salt);
	NCCL(ncclReduceScatter(at(r->a, 0), at(r->b, 0), n, t, op, r->comm, r->stream));
	reference(r->want, n, t, op, 0, salt, n * (size_t)r->rank);
	expect(r, r->b, n * b, "ReduceScatter", t, op);
	NCCL(ncclReduceScatter(at(r->a, 0), at(r->a, n * b * (size_t)r->rank), n, t, op, r->comm, r->stream));
	expect(r, r->a + n * b * (size_t)r->rank, n * b, "ReduceScatter in place", t, op);
}

static void premultiplied(struct rank *r, ncclDataType_t t)
{
	char scale[8] = "";
	ncclRedOp_t op[2];
	CUdeviceptr p;

	set(scale, 0, t, t <= ncclUint64 ? 3 : 0.3);
	OK(cuMemAlloc(&p, 8));
	OK(cuMemcpyHtoD(p, scale, 8));
	NCCL(ncclRedOpCreatePreMulSum(&op[0], scale, t, ncclScalarHostImmediate, r->comm));
	NCCL(ncclRedOpCreatePreMulSum(&op[1], at(p, 0), t, ncclScalarDevice, r->comm));
	for (int i = 0; i < 2; i++) {
		upload(r, 500, t, 3);
		NCCL(ncclAllReduce(at(r->a, 0), at(r->b, 0), 500, t, op[i], r->comm, r->stream));
		reference(r->want, 500, t, op[i], get(scale, 0, t), 3, 0);
		expect(r, r->b, 500 * size_of[t], "PreMulSum", t, op[i]);
		NCCL(ncclRedOpDestroy(op[i], r->comm));
	}
	CHECK(ncclAllReduce(at(r->a, 0), at(r->b, 0), 1, t, op[0], r->comm, r->stream) == ncclInvalidArgument);
	OK(cuMemFree(p));
}

static void movements(struct rank *r, size_t n, ncclDataType_t t)
{
	size_t b = n * size_of[t];

	for (int root = 0; root < ranks; root++) {
		upload(r, n, t, 1);
		NCCL(ncclBroadcast(at(r->a, 0), at(r->b, 0), n, t, root, r->comm, r->stream));
		input(r->want, n, t, root, 1);
		expect(r, r->b, b, "Broadcast", t, root);
		NCCL(ncclBcast(at(r->a, 0), n, t, root, r->comm, r->stream));
		expect(r, r->a, b, "Bcast", t, root);
	}
	upload(r, n, t, 2);
	NCCL(ncclAllGather(at(r->a, 0), at(r->b, 0), n, t, r->comm, r->stream));
	for (int i = 0; i < ranks; i++)
		input(r->want + (size_t)i * b, n, t, i, 2);
	expect(r, r->b, (size_t)ranks * b, "AllGather", t, 0);
	OK(cuMemcpyDtoDAsync(r->b + (size_t)r->rank * b, r->a, b, r->stream));
	NCCL(ncclAllGather(at(r->b, (size_t)r->rank * b), at(r->b, 0), n, t, r->comm, r->stream));
	expect(r, r->b, (size_t)ranks * b, "AllGather in place", t, 0);
	NCCL(ncclGather(at(r->a, 0), at(r->b, 0), n, t, 0, r->comm, r->stream));
	expect(r, r->b, (size_t)ranks * b, "Gather", t, 0);

	upload(r, n * (size_t)ranks, t, 4);
	NCCL(ncclAlltoAll(at(r->a, 0), at(r->b, 0), n, t, r->comm, r->stream));
	for (int i = 0; i < ranks; i++) {
		input(r->host, n * (size_t)ranks, t, i, 4);
		memcpy(r->want + (size_t)i * b, r->host + (size_t)r->rank * b, b);
	}
	expect(r, r->b, (size_t)ranks * b, "AlltoAll", t, 0);
	NCCL(ncclScatter(at(r->a, 0), at(r->b, 0), n, t, 0, r->comm, r->stream));
	memcpy(r->want + b, r->want, b);
	input(r->host, n * (size_t)ranks, t, 0, 4);
	memcpy(r->want, r->host + (size_t)r->rank * b, b);
	expect(r, r->b, b, "Scatter", t, 0);
}

/* Two messages to the next rank and one to the one before, received in the other order of peers; with two ranks both are one peer. */
static void transfers(struct rank *r)
{
	int next = (r->rank + 1) % ranks, before = (r->rank + ranks - 1) % ranks;
	size_t n = MOST;

	upload(r, n * 3, ncclFloat32, 6);
	NCCL(ncclGroupStart());
	NCCL(ncclSend(at(r->a, 0), n, ncclFloat32, next, r->comm, r->stream));
	NCCL(ncclSend(at(r->a, 4 * n), 17, ncclFloat32, next, r->comm, r->stream));
	NCCL(ncclSend(at(r->a, 8 * n), 5, ncclFloat32, before, r->comm, r->stream));
	if (ranks > 2)
		NCCL(ncclRecv(at(r->b, 8 * n), 5, ncclFloat32, next, r->comm, r->stream));
	NCCL(ncclRecv(at(r->b, 0), n, ncclFloat32, before, r->comm, r->stream));
	NCCL(ncclRecv(at(r->b, 4 * n), 17, ncclFloat32, before, r->comm, r->stream));
	if (ranks <= 2)
		NCCL(ncclRecv(at(r->b, 8 * n), 5, ncclFloat32, next, r->comm, r->stream));
	NCCL(ncclGroupEnd());
	input(r->want, n * 3, ncclFloat32, before, 6);
	expect(r, r->b, 4 * n, "Send", ncclFloat32, 0);
	memmove(r->want, r->want + 4 * n, 17 * 4);
	expect(r, r->b + 4 * n, 17 * 4, "second Send", ncclFloat32, 0);
	input(r->want, n * 3, ncclFloat32, next, 6);
	memmove(r->want, r->want + 8 * n, 5 * 4);
	expect(r, r->b + 8 * n, 5 * 4, "Send back", ncclFloat32, 0);
}

/* The calls' order holds though the first stream has to wait on one of the ranks, and the second could go ahead. */
static void two_streams(struct rank *r)
{
	CUstream other;
	uint32_t *gate;

	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuMemHostAlloc((void **)&gate, 4, 0));
	*gate = r->rank != 0;
	upload(r, 1000, ncclInt32, 9);
	OK(cuStreamWaitValue32(r->stream, (CUdeviceptr)(uintptr_t)gate, 1, CU_STREAM_WAIT_VALUE_EQ));
	NCCL(ncclAllReduce(at(r->a, 0), at(r->b, 0), 1000, ncclInt32, ncclSum, r->comm, r->stream));
	NCCL(ncclAllReduce(at(r->b, 0), at(r->b, 8192), 500, ncclInt32, ncclMax, r->comm, other));
	usleep(20000);
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
	OK(cuStreamSynchronize(other));
	reference(r->want, 1000, ncclInt32, ncclSum, 0, 9, 0);
	expect(r, r->b + 8192, 2000, "the second stream", ncclInt32, 0);
	OK(cuMemFreeHost(gate));
	OK(cuStreamDestroy(other));
}

/* Everything of a group together; a collective on one stream and the next one on another. */
static void groups(struct rank *r)
{
	CUstream other;

	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	upload(r, MOST, ncclFloat32, 7);
	OK(cuStreamSynchronize(r->stream));
	NCCL(ncclGroupStart());
	NCCL(ncclAllReduce(at(r->a, 0), at(r->b, 0), MOST, ncclFloat32, ncclSum, r->comm, r->stream));
	NCCL(ncclAllReduce(at(r->b, 0), at(r->b, 0), MOST, ncclFloat32, ncclMax, r->comm, other));
	OK(cuStreamQuery(r->stream));
	NCCL(ncclGroupEnd());
	OK(cuStreamSynchronize(other));
	reference(r->want, MOST, ncclFloat32, ncclSum, 0, 7, 0);
	expect(r, r->b, 4ull * MOST, "group", ncclFloat32, 0);
	OK(cuStreamDestroy(other));
	NCCL(ncclGroupStart());
	CHECK(ncclAllReduce(at(r->a, 0), at(r->b, 0), 1, 77, ncclSum, r->comm, r->stream) == ncclInvalidArgument);
	CHECK(ncclGroupEnd() == ncclInvalidArgument);
	CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

static void captured(struct rank *r)
{
	CUgraph g;
	CUgraphExec x;
	CUgraphNode node[8];
	CUDA_KERNEL_NODE_PARAMS params;
	const char *name;
	size_t n = 8;

	upload(r, 1000, ncclInt32, 8);
	OK(cuStreamSynchronize(r->stream));
	OK(cuStreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	NCCL(ncclAllReduce(at(r->a, 0), at(r->a, 0), 1000, ncclInt32, ncclSum, r->comm, r->stream));
	OK(cuStreamEndCapture(r->stream, &g));
	OK(cuGraphGetNodes(g, node, &n));
	CHECK(n == 1);
	OK(cuGraphKernelNodeGetParams(node[0], &params));
	OK(cuFuncGetName(&name, params.func));
	CHECK(!strcmp(name, "_Z39ncclDevKernel_AllReduce_Sum_u32_RING_LL24ncclDevKernelArgsStorageILm4096EE"));
	OK(cuGraphInstantiateWithFlags(&x, g, 0));
	for (int i = 0; i < 3; i++)
		OK(cuGraphLaunch(x, r->stream));
	reference(r->want, 1000, ncclInt32, ncclSum, 0, 8, 0);
	for (int i = 0; i < 1000; i++)
		((int32_t *)r->want)[i] *= ranks * ranks;
	expect(r, r->a, 4000, "three launches of a graph", ncclInt32, 0);
	OK(cuGraphExecDestroy(x));
	OK(cuGraphDestroy(g));
}

/* Twice, since ranks are not equally fast: the halves, in reverse; then all but the first. */
static void split(struct rank *r)
{
	ncclComm_t half, rest;
	int n, me, sum = 0;

	NCCL(ncclCommSplit(r->comm, r->rank % 2, -r->rank, &half, NULL));
	NCCL(ncclCommSplit(r->comm, r->rank ? 0 : NCCL_SPLIT_NOCOLOR, r->rank, &rest, NULL));
	NCCL(ncclCommCount(half, &n));
	NCCL(ncclCommUserRank(half, &me));
	CHECK(n == (ranks + 1 - r->rank % 2) / 2 && me == n - 1 - r->rank / 2);
	CHECK((rest == NULL) == (r->rank == 0));
	OK(cuMemcpyHtoDAsync(r->a, &r->rank, 4, r->stream));
	for (int i = r->rank % 2; i < ranks; i += 2)
		sum += i;
	memcpy(r->want, &sum, 4);
	NCCL(ncclAllReduce(at(r->a, 0), at(r->b, 0), 1, ncclInt32, ncclSum, half, r->stream));
	expect(r, r->b, 4, "AllReduce of a half", ncclInt32, 0);
	if (rest) {
		sum = ranks * (ranks - 1) / 2;
		memcpy(r->want, &sum, 4);
		NCCL(ncclAllReduce(at(r->a, 0), at(r->b, 0), 1, ncclInt32, ncclSum, rest, r->stream));
		expect(r, r->b, 4, "AllReduce of the rest", ncclInt32, 0);
		NCCL(ncclCommDestroy(rest));
	}
	NCCL(ncclCommFinalize(half));
	NCCL(ncclCommDestroy(half));
	CHECK(ncclCommCount(half, &n) == ncclInvalidArgument);
}

static void everything(int rank)
{
	static const size_t counts[] = { 1, MOST };
	struct rank r = { .rank = rank };
	ncclResult_t e;
	int n;

	device_start();
	begin(&r);
	NCCL(ncclCommInitRank(&r.comm, ranks, id, rank));
	NCCL(ncclCommCount(r.comm, &n));
	CHECK(n == ranks);
	NCCL(ncclCommCuDevice(r.comm, &n));
	CHECK(n == 0);
	for (int t = 0; t < ncclNumTypes; t++) {
		bool small = t == ncclFloat8e4m3 || t == ncclFloat8e5m2; /* the reference is slow */
		for (int op = 0; op < ncclNumOps; op++)
			reductions(&r, small ? 200 : 1000, t, op);
		for (int i = 0; i < 2 && (t == ncclFloat16 || t == ncclFloat32); i++)
			reductions(&r, counts[i], t, ncclSum);
		premultiplied(&r, t);
		movements(&r, small ? 99 : 999, t);
	}
	movements(&r, MOST, ncclFloat64);
	transfers(&r);
	groups(&r);
	if (ranks > 1) {
		two_streams(&r);
		captured(&r);
	}
	split(&r);
	CHECK(ncclAllReduce(NULL, at(r.b, 0), 1, ncclInt32, ncclSum, r.comm, r.stream) == ncclInvalidArgument);
	NCCL(ncclAllReduce(at(r.a, 0), at(r.b, 0), 0, ncclInt32, ncclSum, r.comm, r.stream));
	NCCL(ncclCommGetAsyncError(r.comm, &e));
	CHECK(e == ncclSuccess);
	NCCL(ncclCommDestroy(r.comm));
	OK(cuCtxSynchronize());
}

/* ---- what is not as it should be ---- */
static int to_late[2];

/* The host goes on, and so do other streams; only the stream waits for the rank that is late. */
static void late(int rank)
{
	struct rank r = { .rank = rank };
	CUstream other;
	char c = 0;

	device_start();
	begin(&r);
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	NCCL(ncclCommInitRank(&r.comm, ranks, id, rank));
	upload(&r, 1000, ncclInt32, 1);
	OK(cuStreamSynchronize(r.stream));
	if (rank == 1)
		CHECK(read(to_late[0], &c, 1) == 1);
	NCCL(ncclAllReduce(at(r.a, 0), at(r.b, 0), 1000, ncclInt32, ncclSum, r.comm, r.stream));
	if (rank == 0) {
		CUfunction add = kernel(kernels_load(), "add");

		OK(cuMemsetD8Async(r.b + 8192, 0, 4096, other));
		OK(launch_add(add, other, r.b + 8192, 1024, 5));
		OK(cuMemcpyDtoHAsync(r.host, r.b + 8192, 4096, other));
		OK(cuStreamSynchronize(other));
		CHECK(((int *)r.host)[1023] == 5);
		usleep(20000);
		EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(r.stream));
		CHECK(write(to_late[1], &c, 1) == 1);
	}
	reference(r.want, 1000, ncclInt32, ncclSum, 0, 1, 0);
	expect(&r, r.b, 4000, "AllReduce with a late rank", ncclInt32, 0);
	NCCL(ncclCommDestroy(r.comm));
}

static bool apart; /* each rank is on a node of its own, the second process there, so that all have the same number */
static bool whole; /* who dies goes with its node */
static int to_node[2];

static void dies(int rank)
{
	struct rank r = { .rank = rank };
	ncclResult_t e = ncclSuccess;

	device_start();
	begin(&r);
	NCCL(ncclCommInitRank(&r.comm, ranks, id, rank));
	if (rank == ranks - 1 && whole) {
		CHECK(write(to_node[1], "", 1) == 1);
		pause();
	}
	if (rank == ranks - 1)
		raise(SIGKILL);
	upload(&r, MOST, ncclInt32, 1);
	NCCL(ncclAllReduce(at(r.a, 0), at(r.b, 0), MOST, ncclInt32, ncclSum, r.comm, r.stream));
	NCCL(ncclAllReduce(at(r.b, 0), at(r.b, 0), MOST, ncclInt32, ncclSum, r.comm, r.stream));
	while (e == ncclSuccess) {
		NCCL(ncclCommGetAsyncError(r.comm, &e));
		usleep(1000);
	}
	CHECK(e == ncclRemoteError);
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(r.stream));
	NCCL(ncclCommAbort(r.comm));
	OK(cuStreamSynchronize(r.stream));
}

static const char *fault;

/* A kernel that fails, or never gets anywhere, on one rank is one that the other waits for. */
static void faulty(int rank)
{
	struct rank r = { .rank = rank };
	ncclResult_t e = ncclSuccess;

	if (rank == 1)
		setenv("SIMGPU_FAULT", fault, 1);
	device_start();
	begin(&r);
	NCCL(ncclCommInitRank(&r.comm, ranks, id, rank));
	NCCL(ncclAllReduce(at(r.a, 0), at(r.b, 0), 1000, ncclInt32, ncclSum, r.comm, r.stream));
	if (rank == 1) {
		if (!strcmp(fault, "sticky@1")) {
			EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(r.stream));
		} else {
			usleep(50000);
			EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(r.stream));
		}
		_exit(0);
	}
	while (e == ncclSuccess) {
		NCCL(ncclCommGetAsyncError(r.comm, &e));
		usleep(1000);
	}
	CHECK(e == ncclRemoteError);
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(r.stream));
	NCCL(ncclCommAbort(r.comm));
	OK(cuStreamSynchronize(r.stream));
}

/* Faults of NCCL alone, in an environment that all ranks share, at a split communicator in which ranks are turned round. */
static void injected(int rank)
{
	struct rank r = { .rank = rank };
	bool error = !strcmp(fault, "nccl_error@3/1"), short_stall = !strcmp(fault, "nccl_stall@3:100/1");
	ncclResult_t e = ncclSuccess;
	ncclComm_t turned;
	struct timespec from, to;

	setenv("SIMGPU_FAULT", fault, 1);
	device_start();
	begin(&r);
	NCCL(ncclCommInitRank(&r.comm, ranks, id, rank));
	NCCL(ncclCommSplit(r.comm, 0, -rank, &turned, NULL));
	upload(&r, 1000, ncclInt32, 1);
	reference(r.want, 1000, ncclInt32, ncclSum, 0, 1, 0);
	NCCL(ncclAllReduce(at(r.a, 0), at(r.b, 0), 1000, ncclInt32, ncclSum, r.comm, r.stream));
	NCCL(ncclAllReduce(at(r.a, 0), at(r.b, 0), 1000, ncclInt32, ncclSum, turned, r.stream));
	expect(&r, r.b, 4000, "AllReduce before the fault", ncclInt32, 0);
	OK(cuMemsetD8Async(r.b, 0, 4000, r.stream));
	OK(cuStreamSynchronize(r.stream));
	clock_gettime(CLOCK_MONOTONIC, &from);
	NCCL(ncclAllReduce(at(r.a, 0), at(r.b, 0), 1000, ncclInt32, ncclSum, turned, r.stream));
	if (short_stall) {
		expect(&r, r.b, 4000, "AllReduce behind a stall", ncclInt32, 0);
		clock_gettime(CLOCK_MONOTONIC, &to);
		CHECK(rank != 1 || (to.tv_sec - from.tv_sec) * 1000000000l + to.tv_nsec - from.tv_nsec >= 100000000l);
		NCCL(ncclCommDestroy(turned));
		NCCL(ncclCommDestroy(r.comm));
		return;
	}
	while (error && rank == 1 && e == ncclSuccess) {
		NCCL(ncclCommGetAsyncError(turned, &e));
		usleep(1000);
	}
	CHECK(e == (error && rank == 1 ? ncclSystemError : ncclSuccess));
	usleep(50000);
	/* Nobody else is told, and nobody's kernel ends by itself. */
	NCCL(ncclCommGetAsyncError(r.comm, &e));
	CHECK(e == ncclSuccess);
	if (rank == 0) {
		NCCL(ncclCommGetAsyncError(turned, &e));
		CHECK(e == ncclSuccess);
	}
	EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(r.stream));
	NCCL(ncclCommAbort(turned));
	OK(cuStreamSynchronize(r.stream));
	/* The communicator that it was split from is as good as before. */
	NCCL(ncclAllReduce(at(r.a, 0), at(r.b, 0), 1000, ncclInt32, ncclSum, r.comm, r.stream));
	expect(&r, r.b, 4000, "AllReduce behind the fault", ncclInt32, 0);
	NCCL(ncclCommDestroy(r.comm));
}

static void disagree(int rank)
{
	struct rank r = { .rank = rank };
	ncclResult_t e = ncclSuccess;

	device_start();
	begin(&r);
	NCCL(ncclCommInitRank(&r.comm, ranks, id, rank));
	NCCL(ncclAllReduce(at(r.a, 0), at(r.b, 0), rank ? 100 : 200, ncclInt32, ncclSum, r.comm, r.stream));
	while (e == ncclSuccess) {
		NCCL(ncclCommGetAsyncError(r.comm, &e));
		usleep(1000);
	}
	/* The other rank may have seen it first and be gone. */
	CHECK(e == ncclInternalError || e == ncclRemoteError);
	NCCL(ncclCommAbort(r.comm));
	OK(cuStreamSynchronize(r.stream));
}

/* The process that made the id is gone before all have come, or was gone already. */
static void orphans(void)
{
	int p[2], status;
	ncclComm_t c;

	CHECK(!pipe(p));
	pid_t maker = fork();
	if (!maker) {
		NCCL(ncclGetUniqueId(&id));
		CHECK(write(p[1], &id, sizeof id) == sizeof id);
		usleep(200000);
		_exit(0);
	}
	CHECK(read(p[0], &id, sizeof id) == sizeof id);
	pid_t user = fork();
	if (!user) {
		alarm(60);
		device_start();
		CHECK(ncclCommInitRank(&c, 2, id, 0) == ncclRemoteError);
		/* A process that ends closes one after the other. */
		while (ncclCommInitRank(&c, 2, id, 0) != ncclSystemError)
			usleep(1000);
		CHECK(ncclCommInitRank(&c, 2, id, 2) == ncclInvalidArgument);
		exit(0);
	}
	CHECK(waitpid(maker, &status, 0) == maker && status == 0);
	CHECK(waitpid(user, &status, 0) == user && status == 0);
}

/* ---- ranks on nodes of their own: another network, other process numbers ---- */
static bool leave_node(void)
{
	return !unshare(CLONE_NEWNET | CLONE_NEWPID) || !unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWPID);
}

/* The node's first process: with it all others go. */
static void first_process(void (*body)(int), int rank)
{
	int status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pid_t pid = fork();
	if (!pid) {
		alarm(120);
		body(rank);
		exit(0);
	}
	CHECK(pid == 2 && waitpid(pid, &status, 0) == pid);
	_exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
}

static void on_node(void (*body)(int), int rank)
{
	int status;
	char c;

	CHECK(leave_node());
	pid_t node = fork();
	if (!node)
		first_process(body, rank);
	if (whole && rank == ranks - 1)
		CHECK(read(to_node[0], &c, 1) == 1 && !kill(node, SIGKILL));
	CHECK(waitpid(node, &status, 0) == node);
	/* A signal of its own would not touch the first process. */
	if (WIFSIGNALED(status) || WEXITSTATUS(status) == 128 + SIGKILL)
		raise(SIGKILL);
	_exit(WEXITSTATUS(status));
}

static void together(const char *what, int n, void (*body)(int), int killed)
{
	pid_t pid[8];

	ranks = n;
	NCCL(ncclGetUniqueId(&id));
	for (int i = 0; i < n; i++) {
		pid[i] = fork();
		CHECK(pid[i] >= 0);
		if (!pid[i]) {
			alarm(120);
			if (apart)
				on_node(body, i);
			body(i);
			exit(0);
		}
	}
	for (int i = 0; i < n; i++) {
		int status;

		CHECK(waitpid(pid[i], &status, 0) == pid[i]);
		if (i == killed ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status) {
			fprintf(stderr, "%s with %d ranks: rank %d ended with %x\n", what, n, i, status);
			exit(1);
		}
	}
	printf("ok - %s, %d ranks\n", what, n);
	fflush(stdout);
}

/* Two ranks in one thread: only a group can bring them together, at the start and at each collective. */
static void one_process(int unused)
{
	struct rank r[2] = { { .rank = 0 }, { .rank = 1 } };
	ncclComm_t comm[2], half[2];
	int n;

	(void)unused;
	ranks = 2;
	device_start();
	NCCL(ncclCommInitAll(comm, 2, (const int[]){ 0, 0 }));
	for (int i = 0; i < 2; i++) {
		begin(&r[i]);
		r[i].comm = comm[i];
		upload(&r[i], MOST, ncclFloat32, 1);
	}
	NCCL(ncclGroupStart());
	for (int i = 0; i < 2; i++)
		NCCL(ncclAllReduce(at(r[i].a, 0), at(r[i].b, 0), MOST, ncclFloat32, ncclSum, comm[i], r[i].stream));
	NCCL(ncclGroupEnd());
	for (int i = 0; i < 2; i++) {
		reference(r[i].want, MOST, ncclFloat32, ncclSum, 0, 1, 0);
		expect(&r[i], r[i].b, 4ull * MOST, "AllReduce in one process", ncclFloat32, 0);
	}
	NCCL(ncclGroupStart());
	for (int i = 0; i < 2; i++)
		NCCL(ncclCommSplit(comm[i], 5, -i, &half[i], NULL));
	NCCL(ncclGroupEnd());
	for (int i = 0; i < 2; i++) {
		NCCL(ncclCommUserRank(half[i], &n));
		CHECK(n == 1 - i);
		NCCL(ncclCommDestroy(half[i]));
		NCCL(ncclCommDestroy(comm[i]));
	}
}

static void nodes(void)
{
	char fabric[] = "/tmp/tpck-fabric.XXXXXX", path[4200];
	int status;
	struct dirent *e;
	DIR *d;

	pid_t pid = fork();
	if (!pid)
		_exit(leave_node() ? 0 : 77);
	CHECK(waitpid(pid, &status, 0) == pid);
	if (status) {
		printf("# namespaces are not allowed here\n");
		return;
	}
	CHECK(mkdtemp(fabric) && !setenv("SIMGPU_FABRIC", fabric, 1) && !pipe(to_node));
	apart = true;
	together("on three nodes: every collective", 3, everything, -1);
	together("on two nodes: a late rank", 2, late, -1);
	together("on two nodes: a rank dies", 2, dies, 1);
	whole = true;
	together("on three nodes: one dies", 3, dies, 2);
	whole = apart = false;
	/* What it leaves goes with the next meeting, and that leaves nothing. */
	orphans();
	together("on a fabric: a late rank", 2, late, -1);
	d = opendir(fabric);
	CHECK(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof path, "%s/%s", fabric, e->d_name);
		if (*e->d_name != '.') {
			fprintf(stderr, "%s was left\n", path);
			unlink(path);
			status = 1;
		}
	}
	closedir(d);
	CHECK(!rmdir(fabric) && !status);
	/* Where there is no folder nobody can meet, and it is said. */
	CHECK(ncclGetUniqueId(&id) == ncclSystemError && strstr(ncclGetLastError(NULL), fabric));
	unsetenv("SIMGPU_FABRIC");
}

int main(void)
{
	int version;

	/* Ranks that are threads share a device here, and the first launch of one would wait for the others'. */
	setenv("CUDA_MODULE_LOADING", "EAGER", 1);
	NCCL(ncclGetVersion(&version));
	CHECK(version == NCCL_VERSION_CODE);
	CHECK(!pipe(to_late));
	together("every collective", 2, everything, -1);
	together("every collective", 3, everything, -1);
	together("every collective", 1, everything, -1);
	together("one process", 1, one_process, -1);
	together("a late rank", 2, late, -1);
	together("a rank dies", 2, dies, 1);
	together("a rank dies", 3, dies, 2);
	fault = "sticky@1";
	together("a kernel that fails", 2, faulty, -1);
	fault = "stall@1";
	together("a kernel that stalls", 2, faulty, -1);
	fault = "nccl_error@3/1";
	together("an error of the network", 2, injected, -1);
	fault = "nccl_stall@3/1";
	together("a rank of NCCL that stalls", 2, injected, -1);
	fault = "nccl_stall@3:100/1";
	together("a rank of NCCL that is late", 2, injected, -1);
	together("different collectives", 2, disagree, -1);
	orphans();
	nodes();
	return 0;
}
