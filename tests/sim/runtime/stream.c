/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events and stream capture. */
#include "runtime/rt.h"

#define BOTH(fn, params, call) \
	cudaError_t fn params; \
	RT_API cudaError_t fn params \
	{ \
		const struct rt_driver *d = &rt_drv; \
		RT(call); \
	} \
	cudaError_t fn##_ptsz params; \
	RT_API cudaError_t fn##_ptsz params \
	{ \
		const struct rt_driver *d = &rt_ptd; \
		RT(call); \
	}

RT_API cudaError_t cudaStreamCreate(cudaStream_t *s) { RT(rt_drv.cuStreamCreate(s, 0)); }
RT_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { RT(rt_drv.cuStreamCreate(s, flags)); }
RT_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int p) { RT(rt_drv.cuStreamCreateWithPriority(s, flags, p)); }
RT_API cudaError_t cudaStreamDestroy(cudaStream_t s) { RT(rt_drv.cuStreamDestroy(s)); }
BOTH(cudaStreamSynchronize, (cudaStream_t s), d->cuStreamSynchronize(s))
BOTH(cudaStreamQuery, (cudaStream_t s), d->cuStreamQuery(s))
BOTH(cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned flags), d->cuStreamWaitEvent(s, e, flags))
BOTH(cudaStreamGetFlags, (cudaStream_t s, unsigned *flags), d->cuStreamGetFlags(s, flags))
BOTH(cudaStreamGetPriority, (cudaStream_t s, int *p), d->cuStreamGetPriority(s, p))
BOTH(cudaStreamGetId, (cudaStream_t s, unsigned long long *id), d->cuStreamGetId(s, id))
BOTH(cudaStreamGetDevice, (cudaStream_t s, int *dv), ((void)s, (void)d, *dv = 0, CUDA_SUCCESS))
BOTH(cudaStreamAddCallback, (cudaStream_t s, cudaStreamCallback_t fn, void *data, unsigned flags), d->cuStreamAddCallback(s, (CUstreamCallback)fn, data, flags))

RT_API cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { RT(rt_drv.cuCtxGetStreamPriorityRange(least, greatest)); }

RT_API cudaError_t cudaEventCreate(cudaEvent_t *e) { RT(rt_drv.cuEventCreate(e, 0)); }
RT_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { RT(rt_drv.cuEventCreate(e, flags)); }
RT_API cudaError_t cudaEventDestroy(cudaEvent_t e) { RT(rt_drv.cuEventDestroy(e)); }
RT_API cudaError_t cudaEventQuery(cudaEvent_t e) { RT(rt_drv.cuEventQuery(e)); }
RT_API cudaError_t cudaEventSynchronize(cudaEvent_t e) { RT(rt_drv.cuEventSynchronize(e)); }
RT_API cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { RT(rt_drv.cuEventElapsedTime(ms, a, b)); }
BOTH(cudaEventRecord, (cudaEvent_t e, cudaStream_t s), d->cuEventRecord(e, s))
BOTH(cudaEventRecordWithFlags, (cudaEvent_t e, cudaStream_t s, unsigned flags), d->cuEventRecordWithFlags(e, s, flags))

BOTH(cudaStreamBeginCapture, (cudaStream_t s, enum cudaStreamCaptureMode m), d->cuStreamBeginCapture(s, (CUstreamCaptureMode)m))
BOTH(cudaStreamEndCapture, (cudaStream_t s, cudaGraph_t *g), d->cuStreamEndCapture(s, g))
BOTH(cudaStreamIsCapturing, (cudaStream_t s, enum cudaStreamCaptureStatus *st), d->cuStreamIsCapturing(s, (CUstreamCaptureStatus *)st))
BOTH(cudaStreamGetCaptureInfo, (cudaStream_t s, enum cudaStreamCaptureStatus *st, unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges, size_t *n),
     d->cuStreamGetCaptureInfo(s, (CUstreamCaptureStatus *)st, (cuuint64_t *)id, g, deps, (const CUgraphEdgeData **)edges, n))
BOTH(cudaStreamUpdateCaptureDependencies, (cudaStream_t s, cudaGraphNode_t *deps, const cudaGraphEdgeData *edges, size_t n, unsigned flags),
     d->cuStreamUpdateCaptureDependencies(s, deps, (const CUgraphEdgeData *)edges, n, flags))

RT_API cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *m)
{
	RT(rt_drv.cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)m));
}
