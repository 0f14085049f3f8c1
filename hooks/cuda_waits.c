/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the program's that wait for values in memory. Waits for values in mapped memory, which the library gives in the place of the driver's own, are
 * reported to be dead on some devices (bytedance/flux issue 129): the program would hang because of the library. So the first such wait is tried out before,
 * in a context of its own, which is left as it is where a stream of it waits for ever.
 */
#include "config.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "hooks/cuda_driver.h"
#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"

enum verdict { UNKNOWN, ASKING, ALIVE, DEAD };

static _Atomic int verdict;

/* How long another context of a busy device may wait for its turn, and how long after that one wait may come behind the other. */
#define TURN_NS 10000000000u
#define BEHIND_NS 1000000000u

/* A stream that waits for the value that is there. */
static CUresult wait_for_one(CUdeviceptr at, CUstream *stream)
{
	CUresult result = tpck_cuda.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING);

	if (result == CUDA_SUCCESS)
		result = tpck_cuda.cuMemsetD32Async(at, 1, 1, *stream);
	if (result == CUDA_SUCCESS)
		result = tpck_cuda.cuStreamSynchronize(*stream);
	if (result == CUDA_SUCCESS)
		result = tpck_cuda.cuStreamWaitValue32_v2(*stream, at, 1, CU_STREAM_WAIT_VALUE_GEQ);
	return result;
}

static bool passes(CUstream stream, uint64_t ns)
{
	const struct timespec pause = {0, 100000};
	uint64_t until = tpck_clock_monotonic_ns() + ns;
	CUresult result;

	while ((result = tpck_cuda.cuStreamQuery(stream)) == CUDA_ERROR_NOT_READY && tpck_clock_monotonic_ns() < until)
		(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	return result == CUDA_SUCCESS;
}

/* In a context that is current. Only where such a wait passes in the driver's own memory, and not in mapped memory, the latter is dead. */
static bool is_dead(int device, bool *stuck)
{
	const struct tpck_device *calls = tpck_cuda_device();
	CUdeviceptr own = 0, mapped = 0;
	CUstream streams[2] = {NULL, NULL};
	bool dead = false;

	if (tpck_cuda.cuMemAlloc_v2(&own, calls->granule) != CUDA_SUCCESS)
		return false;
	if (tpck_cuda.cuMemAddressReserve(&mapped, calls->granule, 0, 0, 0) == CUDA_SUCCESS) {
		if (!calls->back(device, mapped, calls->granule)) {
			CUresult own_result = wait_for_one(own, &streams[0]), result = CUDA_SUCCESS;

			*stuck = own_result == CUDA_SUCCESS && !passes(streams[0], TURN_NS);
			if (own_result == CUDA_SUCCESS && !*stuck) {
				result = wait_for_one(mapped, &streams[1]);
				*stuck = result == CUDA_SUCCESS && !passes(streams[1], BEHIND_NS);
				dead = *stuck || result != CUDA_SUCCESS;
			}
			for (int i = 0; i < 2 && !*stuck; i++)
				if (streams[i])
					(void)tpck_cuda.cuStreamDestroy_v2(streams[i]);
			if (!*stuck)
				(void)calls->unback(device, mapped, calls->granule);
		}
		if (!*stuck)
			(void)tpck_cuda.cuMemAddressFree(mapped, calls->granule);
	}
	if (!*stuck)
		(void)tpck_cuda.cuMemFree_v2(own);
	return dead;
}

static enum verdict try_out(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUcontext context = NULL, popped;
	bool dead = false, stuck = false;
	CUdevice device;

	if (tpck_cuda.cuCtxGetDevice(&device) != CUDA_SUCCESS || !tpck_cuda.cuCtxCreate_v2 || !tpck_cuda.cuStreamWaitValue32_v2 ||
	    !tpck_cuda.cuMemsetD32Async)
		return ALIVE;
	(void)tpck_cuda.cuThreadExchangeStreamCaptureMode(&mode);
	if (tpck_cuda.cuCtxCreate_v2(&context, CU_CTX_SCHED_BLOCKING_SYNC, device) == CUDA_SUCCESS) {
		dead = is_dead(device, &stuck);
		(void)tpck_cuda.cuCtxPopCurrent_v2(&popped);
		if (!stuck)
			(void)tpck_cuda.cuCtxDestroy_v2(context);
	}
	(void)tpck_cuda.cuThreadExchangeStreamCaptureMode(&mode);
	return dead ? DEAD : ALIVE;
}

bool tpck_cuda_waits_dead(void)
{
	return __builtin_expect(atomic_load_explicit(&verdict, memory_order_relaxed) == DEAD, 0);
}

bool tpck_cuda_wait_refused(CUdeviceptr address)
{
	int before = UNKNOWN;

	if (!tpck_engine_is_device_memory(address) || tpck_engine_forward())
		return false;
	if (atomic_compare_exchange_strong(&verdict, &before, ASKING)) {
		before = try_out();
		if (before == DEAD)
			tpck_engine_uncaptured("this device's streams do not see values in the memory that the library gives, so one that was to wait for "
					       "them was refused, and memory is the driver's own from here on; set TRANSPCKPT_DISABLE=1");
		atomic_store(&verdict, before);
	}
	while (atomic_load(&verdict) == ASKING)
		sched_yield();
	return atomic_load(&verdict) == DEAD;
}

/* ---- several at once --------------------------------------------------------------------------------- */

bool tpck_cuda_waits_refused(const CUstreamBatchMemOpParams *operations, unsigned count, const char *why)
{
	struct tpck_thread *self = tpck_engine_enter();
	bool refused = false;

	if (!self)
		return false;
	for (unsigned i = 0; operations && i < count && !refused; i++)
		if (operations[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operations[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
			refused = tpck_cuda_wait_refused(operations[i].waitValue.address);
	if (!refused)
		tpck_engine_unresumable(why);
	tpck_engine_leave(self);
	return refused;
}

#define BATCH(symbol)                                                                                                              \
	CUresult tpck_hook_##symbol(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags) \
	{                                                                                                                          \
		return tpck_cuda_waits_refused(paramArray, count, "the program uses batched memory operations on a stream")        \
			       ? CUDA_ERROR_NOT_SUPPORTED                                                                          \
			       : TPCK_CALL(symbol, stream, count, paramArray, flags);                                              \
	}
BATCH(cuStreamBatchMemOp_v2)
BATCH(cuStreamBatchMemOp_v2_ptsz)
BATCH(cuStreamBatchMemOp)
BATCH(cuStreamBatchMemOp_ptsz)
