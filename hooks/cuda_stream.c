/* SPDX-License-Identifier: Apache-2.0 */
/* Hooks of streams and events. */
#include "config.h"

#include "hooks/cuda_driver.h"
#include "hooks/cuda_graph.h"

/* ---- life and capture ------------------------------------------------------------------------ */

static void created(CUresult result, const CUstream *stream)
{
	struct tpck_thread *self;

	if (result != CUDA_SUCCESS || !stream)
		return;
	self = tpck_engine_enter();
	if (!self)
		return;
	tpck_stream_created(*stream, self);
	tpck_engine_leave(self);
}

CUresult tpck_hook_cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	CUresult result = TPCK_CALL(cuStreamCreate, phStream, Flags);

	created(result, phStream);
	return result;
}

CUresult tpck_hook_cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	CUresult result = TPCK_CALL(cuStreamCreateWithPriority, phStream, flags, priority);

	created(result, phStream);
	return result;
}

CUresult tpck_hook_cuStreamDestroy_v2(CUstream hStream)
{
	struct tpck_thread *self = tpck_engine_enter();

	/* Forgotten before the real call: the handle may be given out again at once. */
	if (self) {
		tpck_engine_stream_ends(self, hStream);
		tpck_stream_destroyed(hStream);
		tpck_engine_leave(self);
	}
	return TPCK_CALL(cuStreamDestroy_v2, hStream);
}

static void capture_begun(CUresult result, CUstream stream)
{
	struct tpck_thread *self;

	if (result != CUDA_SUCCESS)
		return;
	self = tpck_engine_enter();
	if (!self)
		return;
	tpck_cuda_graph_begin(self, stream);
	tpck_engine_leave(self);
}

CUresult tpck_hook_cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
	CUresult result;

	tpck_engine_stream_capture(1); /* no boundary may come between the real call and our knowing of it */
	result = TPCK_CALL(cuStreamBeginCapture_v2, hStream, mode);
	capture_begun(result, hStream);
	tpck_engine_stream_capture(-1);
	return result;
}

CUresult tpck_hook_cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
	return tpck_hook_cuStreamBeginCapture_v2(tpck_per_thread(hStream), mode);
}

CUresult tpck_hook_cuStreamBeginCapture(CUstream hStream)
{
	CUresult result;

	tpck_engine_stream_capture(1);
	result = TPCK_CALL(cuStreamBeginCapture, hStream);
	capture_begun(result, hStream);
	tpck_engine_stream_capture(-1);
	return result;
}

CUresult tpck_hook_cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
					       const CUgraphEdgeData *dependencyData, size_t numDependencies,
					       CUstreamCaptureMode mode)
{
	CUresult result;

	tpck_engine_stream_capture(1);
	result = TPCK_CALL(cuStreamBeginCaptureToGraph, hStream, hGraph, dependencies, dependencyData, numDependencies,
			   mode);
	capture_begun(result, hStream);
	tpck_engine_stream_capture(-1);
	return result;
}

CUresult tpck_hook_cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
						    const CUgraphEdgeData *dependencyData, size_t numDependencies,
						    CUstreamCaptureMode mode)
{
	return tpck_hook_cuStreamBeginCaptureToGraph(tpck_per_thread(hStream), hGraph, dependencies, dependencyData,
						     numDependencies, mode);
}

CUresult tpck_hook_cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
	CUresult result = TPCK_CALL(cuStreamEndCapture, hStream, phGraph);
	struct tpck_thread *self = tpck_engine_enter();

	if (self) {
		/* A stream that was not capturing says so and changes nothing. */
		if (result != CUDA_ERROR_ILLEGAL_STATE)
			tpck_cuda_graph_end(self, hStream, result == CUDA_SUCCESS && phGraph ? *phGraph : NULL);
		tpck_engine_leave(self);
	}
	return result;
}

CUresult tpck_hook_cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
	return tpck_hook_cuStreamEndCapture(tpck_per_thread(hStream), phGraph);
}

/* ---- waiting and asking ---------------------------------------------------------------------------- */

static CUresult stream_synchronize(CUstream stream)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result;

	if (!self)
		return TPCK_CALL(cuStreamSynchronize, stream);
	tpck_engine_waiting(self);
	result = TPCK_CALL(cuStreamSynchronize, stream);
	tpck_cuda_note(result);
	if (result == CUDA_SUCCESS)
		tpck_engine_waited(self, stream);
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuStreamSynchronize(CUstream hStream)
{
	return stream_synchronize(hStream);
}

