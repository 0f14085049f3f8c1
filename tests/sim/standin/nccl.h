/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's interface as far as the stand-in has it, for it and for its test: the vendor's header comes with no toolkit. */
#ifndef TESTS_SIM_STANDIN_NCCL_H
#define TESTS_SIM_STANDIN_NCCL_H

#include <cuda.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;

typedef enum {
	ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument, ncclInvalidUsage, ncclRemoteError,
	ncclInProgress, ncclTimeout, ncclNumResults,
} ncclResult_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps, ncclMaxRedOp = 0x7fffffff } ncclRedOp_t;
typedef enum {
	ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16,
	ncclFloat8e4m3, ncclFloat8e5m2, ncclNumTypes,
} ncclDataType_t;
typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_VERSION_CODE 23007

ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t r);
const char *ncclGetLastError(ncclComm_t c);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, void *config);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int ranks, int rank, int ids, ncclUniqueId *id, void *config);
ncclResult_t ncclCommInitAll(ncclComm_t *out, int n, const int *devices);
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, void *config);
ncclResult_t ncclCommFinalize(ncclComm_t c);
ncclResult_t ncclCommDestroy(ncclComm_t c);
ncclResult_t ncclCommAbort(ncclComm_t c);
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error);
ncclResult_t ncclCommCount(ncclComm_t c, int *n);
ncclResult_t ncclCommCuDevice(ncclComm_t c, int *device);
ncclResult_t ncclCommUserRank(ncclComm_t c, int *rank);
ncclResult_t ncclCommRegister(ncclComm_t c, void *buffer, size_t bytes, void **handle);
ncclResult_t ncclCommDeregister(ncclComm_t c, void *handle);
ncclResult_t ncclMemAlloc(void **out, size_t bytes);
ncclResult_t ncclMemFree(void *p);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type, ncclScalarResidence_t where, ncclComm_t c);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t c);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, CUstream s);
ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t c, CUstream s);
ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t c, CUstream s);
ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c, CUstream s);
ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t c, CUstream s);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c, CUstream s);
ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t c, CUstream s);
ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c, CUstream s);
ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t c, CUstream s);
ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t c, CUstream s);
ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t c, CUstream s);

#ifdef __cplusplus
}
#endif

#endif