CUresult tpck_hook_cuStreamSynchronize_ptsz(CUstream hStream)
{
	return stream_synchronize(tpck_per_thread(hStream));
}

static CUresult stream_query(CUstream stream)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result;
	int answer;

	if (!self)
		return TPCK_CALL(cuStreamQuery, stream);
	if (tpck_engine_query_answer(self, &answer)) {
		result = (CUresult)answer;
	} else {
		result = TPCK_CALL(cuStreamQuery, stream);
		tpck_cuda_note(result);
		tpck_engine_query_note(self, (int)result);
	}
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuStreamQuery(CUstream hStream)
{
	return stream_query(hStream);
}

CUresult tpck_hook_cuStreamQuery_ptsz(CUstream hStream)
{
	return stream_query(tpck_per_thread(hStream));
}

CUresult tpck_hook_cuEventQuery(CUevent hEvent)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result;
	int answer;

	if (!self)
		return TPCK_CALL(cuEventQuery, hEvent);
	if (tpck_engine_query_answer(self, &answer)) {
		result = (CUresult)answer;
	} else {
		result = TPCK_CALL(cuEventQuery, hEvent);
		tpck_cuda_note(result);
		tpck_engine_query_note(self, (int)result);
	}
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuEventSynchronize(CUevent hEvent)
{
	CUresult result = TPCK_CALL(cuEventSynchronize, hEvent);

	tpck_cuda_note(result);
	tpck_engine_device_waited();
	return result;
}

static bool elapsed_answer(struct tpck_thread *self, float *milliseconds)
{
	return milliseconds && tpck_engine_elapsed_answer(self, milliseconds);
}

CUresult tpck_hook_cuEventElapsedTime(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = CUDA_SUCCESS;

	if (!self)
		return TPCK_CALL(cuEventElapsedTime, pMilliseconds, hStart, hEnd);
	if (!elapsed_answer(self, pMilliseconds)) {
		result = TPCK_CALL(cuEventElapsedTime, pMilliseconds, hStart, hEnd);
		if (result == CUDA_SUCCESS)
			tpck_engine_elapsed_note(self, *pMilliseconds);
	}
	tpck_engine_leave(self);
	return result;
}

CUresult tpck_hook_cuEventElapsedTime_v2(float *pMilliseconds, CUevent hStart, CUevent hEnd)
{
	struct tpck_thread *self = tpck_engine_enter();
	CUresult result = CUDA_SUCCESS;

	if (!self)
		return TPCK_CALL(cuEventElapsedTime_v2, pMilliseconds, hStart, hEnd);
	if (!elapsed_answer(self, pMilliseconds)) {
		result = TPCK_CALL(cuEventElapsedTime_v2, pMilliseconds, hStart, hEnd);
		if (result == CUDA_SUCCESS)
			tpck_engine_elapsed_note(self, *pMilliseconds);
	}
	tpck_engine_leave(self);
	return result;
}

/* ---- order between streams ----------------------------------------------------------------------- */

/* Events are real in every mode; a recorded one must lie behind the fence that its stream is under. */
CUresult tpck_hook_cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	return TPCK_CALL(cuStreamWaitEvent, hStream, hEvent, Flags);
}

CUresult tpck_hook_cuStreamWaitEvent_ptsz(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	return TPCK_CALL(cuStreamWaitEvent_ptsz, hStream, hEvent, Flags);
}

CUresult tpck_hook_cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	return TPCK_CALL(cuEventCreate, phEvent, Flags);
}

CUresult tpck_hook_cuEventDestroy_v2(CUevent hEvent)
{
	return TPCK_CALL(cuEventDestroy_v2, hEvent);
}

CUresult tpck_hook_cuEventRecord(CUevent hEvent, CUstream hStream)
{
	return TPCK_CALL(cuEventRecord, hEvent, hStream);
}

CUresult tpck_hook_cuEventRecord_ptsz(CUevent hEvent, CUstream hStream)
{
	return TPCK_CALL(cuEventRecord_ptsz, hEvent, hStream);
}

CUresult tpck_hook_cuEventRecordWithFlags(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	return TPCK_CALL(cuEventRecordWithFlags, hEvent, hStream, flags);
}

CUresult tpck_hook_cuEventRecordWithFlags_ptsz(CUevent hEvent, CUstream hStream, unsigned int flags)
{
	return TPCK_CALL(cuEventRecordWithFlags_ptsz, hEvent, hStream, flags);
}

CUresult tpck_hook_cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
	CUresult result = TPCK_CALL(cuStreamAddCallback, hStream, callback, userData, flags);

	tpck_engine_queued();
	return result;
}

CUresult tpck_hook_cuStreamAddCallback_ptsz(CUstream hStream, CUstreamCallback callback, void *userData,
					    unsigned int flags)
{
	CUresult result = TPCK_CALL(cuStreamAddCallback_ptsz, hStream, callback, userData, flags);

	tpck_engine_queued();
	return result;
}

struct memory_operation {
	struct tpck_thread *self; /* NULL: nothing is followed */
	struct tpck_call call;
	CUresult result;          /* where it is not made */
};

/* Around a real call: whether it is to be made. `value` has `width` bytes. Writes are operations like any other; a wait while running forward would wait
 * for a write that is not made. */
static bool memory_begins(struct memory_operation *of, bool waits, size_t width, CUstream stream, CUdeviceptr address, const void *value)
{
	of->self = tpck_engine_enter();
	of->call = (struct tpck_call){.stream = stream};
	of->result = CUDA_SUCCESS;
	if (!of->self)
		return true;
	tpck_cuda_context_seen();
	if (waits && tpck_cuda_wait_refused(address)) {
		tpck_engine_leave(of->self);
		of->self = NULL;
		of->result = CUDA_ERROR_NOT_SUPPORTED;
		return false;
	}
	of->call.token.op = TPCK_OP_MEMSET;
	of->call.token.bytes = width;
	of->call.content = value;
	of->call.places[0] = address;
	return tpck_engine_before(of->self, &of->call) == TPCK_GO_RUN;
}

static CUresult memory_ends(struct memory_operation *of, CUresult result)
{
	if (!of->self)
		return result;
	tpck_engine_after(of->self, &of->call);
	tpck_engine_leave(of->self);
	return result;
}

/* As CUDA before 11.7 knows them. */
CUresult tpck_hook_cuStreamWaitValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, true, 4, stream, addr, &value)
			? TPCK_CALL(cuStreamWaitValue32, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, true, 4, tpck_per_thread(stream), addr, &value)
			? TPCK_CALL(cuStreamWaitValue32_ptsz, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWaitValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, true, 8, stream, addr, &value)
			? TPCK_CALL(cuStreamWaitValue64, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, true, 8, tpck_per_thread(stream), addr, &value)
			? TPCK_CALL(cuStreamWaitValue64_ptsz, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWriteValue32(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, false, 4, stream, addr, &value)
			? TPCK_CALL(cuStreamWriteValue32, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, false, 4, tpck_per_thread(stream), addr, &value)
			? TPCK_CALL(cuStreamWriteValue32_ptsz, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWriteValue64(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, false, 8, stream, addr, &value)
			? TPCK_CALL(cuStreamWriteValue64, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, false, 8, tpck_per_thread(stream), addr, &value)
			? TPCK_CALL(cuStreamWriteValue64_ptsz, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, true, 4, stream, addr, &value)
			? TPCK_CALL(cuStreamWaitValue32_v2, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return tpck_hook_cuStreamWaitValue32_v2(tpck_per_thread(stream), addr, value, flags);
}

CUresult tpck_hook_cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, true, 8, stream, addr, &value)
			? TPCK_CALL(cuStreamWaitValue64_v2, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return tpck_hook_cuStreamWaitValue64_v2(tpck_per_thread(stream), addr, value, flags);
}

CUresult tpck_hook_cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, false, 4, stream, addr, &value)
			? TPCK_CALL(cuStreamWriteValue32_v2, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags)
{
	return tpck_hook_cuStreamWriteValue32_v2(tpck_per_thread(stream), addr, value, flags);
}

CUresult tpck_hook_cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	struct memory_operation of;

	return memory_ends(&of, memory_begins(&of, false, 8, stream, addr, &value)
			? TPCK_CALL(cuStreamWriteValue64_v2, stream, addr, value, flags) : of.result);
}

CUresult tpck_hook_cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags)
{
	return tpck_hook_cuStreamWriteValue64_v2(tpck_per_thread(stream), addr, value, flags);
}
